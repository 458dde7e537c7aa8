// The groups as a grid that sorts and filters. Only visible rows are elements: ten thousand groups cost as much as
// fifty.

import { holds, share, standing } from "./feed.js";
import { announce, bytes, count, element, growth, percent, say, short } from "./words.js";

const ROW = 34;
const BEYOND = 8;

/** The name, order and text of each column. The first is the path. */
const COLUMNS = [
  { key: "path", name: "Group", of: (g) => g.path, text: (g) => g.path },
  { key: "current", name: "Held", of: holds, text: (g) => bytes(holds(g)) },
  { key: "share", name: "Of its max", of: (g) => share(g) ?? -1, text: (g) => (share(g) === null ? "–" : percent(share(g))) },
  { key: "peak", name: "Peak", of: (g) => g.peak, text: (g) => bytes(g.peak) },
  { key: "max", name: "Max", of: (g) => g.max ?? Infinity, text: (g) => (g.max === null ? "none" : bytes(g.max)) },
  { key: "growth", name: "Growth", of: (g) => g.rates.growth, text: (g) => growth(g.rates.growth) },
  { key: "charges", name: "Charges/s", of: (g) => g.rates.charges, text: (g) => short(g.rates.charges) },
  { key: "refused", name: "Refused", of: (g) => g.refused, text: (g) => (g.refused === 0 ? "0" : count(g.refused)) },
  { key: "reclaimed", name: "Reclaimed", of: (g) => g.reclaimed, text: (g) => (g.reclaimed === 0 ? "0" : bytes(g.reclaimed)) },
];

const KINDS = {
  all: () => true,
  live: (g) => g.state === "live",
  near: (g) => standing(g) !== "calm",
  refused: (g) => g.refused > 0,
  growing: (g) => g.rates.growth > 0,
};

export class Table {
  constructor(into, shown, select) {
    Object.assign(this, { into, shown, select, feed: null, selected: null });
    this.by = "current";
    this.down = true;
    this.tree = false;
    this.words = "";
    this.kind = "all";
    this.rows = [];
    this.at = { row: -1, column: 0, id: null };
    this.build();
  }

  build() {
    const top = element("div", "row heads");
    top.setAttribute("role", "row");
    top.setAttribute("aria-rowindex", "1");
    this.heads = COLUMNS.map((column, at) => {
      const head = element("div", "cell-head");
      head.setAttribute("role", "columnheader");
      head.setAttribute("aria-colindex", String(at + 1));
      const button = element("button", "", column.name);
      button.type = "button";
      button.tabIndex = at === 0 ? 0 : -1;
      button.addEventListener("click", () => this.sort(column.key));
      button.addEventListener("focus", () => {
        this.at = { row: -1, column: at, id: null };
      });
      const arrow = element("span", "arrow");
      arrow.setAttribute("aria-hidden", "true");
      button.append(arrow);
      head.append(button);
      top.append(head);
      return { head, button, arrow };
    });
    this.body = element("div", "body");
    this.body.setAttribute("role", "rowgroup");
    this.body.tabIndex = -1;
    this.space = element("div", "space");
    this.space.setAttribute("role", "presentation");
    this.body.append(this.space);
    const heads = element("div", "");
    heads.setAttribute("role", "rowgroup");
    heads.append(top);
    this.into.append(heads, this.body);
    this.pool = [];
    // Sizes are cached: reading one after a change forces a layout of the page.
    this.high = this.body.clientHeight;
    this.top = 0;
    this.body.addEventListener("scroll", () => this.scrolled(), { passive: true });
    this.body.addEventListener("click", (event) => {
      const row = event.target.closest(".row");
      if (!row) return;
      const column = Math.max(0, [...row.children].indexOf(event.target.closest(".cell-of")));
      this.move(Number(row.dataset.at), column);
      this.select(this.rows[this.at.row]?.id);
    });
    this.into.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(([{ contentRect }]) => {
      this.high = contentRect.height;
      this.draw();
    }).observe(this.body);
  }

  scrolled() {
    const top = this.body.scrollTop;
    if (top === this.top) return;
    this.top = top;
    this.draw(true);
  }

  scroll(top) {
    if (top === this.top) return;
    this.body.scrollTop = top;
    this.top = this.body.scrollTop;
  }

  show(feed, selected) {
    this.feed = feed;
    this.selected = selected;
    this.order();
    this.draw();
  }

