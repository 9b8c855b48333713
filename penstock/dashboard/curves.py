"""Curves of many growing runs: each is read once, kept small, and read on from there."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from penstock.runs.columns import picked, points_in
from penstock.runs.reading import RecordedRun
from penstock.runs.tails import Cursor, stretches
from penstock.studies.curves import FEW, Band, Curve, band_of, panels_of, thinned

MOST_POINTS = 4096
"""Of a run that is kept; beyond them two neighbours become their mean."""
_MOST_RUNS = 2000
_MOST_BANDS = 256
_NAMES_AGAIN = 1.5  # times as long a file may have become before it is asked for its names again


class GrowingCurve:
    """A number of a run over another, as small as a chart needs it, however long the file is.

    Parameters
    ----------
    path
        The file of metrics.
    x, y
        Names of the numbers.

    Attributes
    ----------
    version
        Of the curve: another one says that it has changed.
    """

    def __init__(self, path: Path, x: str, y: str) -> None:
        self._path = path
        self._names = (x, y)
        self.version = 0
        self._cursor = Cursor()
        self._seconds = 0.0  # of the last line
        self._width = 1  # lines that one mean stands for
        self._means = np.empty((2, 0))
        self._rest = np.empty((2, 0))  # lines that are too few for another mean

    def catch_up(self) -> None:
        """Read what is new in the file; all of it where lines were undone, or the file is another one."""
        begun, rows = self._cursor.offset > 0, list[np.ndarray]()
        for stretch in stretches(self._path, self._cursor):
            if not stretch.is_same:
                self._forget()
                begun, rows = False, []
            self._cursor = stretch.cursor
            rows.append(picked(stretch.text, *self._names))
        table = np.concatenate(rows)
        if not table.size:
            return
        if begun and (table[:, 2].any() or (np.diff(table[:, 1], prepend=self._seconds) < 0.0).any()):
            self._forget()
            self.catch_up()
            return
        self._seconds = float(table[-1, 1])
        self._add(*points_in(table))

    def points(self) -> tuple[np.ndarray, np.ndarray]:
        """x and y, float64 ``[n]``, in ascending order of x."""
        ends = [np.stack([self._rest.mean(1)], 1)] if self._rest.size else []
        x, y = np.concatenate([self._means, *ends], 1)
        order = np.argsort(x, kind="stable")
        return x[order], y[order]

    def _forget(self) -> None:
        self.version += 1
        self._cursor, self._seconds, self._width = Cursor(), 0.0, 1
        self._means, self._rest = np.empty((2, 0)), np.empty((2, 0))

    def _add(self, x: np.ndarray, y: np.ndarray) -> None:
        self.version += 1
        self._rest = np.concatenate([self._rest, [x, y]], 1)
        self._settle()
        while self._means.shape[1] > MOST_POINTS:
            whole = self._means.shape[1] // 2 * 2
            left = np.repeat(self._means[:, whole:], self._width, 1)
            self._means = self._means[:, :whole].reshape(2, -1, 2).mean(2)
            self._width *= 2
            self._rest = np.concatenate([left, self._rest], 1)
            self._settle()

    def _settle(self) -> None:
        """Make means of what waits for them."""
        whole = self._rest.shape[1] // self._width * self._width
        made = self._rest[:, :whole].reshape(2, -1, self._width).mean(2)
        self._means = np.concatenate([self._means, made], 1)
        self._rest = self._rest[:, whole:]


class Curves:
    """Curves that were asked for, by run and by their two numbers."""

    def __init__(self) -> None:
        self._known: dict[tuple[Path, str, str], GrowingCurve] = {}
        self._bands: dict[tuple[Any, ...], Band] = {}
        self._names: dict[Path, tuple[int, list[str]]] = {}
        self._lock = Lock()

    def catch_up(self, left: list[RecordedRun], x: str, y: str, seconds: float) -> None:
        """Read on in some runs until the time is over, and take those that are done off the list; one at least."""
        end = time.monotonic() + seconds
        with self._lock:
            while left:
                run = left.pop()
                self._curve(run, x, y).catch_up()
                if time.monotonic() >= end:
                    return

    def panels(
        self, runs: Sequence[RecordedRun], x: str, y: str, keys: Sequence[str], band: str
    ) -> list[dict[str, Any]]:
        """Curves as they were read, by environment and group.

        Returns
        -------
        list
            Per environment its ``name`` and ``groups``. Of each group: ``name``; ``runs``, name and points of each,
            where they are few; ``count`` of them; ``x`` and ``middle``, and ``low`` and ``high`` or None.
        """
        with self._lock:
            curves = [Curve(run, *thinned(*self._curve(run, x, y).points())) for run in runs]
            versions = {run.directory.path: self._curve(run, x, y).version for run in runs}
            made = []
            for env, groups in panels_of([curve for curve in curves if curve.x.size], keys).items():
                shown = [self._group(name, members, (x, y), band, versions) for name, members in groups.items()]
                made.append({"name": env, "groups": shown})
            return made

    def names(self, runs: Sequence[RecordedRun]) -> list[str]:
        """Names of the numbers that there are."""
        found: set[str] = set()
        with self._lock:
            for run in runs:
                path = run.directory.metrics
                size = path.stat().st_size if path.is_file() else 0
                before, names = self._names.get(path, (-1, []))
                if before < 0 or size > _NAMES_AGAIN * before:
                    names = run.metric_names
                    self._names[path] = (size, names)
                found.update(names)
        return sorted(found)

    def _group(
        self, name: str, members: list[Curve], axes: tuple[str, str], band: str, versions: dict[Path, int]
    ) -> dict[str, Any]:
        paths = [curve.run.directory.path for curve in members]
        key = (*axes, band, *((path, versions[path]) for path in paths))
        if key not in self._bands:
            while len(self._bands) >= _MOST_BANDS:
                self._bands.pop(next(iter(self._bands)))
            self._bands[key] = band_of(members, "minmax" if band == "none" else band)
        found = self._bands[key]
        has_band = band == "minmax" or (band == "ci" and len(members) >= FEW)
        each = members if len(members) < FEW else []
        return {
            "name": name, "count": len(members), "x": found.x.tolist(), "middle": found.middle.tolist(),
            "low": found.low.tolist() if has_band else None, "high": found.high.tolist() if has_band else None,
            "runs": [{"name": curve.run.name, "x": curve.x.tolist(), "y": curve.y.tolist()} for curve in each],
        }  # fmt: skip

    def _curve(self, run: RecordedRun, x: str, y: str) -> GrowingCurve:
        key = (run.directory.metrics, x, y)
        if (curve := self._known.pop(key, None)) is None:
            curve = GrowingCurve(*key)
        self._known[key] = curve
        while len(self._known) > _MOST_RUNS:
            self._known.pop(next(iter(self._known)))
        return curve
