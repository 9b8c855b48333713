"""Curves of many growing runs: each is read once, reduced, and read further as it grows."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from penstock.runs.reading import RecordedRun
from penstock.runs.series import GrowingCurve
from penstock.studies.curves import FEW, POINTS, Band, Curve, band_of, has_band, joined, panels_of, thinned

MOST_POINTS = 4096
"""Largest number of points of a run."""
MOST_LINES = 40
"""Largest number of single lines of a group."""
_PLACES = 2 * POINTS  # of the lines of a chart
_SAMPLES = 64  # lines of a run that is not read yet
_LONG_NBYTES = 1 << 26  # unread bytes of all files that take long to read
_MOST_RUNS = 2000
_MOST_BANDS = 256
_NAMES_AGAIN = 1.5  # growth of a file after which its names are read again


class Curves:
    """Requested curves, by run and metrics."""

    def __init__(self) -> None:
        self._known: dict[tuple[Path, str, str], GrowingCurve] = {}
        self._bands: dict[tuple[Any, ...], Band] = {}
        self._names: dict[Path, tuple[int, list[str]]] = {}
        self._lock = Lock()

    def catch_up(self, left: list[RecordedRun], x: str, y: str, seconds: float) -> None:
        """Read new lines of runs for about `seconds`, and remove these runs, at least one, from the list."""
        end = time.monotonic() + seconds
        with self._lock:
            while left:
                run = left.pop()
                self._curve(run, x, y).catch_up()
                if time.monotonic() >= end:
                    return

    def is_long(self, runs: Sequence[RecordedRun], x: str, y: str) -> bool:
        """Return whether reading the new lines of runs takes longer than a page should wait."""
        with self._lock:
            return sum(self._curve(run, x, y).nbytes_left for run in runs) > _LONG_NBYTES

    def panels(
        self, runs: Sequence[RecordedRun], x: str, y: str, keys: Sequence[str], band: str, *, is_sampled: bool = False
    ) -> list[dict[str, Any]]:
        """Return the curves, by environment and group.

        Parameters
        ----------
        is_sampled
            Use a few lines of each run, and no intervals, which take time, instead of the lines read so far.

        Returns
        -------
        list
            ``name``, ``x`` and ``groups`` of each environment. Each group has ``name``; ``runs``, name and ``y`` of
            each run if there are few, or of the first ones if the group has no common stretch; their ``count``;
            ``middle``, None without a common stretch; ``low`` and ``high``, or None. Values are those at ``x``, or
            None.
        """
        if is_sampled and band == "ci":
            band = "none"
        with self._lock:
            of_runs = [self._curve(run, x, y) for run in runs]
            points = [curve.sampled(_SAMPLES) if is_sampled else curve.points() for curve in of_runs]
            curves = [Curve(run, *thinned(*one)) for run, one in zip(runs, points, strict=True)]
            versions = {run.directory.path: -1 if is_sampled else curve.version
                        for run, curve in zip(runs, of_runs, strict=True)}  # fmt: skip
            made = []
            for env, groups in panels_of([curve for curve in curves if curve.x.size], keys).items():
                found = [self._lines(members, (x, y), band, versions) for members in groups.values()]
                places, columns = joined([line for lines in found for line in lines], _PLACES)
                shown = []
                for (name, members), (_, *singles) in zip(groups.items(), found, strict=True):
                    (middle, *ends), *each = [list(map(_values, columns.pop(0))) for _ in range(1 + len(singles))]
                    has_middle = any(value is not None for value in middle)
                    shown.append({
                        "name": name, "count": len(members), "middle": middle if has_middle else None,
                        **dict(zip(("low", "high"), ends or (None, None), strict=True)),
                        "runs": [{"name": one.run.name, "y": y} for one, (y,) in zip(members, each, strict=False)],
                    })  # fmt: skip
                made.append({"name": env, "x": places.tolist(), "groups": shown})
            return made

    def points(self, run: RecordedRun, x: str, y: str) -> tuple[np.ndarray, np.ndarray]:
        """Return a metric of a run over another, as `RecordedRun.points` does; means of more than `MOST_POINTS`."""
        with self._lock:
            curve = self._curve(run, x, y)
            curve.catch_up()
            return curve.points()

    def names(self, runs: Sequence[RecordedRun]) -> list[str]:
        """Return the names of all metrics."""
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

    def _lines(
        self, members: list[Curve], axes: tuple[str, str], band: str, versions: dict[Path, int]
    ) -> list[tuple[np.ndarray, list[np.ndarray]]]:
        """Return x and columns of a group's lines: the middle with the ends of its band, then those of single runs."""
        if len(members) == 1:
            return [(members[0].x, [members[0].y])]
        is_shown = has_band(band, len(members))
        kind = band if is_shown else "minmax"
        paths = [curve.run.directory.path for curve in members]
        key = (*axes, kind, *((path, versions[path]) for path in paths))
        if key not in self._bands:
            while len(self._bands) >= _MOST_BANDS:
                self._bands.pop(next(iter(self._bands)))
            self._bands[key] = band_of(members, kind)
        found = self._bands[key]
        each = members if len(members) < FEW else [] if found.x.size else members[:MOST_LINES]
        ends = [found.low, found.high] if is_shown and found.x.size else []
        return [(found.x, [found.middle, *ends]), *((curve.x, [curve.y]) for curve in each)]

    def _curve(self, run: RecordedRun, x: str, y: str) -> GrowingCurve:
        key = (run.directory.metrics, x, y)
        if (curve := self._known.pop(key, None)) is None:
            curve = GrowingCurve(*key, most=MOST_POINTS)
        self._known[key] = curve
        while len(self._known) > _MOST_RUNS:
            self._known.pop(next(iter(self._known)))
        return curve


def _values(column: np.ndarray) -> list[float | None]:
    return [None if math.isnan(value) else value for value in column.tolist()]
