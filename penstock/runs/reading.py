"""Runs as recorded in their files, even while they train or on another machine."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.redaction import masked
from penstock.runs.checkpoint import CheckpointError
from penstock.runs.labels import Labels, read_labels
from penstock.runs.remote import is_remote
from penstock.runs.run_directory import RunDirectory, UnreadableRunError
from penstock.runs.state import State, read_state, state_of
from penstock.runs.vacancy import CONFIG, RunDirectoryError
from penstock.runs.videos import videos_of

if TYPE_CHECKING:
    import numpy as np

_FROM_STATUS = (
    "total_steps", "seconds", "steps_per_second", "mean_return", "eval_return", "best_return", "target_return",
    "success_rate", "eval_success_rate", "updates", "restarts", "skipped_updates", "limiting_role", "limiting_reason",
)  # fmt: skip


@dataclass(frozen=True)
class RecordedRun:
    """Files of a run, each read once, at the first use.

    Attributes
    ----------
    directory
        The run directory.
    name
        Path relative to the searched folder.
    problem
        Reason why ``config.json`` cannot be read; algorithm and settings are then empty.
    """

    directory: RunDirectory
    name: str
    problem: str = ""

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> RecordedRun:
        """Open a run; raise `RunDirectoryError` as `RunDirectory.open` does."""
        return cls(RunDirectory.open(path), os.fspath(path))

    @cached_property
    def status(self) -> dict[str, Any]:
        """Content of ``status.json``; empty for runs of early versions."""
        return read_state(self.directory.path)

    @cached_property
    def settings(self) -> dict[str, Any]:
        """Settings of the run, with possible secrets masked."""
        shown: dict[str, Any] = masked(self.directory.config)
        return shown

    @cached_property
    def made(self) -> dict[str, Any]:
        """`RunDirectory.info`, with possible secrets masked."""
        shown: dict[str, Any] = masked(self.directory.info)
        return shown

    @cached_property
    def labels(self) -> Labels:
        """Tags and note of the run, and whether it is archived."""
        return read_labels(self.directory.path)

    @cached_property
    def parent(self) -> dict[str, Any]:
        """Last of the recorded parents, with possible secrets masked; empty without one."""
        found = [one for one in self.made.get("parents", ()) if type(one.get("path")) is str]
        return found[-1] if found else {}

    @property
    def origin(self) -> str:
        """Description of the parent, such as "base at step 10,000"; empty without one."""
        steps = self.parent.get("steps")
        at = f" at step {steps:,}" if type(steps) is int else ""
        return f"{Path(self.parent['path']).name}{at}" if self.parent else ""

    @property
    def state(self) -> State:
        """State of the run, including the death of its process."""
        return "unreadable" if self.problem else state_of(self.status, self.directory.path)

    def points(self, x: str, y: str) -> tuple[np.ndarray, np.ndarray]:
        """Return a metric over another one, without lines that resumptions have undone.

        Returns
        -------
        tuple
            x and y of the lines that have both, float64 ``[n]``, x ascending.
        """
        from penstock.runs.series import GrowingCurve

        curve = GrowingCurve(self.directory.metrics, x, y)
        curve.catch_up()
        return curve.points()

    @cached_property
    def metric_names(self) -> list[str]:
        """Names of the metrics at the beginning and at the end of ``metrics.jsonl``."""
        from penstock.runs.series import numbers_at

        lines = [line for end in (False, True) for line in numbers_at(self.directory.metrics, end=end)]
        found = {name for line in lines for name, value in line.items() if type(value) in (int, float)}
        return sorted(found)

    @cached_property
    def summary(self) -> dict[str, Any]:
        """Row of the run in a table, from its status or else the end of its metrics; None: unknown.

        Returns
        -------
        dict
            run (its name), path, state, reason, algorithm, env, seed, steps, progress (share of the budget), fields of
            `Status` by their names, tags (separated by commas), note, archived, videos (their number), parent (words),
            created and updated (seconds since 1970).
        """
        config, info, status = self.directory.config, self.directory.info, self.status
        known = _last_known(self.directory) if status.keys() <= {"state", "reason"} else status
        created = _seconds_of(info.get("created"))
        fields = {name: known.get(name) for name in _FROM_STATUS}
        fields["total_steps"] = fields["total_steps"] or config.get("total_steps")
        fields["target_return"] = config.get("target_return")
        return {
            "run": self.name,
            "path": os.fspath(self.directory.path),
            "state": self.state,
            "reason": self.problem or status.get("reason") or None,
            "algorithm": self.directory.algorithm,
            "env": info.get("env_name") or config.get("env"),
            "seed": config.get("seed"),
            "steps": known.get("steps"),
            "progress": _share(known.get("steps"), fields["total_steps"]),
            **fields,
            "tags": ",".join(self.labels.tags),
            "note": self.labels.note,
            "archived": self.labels.archived,
            "videos": len(videos_of(self.directory.path)) or None,
            "parent": self.origin,
            "created": created,
            "updated": known.get("time") or created,
        }


def recorded(path: Path, name: str) -> RecordedRun:
    """Open a run; an unreadable one has a `RecordedRun.problem` and no settings.

    Raises
    ------
    RunDirectoryError
        There is no run at `path`.
    """
    try:
        return RecordedRun(RunDirectory.open(path), name)
    except UnreadableRunError as error:
        return RecordedRun(RunDirectory(path, "", {}, {}), name, str(error))


def readable(runs: Iterable[RecordedRun], report: Callable[[str], None]) -> list[RecordedRun]:
    """Return the runs whose settings are known; report the problem of each other run."""
    found = []
    for run in runs:
        if run.problem:
            report(f"{run.name} is left out: {run.problem}")
        else:
            found.append(run)
    return found


def find_runs(places: Sequence[str | os.PathLike[str]]) -> list[RecordedRun]:
    """Return all runs in folders and their subfolders, by time of creation; links are not followed.

    Parameters
    ----------
    places
        Runs, or folders that hold runs; records behind URLs are fetched into a temporary directory.

    Raises
    ------
    RunDirectoryError
        A folder does not exist.
    """
    found: dict[Path, RecordedRun] = {}
    for url in filter(is_remote, places):
        from penstock.runs.fetching import copies_of_records  # not needed for local runs

        found |= {path: recorded(path, name) for path, name in copies_of_records(url)}
    for place in (Path(place) for place in places if not is_remote(place)):
        if not place.is_dir():
            problem = "is a file" if place.exists() else "does not exist"
            raise RunDirectoryError(f"{place} {problem}: give runs, or folders that hold runs")
        for path, name in paths_in(place):
            try:
                found.setdefault(path.resolve(), recorded(path, name))
            except RunDirectoryError:  # another program's config.json, or an incomplete copy
                if path == place:
                    raise
    return sorted(found.values(), key=lambda run: (run.summary["created"] or 0.0, run.name))


def paths_in(place: Path) -> Iterator[tuple[Path, str]]:
    """Yield folders with a config.json in `place`, and their names; folders within a run are skipped."""
    for folder, folders, files in os.walk(place):
        if CONFIG in files:
            folders.clear()
            path = Path(folder)
            yield path, os.fspath(path if path == place else path.relative_to(place))
        folders.sort()


def _last_known(run: RunDirectory) -> dict[str, Any]:
    """Return the last known state of a run without a status, from its metrics or else its newest checkpoint."""
    from penstock.runs.series import numbers_at

    known: dict[str, Any] = {}
    for line in numbers_at(run.metrics, end=True):
        if "evaluation/mean_return" in line:
            known["eval_return"] = line["evaluation/mean_return"]
        elif "steps_per_second" in line:
            known |= {name: line[name] for name in ("steps", "seconds", "steps_per_second", "updates") if name in line}
            known |= {"time": line.get("time"), "mean_return": line.get("episode/mean_return")}
    if "steps" not in known:
        with suppress(CheckpointError):  # unreadable folder
            known["steps"] = next(reversed(run.checkpoints.steps()), None)
    return known


def _share(steps: Any, total: Any) -> float | None:
    """Return the share of the budget that is spent, at most 1; None if `steps` or `total` is not a number."""
    if type(steps) not in (int, float) or type(total) not in (int, float) or not total:
        return None
    return float(min(1.0, steps / total))


def _seconds_of(created: Any) -> float | None:
    try:
        return datetime.fromisoformat(created).timestamp()
    except (TypeError, ValueError, OverflowError):
        return None
