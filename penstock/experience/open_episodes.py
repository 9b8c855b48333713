"""The running episode of each lane, held until it is over."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

FIRST_LENGTH = 64  # steps that an episode has room for before any has been longer


class OpenEpisodes:
    """The running episode of each lane, as far as it has come. Memory is for the longest so far, times the lanes.

    Parameters
    ----------
    num_lanes
        N.
    step
        One step of every lane: arrays ``[N, ...]``, of which obs, action and reward are kept.

    Attributes
    ----------
    lengths
        Steps of each lane's episode so far, int64 ``[N]``.
    """

    def __init__(self, num_lanes: int, step: Mapping[str, np.ndarray]) -> None:
        self._values = {
            name: np.zeros((num_lanes, FIRST_LENGTH, *step[name].shape[1:]), step[name].dtype)
            for name in ("obs", "action", "reward")
        }
        self.lengths = np.zeros(num_lanes, np.int64)

    def add(self, step: Mapping[str, np.ndarray], lanes: np.ndarray) -> None:
        """Add the last step of some lanes, int64 ``[K]``; everything is copied."""
        if self.lengths.max() == self._values["reward"].shape[1]:
            for name, values in self._values.items():
                self._values[name] = np.concatenate([values, np.zeros_like(values)], axis=1)
        for name, values in self._values.items():
            values[lanes, self.lengths[lanes]] = step[name][lanes]
        self.lengths[lanes] += 1

    def rows(self, lane: int, begin: int = 0) -> dict[str, np.ndarray]:
        """Return the steps of a lane's episode from `begin` on, arrays ``[T, ...]`` that hold until the next `add`."""
        return {name: values[lane, begin : self.lengths[lane]] for name, values in self._values.items()}

    def take(self, lane: int) -> dict[str, np.ndarray]:
        """Return a lane's episode, as `rows` does; it is over."""
        episode = self.rows(lane)
        self.lengths[lane] = 0
        return episode
