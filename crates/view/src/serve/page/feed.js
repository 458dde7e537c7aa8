// The shown ledger, kept up to date by events.
//
//   events "look"    everything
//   events "change"  the differences from the previous look: fields of groups, new groups, removed groups

import { ask, read } from "./ask.js";

/** The pause in milliseconds before a lost connection is retried. */
const AGAIN = 3000;

/** The page's state of one ledger. */
export class Feed {
  constructor(changed, linked) {
    this.changed = changed;
    this.linked = linked;
    this.source = null;
    this.paused = false;
    this.id = null;
    this.clear();
    // A hidden page needs no events, and the server need not look for it.
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

  /** Reads events until they are closed, or the ledger is gone; reconnects if the connection was lost. */
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
        // The connection was closed or lost.
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
      // A look is missing: start over.
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

  /** Adds a group below its parent, which exists already: a look has parents first. */
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

/** Writes the values of a field to their groups: `at` has the groups' positions, unless all have one. */
function put(into, field, { at, is }) {
  if (at) for (let i = 0; i < is.length; i++) into[at[i]][field] = is[i];
  else for (let i = 0; i < is.length; i++) into[i][field] = is[i];
}

/** Returns the units that a group holds now: none once its process has ended. */
export function holds(group) {
  return group.state === "live" ? group.current : 0;
}

/** Returns the part of its max that a group holds; null without one. */
export function share(group) {
  if (group.max === null) return null;
  return group.max === 0 ? 1 : holds(group) / group.max;
}

/** Returns a group's state relative to its max: refusing if the max was met since the previous look. */
export function standing(group) {
  if (group.rates.max_events > 0) return "refusing";
  const part = share(group);
  return part !== null && part >= 0.8 ? "near" : "calm";
}
