// All runs with their current state, one per row.

import { clock, count, el, get, number, stream } from "./dom.js";

// Text of a value by the kind of its column, as the server describes it.
const TEXTS = {
  state: (value, run) => (value === "unreadable" ? `unreadable: ${run.reason}` : value ?? ""),
  text: (value) => value ?? "",
  number, count, clock,
  share: (value) => (value === null || value === undefined ? "" : `${Math.floor(100 * value)} %`),
  ago: (value) => (value ? clock(Math.max(0, Date.now() / 1000 - value)) : ""),
};

export async function overview(page, asked) {
  document.title = "Penstock";
  const first = await get("/api/runs");
  const columns = first.columns.filter((column) => column.least_width !== null);
  const isText = (column) => column.cell === "text" || column.cell === "state";
  const looks = (column) => [isText(column) ? null : "right", column.least_width ? `from${column.least_width}` : null].filter(Boolean).join(" ") || null;
  const runs = new Map(), rows = new Map();
  let sort = asked.get("sort") || "created", down = asked.get("order") !== "up";
  const body = el("tbody", {});
  const told = el("span", { role: "status", class: "quiet" });
  const filter = el("input", { type: "search", id: "filter", placeholder: "cartpole ppo running", value: asked.get("words") || "", oninput: change });
  const archived = el("input", { type: "checkbox", id: "archived", checked: asked.has("archived"), onchange: change });
  const chosen = new Set(), all = el("a", { href: "#/curves" }, "Curves of these runs"), compared = el("a", { href: "#/compare" }), unlike = el("a", { href: "#/differences" }, "What differs between the chosen runs");
  const searches = el("span", { class: "ways" });
  const heads = columns.map((column) =>
    el("th", { scope: "col", class: looks(column) },
      el("button", { type: "button", onclick: () => { down = sort === column.name ? !down : !isText(column); sort = column.name; change(); } }, column.heading)));

  // Draws what was chosen, and keeps it in the address, so that it can be shared and found again.
  function change() {
    const query = new URLSearchParams({
      ...(filter.value ? { words: filter.value } : {}), ...(sort === "created" && down ? {} : { sort, order: down ? "down" : "up" }), ...(archived.checked ? { archived: "1" } : {}),
    });
    history.replaceState(null, "", `#/${query.size ? `?${query}` : ""}`);
    draw();
  }

  function compare(a, b) {
    const [x, y] = [a[sort], b[sort]];
    if (x === null || x === undefined || y === null || y === undefined) return (x ?? null) === (y ?? null) ? 0 : (x ?? null) === null ? 1 : -1;
    const order = typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y));
    return down ? -order : order;
  }

  function draw() {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    const has = (run) => words.every((word) => `${run.state} ${run.run} ${run.algorithm} ${run.env} ${run.tags}`.toLowerCase().includes(word));
    const hidden = [...runs.values()].filter((run) => run.archived).length;
    archived.parentElement.hidden = !hidden;
    const shown = [...runs.values()].filter((run) => has(run) && (archived.checked || !run.archived)).sort(compare);
    const wanted = shown.map(row), there = [...body.children];
    // Unchanged rows keep their focus.
    if (wanted.length !== there.length || wanted.some((tr, n) => tr !== there[n])) body.replaceChildren(...wanted);
    for (const id of [...chosen]) if (!runs.has(id)) chosen.delete(id);
    const some = [...chosen].join(",");
    all.href = some ? `#/curves?${new URLSearchParams({ runs: some })}` : `#/curves?${new URLSearchParams({ words: filter.value })}`;
    all.textContent = some ? `Curves of the ${chosen.size} chosen runs` : "Curves of these runs";
    compared.href = all.href.replace("#/curves", "#/compare");
    compared.textContent = some ? `Comparison of the ${chosen.size} chosen runs` : "Comparison of these runs";
    unlike.href = `#/differences?${new URLSearchParams({ runs: some })}`;
    unlike.hidden = chosen.size < 2;
    told.textContent = runs.size ? `${shown.length} of ${runs.size} runs` : "No runs yet. This page shows them as soon as there are any.";
    // Columns without any value are left out.
    columns.forEach(({ name, cell }, n) => {
      const isEmpty = !shown.some((run) => TEXTS[cell](run[name], run));
      for (const each of [heads[n], ...shown.map((run) => rows.get(run.id).cells[n].closest("td, th"))]) each.classList.toggle("empty", isEmpty);
    });
    heads.forEach((head, n) => {
      const mine = columns[n].name === sort;
      if (mine) head.setAttribute("aria-sort", down ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
  }

  function row(run) {
    if (!rows.has(run.id)) {
      const cells = columns.map((column) => (column.name === "run" ? el("a", { href: `#/run/${run.id}`, class: "run" }) : column.cell === "state" ? el("span", {}) : el("td", { class: looks(column) })));
      const box = el("input", { type: "checkbox", "aria-label": `Choose ${run.run}`, onchange: () => { if (box.checked) chosen.add(run.id); else chosen.delete(run.id); draw(); } });
      const tags = el("span", { class: "tags" });
      const placed = (cell) => (cell.tagName === "A" ? el("th", { scope: "row" }, cell, tags) : cell.tagName === "SPAN" ? el("td", {}, cell) : cell);
      rows.set(run.id, { run: null, tr: el("tr", {}, el("td", {}, box), cells.map(placed)), cells, tags });
    }
    const made = rows.get(run.id);
    if (made.run !== run) {
      made.run = run;
      made.tags.replaceChildren(...run.tags.split(",").filter(Boolean).map((tag) => el("span", { class: "tag" }, tag)));
      columns.forEach((column, n) => {
        const cell = made.cells[n];
        cell.textContent = TEXTS[column.cell](run[column.name], run);
        if (column.cell === "state") Object.assign(cell, { className: `state ${run.state}`, title: run.reason ?? "" });
        if (column.name === "run") cell.title = run.run;
      });
    }
    return made.tr;
  }

  let known = "";
  function link(found) {
    if (JSON.stringify(found) === known) return;
    known = JSON.stringify(found);
    searches.replaceChildren(...(found.length ? ["Searches: ", ...found.map(({ id, name }) => el("a", { href: `#/search/${id}` }, name))] : []));
  }

  for (const run of first.runs) runs.set(run.id, run);
  link(first.searches);
  page.append(
    el("h1", {}, "Runs"),
    el("p", { class: "ways" }, el("span", {}, el("label", { for: "filter" }, "Show "), filter), el("label", {}, archived, " archived runs"), told),
    el("p", { class: "ways" }, all, compared, unlike, searches),
    el("div", { class: "wide", tabindex: "0", role: "region", "aria-label": "Runs" },
      el("table", { class: "runs whole" }, el("thead", {}, el("tr", {}, el("td", {}), heads)), body)));
  draw();
  return stream(() => "/api/stream", {
    runs: ({ changed, ids, searches: found }) => {
      link(found);
      for (const run of changed) runs.set(run.id, run);
      const there = new Set(ids);
      for (const id of [...runs.keys()]) if (!there.has(id)) { runs.delete(id); rows.delete(id); }
      draw();
    },
  });
}
