"""Command ``penstock report``: runs as one HTML file, which needs neither a server nor a network."""

from __future__ import annotations

import base64
import hashlib
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from html import escape
from itertools import product
from pathlib import Path
from typing import Any, Literal

from penstock.flags import Places, parse_flags
from penstock.runs.descriptions import AXES, COLUMNS, EPISODE, HARDWARE, METRICS, NO_FRAMES, Column, Series, charts_of
from penstock.runs.documents import DocumentError, read_ordinary
from penstock.runs.drawing import STYLE, chart_html, games_html
from penstock.runs.episodes import read_episode
from penstock.runs.files import replace_file, why_no_new_file
from penstock.runs.formatting import clock, counted, number, words_of
from penstock.runs.growing import Cursor, stretches
from penstock.runs.reading import RecordedRun, find_runs, readable
from penstock.runs.run_directory import HARDWARE as HARDWARE_FILE
from penstock.runs.run_directory import LOG
from penstock.runs.series import columns_in
from penstock.runs.state import status_of
from penstock.runs.tables import WORDS, Cells, about_of, facts_of, games_of, limit_of, tables_of
from penstock.runs.videos import steps_of as steps_of_video
from penstock.runs.videos import videos_of
from penstock.studies import StudyError, warn
from penstock.studies.compare_page import comparison_page, settings_unlike, sides_of
from penstock.studies.lineage import lineage_page, steps_of
from penstock.studies.searches import best_first, is_search, search_page
from penstock.studies.table import differences

_POINTS = 400
_MOST_RUNS = 20
_MOST_LOG_LINES, _MOST_ROWS = 200, 50
_MOST_OF_SEARCH = 5  # runs of a search
_MOST_VIDEO_NBYTES = 1 << 24  # of each run
_TABLES = ("policies", "nodes", "learners")  # of a run, not folded
_OF_WORDS = ("group", "groups", "environment")  # left-aligned columns of a comparison's tables
_COMPARED = ("evaluation/mean_return", "episode/mean_return", "steps_per_second")
_STYLE = """
:root { --ink: #17324a; --quiet: #4c6275; --paper: #ffffff; --line: #d5e2ec; color-scheme: light dark; }
@media screen and (prefers-color-scheme: dark) {
  :root { --ink: #e4ecf3; --quiet: #a9b8c6; --paper: #111a22; --line: #2f3f4e; }
}
body { margin: 1.2rem auto; max-width: 1400px; padding: 0 1rem; background: var(--paper); color: var(--ink);
  font: 14px/1.45 system-ui, sans-serif; }
h2 { margin-top: 2.2rem; } .quiet { color: var(--quiet); } .wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: 0.2rem 0.8rem 0.2rem 0; border-bottom: 1px solid var(--line); font-weight: 400;
  vertical-align: top; overflow-wrap: break-word; }
thead th { font-weight: 600; } .right { text-align: right; white-space: nowrap; }
.charts { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(400px, 100%), 1fr)); gap: 0.8rem; }
dl { display: flex; flex-wrap: wrap; gap: 0.4rem 1.6rem; } dd { margin: 0; }
dt { color: var(--quiet); font-size: 12px; }
details { margin: 0.8rem 0; } summary { font-weight: 600; cursor: pointer; }
.parallel svg { display: block; width: 100%; min-width: 40rem; max-width: 64rem; height: auto; }
.parallel text { font-size: 13px; fill: var(--ink); } .parallel .axis { stroke: var(--quiet); }
.trial { fill: none; stroke-width: 1.6; stroke: var(--v); } .v0 { --v: #b9c5cf; } .v1 { --v: #8fb3d1; }
.v2 { --v: #4f8fc0; } .v3 { --v: #0072b2; } .v4 { --v: #d55e00; stroke-width: 2.2; }
@media screen and (prefers-color-scheme: dark) {
  .v0 { --v: #465665; } .v1 { --v: #35556d; } .v2 { --v: #3a84b5; } .v3 { --v: #56b4e9; } .v4 { --v: #e69f00; }
}
video { max-width: 100%; } figure { margin: 0; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; }
@media print { body { max-width: none; } .charts { grid-template-columns: 1fr 1fr; } h2 { break-before: page; }
  details::details-content { content-visibility: visible; } }
""" + STYLE  # fmt: skip


