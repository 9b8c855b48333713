"""Searches and populations of runs for pages and reports: trials read from files, limited in number, without Optuna."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, TypedDict

import numpy as np

from penstock.redaction import is_secret, masked
from penstock.runs.documents import DocumentError, is_finite, read_document
from penstock.runs.drawing import chart_html, plain_chart, short
from penstock.runs.files import json_values
from penstock.runs.formatting import words_of
from penstock.runs.reading import RecordedRun
from penstock.runs.series import records_in
from penstock.search.directory import JOURNAL, SEARCH
from penstock.studies.lineage import has_lineage, lineage_of, lineage_page

MOST_TRIALS, MOST_AXES = 1000, 24
"""Largest numbers of trials and of settings."""
_POPULATION, _MEMBER = "population.json", "member-"
_STATES = ("under way", "done", "pruned", "failed", "waiting")  # in Optuna's order
_WIDTH, _HEIGHT, _GAP, _SIDE, _TOP, _FOOT = 900, 330, 130, 60, 44, 26
_COLORS = 5
_BINS, _FEWEST = 4, 8


class Trial(TypedDict):
    """Settings that were tried."""

    name: str
    state: str
    settings: dict[str, float]
    value: float | None
    runs: list[str]


def is_search(path: Path) -> bool:
    """Return whether a folder holds the file of a search or of a population of runs, which is no link."""
    file = path / SEARCH
    return (file.is_file() and not file.is_symlink()) or has_lineage(path)


def search_page(path: Path, runs: Sequence[RecordedRun]) -> dict[str, Any]:
    """Return a search and its runs as data for a page.

    Returns
    -------
    dict
        ``axes`` of the settings and of the value; ``trials`` with the texts of their settings and their places ``at``
        on the axes, from 0 to 1 or None; ``importance`` by setting; ``figure``, the best value over the trials; and
        ``picture``, the parallel coordinates; ``lineage`` of a population of runs, from `lineage_page`. A trial's
        ``runs`` are names of directories.
    """
    is_population = not (path / SEARCH).exists()
    space, trials = _population(path, runs) if is_population else _search(path, runs)
    axes = [axis for name, table in list(space.items())[:MOST_AXES] if (axis := _axis(name, table, trials))]
    known = [trial["value"] for trial in trials if trial["value"] is not None]
    axes += [{"name": "value", "log": False, "ends": [min(known), max(known)], "values": None}] if known else []
    shown = []
    for trial in trials:
        values = [trial["value"] if axis["name"] == "value" else trial["settings"].get(axis["name"]) for axis in axes]
        pairs = list(zip(axes, values, strict=True))
        shown.append({**trial, "settings": [_text(*pair) for pair in pairs], "at": [_place(*pair) for pair in pairs]})
    importance = {} if is_population else {axis["name"]: importance_of(axis, trials) for axis in axes[:-1]}
    return json_values({
        "axes": axes, "trials": shown, "importance": importance, "is_population": is_population,
        "figure": _history(trials), "picture": _parallel(axes, shown),
        "lineage": lineage_page(path, _steps_of_members(runs)) if is_population else None,
    })  # fmt: skip


def _search(path: Path, runs: Sequence[RecordedRun]) -> tuple[dict[str, Any], list[Trial]]:
    """Return space and trials of a search, from Optuna's journal: a line per operation."""
    space = _space(path / SEARCH, "space")
    trials: list[Trial] = []
    for record in records_in(path / JOURNAL):
        number, kind = record.get("trial_id"), record.get("op_code")
        if kind == 4 and len(trials) < MOST_TRIALS:
            trials.append({"name": str(len(trials)), "state": "under way", "settings": {}, "value": None, "runs": []})
        if type(number) is not int or not 0 <= number < len(trials):
            continue
        trial = trials[number]
        name, state, values = str(record.get("param_name")), record.get("state"), record.get("values")
        if kind == 5 and name in space and _is_number(record.get("param_value_internal")):
            trial["settings"][name] = float(record["param_value_internal"])
        elif kind == 6 and type(state) is int and 0 <= state < len(_STATES):
            trial["state"] = _STATES[state]
            if isinstance(values, list) and values and _is_number(values[0]):
                trial["value"] = float(values[0])
        elif kind == 7 and _is_number(record.get("intermediate_value")):
            trial["value"] = float(record["intermediate_value"])  # until the trial is done
    for name in sorted(run.directory.path.name for run in runs):
        first, _, rest = name.partition("-seed-")
        number = first.removeprefix("trial-")
        if rest and number.isdecimal() and len(number) < 9 and int(number) < len(trials):
            trials[int(number)]["runs"].append(name)
    return space, trials


