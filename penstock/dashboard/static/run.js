// One run, live: learning, speed and limits, log, settings and provenance.

import { Chart, Store } from "./chart.js";
import { clock, count, el, get, number, stream } from "./dom.js";

const MOST_ROWS = 4000; // beyond it, rows reduced by the server are loaded again, in which every spike remains
const MOST_LOG_LINES = 500;
const PAUSE = 1600; // ms between two drawings, the main cost of an open page; a line appears within 2 s

export async function runPage(page, id) {
  const [about, overview] = await Promise.all([get(`/api/runs/${id}`), get("/api/runs")]);
  const state = el("span", { class: "state" });
  const facts = el("dl", { class: "facts" }), limit = el("p", { class: "limit" }), roles = el("div", { class: "roles" });
  const charts = el("div", { class: "charts" });
  const log = el("pre", { class: "log", tabindex: "0", role: "region", "aria-label": "Log" });
  const told = el("p", { role: "status", class: "quiet" }, "Reading what the run has logged so far");
  const x = el("select", { id: "x" }, el("option", { value: "steps" }, "steps"), el("option", { value: "seconds" }, "seconds trained"), el("option", { value: "time" }, "time of day"));
  document.title = `${about.summary.run} · Penstock`;
  const parts = [
    el("p", { class: "ways" }, el("a", { href: "#/" }, "All runs"), el("a", { href: `#/run/${id}/files` }, "Files"), el("a", { href: `#/curves?runs=${id}` }, "Curves")),
    el("h1", {}, about.summary.run, " ", state),
    el("p", {}, `${about.summary.algorithm} on ${about.summary.env}, seed ${about.summary.seed ?? "unknown"}`),
    facts, limit, roles,
    overview.control ? stopButton(id, overview.control) : null,
    el("p", {}, el("label", { for: "x" }, "Draw over "), x), told, charts,
    films(id, about.films),
    el("h2", {}, "Log"), log,
    details("Settings", about.config), details("Made with", about.made),
  ];
  page.append(...parts.filter((part) => part !== null));
  showStatus({ state: about.summary.state, status: about.status });

  let metrics = new Store({}), hardware = new Store({}), drawn = [], names = "", cursor = "", isClosed = false, isReading = false;
  let drawnAt = 0, waiting = 0;

  function showStatus(news) {
    state.textContent = news.state;
    state.className = `state ${news.state}`;
    const status = { ...about.summary, ...news.status };
    const target = status.target_return === null || status.target_return === undefined ? "" : ` of ${number(status.target_return)}`;
    const pairs = [
      ["steps", `${count(status.steps)}${status.total_steps ? ` of ${count(status.total_steps)}` : ""}`],
      ["time trained", clock(status.seconds)],
      ["steps/s", count(status.steps_per_second)],
      ["return", number(status.mean_return)],
      ["evaluation", `${number(status.eval_return)}${target}`],
      ["best", number(status.best_return)],
      ["updates", count(status.updates)],
      ["skipped updates", count(status.skipped_updates)],
      ["restarts", count(status.restarts)],
      ["reason", status.reason || ""],
    ];
    facts.replaceChildren(...pairs.filter(([, text]) => text).map(([name, text]) => el("div", {}, el("dt", {}, name), el("dd", { "data-fact": name }, text))));
    limit.textContent = status.limiting_role ? `Limited by ${status.limiting_role}: ${status.limiting_reason}` : "";
    roles.replaceChildren(...(Array.isArray(status.roles) ? status.roles : []).map(roleBar));
  }

  function draw() {
    const wanted = groups(metrics, hardware, about.config.target_return);
    const now = JSON.stringify(wanted.map(({ title, names }) => [title, names]));
    if (now === names) {
      for (const chart of drawn) chart.update();
      return;
    }
    names = now;
    for (const chart of drawn) chart.destroy();
    charts.replaceChildren();
    drawn = wanted.map(({ title, store, names, labels, options }) => new Chart(title, store, names, labels, { ...options, x: () => x.value }));
    let heading = "";
    drawn.forEach((chart, n) => {
      if (wanted[n].heading !== heading) {
        heading = wanted[n].heading;
        charts.append(el("h2", {}, heading));
      }
      charts.append(chart.element);
    });
  }

  function drawSoon() {
    if (waiting) return;
    waiting = setTimeout(() => {
      waiting = 0;
      drawnAt = performance.now();
      if (!isClosed) draw();
    }, Math.max(0, drawnAt + PAUSE - performance.now()));
  }

  async function read() {
    if (isReading) return;
    isReading = true;
    const telling = setInterval(async () => {
      const { share } = await get(`/api/runs/${id}/progress`);
      if (isReading) told.textContent = `Reading what the run has logged so far: ${Math.round(100 * share)} %`;
    }, 1000);
    try {
      const whole = await get(`/api/runs/${id}/history`);
      if (isClosed) return;
      [metrics, hardware] = [whole.metrics, whole.hardware].map((columns) => new Store(columns, whole.most_names));
      [metrics.leftOut, cursor, names] = [whole.left_out, whole.cursor, ""];
      log.textContent = whole.log.join("\n");
      tell();
      draw();
    } finally {
      clearInterval(telling);
      isReading = false;
    }
  }

  function tell() {
    const leftOut = metrics.leftOut + hardware.leftOut;
    if (leftOut) told.textContent = `${count(leftOut)} numbers are not shown: a file's numbers may have ${count(metrics.most)} names, and these have further ones.`;
    else told.textContent = metrics.count ? "" : "The run has logged no metrics yet.";
  }

  function take(news, at) {
    if (news.reload || metrics.count > MOST_ROWS) {
      reopen();
      return;
    }
    cursor = at || cursor;
    for (const line of news.metrics || []) metrics.add(line);
    for (const line of news.hardware || []) hardware.add(line);
    if (news.log) {
      const isAtEnd = log.scrollTop + log.clientHeight >= log.scrollHeight - 8;
      log.textContent = [...log.textContent.split("\n"), ...news.log].filter(Boolean).slice(-MOST_LOG_LINES).join("\n");
      if (isAtEnd) log.scrollTop = log.scrollHeight;
    }
    tell();
    if (news.metrics || news.hardware) drawSoon();
  }

  let close = () => {};

  function open() {
    close = stream(() => `/api/runs/${id}/stream?cursor=${encodeURIComponent(cursor)}`, { news: take, status: showStatus });
  }

  async function reopen() {
    close();
    await read();
    if (!isClosed) open();
  }

  const rebuild = () => { for (const chart of drawn) chart.rebuild(); };
  x.addEventListener("change", rebuild);
  window.addEventListener("theme", rebuild);
  reopen().catch((error) => { told.textContent = `This cannot be shown: ${error.message}`; });
  return () => {
    isClosed = true;
    clearTimeout(waiting);
    close();
    window.removeEventListener("theme", rebuild);
    for (const chart of drawn) chart.destroy();
  };
}

