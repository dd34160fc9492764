// Interactive charts: values at the pointer, zoom, pan, logarithm, smoothing, series on and off, a table, CSV.
// They work by pointer, touch and keyboard. A browser without scripts shows the plain drawing of charts.py.
const SVG = "http://www.w3.org/2000/svg", SIDE = 1000;
// A curve with SMOOTH_FROM points or more has a running mean over SMOOTHED percent of them; more than CROWDED dots are
// drawn small.
const SMOOTH_FROM = 40, SMOOTHED = 5, CROWDED = 24, LABELLED_MARKS = 4, LOG_FROM = 40;
// How the reader left each chart, by its section and title, so that a newer copy of the page looks the same.
const views = new Map();

function made(name, className = "", words = "") {
  const element = document.createElement(name);
  if (className) element.className = className;
  element.textContent = words;
  return element;
}
function shape(name, attributes, parts = []) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...parts);
  return element;
}
const picture = (viewBox, parts) => shape("svg", { viewBox, preserveAspectRatio: "none", "aria-hidden": "true" }, parts);
const figure = (value) => value.toLocaleString("en", { maximumSignificantDigits: 4 });
// The label of a tick, without needless digits; with an exponent if it would be long otherwise.
const tickLabel = (value) => (value && (Math.abs(value) < 1e-4 || Math.abs(value) >= 1e7)
  ? Number(value.toPrecision(4)).toExponential().replace("+", "") : value.toLocaleString("en", { maximumSignificantDigits: 10 }));

const nearest = (points, x) => points.reduce((one, other) => (Math.abs(other[0] - x) <= Math.abs(one[0] - x) ? other : one));

function runningMean(points, percent) {
  const half = Math.round((points.length * percent) / 200);
  return points.map(([x], at) => {
    const near = points.slice(Math.max(0, at - half), at + half + 1);
    return [x, near.reduce((sum, [, y]) => sum + y, 0) / near.length];
  });
}

// Round ticks within a range: 1, 2 or 5 times a power of ten; on a logarithmic axis with a wide range, powers of ten.
function ticks(low, high, wanted, log) {
  if (log) {
    const all = [], every = Math.ceil(Math.log10(high / low) / 8);
    for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power += every)
      for (const factor of high / low < 100 ? [1, 2, 5] : high / low < 3000 ? [1, 3] : [1]) all.push(factor * 10 ** power);
    const inside = all.filter((tick) => tick >= low && tick <= high);
    if (inside.length > 1) return inside;
  }
  const raw = (high - low) / wanted, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((each) => each >= raw * 0.999);
  const all = [], last = high * (1 + 1e-12) + step * 1e-9;
  // Beyond 2 ** 53, adding 1 does not change a number, so without a limit the loop would never end.
  for (let at = Math.ceil(low / step - 1e-9); at * step <= last && all.length <= wanted; at++) all.push(at * step || 0);
  return all;
}

// What each button of page.html, or its key, does to a chart.
const ACTIONS = {
  "+": (chart) => chart.zoom(2, chart.view.at ?? undefined),
  "-": (chart) => chart.zoom(0.5),
  0: (chart) => chart.change({ ...chart.first, table: chart.view.table }),
  l: (chart) => chart.change({ log: !chart.view.log }),
  s: (chart) => chart.change({ smooth: chart.view.smooth ? 0 : SMOOTHED }),
  t: (chart) => chart.change({ table: !chart.view.table }),
  c: (chart) => chart.save(),
};
const SAME_KEY = { "=": "+", Escape: "0" }, SIDES = { ArrowLeft: -1, ArrowRight: 1 };

class Chart {
  constructor(home) {
    this.home = home;
    this.plot = home.querySelector(".plot");
    this.output = home.querySelector("output");
    Object.assign(this, JSON.parse(this.plot.dataset.chart));
    const values = this.series.flatMap(({ points }) => points.map(([, y]) => y)), apart = Math.max(...values) / Math.min(...values);
    this.first = {
      range: null, off: [], at: null, table: false,
      log: this.log && apart >= LOG_FROM && Number.isFinite(apart),
      smooth: this.smooth && this.series[0].points.length >= SMOOTH_FROM ? SMOOTHED : 0,
    };
    this.key = `${home.closest("[data-key]")?.dataset.key} ${home.closest("section").id} ${this.title}`;
    this.view = { ...this.first, ...views.get(this.key) };
    this.cursor = made("span", "cursor");
    [this.fingers, this.toggles] = [new Map(), new Map()];
    this.addKeys();
    this.addTools();
    this.listen();
    const closed = home.closest("details:not([open])"); // one of hundreds of hosts: draw it when opened
    if (closed) closed.addEventListener("toggle", () => this.draw(), { once: true });
    else this.draw();
  }
  get range() { return this.view.range || this.steps; }
  get finest() { return this.shown.reduce((one, each) => (each.points.length > one.length ? each.points : one), []); }
  get shown() { return this.series.filter((each) => !this.view.off.includes(each.name)); }

