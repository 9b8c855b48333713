// Parts of a run's page that only some kinds of runs have: policies, nodes, the lineage of a population.

import { Chart } from "./chart.js";
import { count, el, get, number, pictureOf, replace, svg, table } from "./dom.js";
import { colorOf } from "./looks.js";
import { drawing } from "./pictures.js";
import { Store } from "./store.js";

function listed(value) {
  return Array.isArray(value) ? value : [];
}

function swatch(color) {
  const made = el("span", { class: "swatch block", "aria-hidden": "true" });
  made.style.color = colorOf(color);
  return made;
}

// Policies side by side, the games between them and others, and their past versions.
export function policiesPanel(words) {
  const element = el("div", {}), now = el("div", {}), summary = el("summary", {}), rows = el("div", {}), past = el("details", {}, summary, rows);
  return {
    element,
    show({ tables: { policies, "past versions": versions }, games }) {
      const made = [], count = Object.values(versions)[0]?.length;
      if (Object.keys(policies).length) made.push(partsTable("Policies", policies, words, (text, n, head) => (head === "policy" ? named(text, n) : text)));
      if (games) made.push(el("h3", {}, "Games"), pictureOf(games));
      replace(now, made);
      replace(rows, count ? [partsTable("Past versions", versions, words)] : []);
      summary.textContent = `Past versions (${count})`;
      const filled = [...(made.length ? [now] : []), ...(count ? [past] : [])];
      if (filled.length !== element.children.length) element.replaceChildren(...filled); // otherwise, open details stay open and keep the focus
    },
  };
}

// Table of parts of a run from its cells by heading, as the server describes them. words: headings of text columns; looks: function that draws a cell.
export function partsTable(title, columns, words, looks = (text) => text) {
  const heads = Object.keys(columns), [first] = heads;
  const cells = columns[first].map((_, n) => heads.map((head) => looks(columns[head][n], n, head)));
  return table(title, heads.map((head) => [head, !words.includes(head)]), cells, "runs");
}

function named(name, color) {
  return el("span", {}, swatch(color), name);
}

// A row for each gateway and each node, with rates over time; with gateways, only theirs.
export function nodesPanel(words, metrics) {
  const element = el("div", {});
  return {
    element,
    show(status, tables) {
      const own = listed(status.nodes), nodes = [...listed(status.gateways), ...own];
      if (!Object.keys(tables.nodes).length) return;
      const looks = (text, n, head) => {
        if (head === "node") return named(text, n);
        if (head === "state") return el("span", { class: `state ${nodes[n].is_connected ? "running" : nodes[n].has_left ? "" : "failed"}` }, text);
        return head === "steps/s" ? el("span", { class: "with-spark" }, text, spark(metrics().columns[`node/${nodes[n].name}/steps_per_second`], n)) : text;
      };
      const there = own.filter((node) => node.is_connected).length;
      replace(element, [el("p", { class: "quiet" }, `${there} of ${status.nodes_requested || own.length} nodes are connected`), partsTable("Nodes", tables.nodes, words, looks)]);
    },
  };
}

function spark(column, color) {
  const values = (column || []).filter((value) => value !== null).slice(-120);
  if (values.length < 2) return "";
  const most = Math.max(...values) || 1;
  const points = values.map((value, n) => `${((100 * n) / (values.length - 1)).toFixed(1)},${(20 - (18 * value) / most).toFixed(1)}`).join(" ");
  return svg("svg", { viewBox: "0 0 100 22", width: 100, height: 22, "aria-hidden": "true" }, svg("polyline", { points, fill: "none", stroke: colorOf(color), "stroke-width": 1.5 }));
}

// Charts of the steps of a recent episode.
export function episodePanel(id) {
  const element = el("div", { class: "charts" });
  let drawn = [], names = "";
  const destroy = () => { for (const chart of drawn) chart.destroy(); };
  return {
    element,
    destroy,
    rebuild() { for (const chart of drawn) chart.rebuild(); },
    async read() {
      const { columns, charts } = await get(`/api/runs/${id}/episode`), store = new Store(columns);
      if (names !== JSON.stringify(charts)) {
        destroy();
        drawn = charts.map(({ title, lines, ...options }) => new Chart(title, store, lines, { ...options, view: { x: "steps" } }));
        names = JSON.stringify(charts);
        element.replaceChildren(...drawn.map((chart) => chart.element));
      } else for (const chart of drawn) { chart.store = store; chart.update(); }
    },
  };
}

// Lineage of a population: the server's picture, and a table of the events.
export function lineagePanel(id) {
  const element = el("div", {});
  return {
    element,
    async read() {
      const found = await get(`/api/runs/${id}/lineage`);
      if (found.events.length) element.replaceChildren(el("h3", {}, "Lineage"), ...lineageParts(found, "policy"));
    },
  };
}

// who: word for the members of the population.
export function lineageParts({ events, left_out: leftOut, picture }, who) {
  const heads = [[who, false], ["steps", true], ["event", false], ["copied from", false], ["score, parent's score", false], ["settings", false]];
  const cells = events.filter((event) => event.event !== "start").slice(-200).map((event) => [
    event.policy, count(event.steps), event.event, event.parent ?? "", scores(event), event.change,
  ]);
  const notes = leftOut ? [el("p", { class: "quiet" }, `The first ${count(leftOut)} events are left out.`)] : [];
  return [
    el("p", { class: "quiet" }, `A lane for each ${who} over its steps. Arrows lead from a ${who} to its copy, points are changes of settings.`),
    drawing("Lineage", "lineage", pictureOf(picture)), ...notes,
    el("details", {}, el("summary", {}, `Events (${cells.length})`), table("Events of the lineage", heads, cells, "runs"))];
}

function scores(event) {
  const found = event.scores || {}, own = found[event.policy], parent = found[event.parent];
  return [own, parent].filter((value) => typeof value === "number").map(number).join(", ");
}
