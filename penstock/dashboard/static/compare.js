// Comparison of runs: returns with intervals, probability of improvement, profiles, and returns against their costs.

import { field, fill, Grouping } from "./controls.js";
import { clock, count, el, follow, get, number, pictureOf, replace, table } from "./dom.js";
import { pictured } from "./pictures.js";

export async function comparePage(page, asked) {
  document.title = "Comparison · Penstock";
  const only = asked.get("runs") || "", words = asked.get("words") || "";
  const score = el("select", { id: "score" }), first = el("select", { id: "first" });
  const grouping = new Grouping((names) => { by = names.join(); asking(""); }), shown = el("div", {}), told = el("p", { role: "status", class: "quiet" });
  let by = asked.has("by") ? asked.get("by") : null, arrivals = 0, known = "";
  fill(score, [["final", "last evaluation"], ["best", "best evaluation, which is biased upwards"]], asked.get("score") === "best" ? "best" : "final");

  async function ask(reference = first.value, isQuiet = false) {
    const arrival = ++arrivals;
    const query = new URLSearchParams({ ...(only ? { runs: only } : {}), ...(words ? { words } : {}), ...(by === null ? {} : { by }), score: score.value, ...(reference ? { first: reference } : {}) });
    history.replaceState(null, "", `#/compare?${query}`);
    if (!isQuiet) told.textContent = "Reading";
    const found = await get(`/api/comparison?${query}`);
    if (arrival !== arrivals) return;
    fill(first, found.groups.toSorted().map((name) => [name, name]), found.groups[0] ?? "");
    grouping.show(found.keys, found.by);
    const compared = found.envs.reduce((sum, env) => sum + env.runs.length, 0);
    told.textContent = `${compared} of ${found.count} runs are compared, in ${found.groups.length} ${found.groups.length === 1 ? "group" : "groups"}`;
    if (known === JSON.stringify(found)) return;
    known = JSON.stringify(found);
    replace(shown, [...found.notes.map((note) => el("p", { class: "note" }, note)), ...found.envs.flatMap(environment), ...rows(found)]);
  }

  const asking = (reference, isQuiet) => ask(reference, isQuiet).catch((error) => { told.textContent = `This cannot be shown: ${error.message}`; });

  score.addEventListener("change", () => asking());
  first.addEventListener("change", () => asking());
  page.append(
    el("p", {}, el("a", { href: "#/" }, "All runs")),
    el("h1", {}, "Comparison"),
    el("form", { class: "choices", onsubmit: (event) => event.preventDefault() },
      field("score", "Score of a run", score), field("first", "Compared with the others", first)),
    grouping.element, told, shown);
  await ask(asked.get("first") || "");
  const close = follow(shown, () => asking(first.value, true));
  return () => { arrivals += 1; close(); };
}

function environment({ env, figures, tables }) {
  const isNumber = (title) => !["group", "groups", "environment"].includes(title);
  const parts = Object.entries(tables).map(([title, [heads, ...cells]]) => el("section", {}, el("h3", {}, title), table(`${title}, ${env}`, heads.map((head) => [head, isNumber(head)]), cells, "runs")));
  return [el("h2", {}, env), el("div", { class: "charts fitted" }, figures.map((figure) => pictured(pictureOf(figure)))), el("div", { class: "beside" }, parts)];
}

function rows({ envs, runs, settings }) {
  if (!runs.length) return [el("p", {}, "Choose runs on the page of all runs.")];
  const scored = new Map(envs.flatMap((env) => env.runs.map((row) => [row.id, row])));
  const names = Object.keys(settings);
  const heads = [["run", false], ["state", false], ["group", false], ["environment", false], ["final", true], ["best", true], ["time", true], ["steps", true], ["frames", true], ["on the front of", false], ...names.map((name) => [name, false])];
  const cells = runs.map(({ id, run, state }, n) => {
    const row = scored.get(id) || { fronts: [] };
    return [el("a", { href: `#/run/${id}`, class: "run" }, run), state, row.group ?? "", row.env ?? "", number(row.final), number(row.best), clock(row.seconds), count(row.steps), count(row.frames), row.fronts.join(", "), ...names.map((name) => settings[name][n])];
  });
  const filled = heads.map((_, n) => cells.some((row) => row[n] !== "")), kept = (row) => row.filter((_, n) => filled[n]);
  return [el("h2", {}, "Runs"), el("p", { class: "quiet" }, "Time, steps and frames are those of the scored evaluation. The last columns are the settings that differ."), table("Runs", kept(heads), cells.map(kept), "runs")];
}
