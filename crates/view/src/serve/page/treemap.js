// The holdings as nested rectangles with proportional areas, laid out as near to squares as possible (squarified).

import { holds, share, standing } from "./feed.js";
import { bytes, element, percent, say } from "./words.js";

/** The smallest side of a drawn rectangle, and of one that shows groups inside, in pixels. */
const LEAST = 20;
const INSIDE_WIDE = 90;
const INSIDE_HIGH = 56;
const MOST = 400;
const HEAD = 22;
const GAP = 2;

export class Treemap {
  constructor(into, crumbs, select) {
    Object.assign(this, { into, crumbs, select, feed: null });
    this.cells = new Map();
    this.zoomed = null;
    this.active = null;
    this.selected = null;
    this.order = [];
    into.addEventListener("click", (event) => this.click(event, false));
    into.addEventListener("dblclick", (event) => this.click(event, true));
    into.addEventListener("keydown", (event) => this.key(event));
    // A pointer gets the same text as a screen reader; no other rectangle needs it.
    into.addEventListener("pointerover", (event) => {
      const cell = event.target.closest(".cell[role=button]");
      if (cell) cell.title = cell.getAttribute("aria-label") ?? "";
    });
    // Sizes are cached: reading one after a change forces a layout of the page.
    this.wide = into.clientWidth;
    this.high = into.clientHeight;
    new ResizeObserver(([{ contentRect }]) => {
      Object.assign(this, { wide: contentRect.width, high: contentRect.height });
      this.draw();
    }).observe(into);
  }

  show(feed, selected) {
    this.feed = feed;
    this.selected = selected;
    this.draw();
  }

  get top() {
    return this.feed?.groups.get(this.zoomed) ?? this.feed?.root ?? null;
  }

  zoom(id) {
    const group = this.feed?.groups.get(id);
    // A leaf has nothing inside to zoom into.
    this.zoomed = group && group.children.length > 0 ? id : (group?.parent ?? null);
    this.draw();
  }

  draw() {
    const top = this.top;
    if (!top) {
      this.into.replaceChildren();
      this.cells.clear();
      this.crumbs.replaceChildren();
      return;
    }
    this.trail(top);
    const box = { x: 0, y: 0, w: this.wide, h: this.high };
    const drawn = [];
    this.lay(top, box, 0, null, drawn);
    this.order = drawn.filter((one) => one.group);
    const stays = new Set(drawn.map((one) => one.key));
    for (const [key, cell] of this.cells) {
      if (!stays.has(key)) {
        cell.remove();
        this.cells.delete(key);
      }
    }
    if (!this.order.some((one) => one.key === this.active)) {
      this.active = this.order.find((one) => one.group.id === this.selected)?.key ?? this.order[0]?.key ?? null;
    }
    for (const one of drawn) this.cell(one);
  }

  /** Lays out the children of a group in a box. */
  lay(group, box, depth, parent, drawn) {
    const whole = Math.max(holds(group), 1);
    let held = 0;
    let many = 0;
    for (const child of group.children) {
      held += holds(child);
      if (holds(child) > 0) many += 1;
    }
    const own = Math.max(0, whole - held);
    const total = Math.max(held + own, 1);
    // Groups too small to be seen share one rectangle. So only few of ten thousand groups are sorted.
    const least = Math.max(1, (LEAST * LEAST * total) / (box.w * box.h));
    const parts = group.children.filter((child) => holds(child) >= least);
    // All of them live, since ended groups hold nothing.
    parts.sort((a, b) => b.current - a.current || (a.path < b.path ? -1 : 1));
    const kept = parts.slice(0, Math.max(0, MOST - drawn.length));
    const entries = kept.map((child) => ({ group: child, value: child.current }));
    const rest = many - kept.length;
    if (rest > 0) entries.push({ rest, value: kept.reduce((left, child) => left - child.current, held) });
    if (own / total > 0.004 && group.children.length > 0) entries.push({ own: true, value: own });
    entries.sort((a, b) => b.value - a.value);
    const boxes = squarified(entries.map((entry) => entry.value), box);
    entries.forEach((entry, at) => {
      const place = boxes[at];
      if (entry.group) {
        const inner = {
          x: place.x + 3,
          y: place.y + HEAD,
          w: place.w - 6 - GAP,
          h: place.h - HEAD - 3 - GAP,
        };
        const opens =
          entry.group.children.some((child) => holds(child) > 0) &&
          inner.w > INSIDE_WIDE &&
          inner.h > INSIDE_HIGH &&
          drawn.length < MOST;
        const one = { key: entry.group.id, group: entry.group, box: place, depth, opens, parent };
        drawn.push(one);
        if (opens) this.lay(entry.group, inner, depth + 1, one.key, drawn);
      } else {
        const key = `${group.id} ${entry.rest ? "rest" : "own"}`;
        const text = entry.rest ? `${entry.rest} smaller` : "by itself";
        drawn.push({ key, text, value: entry.value, box: place, depth, hue: group.hue });
      }
    });
  }