// Charts, by the names of the logged metrics.
function groups(metrics, hardware, target) {
  const names = Object.keys(metrics.columns), made = [];
  const add = (heading, title, store, names, labels, options = {}) => { if (names.length) made.push({ heading, title, store, names, labels, options }); };
  const among = (prefix) => names.filter((name) => name.startsWith(prefix));
  const bare = (names, prefix) => names.map((name) => name.slice(prefix.length));
  const has = (wanted) => wanted.filter((name) => names.includes(name));
  const returns = has(["episode/mean_return", "evaluation/mean_return"]);
  const labels = { "episode/mean_return": "training episodes", "evaluation/mean_return": "evaluations" };
  add("Learning", "Return", metrics, returns, returns.map((name) => labels[name]), typeof target === "number" ? { target } : {});
  const successes = has(["episode/success_rate", "evaluation/success_rate"]);
  add("Learning", "Success rate", metrics, successes, successes, { least: 0, most: 1 });
  add("Learning", "Episode length", metrics, has(["episode/mean_length"]), ["steps"]);
  for (const name of among("loss/")) add("Losses", name.slice(5), metrics, [name], [name.slice(5)]);
  add("Losses", "Learning rate", metrics, has(["learning_rate"]), ["learning rate"]);
  add("Speed", "Steps per second", metrics, has(["steps_per_second"]), ["steps/s"]);
  add("Speed", "Policy lag in updates", metrics, among("policy_lag/"), bare(among("policy_lag/"), "policy_lag/"));
  for (const name of among("replay/")) add("Speed", name, metrics, [name], [name]);
  for (const role of [...new Set(among("time/").map((name) => name.split("/")[1]))]) {
    const mine = among(`time/${role}/`);
    add("Time of roles", `Time of ${role}`, metrics, mine, bare(mine, `time/${role}/`), { least: 0, most: 1 });
  }
  add("Time of roles", "Time of all cores", metrics, among("cores/"), bare(among("cores/"), "cores/"), { least: 0, most: 1 });
  const faults = has(["restarts", "skipped_updates", "masked_steps"]);
  add("Faults", "Restarts, skipped updates, masked steps", metrics, faults, faults.map((name) => name.replaceAll("_", " ")));
  for (const name of among("metrics/")) add("Numbers of your own", name.slice(8), metrics, [name], [name.slice(8)]);

  const of = (pattern) => Object.keys(hardware.columns).filter((name) => pattern.test(name));
  const cores = of(/^cpu\/\d+$/);
  add("Hardware", "Busy cores", hardware, cores, cores.map((name) => name.replace("cpu/", "core ")), { least: 0, most: 1 });
  const memory = of(/^memory\//);
  add("Hardware", "Memory in bytes", hardware, memory, bare(memory, "memory/"));
  for (const [what, title] of [["cpu", "Cores used by roles"], ["memory", "Memory of roles in bytes"]]) {
    const mine = of(new RegExp(`^role/.*/${what}$`));
    add("Hardware", title, hardware, mine, mine.map((name) => name.split("/")[1]));
  }
  const busy = of(/^gpu\/\d+\/busy$/), used = of(/^gpu\/\d+\/memory_/);
  add("Hardware", "Busy GPUs", hardware, busy, busy.map((name) => `GPU ${name.split("/")[1]}`), { least: 0, most: 1 });
  add("Hardware", "Memory of GPUs in bytes", hardware, used, used.map((name) => name.replace("gpu/", "GPU ").replace("/memory_", " ")));
  return made;
}

function roleBar(role) {
  const shares = Object.entries(role.activities || {}).filter(([, share]) => share >= 0.005);
  const bar = el("div", { class: "bar", "aria-hidden": "true" });
  for (const [name, share] of shares) {
    const part = el("span", { class: name.startsWith("wait") ? "wait" : "work", title: name });
    part.style.width = `${100 * share}%`;
    bar.append(part);
  }
  const words = shares.map(([name, share]) => `${name} ${Math.round(100 * share)} %`).join(", ");
  return el("div", { class: "role" }, el("span", { class: "name" }, role.name), bar, el("span", { class: "quiet" }, words));
}

function films(id, names) {
  if (!names.length) return null;
  return el("section", {}, el("h2", {}, "Films"), ...names.map((name, n) =>
    el("figure", {}, el("figcaption", {}, name), el("video", { controls: true, preload: "none", src: `/api/runs/${id}/films/${n}` }))));
}

function details(title, values) {
  const text = (value) => (typeof value === "string" ? value : JSON.stringify(value));
  const rows = Object.entries(values).map(([name, value]) => el("tr", {}, el("th", { scope: "row" }, name), el("td", {}, text(value))));
  return el("details", {}, el("summary", {}, title), el("div", { class: "wide", tabindex: "0", role: "region", "aria-label": title }, el("table", { class: "settings" }, el("tbody", {}, rows))));
}

function stopButton(id, token) {
  const told = el("span", { role: "status" });
  const stop = async () => {
    if (!confirm("Ask this run to save and end?")) return;
    const answer = await fetch(`/api/runs/${id}/stop`, { method: "POST", headers: { "X-Penstock-Control": token } });
    told.textContent = answer.ok ? " It was asked to save and end." : " It is not running here.";
  };
  return el("p", {}, el("button", { type: "button", id: "stop", onclick: stop }, "Stop this run"), told);
}
