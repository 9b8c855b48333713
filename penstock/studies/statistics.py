"""Statistics of few runs: aggregates, intervals, profiles, probability of improvement.

As recommended by Agarwal et al., "Deep Reinforcement Learning at the Edge of the Statistical Precipice"
(arXiv:2108.13264). Scores are a list of arrays, one per task: float64 ``[..., n]`` for its n runs. Tasks may have
different numbers of runs. Leading axes are resamples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

Scores = Sequence[np.ndarray]

RESAMPLES = 50_000
"""Number of resamples of an interval, as in the paper."""
CONFIDENCE = 0.95
_AT_A_TIME = 1_000


def interquartile_mean(scores: Scores) -> np.ndarray:
    """Return the mean of the middle half of all runs of all tasks; a quarter, rounded down, is cut off at either end.

    Source: arXiv:2108.13264, section 4.3.

    Returns
    -------
    numpy.ndarray
        float64 ``[...]``.
    """
    together = np.sort(np.concatenate(scores, axis=-1), axis=-1)
    count = together.shape[-1]
    cut = count // 4
    return together[..., cut : count - cut].mean(-1)


def optimality_gap(scores: Scores, optimum: float = 1.0) -> np.ndarray:
    """Return the mean distance of the runs from an optimum; scores beyond the optimum count as the optimum.

    Source: arXiv:2108.13264, section 4.3.
    """
    together = np.concatenate(scores, axis=-1)
    return optimum - np.minimum(together, optimum).mean(-1)


def performance_profile(scores: Scores, thresholds: np.ndarray) -> np.ndarray:
    """Return the share of runs above each threshold, averaged over tasks, float64 ``[..., T]``.

    Source: arXiv:2108.13264, equation 2: score distributions.

    Parameters
    ----------
    thresholds
        float64 ``[T]``.
    """
    shares = [(task[..., None] > thresholds).mean(-2) for task in scores]
    return np.mean(shares, axis=0)


def probability_of_improvement(ours: Scores, theirs: Scores) -> np.ndarray:
    """Return the probability that a run of `ours` scores above one of `theirs`, averaged over tasks; a tie counts half.

    Source: arXiv:2108.13264, equation 4: the Mann-Whitney U statistic over the number of pairs.

    Returns
    -------
    numpy.ndarray
        float64 ``[...]``.
    """
    pairs = [(a[..., :, None], b[..., None, :]) for a, b in zip(ours, theirs, strict=True)]
    return np.mean([((a > b) + 0.5 * (a == b)).mean((-2, -1)) for a, b in pairs], axis=0)


def interval(
    statistic: Callable[..., np.ndarray], *groups: Scores, resamples: int = RESAMPLES, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Return the percentile bootstrap interval of a statistic, stratified by task.

    Source: arXiv:2108.13264, section 4.1. The same scores give the same interval: draws are seeded.

    Parameters
    ----------
    statistic
        Function of one list of scores per group, with one leading axis.
    groups
        Scores, each float64 ``[n]``. Groups are drawn independently.
    resamples
        Number of resamples.
    seed
        Seed of the draws.

    Returns
    -------
    tuple
        Lower and upper end, of the statistic's shape.
    """
    draws = np.random.default_rng(seed)
    found = []
    for begin in range(0, resamples, _AT_A_TIME):
        count = min(_AT_A_TIME, resamples - begin)
        drawn = [[task[draws.integers(len(task), size=(count, len(task)))] for task in group] for group in groups]
        found.append(statistic(*drawn))
    tail = (1.0 - CONFIDENCE) / 2.0
    low, high = np.quantile(np.concatenate(found), (tail, 1.0 - tail), axis=0)
    return low, high


def first_reached(x: Iterable[float], y: Iterable[float], target: float) -> float | None:
    """Return the first x with y at or above the target, without interpolation; None if there is none."""
    return next((at for at, value in zip(x, y, strict=True) if value >= target), None)


def median_with_misses(values: Sequence[float | None]) -> float | None:
    """Return the median of values, where None is a miss, ranked above any number; None if half or more are misses."""
    ranked = sorted(np.inf if value is None else value for value in values)
    middle = float(np.mean(ranked[(len(ranked) - 1) // 2 : len(ranked) // 2 + 1]))
    return middle if np.isfinite(middle) else None
