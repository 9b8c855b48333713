// Parts of a run's page that only some kinds of runs have: policies, nodes, the lineage of a population.

import { Chart } from "./chart.js";
import { count, el, get, number, pictureOf, svg, table } from "./dom.js";
import { colorOf, WAIT } from "./looks.js";
import { Store } from "./store.js";

const WORDS = ["policy", "node", "machine", "state"]; // columns aligned left

function listed(value) {
  return Array.isArray(value) ? value : [];
}

function swatch(color) {
  const made = el("span", { class: "swatch block", "aria-hidden": "true" });
  made.style.color = colorOf(color);
  return made;
}

// Policies beside each other, and the results of their games.
export function policiesPanel() {
  const element = el("div", {});
  return {
    element,
    show(status) {
      const policies = listed(status.policies), each = policies.length ? policies : [status];
      const made = [];
      if (policies.length) made.push(parts("Policies", status.tables.policies));
      const games = matrix(each);
      if (games) made.push(games);
      const versions = each.flatMap((policy) => listed(policy.opponents).map((one) => [policy, one]));
      if (versions.length) made.push(past(versions, policies.length > 0));
      element.replaceChildren(...made);
    },
  };
}

// Table of policies or nodes from its cells by heading, as the server describes them; the first column has a swatch of each row.
function parts(title, columns, more = () => ({})) {
  const heads = Object.keys(columns), [first] = heads;
  const cells = columns[first].map((_, n) => heads.map((head) => {
    const text = columns[head][n], looks = more(n, text);
    return head === first ? el("span", {}, swatch(n), text) : Object.hasOwn(looks, head) ? looks[head] : text;
  }));
  return table(title, heads.map((head) => [head, !WORDS.includes(head)]), cells, "runs");
}

// Who plays whom: results of each policy against each opponent, of the last evaluation and of past versions.
function matrix(policies) {
  const found = policies.map((policy) => {
    const games = new Map();
    const add = (name, one) => {
      const sum = games.get(name) || { wins: 0, draws: 0, losses: 0 };
      for (const key of Object.keys(sum)) sum[key] += one[key];
      games.set(name, sum);
    };
    for (const one of listed(policy.eval_matches)) add(one.opponent, one);
    for (const one of listed(policy.opponents)) add(one.policy ? `past versions of ${one.policy}` : "past versions", one);
    return games;
  });
  const opponents = [...new Set(found.flatMap((games) => [...games.keys()]))].filter((name) => found.some((games) => played(games.get(name))));
  if (!opponents.length) return null;
  const cells = policies.map((policy, n) => [policy.name || "policy", ...opponents.map((name) => result(found[n].get(name)))]);
  const made = table("Games won, by policy and opponent", [["policy", false], ...opponents.map((name) => [`against ${name}`, false])], cells, "runs");
  return el("div", {}, el("h3", {}, "Games"), el("p", { class: "quiet" }, "Against other opponents those of the last evaluation, against past versions all of the training."), made);
}

function played(one) {
  return one ? one.wins + one.draws + one.losses : 0;
}

function result(one) {
  const games = played(one);
  if (!games) return "";
  const bar = el("span", { class: "bar games", "aria-hidden": "true" });
  for (const [color, part] of [[0, one.wins], [WAIT, one.draws], [1, one.losses]]) {
    const made = el("span", {});
    made.style.width = `${(100 * part) / games}%`;
    made.style.background = colorOf(color);
    bar.append(made);
  }
  const share = (part) => Math.round((100 * part) / games);
  return el("div", { class: "result" }, bar, el("span", {}, `${share(one.wins)} % won, ${share(one.draws)} % drawn`), el("span", { class: "quiet" }, `of ${count(games)} games`));
}

function past(versions, hasPolicies) {
  const heads = [["policy", false], ["against", false], ["steps", true], ["rating", true], ["score now", true], ["won", true], ["drawn", true], ["lost", true]];
  const cells = versions.map(([policy, one]) => [policy.name || "policy", one.policy || "itself", count(one.steps), number(one.rating), number(one.score), count(one.wins), count(one.draws), count(one.losses)]);
  const drop = hasPolicies ? [] : [0, 1];
  const kept = (row) => row.filter((_, n) => !drop.includes(n));
  return el("details", {}, el("summary", {}, `Past versions (${versions.length})`), table("Past versions", kept(heads), cells.map(kept), "runs"));
}

// A row for each gateway and each node, with rates over time: of gateways where there are some.
export function nodesPanel(metrics) {
  const element = el("div", {});
  return {
    element,
    show(status) {
      const own = listed(status.nodes), nodes = [...listed(status.gateways), ...own];
      if (!nodes.length) return;
      const looks = (n, text) => ({
        state: el("span", { class: `state ${nodes[n].is_there ? "running" : nodes[n].has_left ? "" : "failed"}` }, text),
        "steps/s": el("span", { class: "with-spark" }, text, spark(metrics().columns[`node/${nodes[n].name}/steps_per_second`], n)),
      });
      const there = own.filter((node) => node.is_there).length;
      element.replaceChildren(el("p", { class: "quiet" }, `${there} of ${status.nodes_asked || own.length} nodes are connected`), parts("Nodes", status.tables.nodes, looks));
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
    el("div", { class: "wide lineage", tabindex: "0", role: "region", "aria-label": "Picture of the lineage" }, pictureOf(picture)), ...notes,
    el("details", {}, el("summary", {}, `Events (${cells.length})`), table("Events of the lineage", heads, cells, "runs"))];
}

function scores(event) {
  const found = event.scores || {}, own = found[event.policy], parent = found[event.parent];
  return [own, parent].filter((value) => typeof value === "number").map(number).join(", ");
}
