"""Curves of many growing runs: each is read once, reduced, and read further as it grows."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from threading import Lock
from typing import Any

from penstock.runs.reading import RecordedRun
from penstock.runs.series import GrowingCurve
from penstock.studies.curves import FEW, Band, Curve, band_of, panels_of, thinned

MOST_POINTS = 4096
"""Largest number of points of a run."""
MOST_LINES = 40
"""Largest number of single lines of a group."""
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

    def panels(
        self, runs: Sequence[RecordedRun], x: str, y: str, keys: Sequence[str], band: str
    ) -> list[dict[str, Any]]:
        """Return the curves read so far, by environment and group.

        Returns
        -------
        list
            ``name`` and ``groups`` of each environment. Each group has ``name``; ``runs``, name and points of each run
            if there are few, and of the first ones if the group has no stretch in common; their ``count``; ``x`` and
            ``middle``, empty without a common stretch; ``low`` and ``high``, or None.
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
        has_band = found.x.size > 0 and (band == "minmax" or (band == "ci" and len(members) >= FEW))
        each = members if len(members) < FEW else [] if found.x.size else members[:MOST_LINES]
        return {
            "name": name, "count": len(members), "x": found.x.tolist(), "middle": found.middle.tolist(),
            "low": found.low.tolist() if has_band else None, "high": found.high.tolist() if has_band else None,
            "runs": [{"name": curve.run.name, "x": curve.x.tolist(), "y": curve.y.tolist()} for curve in each],
        }  # fmt: skip

    def _curve(self, run: RecordedRun, x: str, y: str) -> GrowingCurve:
        key = (run.directory.metrics, x, y)
        if (curve := self._known.pop(key, None)) is None:
            curve = GrowingCurve(*key, most=MOST_POINTS)
        self._known[key] = curve
        while len(self._known) > _MOST_RUNS:
            self._known.pop(next(iter(self._known)))
        return curve