  cell({ key, group, box, depth, opens, text, value, hue }) {
    let cell = this.cells.get(key);
    if (!cell) {
      cell = element("div", "cell");
      cell.dataset.key = key;
      cell.append(element("span", "cell-name name"), element("span", "cell-size"), element("span", "cell-mark"));
      if (group) cell.setAttribute("role", "button");
      else cell.setAttribute("aria-hidden", "true");
      this.cells.set(key, cell);
    }
    const place = { left: box.x, top: box.y, width: Math.max(0, box.w - GAP), height: Math.max(0, box.h - GAP) };
    for (const [side, pixels] of Object.entries(place)) cell.style[side] = `${pixels.toFixed(1)}px`;
    cell.style.zIndex = depth + 1;
    const [name, size, mark] = cell.children;
    const state = group ? standing(group) : "calm";
    // No letter is cut.
    cell.dataset.room = box.h < 24 || box.w < 58 ? "none" : opens || box.h < 44 ? "line" : "lines";
    cell.dataset.wide = String(box.w >= (state === "calm" ? 96 : 200));
    if (!group) {
      cell.classList.add("filler");
      cell.dataset.hue = hue ?? "none";
      say(name, text);
      say(size, bytes(value));
      this.into.append(cell);
      return;
    }
    const part = share(group);
    cell.dataset.hue = group.hue ?? "none";
    cell.dataset.standing = state;
    cell.classList.toggle("opens", Boolean(opens));
    cell.classList.toggle("selected", group.id === this.selected);
    cell.tabIndex = key === this.active ? 0 : -1;
    say(name, group.name);
    say(size, bytes(holds(group)));
    say(mark, state === "refusing" ? (box.w < 120 ? "▲" : "▲ refusing") : state === "near" ? `◐ ${percent(part)}` : "");
    const of = this.feed.root ? holds(group) / Math.max(1, holds(this.feed.root)) : 0;
    const words = [
      group.path,
      `holds ${bytes(holds(group))}`,
      `${percent(of)} of the ledger`,
      part === null ? "no max" : `${percent(part)} of its max`,
    ];
    if (state === "refusing") words.push("refusing now");
    if (group.children.length > 0) words.push(`${group.children.length} groups inside`);
    const label = words.join(", ");
    if (cell.getAttribute("aria-label") !== label) cell.setAttribute("aria-label", label);
    cell.setAttribute("aria-pressed", String(group.id === this.selected));
    if (cell.parentNode !== this.into) this.into.append(cell);
  }

  /** Shows the path from the root to the zoomed group. */
  trail(top) {
    const way = [];
    for (let at = top; at; at = at.parent === null ? null : this.feed.groups.get(at.parent)) way.unshift(at);
    const key = way.map((group) => group.id).join(" ");
    if (this.crumbs.dataset.key === key) return;
    this.crumbs.dataset.key = key;
    this.crumbs.replaceChildren(
      ...way.map((group, at) => {
        const button = element("button", "crumb name", at === 0 ? "whole ledger" : group.name);
        button.type = "button";
        if (at + 1 === way.length) button.setAttribute("aria-current", "true");
        button.addEventListener("click", () => this.zoom(group.id));
        return button;
      }),
    );
  }

  click(event, zoom) {
    const key = event.target.closest(".cell[role=button]")?.dataset.key;
    if (!key) return;
    this.active = key;
    if (zoom) this.zoom(key);
    else this.select(key);
    this.cells.get(key)?.focus();
  }

  key(event) {
    const at = this.order.findIndex((one) => one.key === this.active);
    if (at < 0 || event.ctrlKey || event.altKey || event.metaKey) return;
    const now = this.order[at];
    const beside = this.order.filter((one) => one.parent === now.parent);
    const step = (by) => beside[beside.indexOf(now) + by];
    const keys = {
      ArrowRight: () => step(1),
      ArrowLeft: () => step(-1),
      ArrowDown: () => this.order.find((one) => one.parent === now.key),
      ArrowUp: () => this.order.find((one) => one.key === now.parent),
      Home: () => beside[0],
      End: () => beside[beside.length - 1],
      Enter: () => (this.select(now.key), now),
      " ": () => (this.select(now.key), now),
      z: () => (this.zoom(now.key), this.order.find((one) => one.key === this.active)),
      Escape: () => {
        const from = this.top;
        if (from?.parent == null) return now;
        this.zoomed = from.parent;
        this.active = from.id;
        this.draw();
        return this.order.find((one) => one.key === from.id);
      },
    };
    const act = keys[event.key] ?? keys[event.key.toLowerCase()];
    if (!act) return;
    event.preventDefault();
    const next = act();
    if (!next) return;
    this.cells.get(this.active)?.setAttribute("tabindex", "-1");
    this.active = next.key;
    const cell = this.cells.get(next.key);
    cell?.setAttribute("tabindex", "0");
    cell?.focus();
  }
}

/** Returns boxes for values, the largest first, that fill a box in rows as near to squares as possible. */
function squarified(values, box) {
  const total = values.reduce((sum, value) => sum + value, 0);
  const boxes = [];
  if (!(total > 0)) return values.map(() => ({ x: box.x, y: box.y, w: 0, h: 0 }));
  const scale = (box.w * box.h) / total;
  let { x, y, w, h } = box;
  const worst = (sum, most, least, side) => {
    const square = sum * sum;
    return Math.max((side * side * most) / square, square / (side * side * least));
  };
  let start = 0;
  while (start < values.length) {
    const side = Math.max(1e-6, Math.min(w, h));
    let end = start;
    let sum = 0;
    let ratio = Infinity;
    while (end < values.length) {
      const area = Math.max(values[end] * scale, 1e-9);
      const next = worst(sum + area, values[start] * scale, area, side);
      if (end > start && next > ratio) break;
      sum += area;
      ratio = next;
      end += 1;
    }
    const thick = sum / side;
    let along = 0;
    for (let at = start; at < end; at++) {
      const long = Math.max(values[at] * scale, 1e-9) / thick;
      boxes.push(w >= h ? { x, y: y + along, w: thick, h: long } : { x: x + along, y, w: long, h: thick });
      along += long;
    }
    if (w >= h) {
      x += thick;
      w = Math.max(0, w - thick);
    } else {
      y += thick;
      h = Math.max(0, h - thick);
    }
    start = end;
  }
  return boxes;
}
