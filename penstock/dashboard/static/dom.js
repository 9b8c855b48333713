// Elements and numbers. All contents of runs become text, never markup.

const READ_PAUSE = 5000; // ms

export function el(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined).map(asNode));
  return made;
}

function asNode(child) {
  return child instanceof Node ? child : document.createTextNode(String(child));
}

const WHOLE = new Intl.NumberFormat("en", { maximumFractionDigits: 0 }); // toLocaleString makes one for each number
const whole = (value) => (Math.abs(value) < 1e15 ? WHOLE.format(value) : value.toExponential(2));

export function number(value) {
  if (value === null || value === undefined) return "";
  const size = Math.abs(value);
  if (size >= 1000) return whole(value);
  if (size >= 10 || value === 0) return value.toFixed(1);
  return size >= 0.01 ? value.toFixed(3) : value.toExponential(1);
}

export function count(value) {
  return value === null || value === undefined ? "" : whole(value);
}

export function clock(seconds) {
  if (seconds === null || seconds === undefined) return "";
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  const whole = Math.floor(seconds), two = (part) => String(part).padStart(2, "0");
  const hours = Math.floor(whole / 3600), minutes = Math.floor(whole / 60) % 60;
  return hours ? `${hours}:${two(minutes)}:${two(whole % 60)}` : `${minutes}:${two(whole % 60)}`;
}

export async function get(path) {
  return (await answerTo(path)).json();
}

async function answerTo(path) {
  const answer = await fetch(path);
  if (!answer.ok) throw Object.assign(new Error((await answer.text()).trim()), { status: answer.status });
  return answer;
}

// Reason why a page or a part of it cannot be shown, from an error of `get` or any other.
export async function reasonOf(error) {
  if (error.status === 404) return "there is no such run in the folders of this dashboard";
  const isAway = !error.status && (await fetch("/static/icon.svg").then(() => false, () => true));
  return isAway ? AWAY : error.message;
}

export const AWAY = "the dashboard does not answer: is penstock dashboard running?";

// Stream that is open only while the page is visible: a hidden page costs nothing.
export function stream(path, listeners) {
  let source = null, closed = false;
  const connection = document.getElementById("connection");
  const tell = (words) => { if (!closed) connection.textContent = words; };
  const open = () => {
    if (closed || source || document.hidden) return;
    source = new EventSource(path());
    source.onopen = () => tell("");
    source.onerror = async () => {
      tell("no connection, trying again");
      if (source && source.readyState === EventSource.CLOSED) {
        source = null;
        setTimeout(open, 2000);
        // An event source gives no reason for a refusal.
        await answerTo(path()).then((answer) => answer.body.cancel(), async (error) => tell(await reasonOf(error)));
      }
    };
    for (const [name, listener] of Object.entries(listeners)) {
      source.addEventListener(name, (event) => listener(JSON.parse(event.data), event.lastEventId));
    }
  };
  const shut = () => { if (source) source.close(); source = null; };
  const seen = () => (document.hidden ? shut() : open());
  document.addEventListener("visibilitychange", seen);
  open();
  return () => { tell(""); closed = true; shut(); document.removeEventListener("visibilitychange", seen); };
}

// Reads a page again when runs appear, end or are evaluated, in at most a twentieth of the time, but not while a part of `shown` has the focus.
export function follow(shown, read) {
  const seen = new Map();
  let left = 0, isFirst = true, next = 0;
  const close = stream(() => "/api/stream", {
    runs: ({ changed }) => {
      for (const { id, state, eval_return: last, best_return: best } of changed) {
        const now = [state, last, best].join();
        if (!isFirst && seen.get(id) !== now) left = 2; // twice: a search records the end of a run later
        seen.set(id, now);
      }
      isFirst = false;
    },
  });
  const timer = setInterval(async () => {
    const began = performance.now();
    if (!left || began < next || document.hidden || shown.contains(document.activeElement)) return;
    [left, next] = [left - 1, Infinity];
    await read();
    next = performance.now() + Math.max(READ_PAUSE, 20 * (performance.now() - began));
  }, 1000);
  return () => { close(); clearInterval(timer); };
}

// Replaces children; regions with the same label keep their scroll position.
export function replace(shown, children) {
  const regions = () => [...shown.querySelectorAll(".wide")], places = new Map(regions().map((one) => [one.getAttribute("aria-label"), one.scrollLeft]));
  shown.replaceChildren(...children);
  for (const one of regions()) one.scrollLeft = places.get(one.getAttribute("aria-label")) ?? 0;
}

// A table in its own region, which scrolls if the table is too wide. heads: title and whether its column holds numbers.
export function table(title, heads, rows, kind = "") {
  const side = (n) => (heads[n] && heads[n][1] ? "right" : null);
  return el("div", { class: "wide", tabindex: "0", role: "region", "aria-label": title },
    el("table", { class: kind || null }, el("thead", {}, el("tr", {}, heads.map(([head], n) => (head ? el("th", { scope: "col", class: side(n) }, head) : el("td", {}))))),
      el("tbody", {}, rows.map((cells) => el("tr", {}, cells.map((cell, n) => (n ? el("td", { class: side(n) }, cell) : el("th", { scope: "row" }, cell))))))));
}

const SVG = "http://www.w3.org/2000/svg";

export function svg(tag, attributes = {}, ...children) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, String(value));
  made.append(...children.flat());
  return made;
}

// Picture or figure that the server has drawn, from its text: a parsed document runs nothing.
export function pictureOf(text) {
  return document.importNode(new DOMParser().parseFromString(text, "text/html").body.firstElementChild, true);
}
