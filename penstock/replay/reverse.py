"""Reverse experience replay: batches that walk backwards in time."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock._native import ReplayCore


class ReverseCursor:
    """Position of a reader of reverse experience replay (Rotinov 2019, arXiv:1910.08780).

    Parameters
    ----------
    core : ReplayCore
        Of a buffer whose rows lie in order.
    stride : int
        Rows between two of one batch.

    Attributes
    ----------
    next : int
        Id of the row that the next batch begins with, if it is still within reach.
    """

    def __init__(self, core: ReplayCore, stride: int) -> None:
        self._core = core
        self._stride = stride
        self.next = -1

    def sample(self, batch_size: int, out: dict[str, NDArray[Any]] | None) -> dict[str, NDArray[Any]] | None:
        """Rows ``t, t - stride, ...``; beyond the oldest it goes on from the newest. None from an empty buffer."""
        if batch_size < 1:
            raise ValueError(f"batch_size={batch_size} is not legal: give 1 or more")
        oldest, end = self._core.oldest, self._core.num_claimed
        if end == oldest:
            return None
        if not max(oldest - 1, end - 1 - 2 * self._stride) < self.next < end:
            self.next = end - 1
        ids = oldest + (self.next - oldest - self._stride * np.arange(batch_size)) % (end - oldest)
        self.next -= 1
        batch, unread = self._core.gather(ids % self._core.capacity, ids, out)
        return batch if not len(unread) else self._skipping(ids, out)

    def _skipping(self, ids: NDArray[np.int64], out: dict[str, NDArray[Any]] | None) -> dict[str, NDArray[Any]] | None:
        """The same rows, each that cannot be read replaced by the one before it."""
        rows, live, _ = self._core.live()
        if not len(live):
            return None
        chosen = np.maximum(np.searchsorted(live, ids, side="right") - 1, 0)
        batch, unread = self._core.gather(rows[chosen], live[chosen], out)
        return batch if not len(unread) else self._skipping(ids, out)
