// The holding of one group over time: a line with the range around it, its max, and marks for refusals and reclaims.

import { ago, bytes, clock, count, say } from "./words.js";

const SVG = "http://www.w3.org/2000/svg";
const HIGH = 220;
const LEFT = 66;
const RIGHT = 10;
const TOP = 18;
const BOTTOM = 24;

function shape(kind, attributes, className) {
  const made = document.createElementNS(SVG, kind);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, String(value));
  if (className) made.setAttribute("class", className);
  return made;
}

function letters(x, y, text, className, anchor = "start") {
  const made = shape("text", { x, y, "text-anchor": anchor }, className);
  made.textContent = text;
  return made;
}

export class Chart {
  constructor(svg, words) {
    Object.assign(this, { svg, words, points: [], max: null, now: 0, span: 900, path: "/", cursor: null, hue: "none" });
    svg.setAttribute("height", String(HIGH));
    svg.addEventListener("keydown", (event) => this.key(event));
    svg.addEventListener("pointermove", (event) => this.point(event));
    svg.addEventListener("pointerleave", () => this.set(null));
    svg.addEventListener("blur", () => this.set(null));
    this.wide = svg.parentNode.clientWidth;
    new ResizeObserver(([{ contentRect }]) => {
      this.wide = contentRect.width;
      this.draw();
    }).observe(svg.parentNode);
  }

  /** Points: the oldest first; each with at, seconds, least, most, last, refused, reclaimed. */
  show(points, { path, max, now, hue }) {
    if (path !== this.path) this.cursor = null;
    Object.assign(this, { points, path, max, now, hue });
    this.draw();
    this.tell();
  }

  set(cursor) {
    this.cursor = cursor;
    this.draw();
  }

  within() {
    const from = this.now - this.span;
    return this.points.filter((point) => point.at + point.seconds >= from);
  }

  draw() {
    const wide = Math.max(240, this.wide);
    this.svg.setAttribute("viewBox", `0 0 ${wide} ${HIGH}`);
    this.svg.dataset.hue = this.hue;
    const points = this.within();
    const right = wide - RIGHT;
    const low = HIGH - BOTTOM;
    const most = points.reduce((most, point) => Math.max(most, point.most), 0);
    // The max is drawn only if the line comes near it: a max far above would flatten the line.
    const shows = this.max !== null && this.max <= most * 4 && this.max > 0;
    const ceiling = ticks(Math.max(most, shows ? this.max : 0, 1) * 1.05);
    const x = (at) => LEFT + ((at - (this.now - this.span)) / this.span) * (right - LEFT);
    const y = (value) => low - (value / ceiling.top) * (low - TOP);
    const parts = [];
    for (const value of ceiling.values) {
      parts.push(shape("line", { x1: LEFT, x2: right, y1: y(value), y2: y(value) }, "grid"));
      parts.push(letters(LEFT - 8, y(value) + 4, bytes(value), "axis", "end"));
    }
    const steps = wide < 420 ? 2 : 4;
    for (let at = 0; at <= steps; at++) {
      const time = this.now - this.span + (this.span * at) / steps;
      const anchor = at === 0 ? "start" : at === steps ? "end" : "middle";
      parts.push(letters(x(time), HIGH - 6, at === steps ? "now" : clock(time).slice(0, 5), "axis", anchor));
    }
    const middle = (point) => Math.min(Math.max(x(point.at + point.seconds / 2), LEFT), right);
    if (points.length > 0) {
      const band = [];
      for (const point of points) band.push(`${middle(point).toFixed(1)},${y(point.most).toFixed(1)}`);
      for (const point of [...points].reverse()) band.push(`${middle(point).toFixed(1)},${y(point.least).toFixed(1)}`);
      const line = points.map((point) => `${middle(point).toFixed(1)},${y(point.last).toFixed(1)}`);
      const first = middle(points[0]).toFixed(1);
      const last = middle(points[points.length - 1]).toFixed(1);
      parts.push(shape("polygon", { points: [`${first},${low}`, ...line, `${last},${low}`].join(" ") }, "ground"));
      parts.push(shape("polygon", { points: band.join(" ") }, "band"));
      parts.push(shape("polyline", { points: line.join(" ") }, "held"));
    }
    if (shows) {
      parts.push(shape("line", { x1: LEFT, x2: right, y1: y(this.max), y2: y(this.max) }, "max"));
    }
    for (const point of points) {
      const at = middle(point).toFixed(1);
      if (point.refused > 0) parts.push(shape("path", { d: `M${at} ${TOP - 3}l-5.5 -10h11z` }, "refused"));
      if (point.reclaimed > 0) parts.push(shape("path", { d: `M${at} ${low - 1}l-5 -6l5 -6l5 6z` }, "reclaimed"));
    }
    const under = this.cursor === null ? null : points[Math.min(this.cursor, points.length - 1)];
    if (under) {
      const at = middle(under);
      parts.push(shape("line", { x1: at, x2: at, y1: TOP, y2: low }, "cursor"));
      parts.push(shape("circle", { cx: at, cy: y(under.last), r: 4.5 }, "cursor-dot"));
      const text = told(under);
      const end = at > (LEFT + right) / 2;
      const label = letters(end ? at - 8 : at + 8, TOP + 12, text, "cursor-text", end ? "end" : "start");
      const width = text.length * 6.6 + 10;
      parts.push(shape("rect", { x: end ? at - 3 - width : at + 3, y: TOP - 2, width, height: 20, rx: 4 }, "cursor-ground"), label);
    }
    this.svg.replaceChildren(...parts);
    this.svg.setAttribute("aria-valuemax", String(Math.max(0, points.length - 1)));
    this.svg.setAttribute("aria-valuenow", String(this.cursor ?? Math.max(0, points.length - 1)));
    const spoken = under ?? points[points.length - 1];
    this.svg.setAttribute("aria-valuetext", spoken ? told(spoken) : "no point yet");
  }

