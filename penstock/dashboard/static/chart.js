// Chart of columns over one of them, drawn while in view; also as a table, as CSV and as a picture.

import uPlot from "./uPlot.esm.js";
import { moved } from "./controls.js";
import { el, number } from "./dom.js";

// Okabe and Ito's colours, distinct with any colour vision; dashes are distinct without colour.
const COLORS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00"];
const DARK_COLORS = ["#56b4e9", "#e69f00", "#009e73", "#cc79a7", "#0090e0", "#d55e00"];
const GREYS = ["#b9c5cf", "#d3dce3", "#9fadb9"], DARK_GREYS = ["#465665", "#33414d", "#5b6d7d"];
const DASHES = [[], [6, 4], [2, 3], [8, 3, 2, 3]];
const TABLE_ROWS = 50, MOST_SAID = 20;
const HEIGHT = 200;

// Metrics of lines by name; null for lines without one.
export class Store {
  // columns: metrics by name, null for rows without one. most: largest number of names; leftOut: dropped values.
  constructor(columns, most = Infinity) {
    // Without a prototype, a metric may have any name.
    Object.assign(this, { columns: Object.assign(Object.create(null), columns), most, leftOut: 0 });
    this.count = columns.steps ? columns.steps.length : 0;
  }

  // Adds a line; returns whether it has a name that no line before it has.
  add(line) {
    let left = this.most - Object.keys(this.columns).length, isNew = false;
    for (const name of Object.keys(line)) {
      if (name in this.columns) continue;
      if (left-- > 0) {
        this.columns[name] = new Array(this.count).fill(null);
        isNew = true;
      } else this.leftOut += 1;
    }
    for (const name of Object.keys(this.columns)) this.columns[name].push(Object.hasOwn(line, name) ? line[name] ?? null : null);
    this.count += 1;
    return isNew;
  }

  // x, ascending and unique, and a column of each name; rows have a value of one of them at least.
  rows(x, names) {
    const at = this.columns[x] || [], columns = names.map((name) => this.columns[name] || []);
    const rows = [];
    for (let row = 0; row < this.count; row++) {
      if (at[row] !== null && at[row] !== undefined && columns.some((column) => column[row] !== null && column[row] !== undefined)) rows.push(row);
    }
    rows.sort((a, b) => at[a] - at[b]);
    return unique([rows.map((row) => at[row]), ...columns.map((column) => rows.map((row) => column[row] ?? null))]);
  }
}

// Rows of ascending x with one row for each x: of several values the last one, as lines of one step would be saw teeth.
function unique(data) {
  const [x, ...columns] = data, kept = [];
  const made = columns.map(() => []);
  x.forEach((at, row) => {
    if (!kept.length || at > kept[kept.length - 1]) {
      kept.push(at);
      columns.forEach((column, n) => made[n].push(column[row]));
    } else columns.forEach((column, n) => { if (column[row] !== null && column[row] !== undefined) made[n][kept.length - 1] = column[row]; });
  });
  return [kept, ...made];
}

function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

export const WAIT = -1;

// Colour of a number; `count` tells parts of one number apart, as of several waits.
export function colorOf(color, count = 0) {
  if (color === WAIT) return (isDark() ? DARK_GREYS : GREYS)[count % GREYS.length];
  const colors = isDark() ? DARK_COLORS : COLORS;
  return colors[color % colors.length];
}

export class Chart {
  // store: has rows(x, names). lines: name, label, color, dash and dots of each; width, faint, and edge for ends of bands.
  // options: view (x, smooth, logX, logY, clip, zoom), onZoom, kind, unit, target, height, note, bands: color, low, high, and of, the line within;
  // marks: label and act of buttons on the curve, each at a number of steps.
  constructor(title, store, lines, options) {
    Object.assign(this, { title, store, lines, options, plot: null, drawn: "", isSeen: false, isStale: true });
    this.canvas = el("div", { class: "canvas", role: "img", "aria-label": title, ondblclick: () => options.onZoom && options.onZoom(null) });
    this.table = el("div", { class: "wide", tabindex: "0", role: "region", "aria-label": `${title}, as a table`, hidden: true });
    this.button = el("button", { type: "button", "aria-pressed": "false", onclick: () => this.toggle() }, "Table");
    const csv = el("button", { type: "button", onclick: () => this.download() }, "CSV");
    const png = el("button", { type: "button", onclick: () => this.picture() }, "PNG");
    const unit = options.unit && options.unit !== "share" ? el("span", { class: "unit" }, options.unit) : null;
    this.value = el("span", { class: "value" });
    this.marks = (options.marks || []).map(({ label, act }) => el("button", { type: "button", class: "mark", "aria-label": label, title: label, onclick: act }));
    this.note = el("p", { class: "note", hidden: true });
    this.legend = el("div", { class: "legend" });
    this.hidden = new Set();
    this.owners = new Map((options.bands || []).flatMap(({ low, high, of }) => [[low, of], [high, of]]));
    this.element = el("figure", {}, el("figcaption", {}, el("span", { class: "title" }, title), unit, this.value, el("span", { class: "tools" }, this.button, csv, png)), this.note, el("div", { class: "plot" }, this.canvas, this.marks), this.legend, this.table);
    this.observer = new IntersectionObserver((entries) => {
      this.isSeen = entries[entries.length - 1].isIntersecting;
      if (this.isSeen && this.isStale) this.draw();
    }, { rootMargin: "200px" });
    this.observer.observe(this.element);
    this.height = options.height || HEIGHT;
    this.resizer = new ResizeObserver(() => { if (this.plot) this.plot.setSize({ width: this.width(), height: this.height }); });
    this.resizer.observe(this.element);
  }

