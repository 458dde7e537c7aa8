// Figures as words, and elements of text. Names are untrusted: they become text, never markup.

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const tenth = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });

/** Returns bytes in three figures: 12.3 MiB. */
export function bytes(value) {
  let at = 0;
  let left = Math.abs(value);
  while (left >= 1023.5 && at + 1 < UNITS.length) {
    left /= 1024;
    at += 1;
  }
  const digits = at === 0 || left >= 99.95 ? 0 : 1;
  return `${value < 0 ? "−" : ""}${left.toFixed(digits)} ${UNITS[at]}`;
}

/** Returns a count: 12,345. */
export function count(value) {
  return whole.format(value);
}

/** Returns a count in short form: 12.3 k. */
export function short(value) {
  if (value < 100000) return tenth.format(value);
  for (const [size, name] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
    if (value >= size) return `${(value / size).toFixed(1)} ${name}`;
  }
  return whole.format(value);
}

/** Returns bytes per second, with their sign; nothing for none. */
export function growth(value) {
  if (Math.abs(value) < 1) return "0";
  return `${value > 0 ? "+" : ""}${bytes(value)}/s`;
}

/** Returns a fraction in percent. */
export function percent(part) {
  if (part > 0 && part < 0.001) return "< 0.1 %";
  return `${(part * 100).toFixed(part < 0.0995 ? 1 : 0)} %`;
}

/** Returns a time of the day. */
export function clock(seconds) {
  return new Date(seconds * 1000).toLocaleTimeString("en-GB");
}

/** Returns how long ago something was. */
export function ago(seconds) {
  if (seconds < 90) return `${Math.max(0, Math.round(seconds))} s ago`;
  return `${Math.round(seconds / 60)} min ago`;
}

/** Makes an element with a class and text. */
export function element(kind, className, text) {
  const made = document.createElement(kind);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

/** Sets text only if it differs, so that a selection or a reading aloud is not interrupted. */
export function say(into, text) {
  if (into.textContent !== text) into.textContent = text;
}

const said = () => document.getElementById("said");
let last = 0;
/** Announces a text to a screen reader: at once if the user asked for it, at most every ten seconds otherwise. */
export function announce(text, byItself = false) {
  const now = performance.now();
  if (byItself && now - last < 10000) return;
  last = now;
  said().textContent = text;
}