@dataclass(frozen=True)
class Flags:
    """Write runs as one HTML file with all charts: it opens without a server or a network, and prints.

    Several runs are also compared: settings that differ, and returns in one chart. The report of a search or population
    shows its trials, the importance of settings, its lineage, and the runs of its best trials.
    """

    dirs: Places
    """Runs, or folders of runs, at most 20 runs; or folders of searches."""
    out: Path = Path("report.html")
    """New file for the report."""
    x: Literal["steps", "seconds", "updates", "frames"] = "steps"
    """Horizontal axis of the charts, which all runs must have. Charts of hardware and episodes always use steps."""


def command(args: list[str]) -> int:
    """Run the command; return its exit code.

    Raises
    ------
    StudyError, RunDirectoryError
        The request is not legal, or `out` exists.
    """
    flags = parse_flags(Flags, args, prog="penstock report")
    runs = readable(find_runs(flags.dirs), warn)
    searches = {place: search_page(place, _within(place, runs)) for place in flags.dirs if is_search(place)}
    runs = _of_best(runs, searches)
    if len(runs) > _MOST_RUNS or not (runs or searches):
        if not flags.dirs:
            raise StudyError("no run is given: penstock report RUN... --out FILE")
        found = counted(len(runs), "run")
        raise StudyError(f"{found} in {', '.join(map(str, flags.dirs))}: give 1 to {_MOST_RUNS}")
    write_report(runs, flags.out, flags.x, {place.resolve().name: page for place, page in searches.items()})
    print(f"{flags.out}: {len(runs)} {'run' if len(runs) == 1 else 'runs'}")
    return 0


def _within(place: Path, runs: Sequence[RecordedRun]) -> list[RecordedRun]:
    return [run for run in runs if run.directory.path.resolve().parent == place.resolve()]


def _of_best(runs: Sequence[RecordedRun], searches: Mapping[Path, Mapping[str, Any]]) -> list[RecordedRun]:
    """Return the runs, but at most `_MOST_OF_SEARCH` of each search, those of its best trials."""
    kept = {id(run): run for run in runs}
    for place, page in searches.items():
        within = {run.directory.path.name: run for run in _within(place, runs)}
        names = dict.fromkeys(name for trial in best_first(page["trials"]) for name in trial["runs"])
        for name in [*(name for name in names if name in within), *(set(within) - set(names))][_MOST_OF_SEARCH:]:
            del kept[id(within[name])]
    return list(kept.values())


def write_report(
    runs: Sequence[RecordedRun], out: Path, x: str = "steps", searches: Mapping[str, Mapping[str, Any]] | None = None
) -> None:
    """Write a report of runs, with charts over `x`, and of searches: results of `search_page` by name.

    Raises
    ------
    StudyError
        `out` exists, or cannot be written; or a run has no `x`.
    """
    if reason := why_no_new_file(out):
        raise StudyError(f"--out {out} cannot be written: {reason}")
    page = report_html(runs, x, searches)
    try:
        replace_file(out, page)
    except OSError as error:
        raise StudyError(f"{out} cannot be written: {error.strerror}") from error