  change(what) {
    Object.assign(this.view, what);
    views.set(this.key, this.view);
    this.draw();
  }
  zoom(factor, about = (this.range[0] + this.range[1]) / 2) {
    const [low, high] = this.range;
    this.show(about - (about - low) / factor, about + (high - about) / factor);
  }
  pan(share) {
    const [low, high] = this.range, by = Math.max(this.steps[0] - low, Math.min(this.steps[1] - high, (high - low) * share));
    this.show(low + by, high + by);
  }
  show(low, high) {
    const [first, last] = this.steps, least = (last - first) / 1e4;
    if (high - low < least) return;
    [low, high] = [Math.max(first, low), Math.min(last, high)];
    this.change({ range: low <= first && high >= last ? null : [low, high] });
  }

  draw() {
    const { view } = this;
    this.plot.replaceChildren(...this.drawing(), this.cursor);
    this.cursor.hidden = true;
    for (const [button, on] of this.toggles) button.setAttribute("aria-pressed", String(on()));
    this.slider.value = view.smooth;
    this.home.querySelector(".values")?.remove();
    if (view.table) this.home.append(this.table());
    if (view.at !== null) this.read(view.at);
  }
  drawing() {
    const [low, high] = this.range, { log, smooth } = this.view;
    const lines = this.shown.map((each) => {
      const fine = each.points.filter(([, y]) => !log || y > 0), mean = smooth && each.style !== "dots" ? runningMean(fine, smooth) : null;
      return { each, fine: this.within(fine), mean: mean && this.within(mean) };
    });
    const values = lines.flatMap(({ fine }) => fine.map(([, y]) => y));
    let [bottom, top] = values.length ? [Math.min(...values), Math.max(...values)] : [1, 2];
    if (log) [bottom, top] = [bottom / 1.06, top * 1.06];
    else {
      const span = top - bottom, room = span > 1e-9 * Math.abs(top) ? span * 0.05 : Math.abs(top) * 0.1 || 1;
      bottom = this.zero || (bottom >= 0 && bottom < top / 3) ? 0 : bottom - room;
      top = this.top === null ? top + room : Math.max(this.top, top);
    }
    const scale = log ? Math.log : (value) => value, share = (value, from, to) => (scale(value) - scale(from)) / (scale(to) - scale(from));
    const across = (x) => (x - low) / (high - low || 1), up = (y) => share(y, bottom, top);
    const place = ([x, y]) => `${(across(x) * SIDE).toFixed(1)} ${(SIDE - up(y) * SIDE).toFixed(1)}`;
    const paths = [], labels = [], path = (d, className) => paths.push(shape("path", { d, class: className }));
    const label = (className, words, side, at) => {
      const element = made("span", className, words);
      element.style[side] = `${at * 100}%`;
      labels.push(element);
      return element;
    };
    for (const tick of ticks(bottom, top, 4, log)) {
      path(`M0 ${SIDE - up(tick) * SIDE}H${SIDE}`, "rule");
      label("y", tickLabel(tick), "bottom", up(tick));
    }
    for (const tick of ticks(low, high, this.size === "large" ? 8 : 4, false)) label("x", tickLabel(tick), "left", across(tick));
    label("axis", this.axis, "", 0);
    const isLabelled = this.size === "large" && this.marks.length <= LABELLED_MARKS;
    for (const [x, words] of this.marks.filter(([at]) => at >= low && at <= high)) {
      const mark = label(across(x) < 0.75 ? "mark" : "mark left", "", "left", across(x));
      if (isLabelled) mark.append(made("span", "", words));
    }
    for (const { each, fine, mean } of lines) {
      if (!fine.length) continue;
      const corners = fine.map(place), dots = fine.length === 1 || each.style === "dots";
      path(`M${corners.join("L")}`, dots ? "thread" : mean ? `${each.style} behind` : each.style);
      // A line of no length with round ends is a dot that stays round when the drawing is stretched.
      if (dots) path(`M${corners.join("h.01M")}h.01`, fine.length > CROWDED ? "dots many" : "dots");
      if (mean?.length > 1) path("M" + mean.map(place).join("L"), each.style);
      if (each.letter) {
        const [x, y] = fine.findLast(([at]) => at <= high) || fine[0];
        const end = label("letter", each.letter, "left", Math.min(0.98, Math.max(0, across(x))));
        end.style.bottom = `${Math.min(0.95, Math.max(0, up(y))) * 100}%`;
      }
    }
    return [picture(`0 0 ${SIDE} ${SIDE}`, paths), ...labels];
  }
  // The points in the range, and one more at either end, so that lines reach the edges.
  within(points) {
    const [low, high] = this.range, first = points.findIndex(([x]) => x >= low), last = points.findLastIndex(([x]) => x <= high);
    return first < 0 || last < 0 ? [] : points.slice(Math.max(0, first - (points[first][0] > low)), last + 2);
  }

