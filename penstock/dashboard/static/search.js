// A search for settings: parallel coordinates of its trials, importance of settings, the best trials and their runs.

import { count, el, follow, get, number, pictureOf, replace, table } from "./dom.js";
import { lineageParts } from "./kinds.js";
import { drawing, pictured } from "./pictures.js";

const STOPS = 100; // of a slider

export async function searchPage(page, id) {
  const shown = el("div", {}), told = el("p", { role: "status", class: "quiet" });
  let brushes = [], found = null, arrivals = 0;

  async function read() {
    const arrival = ++arrivals;
    const answer = await get(`/api/searches/${id}`);
    if (arrival !== arrivals || JSON.stringify(found) === JSON.stringify(answer)) return;
    const kept = new Map(found ? found.axes.map(({ name }, n) => [name, brushes[n]]) : []);
    found = answer;
    brushes = found.axes.map(({ name }) => kept.get(name) ?? [0, STOPS]);
    document.title = `${found.name} · Penstock`;
    replace(shown, parts());
    brush();
  }

  // Trials outside a range of any axis are faint in the picture and hidden in the table.
  function brush() {
    const lies = (at, [low, high]) => (at === null ? low === 0 && high === STOPS : STOPS * at >= low - 0.5 && STOPS * at <= high + 0.5);
    const inside = new Set(found.trials.filter((trial) => brushes.every((range, n) => lies(trial.at[n], range))).map((trial) => trial.name));
    for (const line of shown.querySelectorAll(".trial")) line.classList.toggle("out", !inside.has(line.dataset.trial));
    for (const row of shown.querySelectorAll("[data-name]")) row.closest("tr").hidden = !inside.has(row.dataset.name);
    told.textContent = `${count(inside.size)} of ${count(found.trials.length)} trials: ${counts(found.trials.filter((trial) => inside.has(trial.name)))}`;
  }

  function slider(axis, n, end) {
    const words = (stop) => textAt(axis, stop / STOPS);
    const output = el("span", { class: "said" }, words(brushes[n][end]));
    const input = el("input", { type: "range", min: 0, max: STOPS, value: brushes[n][end], "aria-label": `${axis.name}, ${end ? "highest" : "lowest"}`, "aria-valuetext": output.textContent, oninput: () => {
      brushes[n][end] = Number(input.value);
      output.textContent = words(brushes[n][end]);
      input.setAttribute("aria-valuetext", output.textContent);
      brush();
    } });
    return el("label", {}, end ? "to" : "from", input, output);
  }

  function parts() {
    const { axes, trials, importance, figure, picture, is_population: isPopulation } = found;
    if (!trials.length) return [el("p", {}, "No trial has begun, or the files of the search cannot be read.")];
    const best = [...trials].sort((a, b) => (b.state === "done") - (a.state === "done") || (b.value ?? -Infinity) - (a.value ?? -Infinity));
    const heads = [[isPopulation ? "member" : "trial", false], ["state", false], ["value", true], ...axes.slice(0, -1).map((axis) => [axis.name, true]), ["runs", false]];
    const cells = best.map((trial) => [
      el("span", { "data-name": trial.name }, trial.name), trial.state, number(trial.value), ...trial.settings.slice(0, axes.length - 1),
      el("span", {}, trial.runs.flatMap(({ run, id: its }) => [el("a", { href: `#/run/${its}` }, run), " "])),
    ]);
    const shares = Object.entries(importance).sort(([, a], [, b]) => b - a);
    const known = shares.filter(([, share]) => share !== null);
    return [
      el("h2", {}, "Trials"),
      el("p", { class: "quiet" }, "A line per trial, through its settings to its value. The best fifth stands out; ranges below make other trials faint."),
      picture ? drawing("Parallel coordinates", "parallel", pictureOf(picture)) : "",
      el("div", { class: "choices" }, axes.map((axis, n) => el("fieldset", { class: "brush" }, el("legend", {}, axis.name), slider(axis, n, 0), slider(axis, n, 1)))),
      el("h2", {}, isPopulation ? "History" : "Importance and history"),
      el("div", { class: "charts broad" },
        figure ? pictured(pictureOf(figure)) : "",
        known.length ? el("section", {}, el("h3", {}, "Importance of settings"), el("p", { class: "quiet" }, "Share of the variance of the trials' ranks that a setting explains alone; what chance explains is subtracted."),
          table("Importance of settings", [["setting", false], ["share", true], ["", false]], known.map(([name, share]) => [name, `${Math.round(100 * share)} %`, meter(share)]))) : ""),
      ...(found.lineage?.events.length ? [el("h2", {}, "Lineage"), ...lineageParts(found.lineage, "member")] : []),
      el("h2", {}, "Best trials"), table("Best trials", heads, cells, "runs"),
    ];
  }

  page.append(
    el("p", {}, el("a", { href: "#/" }, "All runs")), el("h1", {}, "Search"),
    told, shown);
  await read();
  page.querySelector("h1").textContent = `${found.is_population ? "Population" : "Search"} ${found.name}`;
  const close = follow(shown, () => read().catch((error) => { told.textContent = `This cannot be shown: ${error.message}`; }));
  return () => { arrivals += 1; close(); };
}

function counts(trials) {
  const found = new Map();
  for (const { state } of trials) found.set(state, (found.get(state) ?? 0) + 1);
  return [...found].map(([state, n]) => `${n} ${state}`).join(", ") || "none";
}

function meter(share) {
  const made = el("span", {}), bar = el("span", { class: "bar games", "aria-hidden": "true" }, made);
  made.style.width = `${100 * share}%`;
  made.style.background = "var(--work)";
  return bar;
}

function textAt({ ends: [low, high], log, values }, share) {
  if (values) return values[Math.round(share * (values.length - 1))];
  return String(Number((log ? low * (high / low) ** share : low + share * (high - low)).toPrecision(4)));
}