def _population(path: Path, runs: Sequence[RecordedRun]) -> tuple[dict[str, Any], list[Trial]]:
    """Return space and trials of a population: each member's settings with its score, at each decision and now."""
    space = _space(path / _POPULATION, "facts", "config", "pbt_space")
    now: dict[str, dict[str, float]] = {}
    trials: list[Trial] = []

    def add(member: str, when: str, state: str, value: float) -> None:
        settings = {name: float(number) for name, number in now.get(member, {}).items() if number is not None}
        name, runs = f"{member}, {when}", [f"{_MEMBER}{member}"]
        trials.append({"name": name, "state": state, "settings": settings, "value": float(value), "runs": runs})

    ranked: dict[str, Any] = {}
    for event in lineage_of(path)["events"]:
        if event["scores"] and event["scores"] != ranked:
            ranked = event["scores"]
            for member in [member for member, score in ranked.items() if score is not None]:
                add(member, f"{event['steps']:,} steps", "done", ranked[member])
        now[event["policy"]] = {name: value for name, value in event["after"].items() if not is_secret(name)}
    for run in runs:
        member = run.directory.path.name.removeprefix(_MEMBER)
        value: Any = run.status.get("mean_return")
        if member in now and _is_number(value) and run.settings.get("pbt_metric", "return") == "return":
            add(member, "now", run.state, value)
    names = dict.fromkeys(name for trial in trials for name in trial["settings"])
    return {name: space.get(name, {}) for name in names}, trials[-MOST_TRIALS:]


