"""Reverse experience replay: batches that go backwards in time."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock._native import ReplayCore


class ReverseCursor:
    """Position of a reader in reverse experience replay (Rotinov 2019, arXiv:1910.08780).

    Parameters
    ----------
    core : ReplayCore
        Core of a buffer whose rows are in order.
    stride : int
        Distance between successive rows of a batch.

    Attributes
    ----------
    next : int
        Id of the first row of the next batch, if it is still within reach.
    """

    def __init__(self, core: ReplayCore, stride: int) -> None:
        self._core = core
        self._stride = stride
        self._epoch, self._oldest_seen = core.epoch, 0
        self.next = -1

    def sample(self, batch_size: int, out: dict[str, NDArray[Any]] | None) -> dict[str, NDArray[Any]] | None:
        """Read rows ``t, t - stride, ...``, wrapping from the oldest to the newest; None from an empty buffer."""
        if batch_size < 1:
            raise ValueError(f"batch_size={batch_size} is not legal: give 1 or more")
        oldest, end = self._oldest(), self._core.num_claimed
        if end <= oldest:
            return None
        if not max(oldest - 1, end - 1 - 2 * self._stride) < self.next < end:
            self.next = end - 1
        ids = self._walk(batch_size, oldest, end)
        batch, unread = self._core.gather(ids % self._core.capacity, ids, out)
        if len(unread):
            return self._skipping(batch_size, end, out)
        self.next -= 1
        return batch

    def _oldest(self) -> int:
        """Return the id of the oldest row that may be readable: rows never get lost frames back."""
        if self._core.epoch != self._epoch:
            self._epoch, self._oldest_seen = self._core.epoch, 0
        return max(self._core.oldest, self._oldest_seen)

    def _walk(self, batch_size: int, oldest: int, end: int) -> NDArray[np.int64]:
        return oldest + (self.next - oldest - self._stride * np.arange(batch_size)) % (end - oldest)

    def _skipping(
        self, batch_size: int, end: int, out: dict[str, NDArray[Any]] | None
    ) -> dict[str, NDArray[Any]] | None:
        """Walk over the readable rows, replacing each unreadable one by the row before it."""
        while True:
            rows, live, _ = self._core.live(with_frames=True)
            if not len(live):
                return None
            self._oldest_seen = int(live[0])
            ids = self._walk(batch_size, self._oldest_seen, max(end, self._oldest_seen + 1))
            chosen = np.searchsorted(live, ids, side="right") - 1
            batch, unread = self._core.gather(rows[chosen], live[chosen], out)
            if not len(unread):  # otherwise overwritten since the search
                self.next -= 1
                return batch