  width() {
    return Math.max(200, this.element.clientWidth - 22);
  }

  update() {
    this.isStale = true;
    if (this.isSeen) this.draw();
  }

  draw() {
    this.isStale = false;
    const whole = this.data(), isArea = this.options.kind === "area";
    // A part that is never there would be a line at the edge of its neighbour.
    this.parts = this.lines.map((line, n) => ({ ...line, n })).filter(({ n }) => !this.hidden.has(this.owners.get(n) ?? n) && !(isArea && !whole[n + 1].some(Boolean)));
    this.raw = [whole[0], ...this.parts.map(({ n }) => whole[n + 1])];
    const shown = this.labelled(whole), label = shown.slice(0, MOST_SAID).map(([line, n]) => `${line.label} ${this.said(lastOf(whole[n + 1]))}`).join(", ");
    this.canvas.setAttribute("aria-label", `${this.title}: ${label}${shown.length > MOST_SAID ? ` and ${shown.length - MOST_SAID} other lines` : ""}`);
    const data = this.plotted();
    const { zoom, smooth, ...view } = this.options.view;
    const now = JSON.stringify([this.parts.map(({ n }) => n), view, Boolean(smooth)]);
    if (this.plot && now === this.drawn) this.plot.setData(data);
    else {
      if (this.plot) this.plot.destroy();
      this.plot = new uPlot(this.settings(), data, this.canvas);
    }
    this.drawn = now;
    this.explain();
    this.fillLegend(whole);
    if (!this.table.hidden) this.fillTable(whole);
  }

  // Draws the choices anew, of which one has changed: "zoom" leaves the data as they are.
  follow(what) {
    if (what !== "zoom" || !this.plot || !this.isSeen || this.isStale) return this.update();
    const x = this.plot.data[0], [min, max] = this.options.view.zoom || [x[0] ?? null, x[x.length - 1] ?? null];
    return this.plot.setScale("x", { min, max });
  }

  // Moves the range with the mouse until its button is released.
  drag(plot, event) {
    const { view, onZoom } = this.options, { min, max } = plot.scales.x, began = event.clientX;
    const move = ({ clientX }) => onZoom(moved([min, max], (began - clientX) / plot.over.clientWidth, view.logX));
    document.addEventListener("mousemove", move);
    document.addEventListener("mouseup", () => document.removeEventListener("mousemove", move), { once: true });
  }

  // Lines of the legend with their numbers: neither ends of bands, nor parts that are never there.
  labelled(whole) {
    return this.lines.map((line, n) => [line, n]).filter(([line, n]) => !line.edge && !line.faint && !(this.options.kind === "area" && !whole[n + 1].some(Boolean)));
  }

  data() {
    return this.store.rows(this.options.view.x, this.lines.map(({ name }) => name));
  }

  plotted() {
    const { view, kind, target } = this.options;
    let [x, ...columns] = this.raw;
    if (view.logX) {
      const first = x.findIndex((at) => at > 0);
      [x, ...columns] = [x, ...columns].map((column) => (first < 0 ? [] : column.slice(first)));
    }
    if (kind === "area") {
      let below = new Array(x.length).fill(0);
      columns = columns.map((column) => (below = column.map((value, row) => below[row] + (value ?? 0))));
    } else {
      if (view.smooth) columns = [...columns.map((column) => smoothed(column, view.smooth)), ...columns];
      if (view.logY) columns = columns.map((column) => column.map((value) => (value > 0 ? value : null)));
    }
    return target === undefined ? [x, ...columns] : [x, ...columns, x.map(() => target)];
  }