  filter(words, kind) {
    this.words = words.trim().toLowerCase();
    this.kind = kind;
    this.scroll(0);
    if (!this.feed) return;
    this.order();
    this.draw();
    clearTimeout(this.later);
    this.later = setTimeout(() => announce(`${count(this.rows.length)} groups shown`), 600);
  }

  sort(key) {
    // Numbers sort the largest first at the first press, names in ascending order.
    if (this.by === key && !this.tree) this.down = !this.down;
    else this.down = key !== "path";
    this.by = key;
    this.tree = false;
    this.scroll(0);
    this.changed?.();
    this.order();
    this.draw();
    announce(`sorted by ${COLUMNS.find((column) => column.key === key).name}, ${this.down ? "descending" : "ascending"}`);
  }

  asTree(tree) {
    this.tree = tree;
    this.changed?.();
    this.order();
    this.draw();
  }

  order() {
    const fits = KINDS[this.kind] ?? KINDS.all;
    const words = this.words;
    const fitting = (g) => words === "" || g.path.toLowerCase().includes(words) || (g.program ?? "").toLowerCase().includes(words) || g.name.toLowerCase().includes(words);
    const shown = (g) => fits(g) && fitting(g);
    if (this.tree && this.feed.root) {
      const out = [];
      const walk = (group) => {
        if (shown(group)) out.push(group);
        for (const child of [...group.children].sort((a, b) => holds(b) - holds(a) || (a.path < b.path ? -1 : 1))) walk(child);
      };
      walk(this.feed.root);
      this.rows = out;
    } else {
      const { of } = COLUMNS.find((column) => column.key === this.by);
      const sign = this.down ? -1 : 1;
      // Most rows keep their order, and a nearly sorted list sorts fast.
      const turn = (this.turn = (this.turn ?? 0) + 1);
      const next = [];
      const take = (group) => {
        if (group.gone || group.turn === turn) return;
        group.turn = turn;
        if (!shown(group)) return;
        group.key = of(group);
        next.push(group);
      };
      this.rows.forEach(take);
      this.feed.groups.forEach(take);
      const named = (a, b) => (a.path === b.path ? 0 : a.path < b.path ? -1 : 1);
      next.sort((a, b) => (a.key === b.key ? named(a, b) : (a.key < b.key ? -1 : 1) * sign));
      this.rows = next;
    }
    // The cursor stays on its group, wherever that moves.
    if (this.at.id !== null) {
      const row = this.rows.findIndex((group) => group.id === this.at.id);
      if (row >= 0) this.at.row = row;
      else this.at.row = Math.min(this.at.row, this.rows.length - 1);
    }
  }

  draw(scrolled = false) {
    if (!this.feed) return;
    const { rows } = this;
    this.into.setAttribute("aria-rowcount", String(rows.length + 1));
    const all = this.feed.groups.size;
    say(this.shown, rows.length === all ? `${count(all)} groups.` : `${count(rows.length)} of ${count(all)} groups.`);
    this.heads.forEach(({ head, button, arrow }, at) => {
      const { key } = COLUMNS[at];
      const sorted = key === this.by && !this.tree;
      const order = sorted ? (this.down ? "descending" : "ascending") : "none";
      if (head.getAttribute("aria-sort") !== order) head.setAttribute("aria-sort", order);
      say(arrow, sorted ? (this.down ? " ▾" : " ▴") : "");
    });
    this.space.style.height = `${rows.length * ROW}px`;
    const { high } = this;
    const { activeElement } = document;
    const focused = this.body.contains(activeElement);
    // The focused group keeps the focus and stays visible when the order changes, unless the user scrolls away from it.
    if (focused && activeElement !== this.body && !scrolled) this.reveal();
    const first = Math.max(0, Math.floor(this.top / ROW) - BEYOND);
    const last = Math.min(rows.length, Math.ceil((this.top + high) / ROW) + BEYOND);
    while (this.pool.length < last - first) this.pool.push(this.row());
    // A row of the data keeps its element while it is visible, so that focus and selection stay.
    this.pool.forEach((row) => {
      row.used = false;
    });
    const many = this.pool.length;
    for (let at = first; at < last; at++) {
      const row = this.pool[at % many];
      row.used = true;
      this.fill(row, at, rows[at]);
    }
    // The table is one stop of the Tab key: the cell that was left, or its heading if that is not visible.
    const inSight = this.at.row >= first && this.at.row < last;
    this.heads.forEach(({ button }, at) => {
      button.tabIndex = !inSight && at === this.at.column ? 0 : -1;
    });
    for (const row of this.pool) row.element.hidden = !row.used;
    if (focused && inSight) this.focus(false);
    else if (focused) this.body.focus({ preventScroll: true });
  }