  read(x) {
    const [low, high] = this.range, { finest } = this;
    if (!finest.length) return;
    const main = nearest(finest, Math.min(high, Math.max(low, x)));
    const near = this.shown.filter((each) => each.points.length).map((each) => [each.letter || each.name, nearest(each.points, main[0])])
      .filter(([, point]) => Math.abs(point[0] - main[0]) <= (high - low) / 100);
    this.view.at = main[0];
    this.cursor.style.left = `${((main[0] - low) / (high - low || 1)) * 100}%`;
    this.cursor.hidden = false;
    this.output.textContent = `${this.axis} ${main[0].toLocaleString("en")}  ` +
      near.map(([name, [, value]]) => (near.length > 1 ? name + " " : "") + figure(value)).join(", ") + ` ${this.unit}`;
  }
  step(by) {
    const [low, high] = this.range, inside = this.finest.filter(([x]) => x >= low && x <= high);
    if (!inside.length) return;
    const last = inside.length - 1, from = by > 0 ? -1 : last + 1;
    const at = this.view.at === null ? from : inside.indexOf(nearest(inside, this.view.at));
    this.read(inside[Math.min(last, Math.max(0, at + by))][0]);
  }
  leave() {
    this.view.at = null;
    this.cursor.hidden = true;
    this.output.textContent = "";
  }

  // Toggle buttons: each stays pressed while what it controls (a series, the mean, the axis, the table) is shown.
  addKeys() {
    const keys = this.home.querySelector(".keys");
    if (this.first.smooth) {
      const key = made("button", "toggle", "running mean");
      key.prepend(made("i", "key mean"));
      key.value = "s";
      keys.querySelector("i")?.classList.add("behind");
      keys.append(key);
    }
    for (const { name } of this.series) {
      const key = [...keys.children].find((each) => each.textContent === name), off = () => this.view.off;
      if (key) key.onclick = () => this.change({ off: off().includes(name) ? off().filter((each) => each !== name) : [...off(), name] });
      if (key) this.toggles.set(key, () => !off().includes(name));
    }
  }
  addTools() {
    this.home.append(document.querySelector("template").content.cloneNode(true));
    this.slider = this.home.querySelector("input");
    this.slider.oninput = () => this.change({ smooth: Number(this.slider.value) });
    const pressed = { l: () => this.view.log, s: () => this.view.smooth > 0, t: () => this.view.table };
    for (const button of this.home.querySelectorAll("button[value]")) {
      button.onclick = () => ACTIONS[button.value](this);
      if (pressed[button.value]) this.toggles.set(button, pressed[button.value]);
    }
  }

