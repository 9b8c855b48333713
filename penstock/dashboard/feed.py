"""Logged data of a run, reduced for charts, and later lines."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any

from penstock.runs.descriptions import AXES, charts_of
from penstock.runs.descriptions import HARDWARE as HARDWARE_SERIES
from penstock.runs.growing import Cursor, read_on, stretches
from penstock.runs.metrics import METRICS
from penstock.runs.run_directory import HARDWARE, LOG
from penstock.runs.series import MOST_NAMES, Columns, Range, numbers_in

POINTS = 1000
"""Rows of a new chart; later lines are added to it."""
_GROWING = {"metrics": METRICS, "hardware": HARDWARE, "log": LOG}
_MOST_LOG_LINES = 500


@dataclass
class Feed:
    """Data read from a run's growing files, by one reader at a time."""

    path: Path
    columns: dict[str, Columns] = field(default_factory=lambda: {METRICS: Columns(), HARDWARE: Columns()})
    cursors: dict[str, Cursor] = field(default_factory=dict)
    log: list[str] = field(default_factory=list)
    lock: Lock = field(default_factory=Lock)

    def whole(self, policies: Sequence[str] = (), within: Range | None = None) -> dict[str, Any]:
        """Return all data so far, reduced for charts, and the cursors after it.

        Parameters
        ----------
        policies
            Names of the policies of a run with several.
        within
            Range of an axis that has most of the rows.

        Returns
        -------
        dict
            metrics, hardware, log, cursor; charts, descriptions from `charts_of` with the ``file`` of each, "metrics"
            or "hardware"; is_reduced, whether there are more lines than rows; most_names, the limit of names per file,
            and left_out, the number of values dropped because of further names.
        """
        with self.lock:
            for name in self.columns:
                self._catch_up(name)
            self._catch_up_log()
            metrics, hardware = (self.columns[name].reduced(POINTS, within) for name in (METRICS, HARDWARE))
            charts = [chart | {"file": "metrics"} for chart in charts_of(metrics, policies)]
            charts += [chart | {"file": "hardware"} for chart in charts_of(hardware, known=HARDWARE_SERIES)]
            return {
                "metrics": metrics,
                "hardware": hardware,
                "charts": charts,
                "log": self.log,
                "is_reduced": any(columns.count > POINTS for columns in self.columns.values()),
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


def range_in(axis: str, ends: str) -> Range | None:
    """Return the range given in a page's address, such as "steps" and "100,200"; None if it is not legal."""
    try:
        low, high = map(float, ends.split(","))
    except ValueError:
        return None
    return (axis, low, high) if axis in AXES and math.isfinite(low) and math.isfinite(high) and low < high else None


def cursors_in(text: str) -> list[Cursor]:
    """Return the cursors of metrics, hardware and log in a text; raise `ValueError` for any other text."""
    cursors = [Cursor.read(each) for each in text.split(",")]
    if len(cursors) != len(_GROWING):
        raise ValueError(f"{len(cursors)} cursors, expected {len(_GROWING)}")
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
