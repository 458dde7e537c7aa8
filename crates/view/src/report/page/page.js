"use strict";
// Draws the recording in the page. Names are untrusted: they are only ever set as text.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const groups = data.groups;
  const $ = (id) => document.getElementById(id);
  const SVG = "http://www.w3.org/2000/svg";
  const LEFT = 64, TOP = 18, BOTTOM = 24, ROW = 18, LIVES = 40;
  const AREAS = data.colours.length - 1;

  groups.forEach((group, place) => { group.place = place; group.children = []; });
  groups.forEach((group) => { if (group.place > 0) groups[group.parent].children.push(group); });
  groups.forEach((group) => group.children.sort((a, b) => b.peak - a.peak));

  // ---- words

  function size(units) {
    const names = ["", "K", "M", "G", "T", "P", "E"];
    let at = 0;
    let number = units;
    while (number >= 1024 && at < names.length - 1) { number /= 1024; at += 1; }
    return at === 0 ? String(units) : number.toFixed(1) + names[at];
  }

  function time(seconds) {
    if (seconds === null || seconds === undefined) return "–";
    if (seconds > 0 && seconds < 0.0995) return `${(seconds * 1000).toFixed(1)} ms`;
    if (seconds < 599.5) return `${seconds.toFixed(seconds < 10 ? 2 : 1)} s`;
    if (seconds < 35970) return `${(seconds / 60).toFixed(1)} min`;
    return `${(seconds / 3600).toFixed(1)} h`;
  }

  // ---- the shown state

  // The shown columns, from and to, possibly fractions; the group whose children are stacked; the inspected column.
  const state = { from: 0, to: data.columns, below: groups[0], cursor: null };
  while (state.below.children.length === 1 && state.below.children[0].children.length > 0) {
    state.below = state.below.children[0];
  }
  const at = (group, column) => group.last[column - group.first] || 0;
  const most = (group, column) => (group.most.length ? group.most : group.last)[column - group.first] || 0;
  const seconds = (column) => column / data.columns * data.seconds;

  function element(parent, name, attributes, text) {
    const made = document.createElementNS(SVG, name);
    for (const key in attributes) made.setAttribute(key, attributes[key]);
    if (text !== undefined) made.textContent = text;
    parent.appendChild(made);
    return made;
  }

  // ---- the chart

  const areas = $("areas");
  let scale = null;

  function chart() {
    areas.replaceChildren();
    const width = Math.max(areas.clientWidth, 300), height = Math.max(areas.clientHeight, 200);
    areas.setAttribute("viewBox", `0 0 ${width} ${height}`);
    const right = width - 22, bottom = height - BOTTOM;
    const first = Math.floor(state.from), end = Math.min(Math.ceil(state.to), data.columns);
    let top = 1;
    for (let column = first; column < end; column += 1) top = Math.max(top, most(state.below, column));
    const max = state.below.max;
    if (max !== null && max <= top * 2) top = Math.max(top, max);
    const x = (column) => LEFT + (column - state.from) / (state.to - state.from) * (right - LEFT);
    const y = (units) => bottom - units / top * (bottom - TOP);
    scale = { x, right, bottom };

    const step = 2 ** Math.floor(Math.log2(Math.max(top / 4, 1)));
    for (let units = 0; units <= top; units += step) {
      element(areas, "path", { class: "grid", d: `M${LEFT} ${y(units)}H${right}` });
      element(areas, "text", { class: "quiet", x: LEFT - 6, y: y(units) + 4, "text-anchor": "end" }, size(units));
    }
    times(areas, x, bottom + 17, right);

    const clip = element(element(areas, "clipPath", { id: "inside" }), "rect", { x: LEFT, y: 0, width: right - LEFT, height });
    clip.parentNode.id = "inside";
    const inside = element(areas, "g", { "clip-path": "url(#inside)" });
    const shown = state.below.children.slice(0, AREAS);
    let floor = new Array(end - first).fill(0);
    const area = (ceiling, colour) => {
      // A column's value is the one at its end.
      let d = "";
      ceiling.forEach((units, column) => { d += `${d ? "L" : "M"}${x(first + column + 1).toFixed(1)} ${y(units).toFixed(1)}`; });
      for (let column = floor.length - 1; column >= 0; column -= 1) d += `L${x(first + column + 1).toFixed(1)} ${y(floor[column]).toFixed(1)}`;
      element(inside, "path", { d: `${d}Z`, fill: colour });
      floor = ceiling;
    };
    shown.forEach((group, place) => area(floor.map((units, column) => units + at(group, first + column)), data.colours[place]));
    area(floor.map((units, column) => Math.max(units, at(state.below, first + column))), data.colours[AREAS]);

    let d = "";
    for (let column = first; column < end; column += 1) d += `${d ? "L" : "M"}${x(column + 1).toFixed(1)} ${y(most(state.below, column)).toFixed(1)}`;
    element(inside, "path", { class: "most", d });
    if (max !== null && max <= top) {
      element(inside, "path", { class: "max", d: `M${LEFT} ${y(max)}H${right}` });
      element(areas, "text", { class: "warn", x: right - 4, y: y(max) - 4, "text-anchor": "end" }, `max ${size(max)}`);
    }
    marks(inside, state.below, x, TOP, bottom);
    if (state.cursor !== null) {
      element(inside, "path", { class: "cursor", d: `M${x(state.cursor + 1)} ${TOP}V${bottom}` });
    }
    legend(shown);
  }

  function times(svg, x, y, right) {
    const shown = seconds(state.to) - seconds(state.from);
    const steps = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 86400];
    const step = steps.find((step) => step >= shown / 8) || Math.max(shown / 8, 0.001);
    for (let place = Math.ceil(seconds(state.from) / step); place * step <= seconds(state.to); place += 1) {
      const column = place * step / Math.max(data.seconds, 1e-9) * data.columns;
      if (x(column) <= right) element(svg, "text", { class: "quiet", x: x(column), y, "text-anchor": "middle" }, time(place * step));
    }
  }

  function marks(svg, group, x, top, bottom) {
    for (const [column, many] of group.refusals) {
      const mark = element(svg, "path", { class: "refused", d: `M${x(column + 1)} ${top - 2}l5 -9h-10z` });
      element(mark, "title", {}, `refused ${many} at ${time(seconds(column + 1))}`);
    }
    for (const [column, units] of group.reclaims) {
      const mark = element(svg, "circle", { class: "reclaimed", cx: x(column + 1), cy: bottom + 4, r: 3 });
      element(mark, "title", {}, `caches gave back ${size(units)} at ${time(seconds(column + 1))}`);
    }
  }

  function legend(shown) {
    const list = $("legend");
    list.replaceChildren();
    const line = (colour, name, value, mark) => {
      const item = document.createElement("li");
      const square = document.createElement(mark ? "span" : "i");
      if (mark) { square.textContent = mark; square.style.marginLeft = "0"; } else square.style.background = colour;
      const label = document.createElement("b");
      label.textContent = name;
      label.title = name;
      const number = document.createElement("span");
      number.textContent = value;
      item.append(square, label, number);
      list.append(item);
    };
    const now = (group) => state.cursor === null ? `peak ${size(group.peak)}` : size(at(group, state.cursor));
    line("", state.below.path, now(state.below), "Σ");
    const rest = state.below.children.length - shown.length;
    const sum = (column) => shown.reduce((sum, group) => sum + at(group, column), 0);
    line(data.colours[AREAS], rest > 0 ? `this group alone, and ${rest} smaller ones` : "this group alone",
      state.cursor === null ? "" : size(Math.max(at(state.below, state.cursor) - sum(state.cursor), 0)));
    [...shown].reverse().forEach((group) => line(data.colours[shown.indexOf(group)], group.name, now(group)));
    if (state.below.refusals.length) line("", "refused", String(state.below.refused), "▼");
    if (state.below.reclaims.length) line("", "caches gave back", size(state.below.reclaimed), "●");
  }

  function say() {
    if (state.cursor === null) { $("said").textContent = ""; return; }
    const column = state.cursor;
    const parts = state.below.children.filter((group) => at(group, column) > 0);
    parts.sort((a, b) => at(b, column) - at(a, column));
    const refused = state.below.refusals.find(([mark]) => mark === column);
    $("said").textContent = `At ${time(seconds(column + 1))} ${state.below.path} held ${size(at(state.below, column))}, at most ${size(most(state.below, column))}`
      + (refused ? `, and ${refused[1]} charges were refused` : "") + (parts.length ? ": " : ".")
      + parts.slice(0, 6).map((group) => `${group.name} ${size(at(group, column))}`).join(", ")
      + (parts.length > 6 ? ` and ${parts.length - 6} more` : "");
  }

  // ---- lives

  function lives() {
    const svg = $("lives");
    svg.replaceChildren();
    const shown = state.below.children.slice(0, LIVES);
    const width = Math.max(svg.clientWidth, 300), height = Math.max(shown.length, 1) * ROW + 12 + BOTTOM;
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    svg.style.height = `${height}px`;
    const right = Math.max(width - 290, 200);
    const x = (column) => Math.min(Math.max(LEFT + (column - state.from) / (state.to - state.from) * (right - LEFT), LEFT), right);
    const column = (moment) => moment / Math.max(data.seconds, 1e-9) * data.columns;
    shown.forEach((group, row) => {
      const y = 8 + row * ROW;
      const start = x(column(group.born)), end = x(column(group.ended === null ? data.seconds : group.ended));
      const bar = element(svg, "rect", { x: start, y, width: Math.max(end - start, 2), height: 11, rx: 2, fill: data.colours[Math.min(row, AREAS)] });
      element(bar, "title", {}, `${group.path}: ${time(group.born)} to ${group.ended === null ? "the end" : time(group.ended)}, peak ${size(group.peak)}`);
      for (const [place, many] of group.refusals) {
        if (place < state.from || place > state.to) continue;
        const mark = element(svg, "path", { class: "refused", d: `M${x(place + 1)} ${y + 1}l4 -7h-8z` });
        element(mark, "title", {}, `refused ${many} at ${time(seconds(place + 1))}`);
      }
      const words = group.name.length > 28 ? `${group.name.slice(0, 27)}…` : group.name;
      const text = element(svg, "text", { x: right + 12, y: y + 10 }, words);
      element(text, "tspan", { class: "quiet" }, `  ${size(group.peak)}`);
    });
    times(svg, x, height - 8, right);
    if (!shown.length) element(svg, "text", { class: "quiet", x: LEFT, y: 18 }, "There is no group below.");
  }

  function draw() { chart(); lives(); }

  // ---- moving

  function zoom(from, to) {
    const least = Math.min(4, data.columns);
    let wide = Math.min(Math.max(to - from, least), data.columns);
    state.from = Math.min(Math.max(from, 0), data.columns - wide);
    state.to = state.from + wide;
    draw();
  }
  function by(factor) {
    const middle = state.cursor === null ? (state.from + state.to) / 2 : state.cursor + 0.5;
    const wide = (state.to - state.from) * factor;
    zoom(middle - wide / 2, middle + wide / 2);
  }
  function point(column) {
    state.cursor = column === null ? null : Math.min(Math.max(column, 0), data.columns - 1);
    if (state.cursor !== null && (state.cursor < state.from || state.cursor >= state.to)) {
      const wide = state.to - state.from;
      zoom(state.cursor - wide / 2, state.cursor + wide / 2);
    } else chart();
    say();
  }
  function show(group) {
    state.below = group;
    $("below").value = String(group.place);
    draw();
    say();
  }

  $("in").addEventListener("click", () => by(0.5));
  $("out").addEventListener("click", () => by(2));
  $("all").addEventListener("click", () => zoom(0, data.columns));
  areas.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    const wide = state.to - state.from;
    const step = Math.max(1, Math.round(wide / (event.shiftKey ? 10 : 100)));
    const here = state.cursor === null ? Math.floor(state.from) - 1 : state.cursor;
    const keys = {
      ArrowRight: () => point(here + step),
      ArrowLeft: () => point(state.cursor === null ? Math.ceil(state.to) - 1 : here - step),
      Home: () => point(Math.floor(state.from)),
      End: () => point(Math.ceil(state.to) - 1),
      "+": () => by(0.5), "=": () => by(0.5), "-": () => by(2), "0": () => zoom(0, data.columns),
      Escape: () => point(null),
    };
    if (keys[event.key]) { keys[event.key](); event.preventDefault(); }
  });

  const column = (event) => {
    const box = areas.getBoundingClientRect();
    const part = (event.clientX - box.left - LEFT) / (scale.right - LEFT);
    return state.from + Math.min(Math.max(part, 0), 1) * (state.to - state.from);
  };
  let drag = null, range = null;
  areas.addEventListener("pointerdown", (event) => {
    if (event.button === 0) { drag = column(event); areas.setPointerCapture(event.pointerId); }
  });
  areas.addEventListener("pointermove", (event) => {
    const here = column(event);
    if (drag === null) return point(Math.floor(here));
    if (range) range.remove();
    const [from, to] = [scale.x(Math.min(drag, here)), scale.x(Math.max(drag, here))];
    range = element(areas, "rect", { class: "range", x: from, y: TOP, width: to - from, height: scale.bottom - TOP });
  });
  areas.addEventListener("pointerup", (event) => {
    if (drag === null) return;
    const [from, to] = [Math.min(drag, column(event)), Math.max(drag, column(event))];
    drag = null;
    range = null;
    if ((to - from) / (state.to - state.from) > 0.01) zoom(from, to); else draw();
  });
  areas.addEventListener("pointercancel", () => { drag = null; range = null; draw(); });
  areas.addEventListener("pointerleave", () => { if (drag === null) point(null); });
  areas.addEventListener("dblclick", () => zoom(0, data.columns));

  groups.filter((group) => group.place === 0 || group.children.length).forEach((group) => {
    const option = document.createElement("option");
    option.value = String(group.place);
    option.textContent = group.path;
    $("below").append(option);
  });
  $("below").addEventListener("change", (event) => show(groups[Number(event.target.value)]));

  // ---- the table

  const life = (group) => (group.ended === null ? data.seconds : group.ended) - group.born;
  const columns = [
    { name: "Group", value: (group) => group.path, text: (group) => group.path },
    { name: "Peak", value: (group) => group.peak, text: (group) => size(group.peak) },
    { name: "At", value: (group) => group.peak_at === null ? -1 : group.peak_at, text: (group) => time(group.peak_at) },
    { name: "Born", value: (group) => group.born, text: (group) => time(group.born) },
    { name: "Lived", value: life, text: (group) => time(life(group)) },
    { name: "At end", value: (group) => group.current, text: (group) => size(group.current) },
    { name: "Charges", value: (group) => group.charges, text: (group) => String(group.charges) },
    { name: "Refused", value: (group) => group.refused, text: (group) => String(group.refused), some: (group) => group.refused > 0 },
    { name: "Reclaimed", value: (group) => group.reclaimed, text: (group) => size(group.reclaimed) },
    { name: "Max", value: (group) => group.max === null ? Infinity : group.max, text: (group) => group.max === null ? "–" : size(group.max) },
  ];
  const sort = { column: 1, down: true };
  const head = document.querySelector("#groups thead tr");
  columns.forEach((column, place) => {
    const cell = document.createElement("th");
    cell.scope = "col";
    const button = document.createElement("button");
    button.type = "button";
    button.addEventListener("click", () => {
      sort.down = sort.column === place ? !sort.down : place > 0;
      sort.column = place;
      table();
    });
    cell.append(button);
    head.append(cell);
  });

  function table() {
    [...head.children].forEach((cell, place) => {
      const sorted = place === sort.column;
      cell.setAttribute("aria-sort", sorted ? (sort.down ? "descending" : "ascending") : "none");
      cell.firstChild.textContent = columns[place].name + (sorted ? (sort.down ? " ↓" : " ↑") : "");
    });
    const words = $("filter").value.toLowerCase();
    const shown = groups.filter((group) => group.path.toLowerCase().includes(words));
    const value = columns[sort.column].value;
    const order = (a, b) => (a < b ? -1 : a > b ? 1 : 0);
    shown.sort((a, b) => (sort.down ? -1 : 1) * order(value(a), value(b)) || a.place - b.place);
    const body = document.querySelector("#groups tbody");
    body.replaceChildren(...shown.map((group) => {
      const row = document.createElement("tr");
      columns.forEach((column, place) => {
        const cell = document.createElement("td");
        if (place === 0 && group.children.length) {
          const button = document.createElement("button");
          button.type = "button";
          button.textContent = group.path;
          button.title = "Show what is below it in the chart";
          button.addEventListener("click", () => { show(group); areas.focus(); });
          cell.append(button);
        } else cell.textContent = column.text(group);
        if (column.some && column.some(group)) cell.className = "some";
        row.append(cell);
      });
      return row;
    }));
    $("many").textContent = `${shown.length} of ${groups.length}`;
  }
  $("filter").addEventListener("input", table);

  $("over-time").hidden = false;
  $("below").value = String(state.below.place);
  table();
  draw();
  addEventListener("resize", draw);
  addEventListener("beforeprint", draw);
})();