  listen() {
    const { plot } = this, place = (event) => {
      const box = plot.getBoundingClientRect(), [low, high] = this.range;
      return low + ((event.clientX - box.left) / box.width) * (high - low);
    };
    plot.tabIndex = 0;
    plot.setAttribute("role", "group");
    plot.setAttribute("aria-label", `${this.title}: a chart. Arrows read values, + and - zoom, shift and arrows pan, l logarithm, s smoothing, t table, 0 show everything`);
    plot.addEventListener("pointerdown", (event) => {
      if (event.button) return;
      plot.setPointerCapture(event.pointerId);
      this.fingers.set(event.pointerId, { x: place(event), from: event.clientX, at: event.clientX });
    });
    plot.addEventListener("pointermove", (event) => {
      const finger = this.fingers.get(event.pointerId);
      if (finger) finger.at = event.clientX;
      if (finger && this.fingers.size === 2) this.pinch(plot.getBoundingClientRect());
      else if (finger && event.shiftKey) {
        const [low, high] = this.range;
        this.pan((finger.x - place(event)) / (high - low));
      } else this.read(place(event));
    });
    const up = (event) => {
      const finger = this.fingers.get(event.pointerId), alone = this.fingers.size === 1;
      this.fingers.delete(event.pointerId);
      if (finger && alone && event.type === "pointerup" && event.pointerType !== "touch" && !event.shiftKey && Math.abs(event.clientX - finger.from) > 8)
        this.show(Math.min(finger.x, place(event)), Math.max(finger.x, place(event)));
    };
    plot.addEventListener("pointerup", up);
    plot.addEventListener("pointercancel", up);
    plot.addEventListener("pointerleave", () => this.leave());
    plot.addEventListener("dblclick", () => ACTIONS[0](this));
    plot.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      this.zoom(event.deltaY < 0 ? 1.25 : 0.8, place(event));
    }, { passive: false });
    plot.addEventListener("keydown", (event) => this.press(event));
  }
  // Zoom and pan so that the points below two fingers stay below them.
  pinch(box) {
    const [one, other] = [...this.fingers.values()].sort((a, b) => a.x - b.x), [a, b] = [one.at, other.at].map((at) => (at - box.left) / box.width);
    if (b - a < 0.02) return;
    const span = (other.x - one.x) / (b - a), low = one.x - a * span;
    this.show(low, low + span);
  }
  press(event) {
    const side = SIDES[event.key], act = ACTIONS[SAME_KEY[event.key] ?? event.key];
    if (event.ctrlKey || event.metaKey || event.altKey || !(side || act)) return;
    event.preventDefault();
    if (act) act(this);
    else if (event.shiftKey) this.pan(side / 4);
    else this.step(side);
  }

  rows() {
    const rows = new Map(), [low, high] = this.range;
    this.shown.forEach((each, column) => {
      for (const [x, y] of each.points) if (x >= low && x <= high) rows.set(x, Object.assign(rows.get(x) || [], { [column]: y }));
    });
    return [...rows].sort(([a], [b]) => a - b).map(([x, values]) => [x, ...this.shown.map((_, column) => values[column] ?? "")]);
  }
  get head() { return [this.axis, ...this.shown.map((each) => each.name)]; }
  table() {
    const frame = made("div", "values"), table = made("table");
    frame.tabIndex = 0;
    table.append(made("caption", "", `${this.title} ${this.unit}`));
    const add = (cells, name) => {
      const row = table.insertRow();
      for (const cell of cells) row.append(made(name, "", String(cell)));
    };
    add(this.head, "th");
    for (const cells of this.rows()) add(cells, "td");
    frame.append(table);
    return frame;
  }
  save() {
    // A spreadsheet would take a name with such a beginning for a formula.
    const cell = (value) => (typeof value === "number" ? value : `"${(/^[=+@\t\r-]/.test(value) ? "'" : "") + value.replaceAll('"', '""')}"`);
    const lines = [this.head, ...this.rows()].map((row) => row.map((value) => (value === "" ? "" : cell(value))).join(","));
    const link = made("a");
    link.href = URL.createObjectURL(new Blob([lines.join("\n") + "\n"], { type: "text/csv" }));
    link.download = `${this.title.replace(/[^\w.-]+/g, "-") || "chart"}.csv`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }
}

// Add a button next to a command, which copies it.
function addCopy(code) {
  const button = made("button", "copy", "copy");
  button.onclick = async () => {
    try { await navigator.clipboard.writeText(code.textContent); button.textContent = "copied"; }
    catch { getSelection().selectAllChildren(code); button.textContent = "selected"; }
    setTimeout(() => { button.textContent = "copy"; }, 2000);
  };
  code.after(button);
}

// Fill the list of contents with links to the sections of this page.
function addContents() {
  const home = document.querySelector(".contents");
  home?.replaceChildren(...[...document.querySelectorAll("section[id] > h2")].map((title) => {
    const link = made("a", "", title.textContent);
    link.href = `#${title.parentNode.id}`;
    return link;
  }));
}

function enhance(part) {
  for (const home of part.querySelectorAll("figure.chart")) new Chart(home);
  for (const pre of part.querySelectorAll("#lines pre, .trouble pre")) pre.scrollTop = pre.scrollHeight;
  for (const code of part.querySelectorAll(".command code")) addCopy(code);
  addContents();
}
enhance(document);
