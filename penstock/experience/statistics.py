"""Running statistics of environments' wrappers, shared by the rollout workers of a run in its arena."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from penstock.envs.statistics import Moments, RunningStatistics, merge, moments_nbytes
from penstock.ipc import WeightsBlock


class SharedStatistics:
    """Moments of each rollout worker and at the start, which are merged into the statistics of the run.

    Each block is written only by its worker, so that none waits for another, and a dead worker's moments remain.

    Parameters
    ----------
    blocks
        Block of each worker, and one of the moments at the start.
    sizes
        Numbers in the mean of each wrapper's moments.
    """

    def __init__(self, blocks: Sequence[WeightsBlock], sizes: Sequence[int]) -> None:
        *self._workers, self._before = blocks
        ends = np.cumsum([nbytes // 8 for nbytes in map(moments_nbytes, sizes)])
        self._parts = [slice(end - (1 + 2 * size), end) for end, size in zip(ends.tolist(), sizes, strict=True)]
        self._size = int(ends[-1])

    def begin(self, statistics: Sequence[Moments]) -> None:
        """Set the moments at the start; called by the supervisor's process before there are workers."""
        self._before.publish(np.concatenate([each.flat() for each in statistics]), 0)

    def publish(self, worker: int, statistics: RunningStatistics) -> None:
        """Publish a worker's moments."""
        self._workers[worker].publish(np.concatenate([each.own for each in statistics.moments]), 0)

    def own(self, worker: int) -> list[np.ndarray] | None:
        """Return a worker's moments, flat, by wrapper; None before it has published any."""
        return self._split(self._read(self._workers[worker]))

    def others(self, before: Sequence[Moments], worker: int | None = None) -> list[np.ndarray]:
        """Return all moments but a worker's own, flat, by wrapper; `before` stands in if `begin` was not called."""
        found = self._split(self._read(self._before)) or [each.flat() for each in before]
        for number, block in enumerate(self._workers):
            more = None if number == worker else self._split(self._read(block))
            for into, other in zip(found, more or (), strict=False):
                merge(into, other)
        return found

    def _read(self, block: WeightsBlock) -> np.ndarray | None:
        flat = np.empty(self._size, np.float64)
        return flat if block.read_into(flat.view(np.uint8)) >= 0 else None

    def _split(self, flat: np.ndarray | None) -> list[np.ndarray] | None:
        return None if flat is None else [flat[part].copy() for part in self._parts]


class WorkerStatistics:
    """A rollout worker's end of the statistics, which all of its groups share.

    Parameters
    ----------
    shared
        Shared statistics of the run; None: they stay in this worker.
    worker
        Number of the worker.

    Attributes
    ----------
    held
        Statistics of the environments; None: they have none.
    """

    def __init__(self, shared: SharedStatistics | None, worker: int) -> None:
        self._shared, self._worker = shared, worker
        self.held: RunningStatistics | None = None

    def take_in(self, statistics: RunningStatistics) -> None:
        """Connect a group's environments, which are not reset yet, with the statistics of the run."""
        if not statistics:
            return
        if self.held is not None:
            statistics.share(self.held)
            return
        self.held = statistics
        own = None if self._shared is None else self._shared.own(self._worker)
        for moments, seen in zip(statistics.moments, own or (), strict=False):
            moments.own[:] = seen
        self._merge_others()

    def exchange(self) -> None:
        """Publish this worker's moments, and merge those of the others."""
        assert self.held is not None
        if self._shared is not None:
            self._shared.publish(self._worker, self.held)
            self._merge_others()

    def _merge_others(self) -> None:
        assert self.held is not None
        if self._shared is not None:
            starts = [moments.start for moments in self.held.moments]
            for moments, others in zip(self.held.moments, self._shared.others(starts, self._worker), strict=True):
                moments.begin_from(others)


class RunStatistics:
    """The supervisor's end of the statistics.

    Parameters
    ----------
    found
        Moments of a new environment.
    shared
        Shared statistics of the run; None: there are none.
    """

    def __init__(self, found: Sequence[Moments] = (), shared: SharedStatistics | None = None) -> None:
        self._found, self._shared = found, shared

    def begin(self, saved: Sequence[Moments] | None) -> str | None:
        """Begin with a checkpoint's moments, None for a new run; return a text for the user if they do not fit."""
        fits = saved is not None and [each.kind for each in saved] == [each.kind for each in self._found]
        if self._shared is not None:
            self._shared.begin(saved if saved is not None and fits else self._found)
        if saved is None or fits:
            return None
        names, held = (", ".join(each.name for each in of) or "none" for of in (self._found, saved))
        return (
            f"warning: running statistics begin anew: the environment has those of {names}, and the checkpoint holds "
            f"those of {held}"
        )

    def now(self) -> tuple[Moments, ...]:
        """Return the moments of the run."""
        flat = [] if self._shared is None else self._shared.others(self._found)
        return tuple(
            Moments(found.name, float(one[0]), *_mean_and_var(one, found.mean.shape))
            for found, one in zip(self._found, flat, strict=False)
        )


def _mean_and_var(flat: np.ndarray, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    size = len(flat) // 2
    return flat[1 : 1 + size].reshape(shape), (flat[1 + size :] / flat[0]).reshape(shape)