  settings() {
    const { view, kind, unit, target, bands = [] } = this.options, isArea = kind === "area";
    const dark = isDark(), ink = dark ? "#c9d4de" : "#33475a", grid = dark ? "#2b3946" : "#e3eaf0", paper = dark ? "#111a22" : "#ffffff";
    const axis = { stroke: ink, grid: { stroke: grid, width: 1 }, ticks: { stroke: grid, width: 1 }, font: "12px system-ui, sans-serif" };
    const isTime = view.x === "time";
    const short = (of) => (_, values) => values.map((value) => (value === null ? "" : shortened(value, of)));
    const wide = (_, values) => (values ? 22 + 7 * Math.max(...values.map((value) => String(value ?? "").length)) : 50);
    let waits = 0;
    const series = this.parts.map(({ color, dash = 0, width = 1.6, faint = false, edge = false, dots: isDotted = false }, n) => {
      const shown = colorOf(color, color === WAIT ? waits++ : 0);
      return {
        stroke: edge ? "transparent" : isArea ? paper : shown + (faint ? "99" : ""), width: edge ? 0 : isArea ? 1 : width, fill: isArea ? shown : undefined,
        dash: isArea ? [] : DASHES[(dash + Math.floor(Math.max(0, color) / COLORS.length)) % DASHES.length], spanGaps: true,
        points: { show: kind !== "area" && isDotted && this.isSparse(n + 1), size: 5 },
      };
    });
    if (!isArea && view.smooth) series.push(...series.map((each) => ({ ...each, stroke: each.stroke === "transparent" ? each.stroke : `${each.stroke}44`, width: 1, points: { show: false } })));
    if (target !== undefined) series.push({ stroke: ink, width: 1, dash: [2, 4], points: { show: false } });
    const place = new Map(this.parts.map(({ n }, at) => [n, at + 1]));
    const between = bands.map(({ color, low, high }) => ({ series: [place.get(high), place.get(low)], fill: `${colorOf(color)}33` })).filter(({ series: [high, low] }) => high && low);
    const stacked = isArea ? this.parts.slice(1).map((_, n) => ({ series: [n + 2, n + 1], fill: series[n + 1].fill })) : [];
    if (isArea) series.slice(1).forEach((each) => { each.fill = undefined; });
    return {
      width: this.width(), height: this.height, legend: { show: false }, bands: [...between, ...stacked],
      cursor: {
        drag: { setScale: false, x: true, y: false }, points: { show: !isArea && this.parts.length <= MOST_SAID },
        bind: { mousedown: (plot, _, select) => (event) => { if (event.shiftKey && this.options.onZoom) this.drag(plot, event); else select(event); } },
      },
      scales: {
        x: { time: isTime, distr: view.logX && !isTime ? 3 : 1, range: (_, low, high) => (view.zoom && view.zoom[1] > view.zoom[0] ? view.zoom : low === high ? [low - 1, high + 1] : [low, high]) },
        y: { distr: view.logY && !isArea ? 3 : 1, range: (_, low, high) => this.range(low, high) },
      },
      axes: [isTime ? { ...axis, size: 40 } : { ...axis, size: 30, values: short() }, { ...axis, size: wide, values: short(unit) }],
      series: [{}, ...series],
      hooks: {
        draw: [(plot) => { this.placeMarks(plot); performance.clearMarks("drawn"); performance.mark("drawn"); }], // measured by bench/dashboard.py
        setCursor: [(plot) => this.hovered(plot.cursor.idx)],
        setSelect: [(plot) => {
          const { left, width } = plot.select;
          if (width > 4 && this.options.onZoom) this.options.onZoom([plot.posToVal(left, "x"), plot.posToVal(left + width, "x")]);
          plot.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
        }],
      },
    };
  }

  // Places marks on the last line that has values; those outside of the range are hidden.
  placeMarks(plot) {
    this.marks.forEach((mark, n) => {
      const { steps, [this.options.view.x]: places } = this.store.columns, x = valueAt(steps, places, this.options.marks[n].steps);
      const y = plot.data.slice(1, this.parts.length + 1).filter((_, of) => !this.parts[of].edge).map((column) => valueAt(plot.data[0], column, x)).findLast((value) => value !== null) ?? null;
      const [left, top] = [[x, "x"], [y, "y"]].map(([value, scale]) => (value === null ? NaN : plot.valToPos(value, scale)));
      mark.hidden = !(left >= 0 && left <= plot.over.clientWidth && top >= 0 && top <= plot.over.clientHeight);
      if (!mark.hidden) [mark.style.left, mark.style.top] = [plot.over.offsetLeft + left, plot.over.offsetTop + top].map((place) => `${place}px`);
    });
  }

