// Pictures as shown, in PNG and SVG: of a chart, with title and legend, and of a drawing by the server.

import { el, svg } from "./dom.js";
import { inks } from "./looks.js";

const HEAD = 28, ROW = 20, EDGE = 8, FONT = "system-ui, sans-serif";

// Size of a picture, and the names of the legend with the series that they belong to, in rows below the plot.
function layoutOf({ entries, lines, parts, plot, title, options: { unit, view } }) {
  const pen = el("canvas").getContext("2d"), names = [];
  pen.font = `13px ${FONT}`;
  let left = EDGE, top = HEAD + plot.height + 14;
  for (const { n, button } of entries) {
    const words = lines[n].label, width = 26 + pen.measureText(words).width, at = parts.findIndex((part) => part.n === n) + 1;
    if (!at) continue;
    if (left > EDGE && left + width > plot.width - EDGE) [left, top] = [EDGE, top + ROW];
    names.push({ words, left, top, color: button.querySelector(".swatch").style.color, dash: plot.series[at].dash });
    left += width + 14;
  }
  return { title: `${title}${unit && unit !== "share" ? ` (${unit})` : ""} over ${view.x}`, names, ...inks(), width: plot.width, height: top + EDGE };
}

export function pngOf(chart) {
  const { title, names, ink, paper, width, height } = layoutOf(chart), found = chart.canvas.querySelector("canvas");
  const scale = found.width / width, whole = el("canvas", { width: found.width, height: Math.round(height * scale) }), pen = whole.getContext("2d");
  pen.scale(scale, scale);
  pen.fillStyle = paper;
  pen.fillRect(0, 0, width, height);
  pen.drawImage(found, 0, HEAD, width, found.height / scale);
  const write = (words, font, left, top) => {
    [pen.font, pen.fillStyle] = [`${font} ${FONT}`, ink];
    pen.fillText(words, left, top);
  };
  write(title, "600 14px", EDGE, 18);
  pen.lineWidth = 2;
  for (const { words, left, top, color, dash } of names) {
    pen.strokeStyle = color;
    pen.setLineDash(dash);
    pen.beginPath();
    pen.moveTo(left, top - 4);
    pen.lineTo(left + 20, top - 4);
    pen.stroke();
    write(words, "13px", left + 26, top);
  }
  return new Promise((done) => whole.toBlob(done, "image/png"));
}

export function svgOf(chart) {
  return written(drawingOf(chart));
}

let drawings = 0;

// A chart as SVG, with title and legend.
export function drawingOf(chart) {
  const { plot } = chart, clip = `plot-${++drawings}`, { title, names, ink, grid, paper, width, height } = layoutOf(chart);
  const [left, top, wide, tall] = ["left", "top", "width", "height"].map((side) => (plot.bbox[side] * plot.width) / plot.ctx.canvas.width);
  const { x, y } = plot.scales, right = (value) => left + (wide * (value - x.min)) / (x.max - x.min), down = (value) => top + tall * (1 - (value - y.min) / (y.max - y.min));
  const write = (words, at, look = {}) => svg("text", { x: at[0].toFixed(1), y: at[1].toFixed(1), fill: ink, "font-family": FONT, "font-size": 12, ...look }, words);
  const stroke = (color, size, dash) => ({ fill: "none", ...painted("stroke", color), "stroke-width": size, ...(dash && dash.length ? { "stroke-dasharray": dash.join(" ") } : {}) });
  const points = (n) => {
    const column = plot.data[n], rows = [...column.keys()].filter((row) => column[row] !== null && column[row] !== undefined);
    return shownOf(rows, plot.data[0], x).map((row) => `${right(plot.data[0][row]).toFixed(1)},${down(column[row]).toFixed(1)}`);
  };
  const axes = plot.axes.flatMap(({ _splits, _values }, n) => (_splits || []).map((at, k) => { // places and words that uPlot has drawn
    const place = n ? down(at) : right(at), line = n ? { x1: left, x2: left + wide, y1: place, y2: place } : { x1: place, x2: place, y1: top, y2: top + tall };
    const words = String(_values[k] ?? "").split("\n").map((words, row) => write(words, n ? [left - 8, place + 4] : [place, top + tall + 18 + 14 * row], { "text-anchor": n ? "end" : "middle" }));
    return svg("g", {}, svg("line", { ...line, stroke: grid }), words);
  }));
  const shapes = plot.series.slice(1).flatMap((series, before) => {
    const n = before + 1, over = points(n), made = [];
    const fill = (below, color) => color && over.length && made.push(svg("polygon", { points: [...over, ...below].join(" "), ...painted("fill", color) }));
    for (const band of plot.bands) if (band.series[0] === n) fill(points(band.series[1]).reverse(), band.fill(plot));
    if (series.fill(plot)) fill(over.length ? [over[over.length - 1], over[0]].map((place) => `${place.split(",")[0]},${down(0).toFixed(1)}`) : [], series.fill(plot));
    const color = series.stroke(plot);
    if (series.width && color !== "transparent" && over.length) made.push(svg("polyline", { points: over.join(" "), ...stroke(color, series.width, series.dash) }));
    if (series.points.show(plot, n)) made.push(...over.map((place) => svg("circle", { cx: place.split(",")[0], cy: place.split(",")[1], r: 2.5, ...painted("stroke", color), fill: paper })));
    return made;
  });
  const legend = names.map(({ words, left: at, top: row, color, dash }) => svg("g", {}, svg("line", { x1: at, x2: at + 20, y1: row - 4, y2: row - 4, ...stroke(color, 2, dash) }), write(words, [at + 26, row], { "font-size": 13 })));
  return svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img" },
    svg("title", {}, title), svg("clipPath", { id: clip }, svg("rect", { x: left, y: top, width: wide, height: tall })), svg("rect", { width, height, fill: paper }),
    write(title, [EDGE, 18], { "font-size": 14, "font-weight": 600 }), svg("g", { transform: `translate(0 ${HEAD})` }, axes, svg("g", { "clip-path": `url(#${clip})` }, shapes)), legend);
}