def report_html(
    runs: Sequence[RecordedRun], x: str = "steps", searches: Mapping[str, Mapping[str, Any]] | None = None
) -> bytes:
    """Return a report of runs as HTML: contents of runs are escaped, and no script may run."""
    runs = _named(runs)
    of_runs = runs[0].name if len(runs) == 1 else f"{len(runs)} runs"
    title = f"Report of {', '.join([*(f'search {name}' for name in searches or {}), *([of_runs] if runs else [])])}"
    histories = [columns_in(run.directory.metrics, _POINTS) for run in runs]
    if without := [run.name for run, history in zip(runs, histories, strict=True) if history and x not in history]:
        why = f": {NO_FRAMES}" if x == "frames" else ""
        raise StudyError(f"--x {x} is not legal: {', '.join(without)} logged no {x}{why}")
    about = f"{time.strftime('%Y-%m-%d %H:%M')}, charts over {AXES[x]}"
    parts = [f"<h1>{escape(title)}</h1>", f'<p class="quiet">{about}</p>', _runs_table(runs)]
    for name, found in (searches or {}).items():
        parts += _search(name, found)
    if len(runs) > 1:
        parts += [_comparison(runs, histories, x), _differences(runs)]
    for run, history in zip(runs, histories, strict=True):
        parts += _of_run(run, history, x)
    style_hash = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{style_hash}'; media-src data:"
    head = (
        '<!doctype html>\n<meta name="generator" content="penstock report">\n'
        f'<html lang="en"><head><meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{policy}">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><title>{escape(title)}</title>'
        f"<style>{_STYLE}</style></head><body><main>"
    )
    return "\n".join([head, *parts, "</main></body></html>\n"]).encode(errors="replace")


def _named(runs: Sequence[RecordedRun]) -> list[RecordedRun]:
    """Return the runs, named after their directories where these names differ: a report shows no paths."""
    names = Counter(run.directory.path.resolve().name for run in runs)
    short = {name for name, count in names.items() if count == 1}
    return [replace(run, name=name) if (name := run.directory.path.resolve().name) in short else run for run in runs]


def _of_run(run: RecordedRun, history: dict[str, list[float | None]], x: str) -> list[str]:
    """Return the HTML parts of one run: status, policies, charts by section, log, settings."""
    status, summary = run.status, run.summary
    limit, found, known = limit_of(status), status_of(status), {**summary, "policies": status.get("policies")}
    facts = "".join(f"<div><dt>{name}</dt><dd>{escape(text)}</dd></div>" for name, text in facts_of(known).items())
    tables, games = tables_of(found), games_html(games_of(found))
    versions = _cells(tables["past versions"])
    about = f"{about_of(summary)}, {summary['state']}"
    about += f", weights from {run.origin}" if run.origin else ""
    labels = "; ".join(filter(None, (", ".join(run.labels.tags), run.labels.note)))
    parts = [
        f"<h2>{escape(run.name)}</h2>",
        f"<p>{escape(about)}</p>",
        f"<p><strong>{escape(limit)}</strong></p>" if limit else "",
        f"<p>{escape(labels)}</p>" if labels else "",
        f"<dl>{facts}</dl>",
        *(f"<h3>{name.capitalize()}</h3>{_cells(tables[name])}" for name in _TABLES if tables[name]),
        f"<h3>Games</h3>{games}" if games else "",
        f"<details><summary>Past versions</summary>{versions}</details>" if versions else "",
        *_lineage(lineage_page(run.directory.path, steps_of(status)), "policy"),
    ]
    target = summary["target_return"]
    goal = target if type(target) in (int, float) else None
    charts = [*_charts(history, METRICS, run.directory.policies, goal, x)]
    charts += _charts(columns_in(run.directory.path / HARDWARE_FILE, _POINTS), HARDWARE)
    charts += _charts(read_episode(run.directory.path, _POINTS), EPISODE, run.directory.policies)
    for section in dict.fromkeys(section for section, *_ in charts):
        drawn = "".join(shown for its, _, shown in charts if its == section)
        zero = ", ".join(title for its, title, shown in charts if its == section and not shown)
        parts.append(f'<h3>{escape(section)}</h3><div class="charts">{drawn}</div>')
        parts.append(zero and f'<p class="quiet">Always 0: {escape(zero)}</p>')
    parts += _videos(run)
    if lines := _log(run.directory.path / LOG):
        parts.append(f"<h3>Log</h3><pre>{escape(chr(10).join(lines))}</pre>")
    for heading, values in (("Settings", run.settings), ("Made with", run.made)):
        rows = [[name, words_of(value)] for name, value in values.items()]
        table = _table([("name", False), ("value", False)], rows)
        parts.append(f"<details><summary>{heading}</summary>{table}</details>")
    return parts


