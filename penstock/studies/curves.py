"""Curves of groups of runs: aligned, aggregated, with a band."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from penstock.runs.reading import RecordedRun
from penstock.studies.conditions import value_of
from penstock.studies.statistics import interquartile_mean, interval

POINTS = 200
"""Points of an aggregated curve."""
FEW = 5
"""Smallest number of runs for an interval."""
_MOST_KEYS, _MOST_LETTERS = 3, 64  # of the names of groups
_RESAMPLES = 2_000
_DENSE = 4 * POINTS


@dataclass(frozen=True)
class Curve:
    """One metric of a run over another.

    Attributes
    ----------
    run
        Run of the metrics.
    x, y
        float64 ``[n]``, x ascending.
    """

    run: RecordedRun
    x: np.ndarray
    y: np.ndarray


@dataclass(frozen=True)
class Band:
    """Aggregate of several curves over their common stretch.

    Attributes
    ----------
    x
        float64 ``[P]``, ascending.
    middle
        float64 ``[P]``: interquartile mean over the runs.
    low, high
        float64 ``[P]``: ends of the band.
    """

    x: np.ndarray
    middle: np.ndarray
    low: np.ndarray
    high: np.ndarray


def curves_of(runs: Sequence[RecordedRun], x: str, y: str) -> list[Curve]:
    """Return the curve of every run that has one, thinned by averaging."""
    points = [(run, *run.points(x, y)) for run in runs]
    return [Curve(run, *thinned(at, values)) for run, at, values in points if at.size]


def thinned(x: np.ndarray, y: np.ndarray, most: int = _DENSE) -> tuple[np.ndarray, np.ndarray]:
    """Return at most `most` points, means over stretches of equally many points."""
    if x.size <= most:
        return x, y
    ends = np.linspace(0, x.size, most + 1).astype(int)
    counts = np.diff(ends)
    return np.add.reduceat(x, ends[:-1]) / counts, np.add.reduceat(y, ends[:-1]) / counts


def aligned(curves: Sequence[Curve], points: int = POINTS) -> tuple[np.ndarray, np.ndarray]:
    """Interpolate curves at common places, from the latest start to the earliest end, without extrapolation.

    Returns
    -------
    tuple
        x, float64 ``[P]``, and y, float64 ``[curves, P]``; P is 0 without a common stretch.
    """
    begin, end = max(curve.x[0] for curve in curves), min(curve.x[-1] for curve in curves)
    if begin > end:
        return np.empty(0), np.empty((len(curves), 0))
    x = np.linspace(begin, end, points if end > begin else 1)
    return x, np.stack([np.interp(x, curve.x, curve.y) for curve in curves])


def band_of(curves: Sequence[Curve], kind: str) -> Band:
    """Aggregate several curves.

    Parameters
    ----------
    curves
        One curve or more.
    kind
        "ci": interval of the interquartile mean, by bootstrap over runs; "quartiles": the middle half of the runs;
        "minmax": from the lowest run to the highest.
    """
    x, y = aligned(curves)
    each = list(y.T)
    middle = interquartile_mean([y.T])
    if kind != "ci":
        low, high = np.quantile(y, (0.25, 0.75) if kind == "quartiles" else (0.0, 1.0), axis=0)
        return Band(x, middle, low, high)
    # All intervals use the same draws: runs are resampled, not points.
    ends = [interval(interquartile_mean, [values], resamples=_RESAMPLES) for values in each]
    low, high = np.array(ends).T if ends else (x, x)
    return Band(x, middle, low, high)


def has_band(kind: str, count: int) -> bool:
    """Return whether a curve of this many runs has a band of this kind, or of "none"; an interval needs `FEW` runs."""
    return kind != "none" and (kind != "ci" or count >= FEW)


def joined(
    tables: Sequence[tuple[np.ndarray, Sequence[np.ndarray]]], most: int
) -> tuple[np.ndarray, list[list[np.ndarray]]]:
    """Resample lines with different x at common places, so that many lines are drawn quickly.

    Parameters
    ----------
    tables
        x, float64 ``[n]``, ascending, and columns of y of each.
    most
        Largest number of places. Beyond it, lines are interpolated at this number of evenly spaced places.

    Returns
    -------
    tuple
        x, float64 ``[P]``, and the columns of each table, float64 ``[P]``, NaN where a line has no value.
    """
    places = np.unique(np.concatenate([np.empty(0), *(x for x, _ in tables)]))
    if places.size > most:
        places = np.linspace(places[0], places[-1], most)
        tables = [_interpolated(x, columns, places) for x, columns in tables if x.size]
    found = []
    for x, columns in tables:
        made = np.full((len(columns), places.size), np.nan)
        made[:, np.searchsorted(places, x)] = columns
        found.append(list(made))
    return places, found


def _interpolated(
    x: np.ndarray, columns: Sequence[np.ndarray], places: np.ndarray
) -> tuple[np.ndarray, list[np.ndarray]]:
    """Return columns interpolated at the places within the range of x; at the nearest place if there is none."""
    inside = places[(places >= x[0]) & (places <= x[-1])]
    if not inside.size:
        inside = places[[np.abs(places - x[0]).argmin()]]
    return inside, [np.interp(inside, x, column) for column in columns]


def panels_of(curves: Sequence[Curve], keys: Sequence[str]) -> dict[str, dict[str, list[Curve]]]:
    """Group curves by environment, and within it by columns or settings of their runs."""
    of_run = {id(curve.run): curve for curve in curves}
    panels: dict[str, dict[str, list[Curve]]] = {}
    for env, of_env in grouped([curve.run for curve in curves], ["env"]).items():
        for name, members in grouped(of_env, [key for key in keys if key != "env"]).items():
            panels.setdefault(env.removeprefix("env="), {})[name] = [of_run[id(run)] for run in members]
    return panels


def grouped(runs: Sequence[RecordedRun], keys: Sequence[str]) -> dict[str, list[RecordedRun]]:
    """Group runs by their values of columns or settings; return the groups by name.

    A name lists the values of the keys; with many keys, the algorithm and the values that differ from the most common
    ones. If such names are too long, groups are named after their first run.
    """
    found: dict[tuple[str, ...], list[RecordedRun]] = {}
    for run in runs:
        own = (str(value_of(run, key)) if key == "algorithm" else f"{key}={value_of(run, key)}" for key in keys)
        found.setdefault(tuple(own), []).append(run)
    usual = [Counter(words).most_common(1)[0][0] for words in zip(*found, strict=True)]
    is_short = len(keys) <= _MOST_KEYS
    names = []
    for words in found:
        shown = (word for key, word, often in zip(keys, words, usual, strict=True)
                 if is_short or key == "algorithm" or word != often)  # fmt: skip
        names.append(", ".join(shown) if keys else "all")
    if not all(0 < len(name) <= _MOST_LETTERS for name in names):
        names = [each[0].name + (f" and {len(each) - 1} more" if each[1:] else "") for each in found.values()]
    return dict(sorted(zip(names, found.values(), strict=True)))
