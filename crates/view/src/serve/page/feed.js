// The ledger that is shown, kept up to date by events.
//
//   events "look"    everything
//   events "change"  what differs from the look before: fields of groups, new groups, those that are gone

import { ask, read } from "./ask.js";

/** How long after a connection was lost it is tried again, in milliseconds. */
const AGAIN = 3000;

/** What the page knows of one ledger. */
export class Feed {
  constructor(changed, linked) {
    this.changed = changed;
    this.linked = linked;
    this.source = null;
    this.paused = false;
    this.id = null;
    this.clear();
    // Nobody looks: neither does the server for this page.
    document.addEventListener("visibilitychange", () => {
      if (document.hidden) this.close();
      else if (this.id !== null && !this.paused) this.open();
    });
  }

  clear() {
    for (const group of this.groups?.values() ?? []) group.gone = true;
    this.groups = new Map();
    this.root = null;
    this.hues = 0;
    this.at = 0;
    this.number = 0;
    this.damaged = false;
  }

  /** Shows another ledger. */
  follow(id) {
    this.close();
    this.clear();
    this.id = id;
    if (id !== null && !this.paused) this.open();
  }

  pause(paused) {
    this.paused = paused;
    if (paused) this.close();
    else if (this.id !== null) this.open();
    this.linked(paused ? "paused" : "waiting");
  }

  close() {
    this.source?.abort();
    this.source = null;
  }

  /** Reads events until they are closed, or the ledger is gone; again where the connection was lost. */
  async open() {
    this.close();
    const source = new AbortController();
    this.source = source;
    while (this.source === source) {
      try {
        const answer = await ask(`/api/ledgers/${this.id}/events?by=field`, { signal: source.signal });
        if (this.source !== source) return;
        if (!answer.ok) {
          this.source = null;
          this.linked("gone");
          return;
        }
        await read(answer, (kind, text) => {
          if (this.source === source) this.told(kind, JSON.parse(text));
        });
      } catch {
        // It was closed, or lost.
      }
      if (this.source !== source) return;
      this.linked("waiting");
      await new Promise((done) => setTimeout(done, AGAIN));
    }
  }

  told(kind, document) {
    if (kind === "look") {
      this.take(document);
      this.linked("live");
      this.changed(true);
    } else if (kind === "change" && document.number !== this.number + 1) {
      // A look is missing: begin anew.
      this.open();
    } else if (kind === "change") {
      this.apply(document);
      this.linked("live");
      this.changed(false);
    }
  }

  take(look) {
    this.clear();
    Object.assign(this, { at: look.at, number: look.number, damaged: look.damaged });
    for (const group of look.groups) this.add(group);
  }

  /** Adds a group below its parent, which is there already: a look has parents first. */
  add(group) {
    const before = this.groups.get(group.id);
    if (before) this.drop(before);
    group.children = before?.children ?? [];
    if (!group.items) group.items = {};
    this.groups.set(group.id, group);
    const parent = this.groups.get(group.parent);
    if (!parent) {
      this.root = group;
      return;
    }
    parent.children.push(group);
    group.hue = parent === this.root ? this.hues++ % 8 : parent.hue;
  }

  drop(group) {
    group.gone = true;
    this.groups.delete(group.id);
    const siblings = this.groups.get(group.parent)?.children;
    const at = siblings?.indexOf(group) ?? -1;
    if (at >= 0) siblings.splice(at, 1);
  }

  apply(change) {
    Object.assign(this, { at: change.at, number: change.number, damaged: change.damaged });
    for (const id of change.gone ?? []) {
      const group = this.groups.get(id);
      if (group) this.drop(group);
    }
    for (const group of change.new ?? []) this.add(group);
    if (!change.fields) return;
    const { ids, rates, ...figures } = change.fields;
    const groups = ids.map((id) => this.groups.get(id) ?? {});
    for (const [field, column] of Object.entries(figures)) put(groups, field, column);
    const of = groups.map((group) => group.rates ?? {});
    for (const [rate, column] of Object.entries(rates)) put(of, rate, column);
  }
}

/** Puts the values of a field where they belong: `at` says where, unless all have one. */
function put(into, field, { at, is }) {
  if (at) for (let i = 0; i < is.length; i++) into[at[i]][field] = is[i];
  else for (let i = 0; i < is.length; i++) into[i][field] = is[i];
}

/** What a group holds now: nothing once its process has ended. */
export function holds(group) {
  return group.state === "live" ? group.current : 0;
}

/** Which part of its max a group holds; null without one. */
export function share(group) {
  if (group.max === null) return null;
  return group.max === 0 ? 1 : holds(group) / group.max;
}

/** How a group stands with its max: refusing if that was met since the look before. */
export function standing(group) {
  if (group.rates.max_events > 0) return "refusing";
  const part = share(group);
  return part !== null && part >= 0.8 ? "near" : "calm";
}
