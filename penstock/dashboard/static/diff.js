// Differences between runs: settings, versions, commits, machine.

import { el, get } from "./dom.js";

export async function diffPage(page, asked) {
  document.title = "Differences · Penstock";
  const found = await get(`/api/differences?runs=${encodeURIComponent(asked.get("runs") || "")}`);
  const text = (value) => (value === null ? "" : typeof value === "string" ? value : JSON.stringify(value));
  const heads = ["setting", ...found.runs].map((name) => el("th", { scope: "col" }, name));
  const rows = found.rows.map(({ name, values }) => el("tr", {}, el("th", { scope: "row" }, name), ...values.map((value) => el("td", {}, text(value)))));
  page.append(
    el("p", {}, el("a", { href: "#/" }, "All runs")),
    el("h1", {}, "Differences"),
    found.rows.length
      ? el("div", { class: "wide", tabindex: "0", role: "region", "aria-label": "Differences" },
        el("table", { class: "settings" }, el("thead", {}, el("tr", {}, heads)), el("tbody", {}, rows)))
      : el("p", { role: "status" }, found.runs.length > 1 ? "The same settings, versions, commits and machine." : "Choose two runs or more on the page of all runs."));
  return () => {};
}
