// All runs with their present state, one per row.

import { clock, count, el, get, number, stream } from "./dom.js";

const COLUMNS = [
  ["state", "state", (run) => (run.state === "unreadable" ? `unreadable: ${run.reason}` : run.state)],
  ["run", "run", (run) => run.run],
  ["algorithm", "algorithm", (run) => run.algorithm],
  ["env", "environment", (run) => run.env],
  ["seed", "seed", (run) => run.seed ?? ""],
  ["steps", "steps", (run) => count(run.steps)],
  ["progress", "done", (run) => (progress(run) === null ? "" : `${Math.floor(100 * progress(run))} %`)],
  ["seconds", "time", (run) => clock(run.seconds)],
  ["mean_return", "return", (run) => number(run.mean_return)],
  ["eval_return", "evaluation", (run) => number(run.eval_return)],
  ["best_return", "best", (run) => number(run.best_return)],
  ["target_return", "target", (run) => number(run.target_return)],
  ["steps_per_second", "steps/s", (run) => count(run.steps_per_second)],
  ["limiting_role", "limited by", (run) => run.limiting_role ?? ""],
  ["created", "begun", (run) => (run.created ? new Date(1000 * run.created).toLocaleString("sv").slice(0, 16) : "")],
];
const TEXTS = new Set(["state", "run", "algorithm", "env", "limiting_role"]);

function progress(run) {
  return run.total_steps && run.steps !== null ? Math.min(1, run.steps / run.total_steps) : null;
}

export async function overview(page) {
  document.title = "Penstock";
  const runs = new Map(), rows = new Map();
  let sort = "created", down = true;
  const body = el("tbody", {});
  const told = el("p", { role: "status", class: "quiet" });
  const filter = el("input", { type: "search", id: "filter", placeholder: "cartpole ppo running", oninput: draw });
  const chosen = new Set(), all = el("a", { href: "#/curves" }, "Curves of these runs"), unlike = el("a", { href: "#/differences" }, "What differs between the chosen runs");
  const heads = COLUMNS.map(([key, heading]) =>
    el("th", { scope: "col", class: TEXTS.has(key) ? null : "right" },
      el("button", { type: "button", onclick: () => { down = sort === key ? !down : !TEXTS.has(key); sort = key; draw(); } }, heading)));

  function value(run) {
    return sort === "progress" ? progress(run) : run[sort];
  }

  function compare(a, b) {
    const [x, y] = [value(a), value(b)];
    if (x === null || x === undefined || y === null || y === undefined) return (x ?? null) === (y ?? null) ? 0 : (x ?? null) === null ? 1 : -1;
    const order = typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y));
    return down ? -order : order;
  }

  function draw() {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    const has = (run) => words.every((word) => `${run.state} ${run.run} ${run.algorithm} ${run.env}`.toLowerCase().includes(word));
    const shown = [...runs.values()].filter(has).sort(compare);
    const wanted = shown.map(row), there = [...body.children];
    // Unchanged rows keep their focus.
    if (wanted.length !== there.length || wanted.some((tr, n) => tr !== there[n])) body.replaceChildren(...wanted);
    for (const id of [...chosen]) if (!runs.has(id)) chosen.delete(id);
    const some = [...chosen].join(",");
    all.href = some ? `#/curves?${new URLSearchParams({ runs: some })}` : `#/curves?${new URLSearchParams({ words: filter.value })}`;
    all.textContent = some ? `Curves of the ${chosen.size} chosen runs` : "Curves of these runs";
    unlike.href = `#/differences?${new URLSearchParams({ runs: some })}`;
    unlike.hidden = chosen.size < 2;
    told.textContent = runs.size ? `${shown.length} of ${runs.size} runs` : "No runs yet. This page shows them as soon as there are any.";
    heads.forEach((head, n) => {
      const mine = COLUMNS[n][0] === sort;
      if (mine) head.setAttribute("aria-sort", down ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
  }

  function row(run) {
    if (!rows.has(run.id)) {
      const state = el("span", {}), link = el("a", { href: `#/run/${run.id}` });
      const cells = COLUMNS.map(([key]) => (key === "state" ? state : key === "run" ? link : el("td", { class: TEXTS.has(key) ? null : "right" })));
      const box = el("input", { type: "checkbox", "aria-label": `Choose ${run.run}`, onchange: () => { if (box.checked) chosen.add(run.id); else chosen.delete(run.id); draw(); } });
      const tr = el("tr", {}, el("td", {}, box), cells.map((cell) => (cell === state ? el("td", {}, cell) : cell === link ? el("th", { scope: "row" }, cell) : cell)));
      rows.set(run.id, { run: null, tr, cells, state });
    }
    const made = rows.get(run.id);
    if (made.run !== run) {
      made.run = run;
      COLUMNS.forEach(([, , text], n) => { made.cells[n].textContent = text(run); });
      made.state.className = `state ${run.state}`;
      made.state.title = run.reason ?? "";
    }
    return made.tr;
  }

  const first = await get("/api/runs");
  for (const run of first.runs) runs.set(run.id, run);
  page.append(
    el("h1", {}, "Runs"),
    el("p", {}, el("label", { for: "filter" }, "Show "), filter),
    told, el("p", { class: "ways" }, all, unlike),
    el("div", { class: "wide", tabindex: "0", role: "region", "aria-label": "Runs" },
      el("table", { class: "runs" }, el("thead", {}, el("tr", {}, el("td", {}), heads)), body)));
  draw();
  return stream(() => "/api/stream", {
    runs: ({ changed, ids }) => {
      for (const run of changed) runs.set(run.id, run);
      const there = new Set(ids);
      for (const id of [...runs.keys()]) if (!there.has(id)) { runs.delete(id); rows.delete(id); }
      draw();
    },
  });
}
