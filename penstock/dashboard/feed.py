"""Logged data of a run, reduced for charts, and later lines."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any

from penstock.population.lineage import LINEAGE, event_in
from penstock.runs.descriptions import HARDWARE as HARDWARE_SERIES
from penstock.runs.descriptions import charts_of
from penstock.runs.documents import is_finite
from penstock.runs.files import json_values
from penstock.runs.growing import Cursor, read_on, stretches
from penstock.runs.metrics import METRICS
from penstock.runs.run_directory import HARDWARE, LOG
from penstock.runs.series import MOST_NAMES, Columns, numbers_in

POINTS = 1000
"""Rows of a new chart; later lines are added to it."""
_GROWING = {"metrics": METRICS, "hardware": HARDWARE, "log": LOG}
MOST_EVENTS = 1000
"""Largest number of events of a lineage."""
_MOST_LOG_LINES = 500
_MOST_POLICIES = 64
_OF_EVENT = ("event", "policy", "steps", "parent", "parent_steps", "scores", "before", "after")


@dataclass
class Feed:
    """Data read from a run's growing files, by one reader at a time."""

    path: Path
    columns: dict[str, Columns] = field(default_factory=lambda: {METRICS: Columns(), HARDWARE: Columns()})
    cursors: dict[str, Cursor] = field(default_factory=dict)
    log: list[str] = field(default_factory=list)
    lock: Lock = field(default_factory=Lock)

    def whole(self, policies: Sequence[str] = ()) -> dict[str, Any]:
        """Return all data so far, reduced for charts, and the cursors after it.

        Parameters
        ----------
        policies
            Names of the policies of a run with several.

        Returns
        -------
        dict
            metrics, hardware, log, cursor; charts, descriptions as of `charts_of` with the ``file`` of each, "metrics"
            or "hardware"; most_names, the limit of names per file, and left_out, the number of values
            of further names, which are dropped.
        """
        with self.lock:
            for name in self.columns:
                self._catch_up(name)
            self._catch_up_log()
            metrics, hardware = (self.columns[name].reduced(POINTS) for name in (METRICS, HARDWARE))
            charts = [chart | {"file": "metrics"} for chart in charts_of(metrics, policies)]
            charts += [chart | {"file": "hardware"} for chart in charts_of(hardware, known=HARDWARE_SERIES)]
            return {
                "metrics": metrics,
                "hardware": hardware,
                "charts": charts,
                "log": self.log,
                "most_names": MOST_NAMES,
                "left_out": sum(columns.left_out for columns in self.columns.values()),
                "cursor": ",".join(str(self.cursors[name]) for name in _GROWING.values()),
            }

    def share_read(self) -> float:
        """Return the share of the metrics that a call of `whole` has read so far, 0 to 1."""
        try:
            size = os.lstat(self.path / METRICS).st_size
        except OSError:
            return 1.0
        return min(1.0, self.cursors.get(METRICS, Cursor()).offset / max(size, 1))

    def _catch_up(self, name: str) -> None:
        for stretch in stretches(self.path / name, self.cursors.get(name, Cursor())):
            if not stretch.is_same:
                self.columns[name] = Columns()
            self.columns[name].add(stretch.lines)
            self.cursors[name] = stretch.cursor

    def _catch_up_log(self) -> None:
        for stretch in stretches(self.path / LOG, self.cursors.get(LOG, Cursor())):
            before = self.log if stretch.is_same else []
            self.log = (before + _decoded(stretch.lines))[-_MOST_LOG_LINES:]
            self.cursors[LOG] = stretch.cursor


def lineage_of(run_path: Path, most: int = MOST_EVENTS) -> dict[str, Any]:
    """Return the lineage of a population, the last `most` events.

    Returns
    -------
    dict
        ``policies``, name and last known steps of each; ``events``, with the fields of ``lineage.jsonl`` that are
        drawn; ``left_out``, the number of earlier events. Lines that are no events are skipped.
    """
    events: deque[dict[str, Any]] = deque(maxlen=most)
    steps: dict[str, int] = {}
    count = 0
    for stretch in stretches(run_path / LINEAGE, Cursor()):
        for event in filter(None, map(event_in, stretch.lines)):
            policy, parent = event["policy"], event.get("parent")
            if not _is_drawn(event) or (policy not in steps and len(steps) >= _MOST_POLICIES):
                continue
            steps[policy] = max(steps.get(policy, 0), event["steps"])
            known = {"parent": parent if parent in steps else None}
            events.append({name: event.get(name) for name in _OF_EVENT} | known)
            count += 1
    policies = [{"name": name, "steps": most_steps} for name, most_steps in steps.items()]
    return json_values({"policies": policies, "events": list(events), "left_out": count - len(events)})


def _is_drawn(event: Mapping[str, Any]) -> bool:
    """Return whether the values of an event that are drawn are finite numbers and short texts."""
    before = event.get("before") or {}
    is_legal = isinstance(before, dict) and isinstance(event["event"], str)
    numbers = [event["steps"], event.get("parent_steps"), *event["after"].values(), *event.get("scores", {}).values()]
    numbers += before.values() if is_legal else ()
    return is_legal and all(n is None or (type(n) in (int, float) and is_finite(n)) for n in numbers)


def cursors_in(text: str) -> list[Cursor]:
    """Return the cursors of metrics, hardware and log in a text; raise `ValueError` for any other text."""
    cursors = [Cursor.read(each) for each in text.split(",")]
    if len(cursors) != len(_GROWING):
        raise ValueError(f"{len(cursors)} cursors, of {len(_GROWING)} files")
    return cursors


def news(run_path: Path, text: str) -> tuple[dict[str, Any], str]:
    """Return the lines after the cursors of a text, and the text of the new cursors.

    ``{"reload": True}`` means that earlier lines are invalid: a file was replaced, or the run was resumed.
    """
    found: dict[str, Any] = {}
    behind = []
    for (key, name), cursor in zip(_GROWING.items(), cursors_in(text), strict=True):
        stretch = read_on(run_path / name, cursor)
        behind.append(stretch.cursor)
        if not stretch.is_same:
            return {"reload": True}, text
        if key == "log":
            added: list[Any] = _decoded(stretch.lines)
        else:
            added = [numbers for numbers in map(numbers_in, stretch.lines) if numbers is not None]
            if any("resumed" in numbers for numbers in added):
                return {"reload": True}, text
        if added:
            found[key] = added
    return found, ",".join(map(str, behind))


def _decoded(lines: list[bytes]) -> list[str]:
    return [line.decode(errors="replace") for line in lines]
