"""Book-keeping of true episode scores and of the numbers environments report about themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

SUCCESS = "is_success"
"""Key of an info: whether what the episode is for has been reached, as goal environments say."""


class EpisodeRecord(NamedTuple):
    """An episode that has finished, or a running one so far.

    Attributes
    ----------
    lane
        Its lane, counted from 0 in its `Lanes`.
    episode_return
        Undiscounted sum of its true rewards, neither scaled nor clipped.
    length
        Number of its steps.
    success
        ``info["is_success"]`` of its last step, from 0 to 1; None where the environment does not say.
    """

    lane: int
    episode_return: float
    length: int
    success: float | None = None


def outcome(returns: Sequence[float], seat: int) -> int:
    """Outcome of a game for one seat: 1 if its return exceeds all others, -1 if it is below one of them, else 0."""
    best = max(one for other, one in enumerate(returns) if other != seat)
    return int(returns[seat] > best) - int(returns[seat] < best)


class EpisodeBook:
    """Sums rewards and counts steps of the running episode of each lane."""

    def __init__(self, num_lanes: int) -> None:
        self._returns = np.zeros(num_lanes, np.float64)
        self._lengths = np.zeros(num_lanes, np.int64)
        self._finished: list[EpisodeRecord] = []

    @property
    def lengths(self) -> np.ndarray:
        """Steps of each lane's running episode so far, int64 ``[N]``; not to be written."""
        return self._lengths

    def running(self, lane: int) -> EpisodeRecord:
        """Return and length of a lane's running episode so far."""
        return EpisodeRecord(lane, float(self._returns[lane]), int(self._lengths[lane]))

    def restart(self) -> None:
        """Forget the running episodes."""
        self._returns.fill(0.0)
        self._lengths.fill(0)

    def add(self, reward: np.ndarray, valid: np.ndarray, ended: list[int]) -> None:
        """Add one step of every lane; those in ``ended`` finish with it.

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
        """Add to the return of a lane's running episode what belongs to none of its steps."""
        self._returns[lane] += reward

    def skip(self, lane: int) -> None:
        """Note that a lane had no part in a game that is over: its episode has no steps."""
        self._finished.append(EpisodeRecord(lane, 0.0, 0))

    def tell_success(self, lane: int, success: Any) -> None:
        """Note what the environment says of an episode that has just been added; what is not a number is passed over.

        Parameters
        ----------
        lane
            Its lane.
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
        """Return the finished episodes, and forget them."""
        finished, self._finished = self._finished, []
        return finished


class MetricMeans:
    """Means of the numbers in ``info["metrics"]``, which the lanes have found to be a mapping."""

    def __init__(self) -> None:
        self._sums: dict[str, float] = {}
        self._counts: dict[str, int] = {}

    def add(self, metrics: Mapping[str, Any]) -> None:
        """Add the metrics of one lane; what is not a number is passed over."""
        for name, value in metrics.items():
            if isinstance(value, (int, float, np.number, np.bool_)):
                self._add(name, float(value), 1)

    def add_batch(self, metrics: Mapping[str, Any]) -> None:
        """Add the metrics of a vector environment: one number per lane, masked by ``_name`` where some did not report.

        Gymnasium gives such an array the type of the first lane's number: report floats, or fractions are lost.
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
        """Return the means, and forget them."""
        means = {name: self._sums[name] / self._counts[name] for name in self._sums}
        self._sums, self._counts = {}, {}
        return means

    def _add(self, name: str, total: float, count: int) -> None:
        self._sums[name] = self._sums.get(name, 0.0) + total
        self._counts[name] = self._counts.get(name, 0) + count
