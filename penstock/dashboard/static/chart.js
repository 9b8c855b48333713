// Chart of columns over one of them, drawn while in view; also as a table, as CSV and as a picture.

import uPlot from "./uPlot.esm.js";
import { moved } from "./controls.js";
import { count, el, number } from "./dom.js";
import { COLORS, colorOf, inks, isDark, logTicks, shortened, ticks, WAIT } from "./looks.js";
import { drawingOf, pngOf, save, svgOf } from "./pictures.js";
import { valueAt } from "./store.js";

const DASHES = [[], [6, 4], [2, 3], [8, 3, 2, 3]];
const TABLE_ROWS = 50, MOST_SAID = 20;
const HEIGHT = 200;

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
    const pictures = [["PNG", pngOf], ["SVG", svgOf]].map(([kind, draw]) => el("button", { type: "button", onclick: async () => this.plot && save(this.title, await draw(this), kind.toLowerCase()) }, kind));
    const words = [options.unit === "share" ? "" : options.unit, options.isNamed ? `over ${options.view.x}` : ""].filter(Boolean);
    const unit = words.length ? el("span", { class: "unit" }, words.join(" ")) : null;
    this.value = el("span", { class: "value" });
    this.marks = [];
    this.note = el("p", { class: "note", hidden: true });
    this.legend = el("div", { class: "legend" });
    this.hidden = new Set();
    this.owners = new Map((options.bands || []).flatMap(({ low, high, of }) => [[low, of], [high, of]]));
    this.onPaper = el("div", { class: "on-paper" });
    this.element = el("figure", {}, this.onPaper, el("figcaption", {}, el("span", { class: "title" }, title), unit, this.value), this.note, el("div", { class: "plot" }, this.canvas), el("div", { class: "foot" }, this.legend, el("span", { class: "tools" }, this.button, csv, pictures)), this.table);
    this.mark(options.marks || []);
    this.observer = new IntersectionObserver((entries) => {
      this.isSeen = entries[entries.length - 1].isIntersecting;
      if (this.isSeen && this.isStale) this.draw();
    }, { rootMargin: "200px" });
    this.observer.observe(this.element);
    this.height = options.height || HEIGHT;
    this.resizer = new ResizeObserver(() => { if (this.plot) this.plot.setSize({ width: this.width(), height: this.height }); });
    this.resizer.observe(this.element);
    this.printing = new AbortController();
    window.addEventListener("beforeprint", () => this.print(), this.printing);
    window.addEventListener("afterprint", () => this.onPaper.replaceChildren(), this.printing);
  }

  // Draws the picture that stands for the chart on paper: it fits any width, and is there for charts that were never in view.
  print() {
    if (this.isStale) this.draw();
    this.plot.batch(() => {}); // draws what it has postponed, such as the texts of its axes
    this.onPaper.replaceChildren(drawingOf(this));
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
    this.isWhole = whole.slice(1).every((column) => column.every((value) => value === null || Number.isInteger(value)));
    // A part that never occurs would be a line at the edge of its neighbour; an end without its band would stretch the axis.
    this.parts = this.lines.map((line, n) => ({ ...line, n })).filter(({ n, edge }) => !(edge && !this.owners.has(n)) && !this.hidden.has(this.owners.get(n) ?? n) && !(isArea && !whole[n + 1].some(Boolean)));
    this.raw = [whole[0], ...this.parts.map(({ n }) => whole[n + 1])];
    const shown = this.labelled(whole), label = shown.slice(0, MOST_SAID).map(([line, n]) => `${line.label} ${this.said(lastOf(whole[n + 1]))}`).join(", ");
    this.canvas.setAttribute("aria-label", `${this.title}: ${label}${shown.length > MOST_SAID ? ` and ${shown.length - MOST_SAID} other lines` : ""}`);
    const data = this.plotted();
    const { x, smooth } = this.options.view, now = JSON.stringify([this.parts.map(({ n }) => n), x, Boolean(smooth)]);
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

  // Shows the newest numbers without drawing.
  tell() {
    this.isStale = true;
    if (!this.plot || !this.isSeen || this.plot.cursor.idx != null) return;
    const whole = this.data();
    this.fillLegend(whole);
    if (!this.table.hidden) this.fillTable(whole);
  }

  // Draws again after a choice has changed: "zoom" leaves the data as they are.
  follow(what) {
    if (what !== "zoom" || !this.plot || !this.isSeen || this.isStale) return this.update();
    const x = this.plot.data[0], [min, max] = this.shownRange(x[0] ?? null, x[x.length - 1] ?? null);
    return this.plot.setScale("x", { min, max });
  }

  // Moves the range with the mouse until its button is released.
  drag(plot, event) {
    const { view, onZoom } = this.options, { min, max } = plot.scales.x, began = event.clientX;
    const ends = [min, max].map((end) => this.valueOf(end, "x")), move = ({ clientX }) => onZoom(moved(ends, (began - clientX) / plot.over.clientWidth, view.logX));
    document.addEventListener("mousemove", move);
    document.addEventListener("mouseup", () => document.removeEventListener("mousemove", move), { once: true });
  }

  // Lines of the legend with their numbers: neither ends of bands, nor parts that never occur.
  labelled(whole) {
    return this.lines.map((line, n) => [line, n]).filter(([line, n]) => !line.edge && !line.faint && !(this.options.kind === "area" && !whole[n + 1].some(Boolean)));
  }

  data() {
    return this.store.rows(this.options.view.x, this.lines.map(({ name }) => name));
  }

  // Whether an axis is logarithmic: the plot then has logarithms, because another kind of scale would need a new plot.
  isLog(axis) {
    return axis === "x" ? this.options.view.logX && this.options.view.x !== "time" : this.options.view.logY && this.options.kind !== "area";
  }

  // Value on the plot's scale; null for values without a logarithm.
  scaled(value, axis) {
    return !this.isLog(axis) ? value : value > 0 ? Math.log10(value) : null;
  }

  valueOf(scaled, axis) {
    return this.isLog(axis) ? 10 ** scaled : scaled;
  }

  plotted() {
    const { view, kind, target } = this.options;
    let [x, ...columns] = this.raw;
    if (this.isLog("x")) {
      const first = x.findIndex((at) => at > 0);
      [x, ...columns] = [x, ...columns].map((column) => (first < 0 ? [] : column.slice(first)));
      x = x.map(Math.log10);
    }
    if (kind === "area") {
      let below = new Array(x.length).fill(0);
      columns = columns.map((column) => (below = column.map((value, row) => below[row] + (value ?? 0))));
    } else {
      if (view.smooth) columns = [...columns.map((column) => smoothed(column, view.smooth)), ...columns];
      if (this.isLog("y")) columns = columns.map((column) => column.map((value) => (value > 0 ? Math.log10(value) : null)));
    }
    return target === undefined ? [x, ...columns] : [x, ...columns, x.map(() => this.scaled(target, "y"))];
  }

  settings() {
    const { view, kind, unit, target, bands = [] } = this.options, isArea = kind === "area", { ink, grid, paper } = inks();
    const axis = { stroke: ink, grid: { stroke: grid, width: 1 }, ticks: { stroke: grid, width: 1 }, font: "12px system-ui, sans-serif" };
    const isTime = view.x === "time";
    const short = (axis, of) => (_, values) => values.map((value) => (value === null ? "" : shortened(this.valueOf(value, axis), of)));
    const splits = (axis) => (plot, _, low, high, step) => (this.isLog(axis) ? logTicks(low, high, plot.bbox[axis === "x" ? "width" : "height"] / uPlot.pxRatio) : ticks(low, high, axis === "y" && this.isWhole && unit !== "share" ? Math.max(1, step) : step));
    const wide = (_, values) => (values ? 22 + 7 * Math.max(...values.map((value) => String(value ?? "").length)) : 50);
    let waits = 0;
    const series = this.parts.map(({ color, dash = 0, width = 1.6, faint = false, edge = false, dots: isDotted = false }, n) => {
      const shown = colorOf(color, color === WAIT ? waits++ : 0);
      return {
        stroke: edge ? "transparent" : isArea ? paper : shown + (faint ? "99" : ""), width: edge ? 0 : isArea ? 1 : width, fill: isArea ? shown : undefined,
        dash: isArea ? [] : DASHES[dashOf({ color, dash })], spanGaps: true,
        points: { show: kind !== "area" && !edge && this.isSparse(n + 1, isDotted ? 100 : 1), size: 5 },
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
        x: { time: isTime, range: (_, low, high) => this.shownRange(low, high) },
        y: { range: (_, low, high) => this.range(low, high) },
      },
      axes: [isTime ? { ...axis, size: 40 } : { ...axis, size: 30, splits: splits("x"), values: short("x") }, { ...axis, size: wide, splits: splits("y"), values: short("y", unit) }],
      series: [{}, ...series],
      hooks: {
        draw: [(plot) => { this.placeMarks(plot); performance.clearMarks("drawn"); performance.mark("drawn"); }], // measured by bench/dashboard.py
        setCursor: [(plot) => this.hovered(plot.cursor.idx)],
        setSelect: [(plot) => {
          const { left, width } = plot.select;
          if (width > 4 && this.options.onZoom) this.options.onZoom([left, left + width].map((end) => this.valueOf(plot.posToVal(end, "x"), "x")));
          plot.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
        }],
      },
    };
  }

  // Existing marks keep their buttons, and so the focus.
  mark(marks) {
    const before = this.marks;
    this.options.marks = marks;
    this.marks = marks.map(({ label, act }) => before.find((mark) => mark.title === label) ?? el("button", { type: "button", class: "mark", "aria-label": label, title: label, onclick: act }));
    for (const mark of before) if (!this.marks.includes(mark)) mark.remove();
    this.canvas.parentElement.append(...this.marks.filter((mark) => !before.includes(mark)));
    if (this.plot) this.placeMarks(this.plot);
  }

  // Places marks on the last line that has values; those outside of the range are hidden.
  placeMarks(plot) {
    this.marks.forEach((mark, n) => {
      const { steps, [this.options.view.x]: places } = this.store.columns, x = this.scaled(valueAt(steps, places, this.options.marks[n].steps), "x");
      const y = plot.data.slice(1, this.parts.length + 1).filter((_, of) => !this.parts[of].edge).map((column) => valueAt(plot.data[0], column, x)).findLast((value) => value !== null) ?? null;
      const [left, top] = [[x, "x"], [y, "y"]].map(([value, scale]) => (value === null ? NaN : plot.valToPos(value, scale)));
      mark.hidden = !(left >= 0 && left <= plot.over.clientWidth && top >= 0 && top <= plot.over.clientHeight);
      if (!mark.hidden) [mark.style.left, mark.style.top] = [plot.over.offsetLeft + left, plot.over.offsetTop + top].map((place) => `${place}px`);
    });
  }

  isSparse(column, most) {
    return this.raw[column].filter((value) => value !== null).length <= most;
  }

  // Ends of the horizontal axis, given those of the data.
  shownRange(low, high) {
    const { zoom } = this.options.view;
    if (zoom && zoom[1] > zoom[0] && this.scaled(zoom[1], "x") !== null) return [this.scaled(zoom[0], "x") ?? low, this.scaled(zoom[1], "x")];
    return low === high && low !== null ? [low - 1, high + 1] : [low, high];
  }

  // Ends of the vertical axis.
  range(low, high) {
    const { view, unit } = this.options;
    if (low === null || high === null || !Number.isFinite(low) || !Number.isFinite(high)) return [this.isLog("y") ? -1 : 0, 1];
    if (this.isLog("y")) return low === high ? [low - 0.3, high + 0.3] : [low - 0.04 * (high - low), high + 0.04 * (high - low)];
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
    if (this.isLog("y")) {
      const lost = this.raw.slice(1).flat().filter((value) => value !== null && value <= 0).length;
      if (lost) notes.push(`${count(lost)} values that are not above 0 have no place on a logarithmic axis.`);
    }
    this.note.textContent = notes.join(" ");
    this.note.hidden = !notes.length;
  }

  said(value) {
    if (value === null || value === undefined) return "-";
    return this.options.unit === "share" ? `${(100 * value).toFixed(1)} %` : (this.options.unit || "").startsWith("bytes") ? `${shortened(value, "bytes", 3)}B` : this.isWhole ? count(value) : number(value);
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
        const swatch = el("span", { class: `swatch dash${this.options.kind === "area" ? "" : dashOf(line)}`, "aria-hidden": "true" });
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
    save(this.title, new Blob([lines.join("\n") + "\n"], { type: "text/csv" }), "csv");
  }

  rebuild() {
    this.drawn = "";
    this.legendOf = "";
    this.update();
  }

  destroy() {
    this.observer.disconnect();
    this.resizer.disconnect();
    this.printing.abort();
    if (this.plot) this.plot.destroy();
    this.plot = null;
  }
}

// Exponential mean of the values so far, corrected for its start at 0.
function smoothed(column, weight) {
  let sum = 0, total = 0;
  return column.map((value) => {
    if (value === null || value === undefined) return null;
    sum = weight * sum + (1 - weight) * value;
    total = weight * total + (1 - weight);
    return sum / total;
  });
}

// Lines beyond the number of colours reuse colours with other dashes.
function dashOf({ color, dash = 0 }) {
  return (dash + Math.floor(Math.max(0, color) / COLORS.length)) % DASHES.length;
}

function lastOf(values) {
  for (let n = values.length - 1; n >= 0; n--) if (values[n] !== null) return values[n];
  return null;
}

// Spreadsheets read a name with such a first character as a formula.
function quoted(name) {
  const safe = /^[=+\-@\t\r]/.test(name) ? `'${name}` : name;
  return `"${safe.replaceAll('"', '""')}"`;
}