  isSparse(column) {
    return this.raw[column].filter((value) => value !== null).length <= 100;
  }

  range(low, high) {
    const { view, kind, unit } = this.options;
    if (low === null || high === null || !Number.isFinite(low) || !Number.isFinite(high)) return [view.logY ? 0.1 : 0, 1];
    if (view.logY && kind !== "area") return low === high ? [low / 2, high * 2] : uPlot.rangeLog(low, high, 10, false);
    if (unit === "share") return [Math.min(0, low), Math.max(1, high)];
    if (view.clip) [low, high] = this.middle(low, high);
    if (low === high) return low === 0 ? [0, 1] : [low - 0.1 * Math.abs(low), high + 0.1 * Math.abs(high)];
    return uPlot.rangeNum(low, high, 0.08, true);
  }

  // Bounds without the lowest and the highest hundredth of the values.
  middle(low, high) {
    const values = this.raw.slice(1).flat().filter((value) => value !== null).sort((a, b) => a - b);
    return values.length < 20 ? [low, high] : [values[Math.floor(0.01 * values.length)], values[Math.ceil(0.99 * values.length) - 1]];
  }

  // Notes on what the chart leaves out.
  explain() {
    const notes = this.options.note ? [this.options.note] : [];
    if (this.options.view.logY && this.options.kind !== "area") {
      const count = this.raw.slice(1).flat().filter((value) => value !== null && value <= 0).length;
      if (count) notes.push(`${number(count)} values that are not above 0 have no place on a logarithmic axis.`);
    }
    this.note.textContent = notes.join(" ");
    this.note.hidden = !notes.length;
  }

  said(value) {
    if (value === null || value === undefined) return "-";
    return this.options.unit === "share" ? `${(100 * value).toFixed(1)} %` : this.options.unit === "bytes" ? `${shortened(value, "bytes")}B` : number(value);
  }

  fillLegend(whole) {
    const { target } = this.options, shown = this.labelled(whole);
    const now = JSON.stringify([isDark(), shown.map(([line, n]) => [line.label, n])]);
    this.whole = whole;
    if (now !== this.legendOf) {
      this.legendOf = now;
      let waits = 0;
      this.entries = shown.map(([line, n]) => {
        const said = el("span", { class: "said" });
        const swatch = el("span", { class: `swatch dash${this.options.kind === "area" ? "" : (line.dash || 0) % DASHES.length}`, "aria-hidden": "true" });
        swatch.style.color = colorOf(line.color, line.color === WAIT ? waits++ : 0);
        const button = el("button", { type: "button", class: this.options.kind === "area" ? "area" : null, "aria-pressed": "true", onclick: () => {
          if (this.hidden.has(n)) this.hidden.delete(n);
          else this.hidden.add(n);
          button.setAttribute("aria-pressed", String(!this.hidden.has(n)));
          this.update();
        } }, swatch, `${line.label} `, said);
        return { n, said, button };
      });
      const named = [...new Set((this.options.bands || []).map(({ label }) => label))].filter(Boolean);
      const alone = this.entries.length === 1 && target === undefined && !this.options.isNamed && !named.length;
      this.legend.replaceChildren(...(alone ? [] : this.entries.map(({ button }) => button)));
      if (target !== undefined) this.legend.append(el("span", { class: "quiet" }, `target ${number(target)}`));
      if (named.length) this.legend.append(el("span", { class: "quiet" }, `bands: ${named.join(", ")}`));
    }
    this.hovered(this.plot.cursor.idx);
  }

  // Values at a row of the chart, or else the last ones.
  hovered(row) {
    if (!this.entries) return;
    const isOver = row !== null && row !== undefined && this.whole[0][row] !== undefined && this.whole[0].length === this.plot.data[0].length;
    const valueOf = (n) => this.said(isOver ? this.whole[n + 1][row] : lastOf(this.whole[n + 1]));
    for (const { n, said } of this.entries) {
      const outer = (this.options.bands || []).find(({ of }) => of === n);
      said.textContent = valueOf(n) + (outer ? ` (${valueOf(outer.low)} to ${valueOf(outer.high)})` : "");
    }
    const at = isOver ? this.whole[0][row] : null;
    const place = at === null ? "" : this.options.view.x === "time" ? new Date(1000 * at).toLocaleString("sv") : `${this.options.view.x} ${number(at)}`;
    const [only] = this.entries, named = only && this.lines[only.n].label !== this.title ? `${this.lines[only.n].label} ` : "";
    const alone = this.entries.length === 1 && !this.options.isNamed && !this.owners.size ? named + only.said.textContent : "";
    this.value.textContent = [place, alone].filter(Boolean).join(": ");
  }