  row() {
    const made = element("div", "row");
    made.setAttribute("role", "row");
    const cells = COLUMNS.map((column, at) => {
      const cell = element("div", `cell-of ${at === 0 ? "path" : "number"}`);
      cell.setAttribute("role", at === 0 ? "rowheader" : "gridcell");
      cell.setAttribute("aria-colindex", String(at + 1));
      cell.tabIndex = -1;
      if (at === 0) cell.append(element("span", "chip"), element("span", "name"), element("span", "mark"));
      else if (column.key === "share") cell.append(element("span", "bar"), element("span", ""));
      made.append(cell);
      return cell;
    });
    cells[0].firstChild.setAttribute("aria-hidden", "true");
    this.body.append(made);
    return { element: made, cells, used: false };
  }

  fill({ element: row, cells }, at, group) {
    row.style.transform = `translateY(${at * ROW}px)`;
    row.dataset.at = at;
    row.setAttribute("aria-rowindex", String(at + 2));
    row.setAttribute("aria-selected", String(group.id === this.selected));
    const state = standing(group);
    row.dataset.standing = state;
    row.dataset.state = group.state;
    COLUMNS.forEach((column, index) => {
      const cell = cells[index];
      cell.tabIndex = at === this.at.row && index === this.at.column ? 0 : -1;
      if (index === 0) {
        const [chip, name, mark] = cell.children;
        chip.dataset.hue = group.hue ?? "none";
        cell.style.paddingLeft = this.tree ? `${12 + group.depth * 18}px` : "";
        say(name, this.tree ? group.name : group.path);
        if (cell.title !== group.path) cell.title = group.path;
        const words = { exited: "ended", damaged: "damaged" }[group.state];
        say(mark, words ?? (state === "refusing" ? "▲ refusing" : state === "near" ? "◐ near max" : ""));
      } else if (column.key === "share") {
        const part = share(group);
        cell.firstChild.style.setProperty("--part", part === null ? "0" : String(Math.min(1, part)));
        cell.firstChild.hidden = part === null;
        say(cell.lastChild, column.text(group));
      } else {
        say(cell, column.text(group));
      }
    });
  }

  /** Moves the cursor to a cell; row −1 is the headings. */
  move(row, column) {
    const most = this.rows.length - 1;
    row = Math.max(-1, Math.min(most, row));
    column = Math.max(0, Math.min(COLUMNS.length - 1, column));
    this.at = { row, column, id: this.rows[row]?.id ?? null };
    this.reveal();
    this.draw();
    this.focus(true);
  }

  /** Scrolls to the cursor. */
  reveal() {
    const { row } = this.at;
    if (row < 0) return;
    const { high } = this;
    const top = row * ROW;
    if (top < this.top) this.scroll(top);
    else if (top + ROW > this.top + high) {
      // The space may have been shorter until now.
      this.space.style.height = `${this.rows.length * ROW}px`;
      this.scroll(top + ROW - high);
    }
  }

  focus(always) {
    if (this.at.row < 0) {
      this.heads[this.at.column].button.focus({ preventScroll: true });
      return;
    }
    const row = this.pool.find(({ element: row, used }) => used && Number(row.dataset.at) === this.at.row);
    const cell = row?.cells[this.at.column];
    if (cell && (always || document.activeElement !== cell)) cell.focus({ preventScroll: true });
  }

  key(event) {
    if (event.altKey || event.metaKey) return;
    const { row, column } = this.at;
    const page = Math.max(1, Math.floor(this.high / ROW) - 1);
    const whole = event.ctrlKey;
    const keys = {
      ArrowDown: () => this.move(row + 1, column),
      ArrowUp: () => this.move(row - 1, column),
      ArrowRight: () => this.move(row, column + 1),
      ArrowLeft: () => this.move(row, column - 1),
      PageDown: () => this.move(Math.max(0, row) + page, column),
      PageUp: () => this.move(Math.max(0, row - page), column),
      Home: () => this.move(whole ? 0 : row, 0),
      End: () => this.move(whole ? this.rows.length - 1 : row, COLUMNS.length - 1),
    };
    if (row >= 0) {
      keys.Enter = () => this.select(this.rows[row]?.id);
      keys[" "] = keys.Enter;
    }
    const act = keys[event.key];
    if (!act || (whole && event.key !== "Home" && event.key !== "End")) return;
    event.preventDefault();
    act();
  }
}
