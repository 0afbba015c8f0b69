// SPDX-License-Identifier: Apache-2.0
// The page's trajectories: one environment and up to four schemes, chosen with the pickers or in the address
// (#env=ID&schemes=a,b&at=SECONDS). Without this script the page's tables and still pictures stay as they are.
"use strict";
(() => {
  const byId = (id) => document.getElementById(id);
  if (!byId("series")) return;
  const page = JSON.parse(byId("series").textContent);
  const picker = byId("environment");
  const boxes = [...document.querySelectorAll("#schemes input")];
  const moment = byId("moment");
  const chart = byId("chart");
  const PANELS = [
    { key: "goodput", title: "rate (Mbps); grey: the link's capacity", height: 190 },
    { key: "delay", title: "one-way delay (ms)", height: 140 },
    { key: "cwnd", title: "cwnd (packets); marks below: dropped packets", height: 140 },
  ];
  const LEFT = 46, RIGHT = 10, TITLE = 22, GAP = 14, RUG = 8;
  let shown = null; // {id, environment, capacity, schemes: [{name, goodput, delay, cwnd, drops}]}

  // What a series of levels stands for: numbers, NaN where there is none.
  function values(levels, top) {
    let level = 0;
    return Array.from(levels, (difference) => {
      level = (level + difference) & 0xffff;
      return level === page.none ? NaN : (level / page.levels) * top;
    });
  }

  async function unpack(environment) {
    const bytes = Uint8Array.from(atob(environment.data), (c) => c.charCodeAt(0));
    const inflated = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    const flat = new Uint8Array(await new Response(inflated).arrayBuffer());
    const half = flat.length / 2, count = environment.count;
    const series = environment.tops.map((top, i) =>
      values(Array.from({ length: count }, (_, k) => flat[i * count + k] | (flat[half + i * count + k] << 8)), top));
    return {
      capacity: series[0],
      of: new Map(environment.schemes.map((scheme, i) => {
        const [goodput, delay, cwnd, drops] = series.slice(1 + 4 * i, 5 + 4 * i);
        return [page.schemes[scheme], { goodput, delay, cwnd, drops, results: environment.results[i] }];
      })),
    };
  }

  // A scheme's colour and pattern of line, the same as in the pictures.
  const look = (name) => page.looks[page.schemes.indexOf(name)];
  const stroke = (name) => `stroke: ${look(name).colour}; stroke-dasharray: ${look(name).dashes}`;

  function element(tag, attributes, text) {
    const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    if (text !== undefined) made.textContent = text;
    return made;
  }

  function ticks(low, high, about) {
    const rough = (high - low) / about, power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((f) => f * power).find((s) => s >= rough);
    const first = Math.ceil(low / step - 1e-9);
    return Array.from({ length: Math.floor(high / step + 1e-9) - first + 1 }, (_, i) => (first + i) * step);
  }

  const brief = (value) => (value >= 100 ? value.toFixed(0) : String(+value.toPrecision(3)));
  const largest = (series) => series.reduce((most, v) => (v > most ? v : most), 0);
  const times = (e) => Array.from({ length: e.count }, (_, i) => (e.first + i + 1) * e.width);

  function middle(series) {
    const sorted = series.filter((v) => !Number.isNaN(v)).sort((a, b) => a - b);
    return sorted.length ? sorted[sorted.length >> 1] : 0;
  }

  // Returns the way from a value to a height in pixels, and the axis' marks.
  function scale(key, height) {
    const all = shown.schemes.map((s) => s[key]);
    if (key === "cwnd" && Math.max(...all.map(largest)) > 30 * Math.max(1, Math.min(...all.map(middle)))) {
      const low = Math.floor(Math.log10(Math.max(1, Math.min(...all.flat().filter((v) => v > 0)))));
      const high = Math.ceil(Math.log10(Math.max(...all.map(largest))));
      const marks = Array.from({ length: high - low + 1 }, (_, i) => 10 ** (low + i));
      return { y: (v) => height * (1 - (Math.log10(Math.max(v, 10 ** low)) - low) / (high - low)), marks };
    }
    // Goodput in order jumps where a hole is filled: such spikes are cut off, or they would flatten everything else.
    const top = (key === "goodput" ? 1.15 * largest(shown.capacity) : 1.08 * Math.max(...all.map(largest))) || 1;
    return { y: (v) => height * (1 - Math.min(v / top, 1.02)), marks: ticks(0, top, 4) };
  }

  function line(t, series, x, y) {
    let path = "", pen = false;
    series.forEach((v, i) => {
      if (Number.isNaN(v)) { pen = false; return; }
      path += `${pen ? "L" : "M"}${x(t[i]).toFixed(1)} ${y(v).toFixed(1)}`;
      pen = true;
    });
    return path;
  }

  function draw() {
    const e = shown.environment, width = Math.max(chart.clientWidth, 280), inner = width - LEFT - RIGHT;
    const begin = e.first * e.width, end = (e.first + e.count) * e.width, t = times(e);
    const x = (s) => ((s - begin) / (end - begin)) * inner;
    const total = PANELS.reduce((sum, p) => sum + TITLE + p.height + GAP, 0) + RUG + 26;
    const svg = element("svg", { width, height: total, viewBox: `0 0 ${width} ${total}`, "aria-hidden": "true" });
    let top = 0;
    for (const { key, title, height } of PANELS) {
      const panel = element("g", { transform: `translate(${LEFT} ${top + TITLE})`, class: `panel ${key}` });
      const { y, marks } = scale(key, height);
      panel.append(element("text", { x: -LEFT + 2, y: -8, class: "title" }, title));
      e.windows.forEach(([from, to], i) => {
        if (i % 2 === 0) panel.append(element("rect", { x: x(from), y: 0, width: x(to) - x(from), height, class: "window" }));
      });
      for (const mark of marks) {
        panel.append(element("line", { x1: 0, x2: inner, y1: y(mark), y2: y(mark), class: "grid" }));
        panel.append(element("text", { x: -6, y: y(mark) + 4, class: "mark" }, mark >= 1e4 ? `${mark / 1e3}k` : String(+mark.toPrecision(6))));
      }
      if (key === "goodput") {
        let steps = "", before = 0; // each bin a step: the capacity changes at once
        t.forEach((s, i) => {
          if (Number.isNaN(shown.capacity[i])) return; // until the first tick: as at it
          const level = y(shown.capacity[i]).toFixed(1);
          steps += `L${before.toFixed(1)} ${level}L${x(s).toFixed(1)} ${level}`;
          before = x(s);
        });
        panel.append(element("path", { d: `M0 ${height}${steps}L${before.toFixed(1)} ${height}Z`, class: "area" }));
        panel.append(element("path", { d: steps.replace("L", "M"), class: "capacity" }));
      }
      shown.schemes.forEach((scheme, row) => {
        panel.append(element("path", { d: line(t, scheme[key], x, y), class: "series", style: stroke(scheme.name), "data-scheme": scheme.name }));
        if (key === "cwnd") {
          const marksAt = scheme.drops.map((v, i) => (v > 0 ? `M${x(t[i]).toFixed(1)} ${height + 3 + row * RUG}v${RUG - 3}` : "")).join("");
          panel.append(element("path", { d: marksAt, class: "rug", style: `stroke: ${look(scheme.name).colour}` }));
        }
      });
      svg.append(panel);
      top += TITLE + height + GAP;
    }
    top += RUG * Math.max(shown.schemes.length - 1, 0);
    for (const mark of ticks(begin, end, Math.max(inner / 90, 3))) {
      svg.append(element("text", { x: LEFT + x(mark), y: top + 6, class: "time" }, `${+mark.toFixed(3)} s`));
    }
    const height = top + 14;
    svg.setAttribute("height", height);
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    svg.append(element("line", { id: "cursor", x1: 0, x2: 0, y1: TITLE, y2: top - 8, class: "cursor" }));
    chart.replaceChildren(svg);
    const names = shown.schemes.map((s) => s.label).join(", ") || "no scheme";
    chart.setAttribute("aria-label", `Rate, delay and congestion window over time of ${names} in ${shown.id}`);
    read();
  }

  function row(cells, attributes = []) {
    const made = document.createElement("tr");
    cells.forEach((text, i) => {
      const cell = document.createElement(i ? "td" : "th");
      if (!i) cell.scope = "row";
      if (text instanceof Node) cell.append(text); else cell.textContent = text;
      if (attributes[i]) cell.className = attributes[i];
      made.append(cell);
    });
    return made;
  }

  function named(scheme) {
    const cell = document.createElement("span");
    const key = element("svg", { width: 26, height: 10, "aria-hidden": "true" });
    key.append(element("path", { d: "M0 5H26", class: "series", style: stroke(scheme.name) }));
    cell.append(key, ` ${scheme.label}`);
    return cell;
  }

  // What every scheme did in the bin that the slider is at.
  function read() {
    const e = shown.environment, i = Number(moment.value);
    const from = (e.first + i) * e.width, to = from + e.width, begin = e.first * e.width;
    const when = `${+from.toFixed(3)} to ${+to.toFixed(3)} s`;
    moment.setAttribute("aria-valuetext", when);
    byId("when").textContent = when;
    const cursor = byId("cursor"), inner = Math.max(chart.clientWidth, 280) - LEFT - RIGHT;
    const x = LEFT + ((to - e.width / 2 - begin) / (e.count * e.width)) * inner;
    cursor.setAttribute("x1", x);
    cursor.setAttribute("x2", x);
    const number = (v, unit) => (Number.isNaN(v) ? "–" : `${brief(v)} ${unit}`);
    byId("reading").replaceChildren(...shown.schemes.map((s) =>
      row([named(s), number(s.goodput[i], "Mbps"), number(s.delay[i], "ms"), number(s.cwnd[i], "packets"), number(s.drops[i], "")])));
  }

  function results() {
    const head = document.createElement("tr");
    ["Scheme", ...shown.environment.windows.map(([a, b]) => `${a} to ${b} s`)].forEach((text) => {
      const cell = document.createElement("th");
      cell.scope = "col";
      cell.textContent = text;
      head.append(cell);
    });
    byId("windows-head").replaceChildren(head);
    byId("windows").replaceChildren(...shown.schemes.map((s) => row(
      [named(s), ...s.results.map(([goodput, delay, win]) =>
        goodput === null ? "nothing arrived" : `${brief(goodput)} Mbps, ${brief(delay)} ms${win ? ", won" : ""}`)],
      ["", ...s.results.map(([, , win]) => (win ? "won" : ""))])));
  }

  function tell(text) {
    byId("status").textContent = text;
  }

  const chosen = () => boxes.filter((box) => box.checked).map((box) => box.value);

  // Draws what is chosen; `at` (s) moves the slider there, else it stays where it is in the episode.
  async function show(at) {
    const id = picker.value, environment = page.environments[id];
    const { capacity, of } = await unpack(environment);
    if (picker.value !== id) return; // another was chosen meanwhile
    const schemes = chosen().filter((name) => of.has(name)).map((name) =>
      ({ name, label: page.labels[page.schemes.indexOf(name)], ...of.get(name) }));
    for (const box of boxes) {
      box.disabled = !box.checked && (chosen().length >= page.most || !of.has(box.value));
      box.parentElement.style.borderColor = box.checked ? look(box.value).colour : "";
    }
    shown = { id, environment, capacity, schemes };
    moment.max = environment.count - 1;
    if (at !== undefined) moment.value = Math.min(Math.max(Math.ceil(at / environment.width - 1e-6) - 1 - environment.first, 0), environment.count - 1);
    const absent = chosen().filter((name) => !of.has(name));
    byId("name").textContent = id;
    tell(absent.length ? `There is no trajectory of ${absent.join(", ")} in this environment.` : "");
    draw();
    results();
  }

  function remember() {
    const schemes = chosen().map(encodeURIComponent).join(",");
    history.replaceState(null, "", `#env=${encodeURIComponent(picker.value)}&schemes=${schemes}`);
  }

  function choose() {
    remember();
    return show();
  }

  // Takes the choice from the address; an address of another kind (a section's) changes nothing.
  async function follow(first) {
    const asked = new URLSearchParams(location.hash.slice(1));
    if (!first && !asked.has("env")) return;
    const id = asked.get("env") ?? page.start.environment, known = Object.hasOwn(page.environments, id);
    picker.value = known ? id : page.start.environment;
    const names = (asked.has("schemes") ? asked.get("schemes").split(",") : page.start.schemes).filter(Boolean);
    for (const box of boxes) box.checked = names.slice(0, page.most).includes(box.value);
    const environment = page.environments[picker.value];
    const changes = environment.windows.length ? environment.windows[0][0] : environment.first * environment.width;
    await show(asked.has("at") ? Number(asked.get("at")) : changes);
    const unknown = names.filter((name) => !page.schemes.includes(name));
    if (!known) tell(`This page has no environment ${id}: it shows another.`);
    else if (unknown.length) tell(`This page has no scheme ${unknown.join(", ")}.`);
    if (asked.has("env")) byId("explorer").scrollIntoView();
  }

  function step(by) {
    picker.selectedIndex = (picker.selectedIndex + by + picker.length) % picker.length;
    choose();
  }

  function point(event) {
    const at = (event.clientX - chart.getBoundingClientRect().left - LEFT) / (chart.clientWidth - LEFT - RIGHT);
    moment.value = Math.floor(at * shown.environment.count);
    read();
  }

  if (typeof DecompressionStream === "undefined") {
    byId("too-old").hidden = false;
    return;
  }
  picker.addEventListener("change", choose);
  boxes.forEach((box) => box.addEventListener("change", choose));
  byId("previous").addEventListener("click", () => step(-1));
  byId("next").addEventListener("click", () => step(1));
  moment.addEventListener("input", read);
  chart.addEventListener("pointermove", (event) => shown && point(event));
  chart.addEventListener("pointerdown", (event) => shown && point(event));
  addEventListener("hashchange", () => follow(false));
  byId("explorer").hidden = false;
  follow(true).then(() => new ResizeObserver(() => draw()).observe(chart));
})();
