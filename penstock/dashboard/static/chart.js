// Chart of columns over one of them, drawn while in view; also as a table and as CSV.

import uPlot from "./uPlot.esm.js";
import { el, number } from "./dom.js";

// Okabe and Ito's colours, distinct with any colour vision; dashes are distinct without colour.
const COLORS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00"];
const DARK_COLORS = ["#56b4e9", "#e69f00", "#009e73", "#cc79a7", "#0090e0", "#d55e00"];
const DASHES = [[], [6, 4], [2, 3], [8, 3, 2, 3]];
const TABLE_ROWS = 50;
const HEIGHT = 200;

// Metrics of lines by name; null for lines without one.
export class Store {
  // columns: metrics by name, null for rows without one. most: largest number of names; leftOut: dropped values.
  constructor(columns, most = Infinity) {
    Object.assign(this, { columns, most, leftOut: 0 });
    this.count = columns.steps ? columns.steps.length : 0;
  }

  add(line) {
    let left = this.most - Object.keys(this.columns).length;
    for (const name of Object.keys(line)) {
      if (name in this.columns) continue;
      if (left-- > 0) this.columns[name] = new Array(this.count).fill(null);
      else this.leftOut += 1;
    }
    for (const name of Object.keys(this.columns)) this.columns[name].push(line[name] ?? null);
    this.count += 1;
  }

  // Rows with a value of any of these names, in ascending order of x.
  rows(x, names) {
    const at = this.columns[x] || [], columns = names.map((name) => this.columns[name] || []);
    const rows = [];
    for (let row = 0; row < this.count; row++) {
      if (at[row] !== null && at[row] !== undefined && columns.some((column) => column[row] !== null && column[row] !== undefined)) rows.push(row);
    }
    rows.sort((a, b) => at[a] - at[b]);
    return [rows.map((row) => at[row]), ...columns.map((column) => rows.map((row) => column[row] ?? null))];
  }
}

function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

export class Chart {
  // store: a Store. names: columns. labels: labels of the columns. options: x(), target, least, most, height;
  // looks: color (a number), width, faintness and band edge of each column; bands: color, low, high.
  constructor(title, store, names, labels, options) {
    Object.assign(this, { title, store, names, labels, options, plot: null, isSeen: false, isStale: true });
    this.canvas = el("div", { class: "canvas", role: "img", "aria-label": title });
    this.table = el("div", { class: "wide", tabindex: "0", role: "region", "aria-label": `${title}, as a table`, hidden: true });
    this.button = el("button", { type: "button", "aria-pressed": "false", onclick: () => this.toggle() }, "Table");
    const csv = el("button", { type: "button", onclick: () => this.download() }, "CSV");
    this.element = el("figure", {}, el("figcaption", {}, el("span", {}, title), this.button, csv), this.canvas, this.table);
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
    return Math.max(200, this.element.clientWidth - 2);
  }

  update() {
    this.isStale = true;
    if (this.isSeen) this.draw();
  }

  draw() {
    this.isStale = false;
    const data = this.data();
    const last = this.labels.map((label, n) => `${label} ${number(lastOf(data[n + 1]))}`).join(", ");
    this.canvas.setAttribute("aria-label", `${this.title}: ${last}`);
    if (this.plot) this.plot.setData(data);
    else this.plot = new uPlot(this.settings(), data, this.canvas);
    if (!this.table.hidden) this.fillTable(data);
  }

  data() {
    const data = this.store.rows(this.options.x(), this.names);
    if (this.options.target !== undefined) data.push(data[0].map(() => this.options.target));
    return data;
  }

  settings() {
    const dark = isDark();
    const ink = dark ? "#c9d4de" : "#33475a", grid = dark ? "#2b3946" : "#e3eaf0", colors = dark ? DARK_COLORS : COLORS;
    const axis = { stroke: ink, grid: { stroke: grid, width: 1 }, ticks: { stroke: grid, width: 1 }, font: "12px system-ui, sans-serif" };
    const isTime = this.options.x() === "time";
    const short = (_, values) => values.map((value) => (value === null ? "" : shortened(value)));
    const colorOf = (n) => colors[n % colors.length], looks = this.options.looks || [];
    const series = this.labels.map((label, n) => {
      const { color = n, width = 1.5, faint = false, edge = false } = looks[n] || {};
      return {
        label, class: edge ? "edge" : undefined, stroke: edge ? "transparent" : colorOf(color) + (faint ? "99" : ""), width: edge ? 0 : width,
        dash: DASHES[Math.floor(color / colors.length + (looks.length ? color : 0)) % DASHES.length],
        spanGaps: true, points: { show: this.names[n].startsWith("evaluation/"), size: 5 }, value: (_, value) => number(value),
      };
    });
    const bands = (this.options.bands || []).map(({ color, low, high }) => ({ series: [high, low], fill: `${colorOf(color)}33` }));
    if (this.options.target !== undefined) {
      series.push({ label: "target", stroke: ink, width: 1, dash: [2, 4], points: { show: false }, value: (_, value) => number(value) });
    }
    const { least, most } = this.options;
    const range = most === undefined ? undefined : (_, low, high) => [least, Math.max(most, high)];
    return {
      width: this.width(), height: this.height, legend: { live: true }, bands,
      scales: { x: { time: isTime }, y: range ? { range } : {} },
      axes: [isTime ? axis : { ...axis, values: short }, { ...axis, size: 60, values: short }],
      series: [{ label: this.options.x(), value: (_, value) => (value === null ? "" : isTime ? new Date(1000 * value).toLocaleString("sv") : number(value)) }, ...series],
    };
  }

  toggle() {
    this.table.hidden = !this.table.hidden;
    this.button.setAttribute("aria-pressed", String(!this.table.hidden));
    if (!this.table.hidden) this.fillTable(this.data());
  }

  fillTable(data) {
    const heads = [this.options.x(), ...this.labels];
    const first = Math.max(0, data[0].length - TABLE_ROWS);
    const rows = data[0].slice(first).map((at, n) => el("tr", {}, el("td", {}, number(at)), ...this.labels.map((_, k) => el("td", {}, number(data[k + 1][first + n])))));
    this.table.replaceChildren(el("table", {}, el("thead", {}, el("tr", {}, heads.map((head) => el("th", { scope: "col" }, head)))), el("tbody", {}, rows)));
  }

  download() {
    const data = this.data();
    const lines = [[this.options.x(), ...this.names].map(quoted).join(",")];
    data[0].forEach((at, row) => lines.push([at, ...this.names.map((_, n) => data[n + 1][row] ?? "")].join(",")));
    const url = URL.createObjectURL(new Blob([lines.join("\n") + "\n"], { type: "text/csv" }));
    el("a", { href: url, download: `${this.title.replace(/[^\w.-]+/g, "-")}.csv` }).click();
    setTimeout(() => URL.revokeObjectURL(url), 1000);
  }

  rebuild() {
    if (this.plot) this.plot.destroy();
    this.plot = null;
    this.update();
  }

  destroy() {
    this.observer.disconnect();
    this.resizer.disconnect();
    if (this.plot) this.plot.destroy();
    this.plot = null;
  }
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

function shortened(value) {
  const size = Math.abs(value);
  for (const [unit, letter] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]]) if (size >= unit) return `${+(value / unit).toPrecision(3)}${letter}`;
  return size !== 0 && size < 1e-3 ? value.toExponential(0) : String(+value.toPrecision(4));
}