def _charts(
    history: dict[str, list[float | None]], known: Sequence[Series], policies: Sequence[str] = (),
    target: float | None = None, x: str = "steps",
) -> Iterable[tuple[str, str, str]]:  # fmt: skip
    """Yield section, title and HTML of each chart; the HTML is "" if all values are 0."""
    for chart in charts_of(history, policies, known):
        is_zero = not chart["is_return"] and not any(any(history[line["name"]]) for line in chart["lines"])
        shown = "" if is_zero else chart_html(chart, history, x, target=target if chart["is_return"] else None)
        if shown or is_zero:
            yield chart["section"], chart["title"], shown


def _videos(run: RecordedRun) -> list[str]:
    """Return the videos of a run: the newest are embedded while there is room, the others only named."""
    left, figures = _MOST_VIDEO_NBYTES, list[str]()
    for video in reversed(videos_of(run.directory.path)):
        steps, data = steps_of_video(video), None
        with suppress(OSError, DocumentError):
            data = read_ordinary(video, left)
        name = video.name if steps is None else f"Step {steps:,}"
        shown = '<p class="quiet">not in this file</p>'
        if data is not None:
            left -= len(data)
            source = base64.b64encode(data).decode()
            shown = f'<video controls preload="metadata" src="data:video/mp4;base64,{source}"></video>'
        figures.insert(0, f"<figure><figcaption>{escape(name)}</figcaption>{shown}</figure>")
    return [f'<h3>Videos</h3><div class="charts">{"".join(figures)}</div>'] if figures else []


def _comparison(runs: Sequence[RecordedRun], histories: Sequence[dict[str, list[float | None]]], x: str) -> str:
    """Return charts of the returns of all runs, one for each environment, with a line for each run."""
    parts = []
    envs = dict.fromkeys(run.summary["env"] for run in runs)
    for env, metric in product(envs, _COMPARED):
        (chart,) = charts_of([metric])
        pairs = zip(runs, histories, strict=True)
        having = [(run, history) for run, history in pairs if metric in history and run.summary["env"] == env]
        columns: dict[str, list[float | None]] = {x: []}
        lines = []
        for color, (run, history) in enumerate(having):
            before, name = len(columns[x]), f"{color}"
            columns[x] += history[x]
            columns[name] = [*[None] * before, *history[metric]]
            lines.append({**chart["lines"][0], "name": name, "label": run.name, "color": color, "dash": 0})
        title = ", ".join(dict.fromkeys((chart["title"], chart["lines"][0]["label"]))) + f" on {env}"
        parts.append(chart_html({**chart, "title": title, "lines": lines}, columns, x) if lines else "")
    keys = [key for key in settings_unlike(runs) if key != "seed"]  # runs that differ only in the seed form a group
    compared, notes = comparison_page(sides_of(runs, keys))
    figures = "".join(figure for part in compared for figure in part["figures"])
    tables = []
    for part in compared:
        for title, (heads, *rows) in part["tables"].items():
            table = _table([(head, head not in _OF_WORDS) for head in heads], rows)
            tables.append(f"<h3>{escape(title)}, {escape(part['env'])}</h3>{table}" if rows else "")
    noted = "".join(f'<p class="quiet">{escape(note)}</p>' for note in notes)
    return f'<h2>Comparison</h2>{noted}<div class="charts">{"".join(parts)}{figures}</div>{"".join(tables)}'


def _runs_table(runs: Sequence[RecordedRun]) -> str:
    columns = [column for column in COLUMNS if column.least_width is not None and column.cell != "ago"]
    columns = [column for column in columns if any(run.summary[column.name] not in (None, "") for run in runs)]
    rows = [[_cell(column, run.summary[column.name]) for column in columns] for run in runs]
    return _table([(column.heading, not column.is_text) for column in columns], rows)


