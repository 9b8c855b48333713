"""Running episode of each lane, held until it ends."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

FIRST_LENGTH = 64  # initial room for an episode, in steps


class OpenEpisodes:
    """Running episode of each lane; every lane has memory for the longest episode so far.

    Parameters
    ----------
    num_lanes
        N.
    step
        A step of every lane: arrays ``[N, ...]``, of which obs, action and reward are held.

    Attributes
    ----------
    lengths
        Steps of each lane's episode, int64 ``[N]``.
    """

    def __init__(self, num_lanes: int, step: Mapping[str, np.ndarray]) -> None:
        self._values = {
            name: np.zeros((num_lanes, FIRST_LENGTH, *step[name].shape[1:]), step[name].dtype)
            for name in ("obs", "action", "reward")
        }
        self.lengths = np.zeros(num_lanes, np.int64)

    def add(self, step: Mapping[str, np.ndarray], lanes: np.ndarray) -> None:
        """Add a copy of the last step of `lanes`, int64 ``[K]``."""
        if self.lengths.max() == self._values["reward"].shape[1]:
            for name, values in self._values.items():
                self._values[name] = np.concatenate([values, np.zeros_like(values)], axis=1)
        for name, values in self._values.items():
            values[lanes, self.lengths[lanes]] = step[name][lanes]
        self.lengths[lanes] += 1

    def rows(self, lane: int, begin: int = 0) -> dict[str, np.ndarray]:
        """Return the steps of a lane's episode from `begin` on, arrays ``[T, ...]`` valid until the next `add`."""
        return {name: values[lane, begin : self.lengths[lane]] for name, values in self._values.items()}

    def take(self, lane: int) -> dict[str, np.ndarray]:
        """Return a lane's episode, as `rows` does, and drop it."""
        episode = self.rows(lane)
        self.lengths[lane] = 0
        return episode