  /** Returns the chart in a sentence. */
  tell() {
    const points = this.within();
    if (points.length === 0) {
      say(this.words, "No history of this group yet.");
      return;
    }
    const least = points.reduce((least, point) => Math.min(least, point.least), Infinity);
    const most = points.reduce((most, point) => Math.max(most, point.most), 0);
    const sum = (field) => points.reduce((sum, point) => sum + point[field], 0);
    const minutes = Math.round((this.now - points[0].at) / 60);
    const time = minutes < 2 ? "since it is watched" : `in the last ${Math.min(minutes, Math.round(this.span / 60))} minutes`;
    const refused = sum("refused");
    const last = points.findLast((point) => point.refused > 0);
    const words = [`Held ${bytes(least)} to ${bytes(most)} ${time}`];
    words.push(refused > 0 ? `${count(refused)} charges refused, the last ${ago(this.now - last.at)}` : "nothing refused");
    if (sum("reclaimed") > 0) words.push(`${bytes(sum("reclaimed"))} reclaimed`);
    say(this.words, `${words.join("; ")}.`);
  }

  point(event) {
    const points = this.within();
    if (points.length === 0) return;
    const box = this.svg.getBoundingClientRect();
    const wide = box.width;
    const at = this.now - this.span + ((event.clientX - box.left - LEFT) / (wide - LEFT - RIGHT)) * this.span;
    let best = 0;
    points.forEach((point, index) => {
      if (Math.abs(point.at + point.seconds / 2 - at) < Math.abs(points[best].at + points[best].seconds / 2 - at)) best = index;
    });
    this.set(best);
  }

  key(event) {
    const last = this.within().length - 1;
    const now = this.cursor ?? last;
    const to = { ArrowLeft: now - 1, ArrowDown: now - 1, ArrowRight: now + 1, ArrowUp: now + 1, PageUp: now + 10, PageDown: now - 10, Home: 0, End: last }[event.key];
    if (to === undefined || last < 0) return;
    event.preventDefault();
    this.set(Math.max(0, Math.min(last, to)));
  }
}

/** Returns a point in words. */
function told(point) {
  const words = [`${clock(point.at)}  ${bytes(point.last)}`];
  if (point.refused > 0) words.push(`${count(point.refused)} refused`);
  if (point.reclaimed > 0) words.push(`${bytes(point.reclaimed)} reclaimed`);
  return words.join(", ");
}

/** Returns round values up to a figure: at most five, at powers of two. */
function ticks(most) {
  let step = 1;
  while (most / step > 5) step *= 2;
  const values = [];
  for (let value = 0; value <= most; value += step) values.push(value);
  return { values, top: most };
}