  toggle() {
    this.table.hidden = !this.table.hidden;
    this.button.setAttribute("aria-pressed", String(!this.table.hidden));
    if (!this.table.hidden) this.fillTable(this.data());
  }

  fillTable(data) {
    const heads = [this.options.view.x, ...this.lines.map(({ label }) => label)];
    const first = Math.max(0, data[0].length - TABLE_ROWS);
    const rows = data[0].slice(first).map((at, n) => el("tr", {}, el("td", {}, number(at)), ...this.lines.map((_, k) => el("td", {}, number(data[k + 1][first + n])))));
    this.table.replaceChildren(el("table", {}, el("thead", {}, el("tr", {}, heads.map((head) => el("th", { scope: "col" }, head)))), el("tbody", {}, rows)));
  }

  download() {
    const data = this.data(), names = this.lines.map(({ name }) => name);
    const lines = [[this.options.view.x, ...names].map(quoted).join(",")];
    data[0].forEach((at, row) => lines.push([at, ...names.map((_, n) => data[n + 1][row] ?? "")].join(",")));
    this.save(new Blob([lines.join("\n") + "\n"], { type: "text/csv" }), "csv");
  }

  picture() {
    const found = this.canvas.querySelector("canvas");
    if (!found) return;
    const scale = devicePixelRatio || 1, head = 28 * scale, dark = isDark();
    const whole = el("canvas", { width: found.width, height: found.height + 2 * head }), pen = whole.getContext("2d");
    pen.fillStyle = dark ? "#111a22" : "#ffffff";
    pen.fillRect(0, 0, whole.width, whole.height);
    pen.drawImage(found, 0, head);
    pen.font = `${13 * scale}px system-ui, sans-serif`;
    pen.fillStyle = dark ? "#e4ecf3" : "#17324a";
    pen.fillText(this.title, 8 * scale, 18 * scale);
    let left = 8 * scale;
    for (const { n, button } of this.entries) {
      const words = this.lines[n].label;
      pen.fillStyle = button.querySelector(".swatch").style.color;
      pen.fillText(words, left, found.height + 1.7 * head);
      left += pen.measureText(words).width + 14 * scale;
    }
    whole.toBlob((blob) => this.save(blob, "png"));
  }

  save(blob, ending) {
    const url = URL.createObjectURL(blob);
    el("a", { href: url, download: `${this.title.replace(/[^\w.-]+/g, "-")}.${ending}` }).click();
    setTimeout(() => URL.revokeObjectURL(url), 1000);
  }

  rebuild() {
    this.drawn = "";
    this.legendOf = "";
    this.update();
  }

  destroy() {
    this.observer.disconnect();
    this.resizer.disconnect();
    if (this.plot) this.plot.destroy();
    this.plot = null;
  }
}

// Exponential mean of the values so far, without the pull of its start towards 0.
function smoothed(column, weight) {
  let sum = 0, total = 0;
  return column.map((value) => {
    if (value === null || value === undefined) return null;
    sum = weight * sum + (1 - weight) * value;
    total = weight * total + (1 - weight);
    return sum / total;
  });
}

// Value of a column at a place among the ascending places of its rows: on the line between two values, or the first or last one.
function valueAt(places, column = [], at) {
  let below = -1;
  for (let n = 0; n < places.length; n++) {
    if (places[n] === null || column[n] === null || column[n] === undefined) continue;
    if (places[n] >= at) return below < 0 || places[n] === at ? column[n] : column[below] + ((column[n] - column[below]) * (at - places[below])) / (places[n] - places[below]);
    below = n;
  }
  return below < 0 ? null : column[below];
}

function lastOf(values) {
  for (let n = values.length - 1; n >= 0; n--) if (values[n] !== null) return values[n];
  return null;
}

// Spreadsheets take a name with such a first character for a formula.
function quoted(name) {
  const safe = /^[=+\-@\t\r]/.test(name) ? `'${name}` : name;
  return `"${safe.replaceAll('"', '""')}"`;
}

function shortened(value, unit) {
  const size = Math.abs(value);
  if (unit === "share") return `${+(100 * value).toPrecision(3)} %`;
  for (const [factor, letter] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]]) if (size >= factor) return `${+(value / factor).toPrecision(3)} ${letter}`;
  return size !== 0 && size < 1e-3 ? value.toExponential(0) : String(+value.toPrecision(4));
}
