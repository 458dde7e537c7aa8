// Puts the parts of the page together.

import { ask as request } from "./ask.js";
import { Chart } from "./chart.js";
import { Feed, holds, share, standing } from "./feed.js";
import { Table } from "./table.js";
import { Treemap } from "./treemap.js";
import { announce, bytes, count, element, growth, percent, say, short } from "./words.js";

const get = (id) => document.getElementById(id);
/** The interval in milliseconds at which the history of the selected group is requested again; events extend it
   meanwhile. */
const AGAIN = 30000;
const INDEX = 5000;

const state = { ledgers: [], selected: null, points: [], refused: 0, reclaimed: 0, asked: 0 };

const chart = new Chart(get("chart"), get("chart-words"));
const treemap = new Treemap(get("map"), get("crumbs"), select);
const table = new Table(get("groups"), get("shown"), select);
table.changed = () => get("by-tree").setAttribute("aria-pressed", String(table.tree));
const feed = new Feed(changed, linked);

function linked(how) {
  const words = { live: "Live", waiting: "Connecting", paused: "Paused", gone: "Ended" }[how];
  const link = get("link");
  if (link.dataset.state === how) return;
  link.dataset.state = how;
  say(get("link-text"), words);
  if (how === "gone" || how === "waiting") announce(how === "gone" ? "the ledger is gone" : "the connection was lost, trying again", true);
  if (how === "gone") index();
}

function group() {
  return feed.groups.get(state.selected) ?? feed.root;
}

function select(id) {
  if (!feed.groups.has(id)) return;
  state.selected = id;
  ask();
  show();
  const chosen = group();
  announce(`${chosen.path} selected, holds ${bytes(holds(chosen))}`);
}

/** Runs after each look. */
function changed(anew) {
  const began = performance.now();
  if (!feed.groups.has(state.selected)) {
    state.selected = feed.root?.id ?? null;
    ask();
  } else if (anew) ask();
  grow();
  show();
  // For measurements: the duration of the last refresh of the page, and the number of refreshes.
  const body = document.body.dataset;
  body.refreshed = String(Number(body.refreshed ?? 0) + 1);
  body.took = (performance.now() - began).toFixed(1);
}

/** Requests the history of the selected group. */
async function ask() {
  const chosen = group();
  if (!chosen) return;
  const id = chosen.id;
  state.asked = performance.now();
  try {
    const answer = await request(`/api/ledgers/${feed.id}/history?group=${encodeURIComponent(id)}`);
    if (!answer.ok || group()?.id !== id) return;
    const hour = await answer.json();
    state.points = hour.points;
    [state.refused, state.reclaimed] = [chosen.refused, chosen.reclaimed];
    draw();
  } catch {
    // The stream of events shows whether the server is there.
  }
}

/** Adds the last look to the history. */
function grow() {
  const chosen = group();
  if (!chosen) return;
  if (performance.now() - state.asked > AGAIN) {
    ask();
    return;
  }
  const last = state.points[state.points.length - 1];
  const held = holds(chosen);
  const [refused, reclaimed] = [Math.max(0, chosen.refused - state.refused), Math.max(0, chosen.reclaimed - state.reclaimed)];
  [state.refused, state.reclaimed] = [chosen.refused, chosen.reclaimed];
  if (last && feed.at < last.at + last.seconds) {
    last.last = held;
    last.least = Math.min(last.least, held);
    last.most = Math.max(last.most, held);
    last.refused += refused;
    last.reclaimed += reclaimed;
  } else if (last) {
    state.points.push({ at: feed.at, seconds: 1, least: held, most: held, last: held, refused, reclaimed });
  }
}

function show() {
  const { root } = feed;
  if (!root) return;
  tiles(root);
  treemap.show(feed, state.selected);
  table.show(feed, state.selected);
  facts(group());
  draw();
}

function tiles(root) {
  const part = share(root);
  say(get("held"), bytes(root.current));
  say(get("held-of"), part === null ? "no max" : `of ${bytes(root.max)}, ${percent(part)}`);
  get("held-meter").style.width = `${Math.min(1, part ?? 0) * 100}%`;
  get("held-meter").dataset.standing = part !== null && part >= 0.8 ? "near" : "calm";
  say(get("peak"), bytes(root.peak));
  say(get("peak-under"), part === null || root.max === 0 ? "" : `${percent(root.peak / root.max)} of max`);
  say(get("refused"), count(root.refused));
  get("refused").parentNode.dataset.alarm = String(root.rates.refused > 0);
  say(get("refused-under"), root.rates.refused > 0 ? `▲ ${short(root.rates.refused)}/s now` : "none now");
  say(get("charges"), short(root.charges));
  say(get("charges-under"), `${short(root.rates.charges)}/s`);
  let [live, near] = [0, 0];
  for (const one of feed.groups.values()) {
    if (one.state === "live") live += 1;
    if (standing(one) !== "calm") near += 1;
  }
  say(get("count"), count(live));
  const ended = feed.groups.size - live;
  const words = [];
  if (near > 0) words.push(`◐ ${count(near)} near their max`);
  if (ended > 0) words.push(`${count(ended)} ended`);
  say(get("count-under"), words.join(", ") || "none near its max");
  const notice = get("notice");
  notice.hidden = !feed.damaged;
  if (feed.damaged) say(notice, "A program wrote over this ledger: its figures may be wrong.");
  if (root.rates.refused > 0) announce(`${short(root.rates.refused)} charges a second are refused`, true);
}

