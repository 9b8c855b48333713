"""Choosing among candidates: which replayed segments are learned from, of those that were looked at."""

from __future__ import annotations

import math

import numpy as np


def num_candidates(count: int, multiplier: float, anneal: float, progress: float, size: int) -> int:
    """Number of candidates to examine in order to take `count` segments.

    The multiplier falls to 1 in a straight line while the learner is on the way to a fraction `anneal` of its steps,
    and stays there: everything that is looked at is taken then, which is uniform.

    Parameters
    ----------
    count
        Segments wanted.
    multiplier
        Where it starts.
    anneal
        Fraction of ``total_steps`` over which it falls; it may exceed 1.
    progress
        Fraction of ``total_steps`` that the learner has learned from. Updates go with steps, however often is drawn.
    size
        Segments that there are.
    """
    now = max(1.0, multiplier - (multiplier - 1.0) * progress / anneal)
    return min(size, max(count, math.floor(now * count)))


def choose(distance: np.ndarray, uses: np.ndarray, count: int, strategy: int) -> np.ndarray:
    """Choose among candidates by their distance and by how often they have been used.

    1. The nearest.
    2. One from each of `count` stretches of equal length, in the order of distance: its nearest.
    3. The least used; of these the nearest.
    4. The least used of each stretch; of these the nearest.

    (The strategies of elite experience replay, github.com/parralplex/elite_buffer_vtrace.)

    Parameters
    ----------
    distance
        Float ``[M]``; what is not finite counts as farthest.
    uses
        int64 ``[M]``.
    count
        How many to choose, at most M.
    strategy
        1 to 4.

    Returns
    -------
    ndarray
        int64 ``[count]``: positions among the candidates, each at most once.
    """
    order = np.argsort(np.nan_to_num(distance, nan=np.inf), kind="stable")
    if strategy == 1:
        return order[:count]
    if strategy == 2:
        return order[:: len(order) // count][:count]
    if strategy == 3:
        return order[np.argsort(uses[order], kind="stable")][:count]
    return np.array([stretch[np.argmin(uses[stretch])] for stretch in np.array_split(order, count)], np.int64)


class Uses:
    """Uses of the segment in each row of a store, counted from 1.

    Parameters
    ----------
    capacity
        Rows of the store.
    """

    def __init__(self, capacity: int) -> None:
        self._ids = np.full(capacity, -1, np.int64)
        self._counts = np.ones(capacity, np.int64)

    def of(self, rows: np.ndarray, ids: np.ndarray) -> np.ndarray:
        """Uses of the segments with these ids in these rows, int64 ``[n]``."""
        return np.where(self._ids[rows] == ids, self._counts[rows], 1)

    def add(self, rows: np.ndarray, ids: np.ndarray) -> None:
        """Count one use of each."""
        self._counts[rows] = self.of(rows, ids) + 1
        self._ids[rows] = ids
