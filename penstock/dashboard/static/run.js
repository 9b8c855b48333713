// One run, live: its parts by kind of run, charts, log, settings and provenance.

import { Chart } from "./chart.js";
import { Controls, soon } from "./controls.js";
import { count, el, get, reasonOf, replace, stream } from "./dom.js";
import { episodePanel, lineagePanel, nodesPanel, partsTable, policiesPanel } from "./kinds.js";
import { colorOf, WAIT } from "./looks.js";
import { Store } from "./store.js";

const ENDED = ["done", "interrupted", "failed", "died"];
const MOST_ROWS = 4000; // beyond it, rows reduced by the server are loaded again; they keep every spike
const MOST_LOG_LINES = 500;
const EPISODE_PAUSE = 10000; // ms
const PAUSE = 1600; // ms between two updates of the page; the numbers of a line appear within 2 s
const CURVES_PAUSE = navigator.hardwareConcurrency > 4 ? 0 : 4000; // ms between two drawings of curves, the main cost of an open page

export async function runPage(page, id, asked) {
  let [about, overview] = await Promise.all([get(`/api/runs/${id}`), get("/api/runs")]);
  const state = el("span", { class: "state" }), kind = el("p", {});
  const facts = el("dl", { class: "facts" }), limit = el("p", { class: "limit" }), roles = el("div", { class: "roles" });
  const log = el("pre", { class: "log", tabindex: "0", role: "region", "aria-label": "Log" });
  const told = el("p", { role: "status", class: "quiet" }, "Reading what the run has logged so far");
  const index = el("nav", { class: "index", "aria-label": "Sections of this page" });
  const sections = new Map(), body = el("div", {});
  document.title = `${about.summary.run} · Penstock`;
  const controls = new Controls(Object.entries(about.axes), asked, (what) => {
    keepAddressSoon();
    tell();
    for (const chart of drawn) chart.follow(what);
    if (isReduced && what !== "look") readSoon(); // finer within the range
  });
  const readSoon = soon(() => reopen());
  const keepAddressSoon = soon(keepAddress);
  const stop = overview.control ? stopButton(id, overview.control) : el("p", {});
  const head = [
    el("p", { class: "ways" }, el("a", { href: "#/" }, "All runs"), el("a", { href: `#/run/${id}/files` }, "Files"), el("a", { href: `#/curves?runs=${id}` }, "Curves")),
    el("h1", {}, about.summary.run, " ", state),
    kind,
    about.parent && el("p", { class: "parent" }, "Weights from ", about.parent.id ? el("a", { href: `#/run/${about.parent.id}` }, about.parent.words) : about.parent.words),
    facts, limit, roles,
    labels(id, about.summary, overview.control),
    stop,
    told, index,
    el("form", { class: "choices", onsubmit: (event) => event.preventDefault() }, controls.elements),
    body,
  ];
  page.append(...head.filter((part) => part !== null));

  let metrics = new Store({}), hardware = new Store({}), drawn = [], names = "", cursor = "", isClosed = false, isReading = false, isReduced = false;
  let drawnAt = 0, curvesAt = 0, waiting = 0, owed = 0, newest = null, hasNewLines = false, charts = [], status = {}, shown = {}, shades = new Map(), needsCharts = false, settings = "";

  const policies = policiesPanel(about.words), nodes = nodesPanel(about.words, () => metrics), lineage = about.has_lineage ? lineagePanel(id) : null;
  const episode = episodePanel(id);
  const videos = el("div", { class: "charts" }), learners = el("div", {});
  let marks = [];
  section("Log").append(log);
  showAbout();
  order([]);

  function section(title) {
    if (!sections.has(title)) sections.set(title, el("section", { tabindex: "-1" }, el("h2", {}, title)));
    return sections.get(title);
  }

  // Sections in order, those without content left out, with an index of them.
  function order(titles) {
    const own = [["Policies", policies.element], ["Nodes", nodes.element], ["Learners", learners], ["Population", lineage && lineage.element], ["Videos", videos], ["Recent episode", episode.element]];
    const filled = own.filter(([, element]) => element && element.childNodes.length);
    for (const [title, element] of filled) section(title).firstChild.after(element);
    const first = titles.slice(0, 1), all = [...first, ...filled.map(([title]) => title), ...titles, ...(log.textContent ? ["Log"] : []), "Settings"];
    const wanted = [...new Set(all)].map((title) => sections.get(title));
    if (wanted.length !== body.children.length || wanted.some((each, n) => each !== body.children[n])) body.replaceChildren(...wanted);
    const now = [...new Set(all)].join("\n");
    if (index.dataset.titles === now) return;
    index.dataset.titles = now;
    index.replaceChildren(...[...new Set(all)].map((title) => el("button", { type: "button", onclick: () => {
      sections.get(title).scrollIntoView();
      sections.get(title).focus({ preventScroll: true });
    } }, title)));
  }

  // Shows facts about the run other than its numbers; open details stay open unless their content has changed.
  function showAbout() {
    const made = section("Settings"), now = JSON.stringify([about.config, about.made]);
    if (now !== settings) made.replaceChildren(made.firstChild, details("Settings", about.config), details("Made with", about.made));
    settings = now;
    kind.textContent = about.about;
    showStatus({ ...about, state: about.summary.state });
  }

  function keepAddress() {
    history.replaceState(null, "", `#/run/${id}?${new URLSearchParams(controls.query())}`);
  }

  function showStatus(news) {
    state.textContent = news.state;
    state.className = `state ${news.state}`;
    [status, shown] = [news.status, news.shown];
    stop.hidden = !overview.control || ENDED.includes(news.state);
    facts.replaceChildren(...Object.entries(shown.facts).map(([name, text]) => el("div", {}, el("dt", {}, name), el("dd", { "data-fact": name }, text))));
    limit.textContent = shown.limit;
    roles.replaceChildren(...listed(status.roles).map((role) => roleBar(role, shades)));
    policies.show(shown);
    nodes.show(status, shown.tables);
    replace(learners, Object.keys(shown.tables.learners).length ? [partsTable("Learners", shown.tables.learners, about.words)] : []);
    showVideos(news.videos);
    order(titles());
  }

  // Videos come and go while others play.
  function showVideos(names) {
    for (const shown of [...videos.children]) if (!names.includes(shown.dataset.video)) shown.remove();
    names.forEach((name, n) => {
      if (videos.children[n]?.dataset.video !== name) videos.insertBefore(el("figure", { "data-video": name }, el("figcaption", {}, name), videoOf(id, name, { preload: "metadata" })), videos.children[n] ?? null);
    });
    marks = names.map((name) => /^step-(\d+)(?:-\d+)?\.mp4$/.exec(name)).filter((found) => found).map(([name, steps]) => ({
      steps: Number(steps), label: `Video of step ${count(Number(steps))}${name === `step-${steps}.mp4` ? "" : `, ${name}`}`, act: (event) => play(event.currentTarget, name),
    }));
    for (const chart of drawn) if (chart.options.isReturn) chart.mark(marks);
  }

  // Plays a video beside the curve that it is marked on.
  function play(mark, name) {
    const curve = mark.closest("figure"), open = curve.parentElement.querySelector(".video");
    if (open) open.remove();
    if (open && open.dataset.video === name) return;
    const close = el("button", { type: "button", onclick: () => { video.remove(); mark.focus(); } }, "Close");
    const video = el("figure", { class: "video", "data-video": name }, el("figcaption", {}, el("span", { class: "title" }, name), el("span", { class: "tools" }, close)), videoOf(id, name, { autoplay: true, muted: true, loop: true }));
    curve.after(video);
  }

  function titles() {
    return [...new Set(charts.map((chart) => chart.section))];
  }

  // isNow: whether to draw curves even if they were drawn a moment ago.
  function draw(isNow = true) {
    const left = isNow ? 0 : Math.max(0, curvesAt + CURVES_PAUSE - performance.now());
    clearTimeout(owed);
    if (left) owed = setTimeout(draw, left);
    else curvesAt = performance.now();
    const zero = charts.filter((chart) => chart.section !== charts[0].section && isZero(chart)), now = JSON.stringify([charts, zero.map(({ title }) => title)]);
    if (now === names) {
      for (const chart of drawn) {
        chart.store = chart.options.file === "hardware" ? hardware : metrics;
        if (left) chart.tell();
        else chart.update();
      }
      return;
    }
    names = now;
    for (const chart of drawn) chart.destroy();
    shades = new Map(charts.filter((chart) => chart.section === "Speed" && chart.kind === "area").flatMap((chart) => chart.lines.map((line) => [line.label, line.color])));
    const target = about.config.target_return, grids = new Map();
    drawn = charts.filter((chart) => !zero.includes(chart)).map(({ section: title, title: name, unit, kind, lines, bands, file, is_return: isReturn }) => {
      const chart = new Chart(name, file === "hardware" ? hardware : metrics, lines, {
        file, view: controls.view, onZoom: (range) => controls.zoom(range), kind, unit, bands, isReturn, marks: isReturn ? marks : [], ...(isReturn && typeof target === "number" ? { target } : {}),
      });
      if (!grids.has(title)) grids.set(title, el("div", { class: listed(status.policies).length > 2 ? "charts broad" : "charts" })); // long legends
      grids.get(title).append(chart.element);
      return chart;
    });
    for (const title of titles()) {
      const none = zero.filter((chart) => chart.section === title).map((chart) => chart.title);
      section(title).querySelectorAll(":scope > .charts, :scope > .zero").forEach((old) => old.remove());
      section(title).append(...(grids.has(title) ? [grids.get(title)] : []), ...(none.length ? [el("p", { class: "quiet zero" }, `Always 0: ${none.join(", ")}`)] : []));
    }
    roles.replaceChildren(...listed(status.roles).map((role) => roleBar(role, shades)));
    nodes.show(status, shown.tables);
    order(titles());
  }

  // Whether all values of a chart are 0: then its title is enough.
  function isZero({ lines, file }) {
    const { columns } = file === "hardware" ? hardware : metrics;
    return lines.every(({ name }) => !(columns[name] || []).some(Boolean));
  }

  function drawSoon() {
    if (waiting) return;
    waiting = setTimeout(async () => {
      waiting = 0;
      drawnAt = performance.now();
      if (isClosed) return;
      if (newest) {
        showStatus(newest);
        tell();
      }
      newest = null;
      if (needsCharts) await reopen();
      else if (hasNewLines) draw(false);
      hasNewLines = false;
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
      const whole = await get(`/api/runs/${id}/history?${new URLSearchParams(controls.query())}`);
      if (isClosed) return;
      [metrics, hardware] = [whole.metrics, whole.hardware].map((columns) => new Store(columns, whole.most_names));
      [metrics.leftOut, cursor, charts, needsCharts, isReduced] = [whole.left_out, whole.cursor, whole.charts, false, whole.is_reduced];
      log.textContent = whole.log.join("\n");
      for (const option of controls.x.options) {
        option.disabled = metrics.count > 0 && !(option.value in metrics.columns);
        option.textContent = `${about.axes[option.value] ?? option.value}${option.disabled ? " (none)" : ""}`;
      }
      draw();
      await Promise.all([episode.read(), ...(lineage ? [lineage.read()] : [])]);
      order(titles());
      tell(); // last: it replaces the progress
    } finally {
      clearInterval(telling);
      isReading = false;
    }
  }

  function tell() {
    const leftOut = metrics.leftOut + hardware.leftOut;
    const lost = notFinite();
    if (lost.length) told.textContent = `The last values of these metrics are not finite, and are missing in charts: ${lost.join(", ")}`;
    else if (leftOut) told.textContent = `${count(leftOut)} numbers are not shown: a file's numbers may have ${count(metrics.most)} names, and these have others.`;
    else told.textContent = metrics.count ? without() : "The run has logged no metrics yet.";
  }

  function notFinite() {
    const values = [status, ...listed(status.policies)].flatMap(({ losses, metrics: own }) => Object.entries({ ...losses, ...own }));
    return [...new Set(values.filter(([, value]) => value === null).map(([name]) => name))];
  }

  function without() {
    const { x } = controls.view;
    return x in metrics.columns ? "" : `This run has logged no ${x}${x === "frames" ? `: ${about.no_frames}` : ""}.`;
  }

  function take(news, at) {
    if (at) cursor = at;
    if (news.reload) {
      reopen(true);
      return;
    }
    if (metrics.count > MOST_ROWS || hardware.count > MOST_ROWS) {
      reopen();
      return;
    }
    // The server describes charts: a line with a new name makes the page read all of them again.
    for (const line of news.metrics || []) needsCharts = metrics.add(line) || needsCharts;
    for (const line of news.hardware || []) needsCharts = hardware.add(line) || needsCharts;
    if (news.log) {
      const isAtEnd = log.scrollTop + log.clientHeight >= log.scrollHeight - 10;
      log.textContent = [...log.textContent.split("\n"), ...news.log].filter(Boolean).slice(-MOST_LOG_LINES).join("\n");
      if (isAtEnd) log.scrollTop = log.scrollHeight;
      order(titles());
    }
    tell();
    hasNewLines ||= Boolean(news.metrics || news.hardware);
    if (hasNewLines) drawSoon();
  }

  let close = () => {}, retry = 0;

  function open() {
    close = stream(() => `/api/runs/${id}/stream?cursor=${encodeURIComponent(cursor)}`, { news: take, status: (news) => { newest = news; drawSoon(); } });
  }

  // Reads the run again, until it can be read. isOther: whether its settings may have changed, as after a resume or a new start.
  async function reopen(isOther = false) {
    close();
    try {
      if (isOther) {
        about = await get(`/api/runs/${id}`);
        showAbout();
      }
      await read();
    } catch (error) {
      const reason = await reasonOf(error);
      if (isClosed) return;
      told.textContent = `This cannot be shown: ${reason}`;
      retry = setTimeout(() => reopen(true), 2000);
      return;
    }
    if (!isClosed) open();
  }

  const rebuild = () => {
    for (const chart of drawn) chart.rebuild();
    episode.rebuild();
    roles.replaceChildren(...listed(status.roles).map((role) => roleBar(role, shades)));
    policies.show(shown);
  };
  // The file of an episode is replaced as a whole.
  const reading = setInterval(() => {
    if (!document.hidden && state.textContent === "running") episode.read().then(() => order(titles())).catch(() => {});
  }, EPISODE_PAUSE);
  window.addEventListener("theme", rebuild);
  reopen();
  return () => {
    isClosed = true;
    clearTimeout(waiting);
    clearTimeout(owed);
    clearTimeout(retry);
    keepAddressSoon.cancel();
    readSoon.cancel();
    close();
    window.removeEventListener("theme", rebuild);
    clearInterval(reading);
    for (const chart of [...drawn, episode]) chart.destroy();
  };
}

function listed(value) {
  return Array.isArray(value) ? value : [];
}

// Shares of a role's time, in the colours of the charts of time; the rest is left white.
function roleBar(role, shades) {
  const shares = Object.entries(role.activities || {}).filter(([, share]) => share >= 0.005);
  const bar = el("div", { class: "bar", "aria-hidden": "true" }), words = el("span", { class: "shares" });
  let waits = 0;
  for (const [name, share] of shares) {
    const color = shades.get(name) ?? (name.startsWith("wait") ? WAIT : 0), shown = colorOf(color, color === WAIT ? waits++ : 0);
    const part = el("span", { title: name }), swatch = el("span", { class: "swatch block", "aria-hidden": "true" });
    part.style.width = `${100 * share}%`;
    part.style.background = swatch.style.color = shown;
    bar.append(part);
    words.append(el("span", {}, swatch, `${name} ${Math.round(100 * share)} %`));
  }
  const rest = 1 - shares.reduce((sum, [, share]) => sum + share, 0);
  if (rest >= 0.05) words.append(el("span", { class: "quiet" }, `other ${Math.round(100 * rest)} %`));
  return el("div", { class: "role" }, el("span", { class: "name" }, role.name), bar, words);
}

function videoOf(id, name, how) {
  const video = el("video", { controls: true, src: `/api/runs/${id}/videos/${encodeURIComponent(name)}`, ...how });
  video.muted = Boolean(how.muted); // the attribute alone mutes nothing, and browsers start no video with sound by themselves
  return video;
}

function details(title, values) {
  const text = (value) => (typeof value === "string" ? value : JSON.stringify(value));
  const rows = Object.entries(values).map(([name, value]) => el("tr", {}, el("th", { scope: "row" }, name), el("td", {}, text(value))));
  return el("details", {}, el("summary", {}, title), el("div", { class: "wide", tabindex: "0", role: "region", "aria-label": title }, el("table", { class: "settings" }, el("tbody", {}, rows))));
}

// Tags and note of a run; with --control they can be changed.
function labels(id, summary, token) {
  const shown = el("p", { class: "labels" });
  const tags = el("input", { id: "tags", placeholder: "baseline, lr-1e-3", value: summary.tags.replaceAll(",", ", ") });
  const note = el("textarea", { id: "note", rows: "3" }, summary.note), archived = el("input", { type: "checkbox", checked: summary.archived });
  const told = el("span", { role: "status" });
  const show = (found) => shown.replaceChildren(...found.tags.map((tag) => el("span", { class: "tag" }, tag)), ...(found.archived ? [el("span", { class: "quiet" }, "archived ")] : []), el("span", { class: "text" }, found.note));
  show({ tags: summary.tags.split(",").filter(Boolean), note: summary.note, archived: summary.archived });
  if (!token) return shown;
  const save = async (event) => {
    event.preventDefault();
    const body = JSON.stringify({ tags: tags.value.split(",").map((tag) => tag.trim()).filter(Boolean), note: note.value, archived: archived.checked });
    const answer = await fetch(`/api/runs/${id}/labels`, { method: "POST", headers: { "X-Penstock-Control": token }, body });
    told.textContent = answer.ok ? " Saved." : ` ${(await answer.text()).trim()}`;
    if (answer.ok) show(await answer.json());
  };
  const form = el("form", { class: "choices", onsubmit: save }, el("div", { class: "field" }, el("label", { for: "tags" }, "Tags"), tags), el("div", { class: "field" }, el("label", { for: "note" }, "Note"), note), el("label", {}, archived, " archived"), el("button", { id: "save" }, "Save"), told);
  return el("div", {}, shown, el("details", {}, el("summary", {}, "Change tags and note"), form));
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
