// Files of a run: a list of all; text files can be shown and downloaded.

import { count, el, get } from "./dom.js";

export async function filesPage(page, id, asked) {
  const found = await get(`/api/runs/${id}/files`);
  document.title = `Files of ${found.run} · Penstock`;
  const shown = el("section", { "aria-live": "polite" });
  let arrivals = 0;

  async function show(file) {
    const arrival = ++arrivals;
    const answer = await get(`/api/runs/${id}/files/${file.id}`);
    if (arrival !== arrivals) return;
    const before = answer.left_out ? `The first ${count(answer.left_out)} bytes are left out: download the file for all of it.` : null;
    const text = el("pre", { class: "log", tabindex: "0", role: "region", "aria-label": file.name }, answer.text);
    shown.replaceChildren(el("h2", {}, file.name), before ? el("p", { class: "quiet" }, before) : "", text);
    history.replaceState(null, "", `#/run/${id}/files?file=${file.id}`);
    shown.scrollIntoView({ block: "nearest" });
  }

  const rows = found.files.map((file) => el("tr", {},
    el("th", { scope: "row" }, file.name),
    el("td", { class: "right" }, count(file.size)),
    el("td", { class: "from600" }, new Date(1000 * file.time).toLocaleString("sv")),
    el("td", {}, file.is_text ? el("button", { type: "button", "aria-label": `Show ${file.name}`, onclick: () => show(file) }, "Show") : ""),
    el("td", {}, file.is_text ? el("a", { href: `/api/runs/${id}/files/${file.id}?download`, "aria-label": `Download ${file.name}` }, "Download") : "")));
  page.append(
    el("p", {}, el("a", { href: `#/run/${id}` }, found.run)),
    el("h1", {}, `Files of ${found.run}`),
    el("p", { class: "quiet" }, "Text is shown. Possible secrets in JSON files are masked. Links are left out."),
    el("div", { class: "wide", tabindex: "0", role: "region", "aria-label": "Files" },
      el("table", { class: "runs files" }, el("thead", {}, el("tr", {}, ["file", "bytes", "changed", "", ""].map((head, n) =>
        (head ? el("th", { scope: "col", class: ["", "right", "from600"][n] || null }, head) : el("td", {}))))), el("tbody", {}, rows))),
    shown);
  const first = found.files.find((file) => file.id === asked.get("file") && file.is_text);
  if (first) await show(first);
  return () => { arrivals += 1; };
}
