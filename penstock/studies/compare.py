"""Comparison of groups of runs: scores with intervals, time to a target, probability of improvement."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from penstock.config import read_toml
from penstock.flags import Places, parse_flags
from penstock.runs.files import json_bytes
from penstock.runs.formatting import counted, drawn, number, words_of
from penstock.runs.reading import RecordedRun, find_runs, readable
from penstock.studies import EVALUATION, StudyError, warn
from penstock.studies.conditions import chosen, require_known, value_of
from penstock.studies.curves import FEW, grouped
from penstock.studies.statistics import (
    RESAMPLES,
    Scores,
    first_reached,
    interquartile_mean,
    interval,
    median_with_misses,
    optimality_gap,
    performance_profile,
    probability_of_improvement,
)

Bounds = dict[str, tuple[float, float]]
"""Returns that become 0 and 1, by environment."""

Side = tuple[str, Sequence[RecordedRun]]
"""Name and runs of one side of a comparison."""

Points = Callable[[RecordedRun, str, str], tuple[np.ndarray, np.ndarray]]
"""Function that reads a metric of a run over another one, such as `RecordedRun.points`."""

COSTS = ("seconds", "steps", "frames")
"""Kinds of cost of a score; frames only where all runs have them."""

_PROFILE_POINTS = 21
_RESAMPLES_OF_PAIRS = 2_000
_UNCOMPARED = ("run_dir", "seed", "env", "env_kwargs")


@dataclass(frozen=True)
class Flags:
    """Compare groups of runs, the first with each of the others.

    penstock compare A -- B compares the runs in A with those in B; with --by, runs with equal values form a group.
    """

    dirs: Places = (Path("runs"),)
    """Runs, or folders of runs; "--" separates groups."""
    by: str = ""
    """Columns or settings, separated by commas, whose values form the groups."""
    where: str = ""
    """Conditions on the runs, as in penstock runs."""
    score: Literal["final", "best"] = "final"
    """Score of a run: mean return of its last evaluation, or of its best one, which is biased upwards."""
    target: float | None = None
    """Return to reach; None: the target_return of the runs, if they have one."""
    normalize: Path | None = None
    """TOML file with a table per environment: low and high, which become 0 and 1. Needed with several environments."""
    markdown: bool = False
    """Print tables in Markdown."""
    json: bool = False
    """Print everything, with profiles, as JSON."""


@dataclass(frozen=True)
class Group:
    """Runs of one side of the comparison.

    Attributes
    ----------
    name
        Name of the group.
    runs
        Runs with a score.
    without
        Names of the runs without an evaluation.
    scores
        Scores by environment, float64 ``[n]``; normalised where requested.
    raw
        Scores before normalisation.
    curves
        Cost and return of the evaluations of each run, float64 ``[n]`` both, by kind of cost.
    places
        Index of the evaluation that gives each run's score.
    """

    name: str
    runs: list[RecordedRun]
    without: list[str]
    scores: dict[str, np.ndarray]
    raw: dict[str, np.ndarray]
    curves: list[dict[str, tuple[np.ndarray, np.ndarray]]]
    places: list[int]


def command(args: list[str]) -> int:
    """Run the command; return its exit code. A request may raise `StudyError` or `RunDirectoryError`."""
    *before, last = _split(args)
    flags = parse_flags(Flags, last, prog="penstock compare")
    is_default = flags.dirs == Flags.dirs and Path("runs") not in map(Path, last)
    if before and (is_default or not all(before)):
        raise StudyError("a group has no runs: give runs on both sides of --, as in penstock compare A -- B")
    if any(word.startswith("-") for side in before for word in side):
        raise StudyError("flags come after the runs: penstock compare A -- B --target 475")
    places = [*before, [str(place) for place in flags.dirs]]
    found_runs = [chosen(readable(find_runs(place), warn), flags.where) for place in places]
    sides = list(zip(map(" ".join, places), found_runs, strict=True))
    bounds = {} if flags.normalize is None else read_bounds(flags.normalize)
    groups = [group_of(name, runs, flags.score, bounds) for name, runs in divided(sides, flags.by)]
    found = comparison(groups, flags.target, is_normalized=bool(bounds))
    for line in warnings_about(groups, flags, is_normalized=bool(bounds)):
        warn(line)
    if flags.json:
        print(json_bytes(found).decode(), end="")
    else:
        print("\n\n".join(drawn(table, markdown=flags.markdown) for table in tables(found).values()))
    return 0


def divided(sides: Sequence[Side], by: str) -> Sequence[Side]:
    """Return two or more named groups of runs: those given, or the only one, divided by the values of `by`.

    Raises
    ------
    StudyError
        There are fewer than two groups, or groups are given twice.
    """
    keys = [key for key in by.split(",") if key]
    if len(sides) > 1 and keys:
        raise StudyError('groups are given twice, by "--" and by --by: use one of them')
    if len(sides) == 1:
        if not keys:
            raise StudyError("two groups are needed: penstock compare A -- B, or penstock compare DIR --by algorithm")
        ((_, runs),) = sides
        for key in keys:
            require_known(key, runs, "--by")
        sides = list(grouped(runs, keys).items())
    if len(sides) < 2:
        names = ", ".join(name for name, _ in sides)
        raise StudyError(f"two groups are needed, but there is {f'one: {names}' if names else 'none: no runs'}")
    return sides


def group_of(
    name: str, runs: Sequence[RecordedRun], score: str, bounds: Bounds, points: Points = RecordedRun.points
) -> Group:
    """Return a group with the scores of its runs.

    Raises
    ------
    StudyError
        No run has a score; or scores are normalised, and an environment has no bounds.
    """
    raw: dict[str, list[float]] = {}
    scored, without, curves, places = [], [], [], []
    for run in runs:
        curve = {cost: points(run, cost, EVALUATION) for cost in COSTS}
        returns = curve[COSTS[0]][1]
        curve = {cost: found for cost, found in curve.items() if found[0].size == returns.size}
        if not returns.size:
            without.append(run.name)
            continue
        scored.append(run)
        curves.append(curve)
        places.append(returns.size - 1 if score == "final" else int(returns.argmax()))
        raw.setdefault(str(run.summary["env"]), []).append(float(returns[places[-1]]))
    if not scored:
        raise StudyError(f"no run of {name} was evaluated: there is nothing to compare")
    arrays = {env: np.array(values) for env, values in sorted(raw.items())}
    scores = dict(arrays)
    for env in bounds and arrays:
        if env not in bounds:
            raise StudyError(f"--normalize has no table for {env!r}: write low and high of every environment")
        low, high = bounds[env]
        scores[env] = (arrays[env] - low) / (high - low)
    return Group(name, scored, without, scores, arrays, curves, places)


def comparison(groups: Sequence[Group], target: float | None, *, is_normalized: bool) -> dict[str, Any]:
    """Compute the comparison.

    Returns
    -------
    dict
        ``scores``: a row per group and environment, and per group over all; ``improvement``: probability that the first
        group is better, per other group; ``targets``: a row per group and environment with a target; ``profiles``: by
        group, share of runs above each of ``thresholds``; ``settings``: settings in which groups differ, by name;
        ``runs``: a row per run with its score, the seconds, steps and frames spent on it, and ``fronts``, the kinds of
        cost in which it is Pareto-optimal: no other run of the environment scores as high for less, or higher for as
        much.
    """
    scores: list[dict[str, Any]] = []
    for group in groups:
        for env, values in group.raw.items():
            scores.append({"group": group.name, "env": env, **_aggregate([values])})
        if is_normalized:
            over_all = list(group.scores.values())
            gap = float(optimality_gap(over_all))
            about = {"group": group.name, "env": "all, normalized", "optimality_gap": gap}
            scores.append(about | _aggregate(over_all))
    first, *others = groups
    thresholds = _thresholds(groups)
    shares_of = {group.name: performance_profile(list(group.scores.values()), thresholds) for group in groups}
    return {
        "scores": scores,
        "improvement": [improvement for other in others if (improvement := _improvement(first, other)) is not None],
        "targets": [row for group in groups for row in _targets(group, target)],
        "thresholds": thresholds.tolist(),
        "profiles": {name: shares.tolist() for name, shares in shares_of.items()},
        "settings": _settings(groups),
        "runs": _rows(groups),
    }


def tables(found: dict[str, Any]) -> dict[str, list[list[str]]]:
    """Return the tables of a comparison by title, each with its headings first."""
    scores = [["group", "environment", "runs", "interquartile mean", "95 % interval", "each"]]
    for row in found["scores"]:
        ends = "too few runs" if row["low"] is None else f"{number(row['low'])} to {number(row['high'])}"
        each = ", ".join(map(number, sorted(row["each"])))
        scores.append([row["group"], row["env"], str(row["n"]), number(row["iqm"]), ends, each])
    made = {"Scores": scores}
    if found["targets"]:
        targets = [["group", "environment", "target", "reached", "median steps", "median seconds"]]
        for row in found["targets"]:
            reached = f"{row['reached']} of {row['n']}"
            medians = ["not reached" if row[name] is None else f"{row[name]:,.0f}" for name in ("steps", "seconds")]
            targets.append([row["group"], row["env"], f"{row['target']:g}", reached, *medians])
        made["Time to the target"] = targets
    if found["improvement"]:
        likely = [["groups", "probability of a higher score", "95 % interval", "environments"]]
        for row in found["improvement"]:
            ends = "too few runs" if row["low"] is None else f"{row['low']:.2f} to {row['high']:.2f}"
            likely.append([f"{row['group']} over {row['other']}", f"{row['probability']:.2f}", ends, str(row["tasks"])])
        made["Probability of improvement"] = likely
    if found["settings"]:
        names = list(next(iter(found["settings"].values())))
        rows = [[key, *map(words_of, row.values())] for key, row in found["settings"].items()]
        made["Settings"] = [["setting", *names], *rows]
    return made


def warnings_about(groups: Sequence[Group], flags: Flags, *, is_normalized: bool) -> list[str]:
    """Return warnings about a comparison."""
    found = []
    for group in groups:
        for env, values in group.raw.items():
            if len(values) < FEW:
                few = f"{counted(len(values), 'run')} {'is' if len(values) == 1 else 'are'}"
                found.append(f"{group.name} on {env}: {few} too few for an interval; use {FEW} or more")
        if group.without:
            without = f"{counted(len(group.without), 'run')} without an evaluation, and so without a score"
            found.append(f"{group.name}: {without}: {', '.join(group.without)}")
        if broken := [run.name for run in group.runs if run.state not in ("done", "unknown")]:
            last = f"{counted(len(broken), 'run')} not done, compared by the last score"
            found.append(f"{group.name}: {last}: {', '.join(broken)}")
    shared = set.intersection(*(set(group.raw) for group in groups))
    if lonely := sorted(set().union(*(group.raw for group in groups)) - shared):
        found.append(f"not every group has runs on {', '.join(lonely)}: the probability leaves these out")
    if len(shared) > 1 and not is_normalized:
        found.append("scores of several environments are not combined: --normalize puts them on one scale")
    if flags.score == "best":
        found.append("the best of many evaluations is biased upwards: penstock eval scores the same weights again")
    return found


def read_bounds(path: Path) -> Bounds:
    """Read low and high of each environment.

    Raises
    ------
    StudyError, ConfigError
        A table of the file is not legal; the file cannot be read.
    """
    bounds = {}
    for env, table in read_toml(path, f"--normalize {path}").items():
        ends: list[Any] = [table.get(name) for name in ("low", "high")] if isinstance(table, dict) else []
        if len(ends) != 2 or not all(isinstance(end, int | float) for end in ends) or ends[0] == ends[1]:
            raise StudyError(f'--normalize {path}: [{env}] is not legal: write ["{env}"], low = 0.0, high = 500.0')
        bounds[env] = (float(ends[0]), float(ends[1]))
    return bounds


def _aggregate(scores: list[np.ndarray]) -> dict[str, Any]:
    each = np.concatenate(scores).tolist()
    low, high = _ends(interquartile_mean, scores)
    return {"n": len(each), "iqm": float(interquartile_mean(scores)), "low": low, "high": high, "each": each}


def _ends(
    statistic: Callable[..., np.ndarray], *groups: Scores, resamples: int = RESAMPLES
) -> tuple[float, float] | tuple[None, None]:
    """Return the ends of an interval; None if an environment has too few runs."""
    if min(len(task) for group in groups for task in group) < FEW:
        return None, None
    low, high = interval(statistic, *groups, resamples=resamples)
    return float(low), float(high)


def _improvement(first: Group, other: Group) -> dict[str, Any] | None:
    shared = [env for env in first.raw if env in other.raw]
    if not shared:
        return None
    sides = [[group.raw[env] for env in shared] for group in (first, other)]
    low, high = _ends(probability_of_improvement, *sides, resamples=_RESAMPLES_OF_PAIRS)
    probability = float(probability_of_improvement(*sides))
    return {
        "group": first.name, "other": other.name, "tasks": len(shared), "probability": probability, "low": low,
        "high": high,
    }  # fmt: skip


def _targets(group: Group, target: float | None) -> list[dict[str, Any]]:
    """Return rows with the time to the first evaluation that reaches the target; runs that never do are misses."""
    rows = []
    for env in group.raw:
        members = [(run, curve) for run, curve in zip(group.runs, group.curves, strict=True)
                   if str(run.summary["env"]) == env]  # fmt: skip
        own = [run.summary["target_return"] for run, _ in members]
        wanted = target if target is not None else own[0] if own.count(own[0]) == len(own) else None
        if not isinstance(wanted, int | float):
            continue
        spent = {cost: [first_reached(*curve[cost], wanted) for _, curve in members] for cost in COSTS[:2]}
        reached = sum(steps is not None for steps in spent["steps"])
        medians = {axis: median_with_misses(values) for axis, values in spent.items()}
        about: dict[str, Any] = {"group": group.name, "env": env, "target": wanted, "n": len(members)}
        rows.append(about | {"reached": reached} | medians)
    return rows


def _thresholds(groups: Sequence[Group]) -> np.ndarray:
    together = np.concatenate([values for group in groups for values in group.scores.values()])
    return np.linspace(together.min(), together.max(), _PROFILE_POINTS)


def _rows(groups: Sequence[Group]) -> list[dict[str, Any]]:
    """Return a row for each run: its score, the cost of the score, and the Pareto fronts that it is on."""
    rows: list[dict[str, Any]] = []
    for group in groups:
        for run, curve, at in zip(group.runs, group.curves, group.places, strict=True):
            about = {"group": group.name, **{name: str(run.summary[name]) for name in ("run", "path", "env")}}
            spent = {cost: float(x[at]) for cost, (x, _) in curve.items()}
            rows.append(about | {"score": float(curve[COSTS[0]][1][at]), **spent, "fronts": []})
    for cost in costs_of(rows):
        best: dict[str, float] = {}
        for row in sorted(rows, key=lambda row: (row[cost], -row["score"])):
            if row["score"] > best.get(row["env"], -np.inf):
                best[row["env"]] = row["score"]
                row["fronts"].append(cost)
    return rows


def costs_of(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Return the kinds of cost that all runs have, from their rows."""
    return [cost for cost in COSTS if all(cost in row for row in rows)]


def _settings(groups: Sequence[Group]) -> dict[str, dict[str, Any]]:
    """Return the settings that differ between groups, values by group."""
    names = dict.fromkeys(name for group in groups for run in group.runs for name in run.settings)
    found = {}
    for name in ("algorithm", *(name for name in names if name not in _UNCOMPARED)):
        values = [{words_of(value_of(run, name)) for run in group.runs} for group in groups]
        if len(set(map(frozenset, values))) > 1:
            found[name] = {
                group.name: value_of(group.runs[0], name) if len(several) == 1 else "several"
                for group, several in zip(groups, values, strict=True)
            }
    return found


def _split(args: Sequence[str]) -> list[list[str]]:
    sides: list[list[str]] = [[]]
    for arg in args:
        if arg == "--":
            sides.append([])
        else:
            sides[-1].append(arg)
    return sides
