"""cpprb's buffers with priorities."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from penstock.replay import NotReady, Prioritized
from penstock.replay.cpprb.buffers import EMPTY, Batch, EnvDict, ReplayBuffer, with_column


class WithPriorities(ReplayBuffer):
    """Methods of prioritized buffers: priorities with rows, weights and indexes with batches, updates by index."""

    _alpha: float
    _eps: float
    _ignores_overwritten: bool
    _sampled_at = 0  # next id when the last batch was drawn

    def add(self, *, priorities: ArrayLike | None = None, **steps: Any) -> int | None:
        """Add one step or several successive ones.

        Parameters
        ----------
        priorities : array of k, optional
            Default: the largest priority so far, initially 1.0. An n-step row gets that of its first step.
        **steps
            As for a uniform buffer.

        Returns
        -------
        int or None
            Index of the first row stored, or None if none is complete yet.
        """
        steps["priorities"] = priorities
        row = self._writer.add(steps)
        return row if row is None else row % self._size

    def sample(self, batch_size: int, beta: float = 0.4) -> Batch:
        """Draw rows in proportion to ``(priority + eps) ** alpha``.

        Parameters
        ----------
        batch_size : int
        beta : float
            Exponent of the importance weights: 0 none, 1 full correction.

        Returns
        -------
        dict of array
            Every field, ``"weights"`` (float32, ``[B]``, divided by the largest weight of any row of the buffer) and
            ``"indexes"`` (uint64, ``[B]``).

        Raises
        ------
        NotReady
            The buffer is empty.
        """
        # Read before the draw: a row written in between counts as overwritten, which costs it at most one update.
        self._sampled_at = self._core.num_claimed
        batch = self._core.sample(batch_size, beta, None, True)
        if batch is None:
            raise NotReady(EMPTY)
        return with_column(batch) if self._is_nstep else batch

    def update_priorities(self, indexes: ArrayLike, priorities: ArrayLike) -> None:
        """Set the priorities of rows.

        In buffers with ``check_for_update`` and multi-process ones, rows written since this process's last ``sample()``
        keep their priority.

        Raises
        ------
        TypeError
            An argument is None.
        IndexError
            An index is outside the buffer.
        ValueError
            The lengths differ, or a priority is NaN, infinite or negative.
        """
        if indexes is None or priorities is None:
            raise TypeError("indexes and priorities must be arrays, found None")
        rows, values = np.reshape(indexes, -1), np.reshape(priorities, -1)
        if self._ignores_overwritten:
            self._core.update_positions(rows, values, self._sampled_at)
        else:
            self._core.update_positions(rows, values)

    def get_max_priority(self) -> float:
        """Return the largest priority so far, at least 1.0."""
        return float(self._storage.max_priority)

    def clear(self) -> None:
        """Remove all rows and priorities."""
        super().clear()
        self._sampled_at = self._core.num_claimed

    def _sampler(self) -> Prioritized:
        return Prioritized(alpha=self._alpha, eps=self._eps, normalize="buffer")


class PrioritizedReplayBuffer(WithPriorities):
    """Prioritized experience replay (Schaul et al. 2016, arXiv:1511.05952), proportional variant.

    Parameters
    ----------
    size, env_dict, **options
        As for ``ReplayBuffer``.
    alpha : float
        Exponent of the priorities.
    eps : float
        Added to every priority, so that every row can be sampled.
    check_for_update : bool
        Whether ``update_priorities`` skips rows overwritten since the last ``sample()``.
    """

    def __init__(
        self, size: float, env_dict: EnvDict | None = None, *, alpha: float = 0.6, eps: float = 1e-4,
        check_for_update: bool = False, **options: Any,
    ) -> None:  # fmt: skip
        self._alpha, self._eps, self._ignores_overwritten = float(alpha), float(eps), check_for_update
        super().__init__(size, env_dict, **options)


def create_buffer(
    size: float, env_dict: EnvDict | None = None, *, prioritized: bool = False, **options: Any
) -> ReplayBuffer | PrioritizedReplayBuffer:
    """Return a prioritized or a uniform buffer, with the options of its class."""
    return (PrioritizedReplayBuffer if prioritized else ReplayBuffer)(size, env_dict, **options)
