"""Runs as their files tell of them, also while they train, or on another machine than theirs."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from penstock.runs.run_directory import CONFIG, RunDirectory, RunDirectoryError
from penstock.runs.state import State, read_state, state_of

_TAIL_NBYTES = 1 << 16
_FROM_STATUS = (
    "total_steps", "seconds", "steps_per_second", "mean_return", "eval_return", "best_return", "target_return",
    "success_rate", "eval_success_rate", "updates", "restarts", "skipped_updates", "limiting_role", "limiting_reason",
)  # fmt: skip


@dataclass(frozen=True)
class RecordedRun:
    """A run's files, read when they are asked for, once.

    Attributes
    ----------
    directory
        The run directory.
    name
        What it is called among others: its path below the place where it was found.
    """

    directory: RunDirectory
    name: str

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> RecordedRun:
        """Find one run; raises `RunDirectoryError` as `RunDirectory.open` does."""
        return cls(RunDirectory.open(path), os.fspath(path))

    @cached_property
    def status(self) -> dict[str, Any]:
        """What ``status.json`` says; nothing of a run of an earlier Penstock."""
        return read_state(self.directory.path)

    @property
    def state(self) -> State:
        """What is known of the run: it may have died since its status was written."""
        return state_of(self.status)

    @cached_property
    def lines(self) -> list[dict[str, Any]]:
        """Lines of ``metrics.jsonl``, without those that were undone when the run was resumed."""
        return standing(lines_of(self.directory.metrics))

    @cached_property
    def summary(self) -> dict[str, Any]:
        """The run in one row of a table, from its status, else from the end of its metrics; None: not known.

        Returns
        -------
        dict
            run (its name), path, state, reason, algorithm, env, seed, steps, fields of `Status` by their names, created
            and updated (seconds since 1970).
        """
        config, info, status = self.directory.config, self.directory.info, self.status
        known = status or _last_known(self.directory)
        created = _seconds_of(info.get("created"))
        fields = {name: known.get(name) for name in _FROM_STATUS}
        fields["total_steps"] = fields["total_steps"] or config.get("total_steps")
        fields["target_return"] = config.get("target_return")
        return {
            "run": self.name,
            "path": os.fspath(self.directory.path),
            "state": self.state,
            "reason": status.get("reason") or None,
            "algorithm": self.directory.algorithm,
            "env": info.get("env_name") or config.get("env"),
            "seed": config.get("seed"),
            "steps": known.get("steps"),
            **fields,
            "created": created,
            "updated": known.get("time") or created,
        }


def find_runs(places: Sequence[str | os.PathLike[str]]) -> list[RecordedRun]:
    """Find every run in some folders and below, by the time when they began; no link is followed.

    Parameters
    ----------
    places
        Runs, or folders that hold runs.

    Raises
    ------
    RunDirectoryError
        A place is not there.
    """
    found: dict[Path, RecordedRun] = {}
    for place in map(Path, places):
        if not place.is_dir():
            what = "a file" if place.exists() else "not there"
            raise RunDirectoryError(f"{place} is {what}: give runs, or folders that hold runs")
        for path, name in paths_in(place):
            try:
                found.setdefault(path.resolve(), RecordedRun(RunDirectory.open(path), name))
            except RunDirectoryError:  # the config.json of something else, or half a copy
                if path == place:
                    raise
    return sorted(found.values(), key=lambda run: (run.summary["created"] or 0.0, run.name))


def paths_in(place: Path) -> Iterator[tuple[Path, str]]:
    """Folders with a config.json, from `place` on, and what runs there are called; nothing within a run is another."""
    for folder, folders, files in os.walk(place):
        if CONFIG in files:
            folders.clear()
            path = Path(folder)
            yield path, os.fspath(path if path == place else path.relative_to(place))
        folders.sort()


def lines_of(path: Path) -> Iterator[dict[str, Any]]:
    """Read a file of one JSON object per line; what is not one, as a line that a killed process began, is left out."""
    try:
        file = open(path, "rb")  # noqa: SIM115 - closed below
    except OSError:
        return
    with file:
        yield from _objects(file)


def standing(lines: Iterator[dict[str, Any]]) -> list[dict[str, Any]]:
    """Leave out of metrics what was undone when a run was resumed, and the lines that say so.

    A line with ``"resumed": true`` undoes earlier lines of more steps than its own. Of a Penstock that wrote no such
    line, one whose seconds are fewer than those of the line before it does.
    """
    kept: list[dict[str, Any]] = []
    before = 0.0
    for line in lines:
        steps, seconds = line.get("steps"), line.get("seconds")
        if not isinstance(steps, int | float) or not isinstance(seconds, int | float):
            continue
        if seconds < before or line.get("resumed"):
            kept = [other for other in kept if other["steps"] <= steps]
        before = seconds
        if not line.get("resumed"):
            kept.append(line)
    return kept


def column(lines: Sequence[dict[str, Any]], x: str, y: str) -> tuple[list[float], list[float]]:
    """Read one number over another from lines that have both and are finite, in ascending order of x."""
    points = [(line[x], line[y]) for line in lines if line.get(x) is not None and line.get(y) is not None]
    points.sort(key=lambda point: point[0])
    return [float(at) for at, _ in points], [float(value) for _, value in points]


def _last_known(run: RunDirectory) -> dict[str, Any]:
    """What the end of the metrics, else the newest checkpoint, says of a run without a status."""
    known: dict[str, Any] = {}
    for line in _last_lines(run.metrics):
        if "evaluation/mean_return" in line:
            known["eval_return"] = line["evaluation/mean_return"]
        elif "steps_per_second" in line:
            known |= {name: line[name] for name in ("steps", "seconds", "steps_per_second", "updates") if name in line}
            known |= {"time": line.get("time"), "mean_return": line.get("episode/mean_return")}
    if "steps" not in known and (steps := run.checkpoints.steps()):
        known["steps"] = steps[-1]
    return known


def _last_lines(path: Path) -> Iterator[dict[str, Any]]:
    try:
        with open(path, "rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_NBYTES))
            tail = file.read()
    except OSError:
        return
    yield from _objects(tail.splitlines())


def _objects(lines: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """JSON objects, one a line; other lines are left out."""
    for line in lines:
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict):
            yield record


def _seconds_of(created: Any) -> float | None:
    try:
        return datetime.fromisoformat(created).timestamp()
    except (TypeError, ValueError):
        return None
