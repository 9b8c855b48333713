"""Records of true episode scores and of the metrics that environments report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

SUCCESS = "is_success"
"""Key of an info with the success of a goal environment."""


class EpisodeRecord(NamedTuple):
    """Finished episode, or the running one so far.

    Attributes
    ----------
    lane
        Lane, counted from 0 in its `Lanes`.
    episode_return
        Undiscounted sum of true rewards, neither scaled nor clipped.
    length
        Number of steps.
    success
        ``info["is_success"]`` of the last step, from 0 to 1; None if not reported.
    """

    lane: int
    episode_return: float
    length: int
    success: float | None = None


def outcome(returns: Sequence[float], seat: int) -> int:
    """Return a game's outcome for one seat: 1 if its return exceeds all others, -1 if one exceeds it, else 0."""
    best = max(one for other, one in enumerate(returns) if other != seat)
    return int(returns[seat] > best) - int(returns[seat] < best)


class EpisodeBook:
    """Return and length of each lane's running episode, and finished episodes."""

    def __init__(self, num_lanes: int) -> None:
        self._returns = np.zeros(num_lanes, np.float64)
        self._lengths = np.zeros(num_lanes, np.int64)
        self._finished: list[EpisodeRecord] = []

    @property
    def lengths(self) -> np.ndarray:
        """Steps of each lane's running episode, int64 ``[N]``; read-only."""
        return self._lengths

    def running(self, lane: int) -> EpisodeRecord:
        """Return the record so far of a lane's running episode."""
        return EpisodeRecord(lane, float(self._returns[lane]), int(self._lengths[lane]))

    def restart(self) -> None:
        """Forget the running episodes."""
        self._returns.fill(0.0)
        self._lengths.fill(0)

    def add(self, reward: np.ndarray, valid: np.ndarray, ended: list[int]) -> None:
        """Add one step of every lane; the episodes of lanes in ``ended`` finish with it.

        Parameters
        ----------
        reward
            float64 ``[N]``, 0 where not valid.
        valid
            bool ``[N]``.
        ended
            Lanes whose episode is over.
        """
        self._returns += reward
        self._lengths += valid
        for lane in ended:
            self._finished.append(EpisodeRecord(lane, float(self._returns[lane]), int(self._lengths[lane])))
            self._returns[lane] = 0.0
            self._lengths[lane] = 0

    def grant(self, lane: int, reward: float) -> None:
        """Add a reward that belongs to no step to a lane's running episode."""
        self._returns[lane] += reward

    def skip(self, lane: int) -> None:
        """Record an episode without steps for a lane that had no part in a game."""
        self._finished.append(EpisodeRecord(lane, 0.0, 0))

    def add_success(self, lane: int, success: Any) -> None:
        """Record the success of an episode that has just been added; a value that is not a number is ignored.

        Parameters
        ----------
        lane
            Lane of the episode.
        success
            ``info["is_success"]``: a number or an array of one.
        """
        number = np.asarray(success)
        if number.size != 1 or number.dtype.kind not in "biuf":
            return
        for index in reversed(range(len(self._finished))):
            if self._finished[index].lane == lane:
                self._finished[index] = self._finished[index]._replace(success=float(number.item()))
                return

    def take(self) -> list[EpisodeRecord]:
        """Return and forget the finished episodes."""
        finished, self._finished = self._finished, []
        return finished


class MetricMeans:
    """Means of the numbers in ``info["metrics"]``, already checked to be a mapping."""

    def __init__(self) -> None:
        self._sums: dict[str, float] = {}
        self._counts: dict[str, int] = {}

    def add(self, metrics: Mapping[str, Any]) -> None:
        """Add one lane's metrics; values that are not numbers are ignored."""
        for name, value in metrics.items():
            if isinstance(value, (int, float, np.number, np.bool_)):
                self._add(name, float(value), 1)

    def add_batch(self, metrics: Mapping[str, Any]) -> None:
        """Add the metrics of a vector environment: one per lane, masked by ``_name`` where a lane did not report.

        Gymnasium gives such an array the type of the first lane's number: environments should report floats.
        """
        for name, values in metrics.items():
            array = np.asarray(values)
            is_mask = name.startswith("_") and name[1:] in metrics
            if is_mask or array.ndim > 1 or array.dtype.kind not in "biuf":
                continue
            reported = array.ravel()[metrics.get(f"_{name}", ...)]
            if reported.size:
                self._add(name, float(reported.sum(dtype=np.float64)), reported.size)

    def take(self) -> dict[str, float]:
        """Return and forget the means."""
        means = {name: self._sums[name] / self._counts[name] for name in self._sums}
        self._sums, self._counts = {}, {}
        return means

    def _add(self, name: str, total: float, count: int) -> None:
        self._sums[name] = self._sums.get(name, 0.0) + total
        self._counts[name] = self._counts.get(name, 0) + count