def best_first(trials: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return trials sorted by value, completed ones first."""
    return sorted(trials, key=lambda one: (one["state"] != "done", one["value"] is None, -(one["value"] or 0.0)))


def _steps_of_members(runs: Sequence[RecordedRun]) -> dict[str, int]:
    """Return the steps of the members of a population, by their names in the lineage."""
    known = {run.directory.path.name.removeprefix(_MEMBER): run.status.get("steps") for run in runs}
    return {member: steps for member, steps in known.items() if type(steps) is int}


def _space(path: Path, *keys: str) -> dict[str, Any]:
    """Return tables of settings in a file, without possible secrets; empty if it cannot be read."""
    try:
        found: Any = masked(read_document(path))
    except (OSError, DocumentError):
        return {}
    for key in keys:
        found = found.get(key) if isinstance(found, dict) else None
    tables = found.items() if isinstance(found, dict) else ()
    return {name: table for name, table in tables if isinstance(table, dict)}


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and is_finite(value)


def _axis(name: str, table: Mapping[str, Any], trials: Sequence[Trial]) -> dict[str, Any] | None:
    """Return the axis of a setting, over its range and all its values; None without a value."""
    found = [trial["settings"][name] for trial in trials if name in trial["settings"]]
    choices = table.get("values")
    if isinstance(choices, list) and choices:
        ends: list[float] = [0, len(choices) - 1]
        return {"name": name, "log": False, "ends": ends, "values": [words_of(value) for value in choices]}
    found += [table[key] for key in ("low", "high") if _is_number(table.get(key))]
    if not found:
        return None
    ends = [float(min(found)), float(max(found))]
    return {"name": name, "log": bool(table.get("log")) and ends[0] > 0, "ends": ends, "values": None}


def _text(axis: Mapping[str, Any], value: float | None) -> str:
    if value is None:
        return ""
    values = axis["values"]
    return f"{value:.4g}" if values is None else values[int(value)] if 0 <= value < len(values) else ""


def _place(axis: Mapping[str, Any], value: float | None) -> float | None:
    if value is None:
        return None
    low, high, value = map(math.log, (*axis["ends"], value)) if axis["log"] else (*axis["ends"], value)
    return min(1.0, max(0.0, (value - low) / (high - low))) if high > low else 0.5


def importance_of(axis: Mapping[str, Any], trials: Sequence[Trial]) -> float | None:
    """Return the share of the variance of the values' ranks that a setting explains alone; None: too few trials.

    Trials are grouped by choice, or by quartile of the setting's values. The share is epsilon squared, which is 0 in
    expectation for a setting without effect.
    """
    ended = [trial for trial in trials if trial["value"] is not None and trial["state"] in ("done", "pruned")]
    name = axis["name"]
    known = [(trial["settings"][name], trial["value"]) for trial in ended if name in trial["settings"]]
    if len(known) < _FEWEST:
        return None
    settings, values = np.array(known).T
    ranks = (values[:, None] > values).sum(1) + 0.5 * (values[:, None] == values).sum(1)
    order = settings if axis["values"] else np.digitize(settings, np.quantile(settings, np.arange(1, _BINS) / _BINS))
    groups = [ranks[order == each] for each in np.unique(order)]
    within, total = sum(((group - group.mean()) ** 2).sum() for group in groups), ((ranks - ranks.mean()) ** 2).sum()
    if not total or len(groups) < 2:
        return 0.0
    return max(0.0, float(1.0 - (len(known) - 1) / (len(known) - len(groups)) * within / total))


def _history(trials: Sequence[Trial]) -> str:
    """Return a chart of each trial's value, and of the best so far."""
    values = [trial["value"] if trial["state"] != "pruned" else None for trial in trials]
    best = np.fmax.accumulate(np.array([np.nan if value is None else value for value in values])).tolist()
    columns: dict[str, Any] = {"trial": [*range(len(trials))], "value": values}
    columns["best"] = [None if math.isnan(value) else value for value in best]
    chart = plain_chart("Value of each trial", "", {"value": "value", "best": "best so far"})
    chart["lines"][0]["dots"] = True
    return chart_html(chart, columns, "trial")


def _parallel(axes: Sequence[Mapping[str, Any]], trials: Sequence[Mapping[str, Any]]) -> str:
    """Return parallel coordinates as SVG: an axis per setting, a line per trial, coloured by its value."""
    drawn = sorted((trial for trial in trials if trial["value"] is not None), key=lambda trial: trial["value"])
    if not drawn:
        return ""
    width = max(_WIDTH, _GAP * (len(axes) - 1) + 2 * _SIDE)
    across = [_SIDE + (width - 2 * _SIDE) * n / max(1, len(axes) - 1) for n in range(len(axes))]

    def down(share: float) -> float:
        return _HEIGHT - _FOOT - (_HEIGHT - _TOP - _FOOT) * share

    parts = []
    for rank, trial in enumerate(drawn):
        places = zip(across, trial["at"], strict=True)
        points = " ".join(f"{x:.1f},{down(at):.1f}" for x, at in places if at is not None)
        texts = [f"{axis['name']} {text}" for axis, text in zip(axes, trial["settings"], strict=True)]
        told = escape("; ".join([trial["name"], *texts]))
        look = f'class="trial v{_COLORS * rank // len(drawn)}" data-trial="{escape(trial["name"])}"'
        parts.append(f'<polyline {look} points="{points}"><title>{told}</title></polyline>')
    for x, axis in zip(across, axes, strict=True):
        parts.append(f'<line class="axis" x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" y2="{_HEIGHT - _FOOT}"/>')
        parts.append(f'<text x="{x:.1f}" y="16" text-anchor="middle">{escape(axis["name"][:22])}</text>')
        labels = axis["values"] or [short(end) for end in axis["ends"]]
        for n, label in enumerate((labels[0], labels[-1])):
            y = _TOP - 8 if n else _HEIGHT - 8
            parts.append(f'<text class="end" x="{x:.1f}" y="{y}" text-anchor="middle">{escape(label[:18])}</text>')
    label = f"Parallel coordinates of {len(drawn)} trials"
    return f'<svg viewBox="0 0 {width} {_HEIGHT}" role="img" aria-label="{label}">{"".join(parts)}</svg>'