def _cell(column: Column, value: Any) -> str:
    if value is None or type(value) not in (int, float):
        return "" if value is None else words_of(value)
    forms = {"clock": clock, "share": "{:.0%}".format, "count": "{:,.0f}".format}
    return str(forms.get(column.cell, number)(value))


def _search(name: str, found: Mapping[str, Any]) -> list[str]:
    """Return the HTML parts of a search: history, importance, parallel coordinates, lineage, best trials."""
    states = Counter(trial["state"] for trial in found["trials"])
    told = ", ".join(f"{count} {state}" for state, count in states.items())
    parts = [f"<h2>Search {escape(name)}</h2>", f"<p>{counted(len(found['trials']), 'trial')}: {escape(told)}</p>"]
    known = {setting: share for setting, share in found["importance"].items() if share is not None}
    shares = [[setting, f"{share:.0%}"] for setting, share in sorted(known.items(), key=lambda pair: -pair[1])]
    important = _table([("importance of settings", False), ("share", True)], shares) if shares else ""
    parts.append(f'<div class="charts">{found["figure"]}<div>{important}</div></div>')
    if found["picture"]:
        parts.append(f'<h3>Trials</h3><div class="wide parallel">{found["picture"]}</div>')
    parts += _lineage(found["lineage"], "member") if found["lineage"] else []
    axes = [axis["name"] for axis in found["axes"][:-1]]
    rows = [[trial["name"], trial["state"], "" if trial["value"] is None else number(trial["value"]),
             *trial["settings"][: len(axes)]] for trial in best_first(found["trials"])[:_MOST_ROWS]]  # fmt: skip
    heads = [("trial", False), ("state", False), ("value", True), *((axis, True) for axis in axes)]
    return [*parts, "<h3>Best trials</h3>", _table(heads, rows)] if rows else parts


def _lineage(found: Mapping[str, Any], who: str) -> list[str]:
    """Return picture and newest events of a lineage from `lineage_page`; `who` is the heading of its members."""
    if not found["events"]:
        return []
    events = [event for event in found["events"] if event["event"] != "start"][-_MOST_ROWS:]
    rows = [[event["policy"], f"{event['steps']:,.0f}", event["event"], event["parent"] or "", event["change"]]
            for event in events]  # fmt: skip
    heads = [(who, False), ("steps", True), ("event", False), ("copied from", False), ("settings", False)]
    picture = f'<h3>Lineage</h3><div class="wide parallel">{found["picture"]}</div>'
    return [picture, _table(heads, rows)] if rows else [picture]


def _cells(columns: Cells) -> str:
    """Return columns as an HTML table; "" without rows."""
    rows = [list(cells) for cells in zip(*columns.values(), strict=True)]
    return _table([(heading, heading not in WORDS) for heading in columns], rows) if rows else ""


def _differences(runs: Sequence[RecordedRun]) -> str:
    found = differences(runs)
    heads = [("setting", False), *((run.name, False) for run in runs)]
    rows = [[name, *("" if value is None else words_of(value) for value in values)] for name, values in found.items()]
    return f"<h2>Differences</h2>{_table(heads, rows)}" if rows else ""


def _log(path: Path) -> list[str]:
    lines: list[bytes] = []
    for stretch in stretches(path, Cursor()):
        lines = (lines + stretch.lines)[-_MOST_LOG_LINES:]
    return [line.decode(errors="replace") for line in lines]


def _table(heads: Sequence[tuple[str, bool]], rows: Sequence[Sequence[str]]) -> str:
    """Return an HTML table; a head is a title and whether its column holds numbers."""
    sides = ['class="right"' if is_number else "" for _, is_number in heads]
    top = "".join(f'<th scope="col" {side}>{escape(head)}</th>' for (head, _), side in zip(heads, sides, strict=True))
    body = "".join(
        "<tr>" + "".join(f"<td {side}>{escape(cell)}</td>" for cell, side in zip(row, sides, strict=True)) + "</tr>"
        for row in rows
    )
    return f'<div class="wide"><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'
