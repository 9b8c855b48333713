// Choice of page and colours.

import { AWAY, el, reasonOf } from "./dom.js";
import { overview } from "./overview.js";

// Charts are loaded when needed: the overview does not wait for them.
async function shown(page, path, asked) {
  const run = /^#\/run\/([0-9a-f]+)(\/files)?$/.exec(path);
  if (run && run[2]) return (await import("./files.js")).filesPage(page, run[1], asked);
  if (run) return (await import("./run.js")).runPage(page, run[1], asked);
  if (path === "#/curves") return (await import("./curves.js")).curvesPage(page, asked);
  const search = /^#\/search\/([0-9a-f]+)$/.exec(path);
  if (search) return (await import("./search.js")).searchPage(page, search[1], asked);
  if (path === "#/compare") return (await import("./compare.js")).comparePage(page, asked);
  if (path === "#/differences") return (await import("./diff.js")).diffPage(page, asked);
  if (!path || path === "#/" || path === "#") return overview(page, asked);
  throw new Error("there is no such page");
}

let leave = () => {};
let arrivals = 0;

async function show(isAgain = false) {
  leave();
  leave = () => {};
  const arrival = ++arrivals;
  const page = document.getElementById("page");
  if (!isAgain) page.replaceChildren(el("p", {}, "Loading"));
  const [path, query] = location.hash.split("?");
  const made = el("div", {});
  try {
    const left = await shown(made, path, new URLSearchParams(query));
    if (arrival !== arrivals) {
      left();
      return;
    }
    leave = left;
    page.replaceChildren(made);
  } catch (error) {
    const reason = await reasonOf(error);
    if (arrival !== arrivals) return;
    if (reason === AWAY) setTimeout(() => arrival === arrivals && show(true), 2000);
    page.replaceChildren(el("p", {}, el("a", { href: "#/" }, "All runs")), el("p", { role: "alert" }, `This cannot be shown: ${reason}`));
  }
}

const THEMES = ["auto", "light", "dark"];

function chosenTheme() {
  const found = localStorage.getItem("theme");
  return THEMES.includes(found) ? found : "auto";
}

function paint(theme) {
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  window.dispatchEvent(new Event("theme"));
}

function useTheme(theme) {
  document.getElementById("theme").textContent = `Theme: ${theme}`;
  localStorage.setItem("theme", theme);
  paint(theme);
}

document.getElementById("theme").addEventListener("click", () => {
  const now = document.documentElement.dataset.theme || "auto";
  useTheme(THEMES[(THEMES.indexOf(now) + 1) % THEMES.length]);
});
useTheme(chosenTheme());
window.addEventListener("beforeprint", () => paint("light")); // before the charts', which draw for paper then
window.addEventListener("afterprint", () => paint(chosenTheme()));
window.addEventListener("hashchange", () => show());
show();