function facts(chosen) {
  if (!chosen) return;
  say(get("group-name"), chosen.path);
  get("group-chip").dataset.hue = chosen.hue ?? "none";
  const limit = (value) => (value === null ? "none" : bytes(value));
  const rows = [
    ["Held", `${bytes(holds(chosen))}${share(chosen) === null ? "" : `, ${percent(share(chosen))} of max`}`],
    ["Growth", growth(chosen.rates.growth)],
    ["Peak", bytes(chosen.peak)],
    ["Max", limit(chosen.max)],
    ["High", limit(chosen.high)],
    ["Protected", chosen.min + chosen.low > 0 ? `min ${bytes(chosen.min)}, low ${bytes(chosen.low)}` : "no"],
    ["Charges", `${count(chosen.charges)} (${short(chosen.rates.charges)}/s)`],
    ["Refused", `${count(chosen.refused)} (${short(chosen.rates.refused)}/s)`],
    ["Max met", count(chosen.max_events)],
    ["High met", count(chosen.high_events)],
    ["Reclaimed", bytes(chosen.reclaimed)],
    ["Process", chosen.pid ? `${chosen.program} (${chosen.pid})` : "none of its own"],
    ...Object.entries(chosen.items).map(([name, value]) => [name, count(value)]),
  ];
  const list = get("facts");
  while (list.children.length > rows.length) list.lastChild.remove();
  rows.forEach(([name, value], at) => {
    let entry = list.children[at];
    if (!entry) {
      entry = element("div");
      entry.append(element("dt", "name"), element("dd", "name"));
      list.append(entry);
    }
    say(entry.firstChild, name);
    say(entry.lastChild, value);
  });
}

function draw() {
  const chosen = group();
  if (!chosen) return;
  const { path, max, hue } = chosen;
  chart.show(state.points, { path, max, now: feed.at, hue: hue ?? "none" });
}

/** Lists the ledgers. */
async function index() {
  try {
    const answer = await request("/api/ledgers");
    if (answer.status === 401) {
      const notice = get("notice");
      notice.hidden = false;
      say(notice, "This server answers those who have its token. Open the address that `ledgerline serve` printed.");
    }
    if (!answer.ok) throw new Error(answer.statusText);
    const { ledgers } = await answer.json();
    chooser(ledgers);
  } catch {
    linked("waiting");
  }
}

function chooser(ledgers) {
  const box = get("ledgers");
  const key = (list) => list.map((one) => `${one.id} ${one.title}`).join("\n");
  if (key(ledgers) !== key(state.ledgers) || box.options.length === 0) {
    const chosen = feed.id === null ? null : String(feed.id);
    box.replaceChildren(
      ...ledgers.map((one) => {
        const option = element("option", "name", one.title);
        option.value = String(one.id);
        return option;
      }),
    );
    if (ledgers.length === 0) box.append(element("option", "", "no ledger runs"));
    if (chosen !== null && ledgers.some((one) => String(one.id) === chosen)) box.value = chosen;
  }
  state.ledgers = ledgers;
  const notice = get("notice");
  if (ledgers.length === 0 && feed.id === null) {
    notice.hidden = false;
    say(notice, "No ledger runs now. Start a program under `ledgerline run`: it comes up here by itself.");
  }
  const there = ledgers.some((one) => one.id === feed.id);
  if (!there && ledgers.length > 0) {
    notice.hidden = true;
    follow(ledgers[0].id);
  }
}

function follow(id) {
  state.selected = null;
  state.points = [];
  treemap.zoomed = null;
  get("ledgers").value = String(id);
  feed.follow(id);
  document.title = `${state.ledgers.find((one) => one.id === id)?.title ?? "Ledgerline"} – Ledgerline`;
}

get("ledgers").addEventListener("change", (event) => {
  const id = Number(event.target.value);
  if (id) follow(id);
});
get("pause").addEventListener("click", (event) => {
  const paused = !feed.paused;
  event.target.setAttribute("aria-pressed", String(paused));
  event.target.textContent = paused ? "Go on" : "Pause";
  feed.pause(paused);
});
const filter = () => table.filter(get("filter").value, get("which").value);
get("filter").addEventListener("input", filter);
get("which").addEventListener("change", filter);
get("by-tree").addEventListener("click", () => table.asTree(!table.tree));
document.addEventListener("keydown", (event) => {
  if (event.key === "/" && !/^(input|select|textarea)$/i.test(event.target.tagName)) {
    event.preventDefault();
    get("filter").focus();
  }
});
for (const button of document.querySelectorAll("[data-span]")) {
  button.addEventListener("click", () => {
    for (const other of document.querySelectorAll("[data-span]")) other.setAttribute("aria-pressed", String(other === button));
    chart.span = Number(button.dataset.span);
    draw();
    announce(chart.words.textContent);
  });
}
index();
setInterval(() => {
  if (!document.hidden) index();
}, INDEX);
