// Curves of many runs: one curve with a band per group of equal settings, one chart per environment.

import { Chart } from "./chart.js";
import { Controls, field, fill, Grouping, soon } from "./controls.js";
import { el, stream } from "./dom.js";
import { COLORS } from "./looks.js";

export async function curvesPage(page, asked) {
  document.title = "Curves · Penstock";
  const only = asked.get("runs") || "";
  const words = el("input", { type: "search", id: "words", value: asked.get("words") || "", placeholder: "cartpole ppo done" });
  const y = el("select", { id: "y" }), band = el("select", { id: "band" });
  const grouping = new Grouping((names) => { by = new Set(names); ask(); });
  const by_ = el("p", { class: "by" });
  const told = el("p", { role: "status", class: "quiet" }, "Reading");
  const bar = el("progress", { max: "1", value: "0", "aria-label": "Runs read", hidden: true });
  const charts = el("div", { class: "charts wide-charts" });
  let metric = asked.get("y") || "evaluation/mean_return", by = new Set((asked.get("by") ?? "algorithm").split(",").filter(Boolean));
  let drawn = new Map(), shape = "", close = () => {}, timer = 0;

  fill(band, [["ci", "95 % interval"], ["quartiles", "middle half of the runs"], ["minmax", "lowest to highest"], ["none", "none"]], asked.get("band") || "ci");
  fill(y, [[metric, metric]], metric);
  const controls = new Controls([["steps", "steps"], ["seconds", "seconds trained"]], asked, (what) => {
    if (what === "x") ask();
    else {
      keepAddressSoon();
      for (const chart of drawn.values()) chart.follow(what);
    }
  });
  const keepAddressSoon = soon(keepAddress);
  const x = controls.x;
  page.append(
    el("p", {}, el("a", { href: "#/" }, "All runs")),
    el("h1", {}, "Curves"),
    el("form", { class: "choices", onsubmit: (event) => event.preventDefault() },
      field("words", "Show", words), field("y", "Metric", y), field("band", "Band", band), controls.elements),
    by_,
    grouping.element,
    only ? el("p", {}, `Only the ${only.split(",").length} runs that were chosen. `, el("a", { href: "#/curves" }, "Show all")) : "",
    told, bar, charts);

  function query() {
    const asks = new URLSearchParams({ y: metric, ...controls.query(), band: band.value, by: [...by].join(","), words: words.value });
    if (only) asks.set("runs", only);
    return asks;
  }

  function keepAddress() {
    history.replaceState(null, "", `#/curves?${query()}`);
  }

  function ask() {
    close();
    keepAddress();
    told.textContent = "Reading";
    close = stream(() => `/api/curves?${query()}`, {
      progress: ({ read, of }) => {
        bar.hidden = false;
        bar.value = read / of;
        told.textContent = `${read} of ${of} runs are read${drawn.size ? "; until then the curves are drawn from samples of their lines, without intervals" : ""}`;
      },
      curves: show,
    });
  }

  function show(found) {
    bar.hidden = !found.is_sampled;
    fill(y, [...new Set([metric, ...found.names])].filter((name) => name === metric || !["steps", "seconds", "frames", "time"].includes(name)).map((name) => [name, name]), metric);
    if (found.axes.length) fill(x, found.axes, x.value);
    by_.replaceChildren("Grouped by ", el("strong", {}, [...by].filter((name) => found.settings.includes(name)).join(", ") || "nothing: all runs are one group"));
    grouping.show(found.settings, [...by]);
    const lines = found.panels.flatMap((panel) => panel.groups).reduce((sum, group) => sum + group.count, 0);
    const over = x.value === "steps" ? "" : ` over ${x.value}`, why = found.no_frames && lines < found.count ? `: ${found.no_frames}` : "";
    told.textContent = `${lines ? `${lines} of ${found.count} runs have` : `None of ${found.count} runs has`} this metric${over}${lines || why ? why : " yet"}`;
    const names = [...new Set(found.panels.flatMap((panel) => panel.groups.map((group) => group.name)))];
    const now = JSON.stringify([metric, x.value, names, found.panels.map((panel) => [panel.name, panel.groups.map((group) => [group.name, group.low === null, group.middle === null, group.runs.length])])]);
    if (now === shape) {
      for (const panel of found.panels) {
        const chart = drawn.get(panel.name);
        chart.store.panel = panel;
        chart.update();
      }
      return;
    }
    shape = now;
    for (const chart of drawn.values()) chart.destroy();
    drawn = new Map(found.panels.map((panel) => [panel.name, chartOf(panel, controls, metric, names)]));
    charts.replaceChildren(...[...drawn.values()].map((chart) => chart.element));
  }

  y.addEventListener("change", () => { metric = y.value; ask(); });
  band.addEventListener("change", ask);
  words.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(ask, 300); });
  const rebuild = () => { for (const chart of drawn.values()) chart.rebuild(); };
  window.addEventListener("theme", rebuild);
  ask();
  return () => {
    clearTimeout(timer);
    keepAddressSoon.cancel();
    close();
    window.removeEventListener("theme", rebuild);
    for (const chart of drawn.values()) chart.destroy();
  };
}

// Columns of an environment's chart: lines of groups, then ends of bands, then single runs.
class Panel {
  constructor(panel) { this.panel = panel; }

  rows() {
    const { x, groups } = this.panel, none = () => new Array(x.length).fill(null);
    return [x, ...groups.flatMap(({ middle, low, high, runs }) => [middle || none(), ...(low ? [low, high] : []), ...runs.map((run) => run.y)])];
  }
}

// names: groups of all panels. If there are enough colours, a group has the same one in all panels.
function chartOf(panel, controls, metric, names) {
  const lines = [], bands = [], notes = [];
  panel.groups.forEach((group, place) => {
    const n = names.length > COLORS.length ? place : names.indexOf(group.name);
    const add = (name, look) => lines.push({ name, label: name, color: n, dash: n % 4, ...look });
    const isAlone = group.middle === null;
    add(`${group.name} (${group.count})`, { width: 2 });
    if (group.low) {
      add(`${group.name} low`, { edge: true });
      add(`${group.name} high`, { edge: true });
      bands.push({ color: n, low: lines.length - 2, high: lines.length - 1 });
    }
    for (const run of group.runs) add(run.name, { width: isAlone ? 1.6 : 0.8, faint: true });
    if (isAlone) notes.push(`${group.name}: its ${group.count} runs have no stretch in common, so each is drawn separately${group.runs.length < group.count ? ` (the first ${group.runs.length})` : ""}.`);
  });
  return new Chart(`${metric} on ${panel.name}`, new Panel(panel), lines, {
    view: controls.view, onZoom: (range) => controls.zoom(range), bands, height: 340, note: notes.join(" "), isNamed: true,
  });
}
