"""Comparison of runs for pages and reports, by environment: the tables of `penstock compare`, and pictures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.redaction import is_secret
from penstock.runs.descriptions import AXES
from penstock.runs.drawing import COLORS, chart_html, plain_chart, scatter_html
from penstock.runs.formatting import counted, number, words_of
from penstock.runs.reading import RecordedRun
from penstock.studies import StudyError
from penstock.studies.compare import Group, Points, Side, comparison, costs_of, group_of, tables
from penstock.studies.curves import grouped
from penstock.studies.table import differences

MOST_GROUPS = 24
"""Largest number of groups."""
SCORES = {"final": "Final return", "best": "Best return"}
"""Scores of a run with their titles."""
_UNGROUPED = ("env", "run_dir")  # each environment has its own comparison


def settings_unlike(runs: Sequence[RecordedRun]) -> list[str]:
    """Return keys for groups of runs: the algorithm, and settings that differ between runs of one algorithm."""
    configs: dict[str, list[dict[str, Any]]] = {}
    for run in runs:
        configs.setdefault(run.directory.algorithm, []).append(run.settings)
    names = dict.fromkeys(name for alike in configs.values() for config in alike for name in config)
    shown = [name for name in names if name not in _UNGROUPED and not is_secret(name)]
    return ["algorithm", *(name for name in shown if any(_differ(alike, name) for alike in configs.values()))]


def sides_of(runs: Sequence[RecordedRun], keys: Sequence[str], first: str = "") -> list[Side]:
    """Return groups of runs by their values of some settings; the group named `first`, if any, comes first."""
    return sorted(grouped(runs, keys).items(), key=lambda side: side[0] != first)


def comparison_page(
    sides: Sequence[Side], score: str = "final", points: Points = RecordedRun.points
) -> tuple[list[dict[str, Any]], list[str]]:
    """Compare groups of runs.

    Parameters
    ----------
    sides
        Groups from `sides_of`; those beyond `MOST_GROUPS` are left out.
    score
        Score of a run in all but the table of returns: "final" or "best".
    points
        Function that reads the runs.

    Returns
    -------
    tuple
        A dict for each environment: ``env``, ``figures`` as HTML, ``tables`` by title, headings first, and ``runs`` as
        in `comparison`, with ``final`` and ``best``. And notes about runs that are not compared.
    """
    notes = []
    if len(sides) > MOST_GROUPS:
        notes.append(f"{len(sides)} groups are too many: {MOST_GROUPS} are compared. Group by fewer settings.")
    envs: dict[str, list[Side]] = {}
    for name, runs in sides[:MOST_GROUPS]:
        for env, members in grouped(runs, ["env"]).items():
            envs.setdefault(env.removeprefix("env="), []).append((name, members))
    parts = []
    for env, of_env in sorted(envs.items()):
        groups: dict[str, list[Group]] = {each: [] for each in SCORES}
        for name, runs in of_env:
            try:
                made = {each: group_of(name, runs, each, {}, points) for each in SCORES}
            except StudyError:
                notes.append(f"{name} on {env}: no run has been evaluated")
                continue
            for each, group in made.items():
                groups[each].append(group)
            if without := made[score].without:
                count = counted(len(without), "run")
                notes.append(f"{name} on {env}: {count} without an evaluation: {', '.join(without)}")
        if groups[score]:
            parts.append(_part(env, groups, score, [name for name, _ in sides]))
    return parts, notes


def settings_table(runs: Sequence[RecordedRun]) -> dict[str, list[str]]:
    """Return the settings, except the environment, that differ between runs: texts by name, one per run."""
    known = {"algorithm", *(name for run in runs for name in run.settings)} - {"env"}
    found = {name: values for name, values in differences(runs).items() if name in known and not is_secret(name)}
    return {name: [_setting(value) for value in values] for name, values in found.items()}


def _setting(value: Any) -> str:
    return "" if value is None else f"{value:.6g}" if isinstance(value, float) else words_of(value)


def _part(env: str, groups: dict[str, list[Group]], score: str, names: Sequence[str]) -> dict[str, Any]:
    found = {each: comparison(of_score, None, is_normalized=False) for each, of_score in groups.items()}
    shown = tables(found[score])
    returns = {SCORES[each]: [row[:1] + row[2:-1] for row in tables(found[each])["Scores"]] for each in SCORES}
    others = {title: rows for title, rows in shown.items() if title not in ("Scores", "Settings")}
    both = zip(found[score]["runs"], found["final"]["runs"], found["best"]["runs"], strict=True)
    rows = [row | {"final": final["score"], "best": best["score"]} for row, final, best in both]
    return {"env": env, "figures": _figures(env, found[score], score, names), "tables": returns | others, "runs": rows}


def _figures(env: str, found: dict[str, Any], score: str, names: Sequence[str]) -> list[str]:
    """Return the performance profiles and the Pareto front of each cost; all environments share the groups' colours."""
    names = names if len(names) <= COLORS else list(found["profiles"])
    columns = {**dict.fromkeys(names, ()), "score": found["thresholds"], **found["profiles"]}
    title = f"Share of runs above a {SCORES[score].lower()}, {env}"
    profile = plain_chart(title, "share", {name: name for name in names}, said="")
    made = [chart_html(profile, columns, "score")]
    for cost in costs_of(found["runs"]):
        of_groups: dict[str, list[tuple[str, float, float, bool]]] = {name: [] for name in names}
        for row in found["runs"]:
            text = f"{row['run']}: {number(row['score'])} after {row[cost]:,.0f} {cost}"
            of_groups[row["group"]].append((text, row[cost], row["score"], cost in row["fronts"]))
        made.append(scatter_html(f"{SCORES[score]}, {env}", AXES[cost], of_groups))
    return made


def _differ(configs: Sequence[dict[str, Any]], name: str) -> bool:
    values = [config.get(name) for config in configs]
    is_plain = all(value is None or isinstance(value, str | int | float | list) for value in values)
    return is_plain and any(value != values[0] for value in values)
