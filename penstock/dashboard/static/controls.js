// How charts are drawn: axis, smoothing, scales and zoom. The address keeps the choices.

import { el } from "./dom.js";

const SMOOTHINGS = [[0, "none"], [0.6, "little"], [0.9, "some"], [0.97, "much"], [0.99, "most"]];

export function field(id, label, control) {
  return el("div", { class: "field" }, el("label", { for: id }, label), control);
}

// Options of a select element; the selection is kept.
export function fill(select, options, chosen) {
  if ([...select.options].map((option) => option.value).join("\n") !== options.map(([value]) => value).join("\n")) {
    select.replaceChildren(...options.map(([value, label]) => el("option", { value }, label)));
  }
  select.value = chosen;
}

// Function that calls another one a moment after its last call: browsers limit how often an address may change.
export function soon(act) {
  let timer = 0;
  const later = () => { clearTimeout(timer); timer = setTimeout(act, 200); };
  return Object.assign(later, { cancel: () => clearTimeout(timer) });
}

// Choice of the settings that runs are grouped by, with a search among their names; chosen ones stay in view.
export class Grouping {
  constructor(changed) {
    Object.assign(this, { changed, boxes: el("fieldset", { class: "keys" }) });
    this.sought = el("input", { type: "search", id: "sought", placeholder: "learning_rate", oninput: () => this.narrow() });
    this.element = el("details", { class: "group" }, el("summary", {}, "Group by"), field("sought", "Settings containing", this.sought), this.boxes);
  }

  show(names, chosen) {
    const there = [...this.boxes.querySelectorAll("input")].map((box) => box.value);
    if (there.join() === names.join()) return;
    const change = () => this.changed([...this.boxes.querySelectorAll("input:checked")].map((each) => each.value));
    this.boxes.replaceChildren(el("legend", {}, "Settings that differ"), ...names.map((name) =>
      el("label", {}, el("input", { type: "checkbox", value: name, checked: chosen.includes(name), onchange: change }), name)));
    this.narrow();
  }

  narrow() {
    const word = this.sought.value.toLowerCase();
    for (const label of this.boxes.querySelectorAll("label")) label.hidden = !label.textContent.toLowerCase().includes(word) && !label.firstChild.checked;
  }
}

export class Controls {
  // axes: values and titles of the choice of x. asked: parameters of the address. changed: called with "x", "zoom" or "look".
  constructor(axes, asked, changed) {
    const zoom = (asked.get("zoom") || "").split(",").map(Number);
    this.changed = changed;
    this.x = el("select", { id: "x" });
    this.smooth = el("select", { id: "smooth" });
    this.from = el("input", { id: "from", type: "number", step: "any", class: "narrow" });
    this.to = el("input", { id: "to", type: "number", step: "any", class: "narrow" });
    this.boxes = Object.fromEntries(["logX", "logY", "clip"].map((name) => [name, el("input", { type: "checkbox", id: name })]));
    for (const [name, box] of Object.entries(this.boxes)) box.checked = asked.get(name) === "1";
    fill(this.x, axes, asked.get("x") || axes[0][0]);
    if (this.x.selectedIndex < 0) fill(this.x, [...axes, [asked.get("x"), asked.get("x")]], asked.get("x"));
    fill(this.smooth, SMOOTHINGS.map(([value, words]) => [String(value), words]), SMOOTHINGS.some(([value]) => String(value) === asked.get("smooth")) ? asked.get("smooth") : "0");
    this.view = { x: this.x.value };
    this.zoom(zoom.length === 2 && zoom.every(Number.isFinite) && zoom[0] < zoom[1] ? zoom : null, true);
    this.take();
    const checks = el("div", { class: "checks" }, [["logX", "log x"], ["logY", "log y"], ["clip", "without outliers"]].map(([name, words]) => el("label", {}, this.boxes[name], words)));
    this.reset = el("button", { type: "button", onclick: () => this.zoom(null) }, "Whole range");
    this.pans = [["earlier", -0.5], ["later", 0.5]].map(([name, share]) => el("button", { type: "button", "data-pan": name, onclick: () => this.pan(share) }, `Move ${name}`));
    this.elements = [field("x", "Over", this.x), field("smooth", "Smoothing", this.smooth), el("div", { class: "range" }, field("from", "From", this.from), field("to", "To", this.to)), checks, ...this.pans, this.reset];
    this.x.addEventListener("change", () => { this.zoom(null, true); this.take(); changed("x"); });
    for (const control of [this.smooth, ...Object.values(this.boxes)]) control.addEventListener("change", () => { this.take(); changed("look"); });
    for (const control of [this.from, this.to]) control.addEventListener("change", () => {
      const [low, high] = [this.from, this.to].map((each) => (each.value === "" ? null : Number(each.value)));
      if (low !== null && high !== null && low < high) this.zoom([low, high]);
      else if (low === null && high === null) this.zoom(null);
    });
    this.showRange();
  }

  showRange() {
    for (const button of [...this.pans, this.reset]) button.hidden = !this.view.zoom;
  }

  // Moves the range by a share of its length.
  pan(share) {
    this.zoom(moved(this.view.zoom, share, this.view.logX));
  }

  take() {
    Object.assign(this.view, { x: this.x.value, smooth: Number(this.smooth.value) });
    for (const [name, box] of Object.entries(this.boxes)) this.view[name] = box.checked;
  }

  zoom(range, isQuiet = false) {
    this.view.zoom = range;
    const isWhole = range && range[1] - range[0] > 20;
    [this.from.value, this.to.value] = range ? range.map((end) => (isWhole ? Math.round(end) : +end.toPrecision(6))) : ["", ""];
    if (this.pans) this.showRange();
    if (!isQuiet) this.changed("zoom");
  }

  // Parameters of the address, without default values.
  query() {
    const { x, smooth, zoom } = this.view;
    const found = { x, ...(smooth ? { smooth: String(smooth) } : {}), ...(zoom ? { zoom: zoom.join(",") } : {}) };
    for (const name of Object.keys(this.boxes)) if (this.view[name]) found[name] = "1";
    return found;
  }
}

// A range moved by a share of its length; on a logarithmic axis, of the length of its logarithms.
export function moved([low, high], share, isLog) {
  if (!isLog || low <= 0) return [low, high].map((end) => end + share * (high - low));
  return [low, high].map((end) => end * (high / low) ** share);
}