function written(picture) {
  return new Blob([new XMLSerializer().serializeToString(picture)], { type: "image/svg+xml" });
}

export function save(title, blob, ending) {
  const url = URL.createObjectURL(blob);
  el("a", { href: url, download: `${title.replace(/[^\w.-]+/g, "-")}.${ending}` }).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

const LOOKS = ["fill", "fill-opacity", "stroke", "stroke-opacity", "stroke-width", "stroke-dasharray", "opacity", "font-family", "font-size", "font-weight", "text-anchor"];

// A drawing by the server in a region that scrolls, with buttons for its pictures.
export function drawing(title, kind, picture) {
  const shown = el("div", { class: `wide ${kind}`, tabindex: "0", role: "region", "aria-label": title }, picture);
  return el("figure", {}, shown, buttonsFor(title, () => alone(title, picture)));
}

// A figure by the server, with buttons for its pictures.
export function pictured(figure) {
  const title = figure.querySelector("figcaption").textContent.trim();
  figure.append(buttonsFor(title, () => withLegend(title, figure)));
  return figure;
}

function buttonsFor(title, draw) {
  const buttons = [["PNG", pngOfDrawing], ["SVG", written]].map(([kind, make]) =>
    el("button", { type: "button", onclick: async () => save(title, await make(draw()), kind.toLowerCase()) }, kind));
  return el("div", { class: "foot" }, el("span", { class: "tools" }, buttons));
}

// Copy of a picture with the page's styles written into it, and with place and size.
function placed(picture, place) {
  const copy = picture.cloneNode(true), copies = [copy, ...copy.querySelectorAll("*")];
  [picture, ...picture.querySelectorAll("*")].forEach((shown, n) => {
    const look = getComputedStyle(shown);
    for (const name of LOOKS) copies[n].setAttribute(name, look.getPropertyValue(name));
  });
  for (const [name, value] of Object.entries(place)) copy.setAttribute(name, value);
  return copy;
}

function alone(title, picture) {
  const { width, height } = picture.getBoundingClientRect(), whole = placed(picture, { width, height });
  whole.prepend(svg("title", {}, title), svg("rect", { width: "100%", height: "100%", fill: inks().paper }));
  return whole;
}

function withLegend(title, figure) {
  const picture = figure.querySelector(":scope > svg"), { width, height } = picture.getBoundingClientRect(), { ink, paper } = inks();
  const write = (words, x, y, look = {}) => svg("text", { x, y, fill: ink, "font-family": FONT, "font-size": 13, ...look }, words);
  const pen = el("canvas").getContext("2d");
  pen.font = `13px ${FONT}`;
  let left = EDGE, top = HEAD + height + ROW;
  const names = [...figure.querySelectorAll(".legend > span")].flatMap((entry) => {
    const words = entry.textContent.trim(), swatch = entry.querySelector("svg"), indent = swatch ? 26 : 0, wide = indent + pen.measureText(words).width;
    if (left > EDGE && left + wide > width - EDGE) [left, top] = [EDGE, top + ROW];
    const made = [...(swatch ? [placed(swatch, { x: left, y: top - 8, width: 22, height: 8 })] : []), write(words, left + indent, top)];
    left += wide + 14;
    return made;
  });
  return svg("svg", { viewBox: `0 0 ${width} ${top + EDGE}`, width, height: top + EDGE }, svg("title", {}, title), svg("rect", { width: "100%", height: "100%", fill: paper }),
    write(title, EDGE, 18, { "font-size": 14, "font-weight": 600 }), placed(picture, { x: 0, y: HEAD, width, height }), names);
}

async function pngOfDrawing(whole) {
  const url = URL.createObjectURL(written(whole)), image = new Image(), scale = Math.max(2, devicePixelRatio);
  image.src = url;
  try { await image.decode(); } finally { URL.revokeObjectURL(url); }
  const canvas = el("canvas", { width: scale * whole.getAttribute("width"), height: scale * whole.getAttribute("height") });
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  return new Promise((done) => canvas.toBlob(done, "image/png"));
}

// Rows within a range, and their neighbours, so that lines continue to the edge.
function shownOf(rows, at, { min, max }) {
  const first = rows.findIndex((row) => at[row] >= min), after = rows.findIndex((row) => at[row] > max);
  return first < 0 ? [] : rows.slice(Math.max(0, first - 1), after < 0 ? rows.length : after + 1);
}

// Colour and opacity as two attributes: drawing programs do not read both from one.
function painted(what, color) {
  return /^#[0-9a-f]{8}$/i.test(color) ? { [what]: color.slice(0, 7), [`${what}-opacity`]: (parseInt(color.slice(7), 16) / 255).toFixed(2) } : { [what]: color };
}
