// Which page is shown, and in which colours.

import { curvesPage } from "./curves.js";
import { diffPage } from "./diff.js";
import { el } from "./dom.js";
import { filesPage } from "./files.js";
import { overview } from "./overview.js";
import { runPage } from "./run.js";

let leave = () => {};
let arrivals = 0;

async function show() {
  leave();
  leave = () => {};
  const arrival = ++arrivals;
  const page = document.getElementById("page");
  page.replaceChildren(el("p", {}, "Loading"));
  const [path, query] = location.hash.split("?"), asked = new URLSearchParams(query);
  const run = /^#\/run\/([0-9a-f]+)(\/files)?$/.exec(path);
  const made = el("div", {});
  try {
    const left = run ? await (run[2] ? filesPage : runPage)(made, run[1], asked)
      : path === "#/curves" ? await curvesPage(made, asked)
        : path === "#/differences" ? await diffPage(made, asked)
          : await overview(made);
    if (arrival !== arrivals) {
      left();
      return;
    }
    leave = left;
    page.replaceChildren(made);
  } catch (error) {
    page.replaceChildren(el("p", { role: "alert" }, `This cannot be shown: ${error.message}`));
  }
}

const THEMES = ["auto", "light", "dark"];

function useTheme(theme) {
  const button = document.getElementById("theme");
  button.textContent = `Theme: ${theme}`;
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  localStorage.setItem("theme", theme);
  window.dispatchEvent(new Event("theme"));
}

document.getElementById("theme").addEventListener("click", () => {
  const now = document.documentElement.dataset.theme || "auto";
  useTheme(THEMES[(THEMES.indexOf(now) + 1) % THEMES.length]);
});
useTheme(THEMES.includes(localStorage.getItem("theme")) ? localStorage.getItem("theme") : "auto");
window.addEventListener("hashchange", show);
show();
