"""Large batch experience replay: selection of the most important rows of a large batch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

VARIANTS = ("mean", "lazy", "max")


class LaBER:
    """Large batch experience replay (Lahire et al. 2022, arXiv:2110.01528).

    Sample ``M = m * batch_size`` rows uniformly, compute a priority for each with the current network (the paper's
    surrogate for its gradient norm; with a squared loss the absolute TD error), and let LaBER draw the ``batch_size``
    rows to learn from: with replacement, row i with probability ``P(i) = (p_i + eps) / sum_j (p_j + eps)``.
    Such priorities are never outdated, and the buffer needs no tree.

    Multiply each row's loss by its importance weight:

    - "mean": ``w_i = mean_j(P(j)) / P(i) = 1 / (M P(i))``. The weighted mini-batch gradient is an unbiased estimate of
      that of the whole large batch: the variant that the paper recommends.
    - "lazy": ``w_i = 1 / P(i)``. M times as large, equivalent to a larger learning rate.
    - "max": ``w_i = min_j(P(j)) / P(i)``, j over the mini-batch. The largest weight is 1, as in prioritized replay.

    Parameters
    ----------
    batch_size : int
        Rows to learn from.
    m : int
        Ratio of the large batch's size to `batch_size`.
    variant : {"mean", "lazy", "max"}
        Normalisation of weights.
    eps : float
        Added to every priority, so that none is zero.
    seed : int, optional
        Seed of the draw.

    Raises
    ------
    ValueError
        An argument is out of range.

    Examples
    --------
    >>> laber = LaBER(batch_size=64, m=4)
    >>> large = buffer.sample(256)
    >>> batch = laber(large, np.abs(td_error(large)))
    >>> loss = (batch["weights"] * td_error(batch) ** 2).mean()
    """

    def __init__(
        self, batch_size: int, m: int = 4, *, variant: str = "mean", eps: float = 1e-6, seed: int | None = None
    ) -> None:
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, found {batch_size}")
        if m < 1:
            raise ValueError(f"m must be at least 1, found {m}")
        if variant not in VARIANTS:
            raise ValueError(f"variant={variant!r} is unknown: use one of {', '.join(VARIANTS)}")
        if not 0 <= eps < math.inf:
            raise ValueError(f"eps must be finite and not negative, found {eps}")
        self.batch_size = batch_size
        self.m = m
        self.variant = variant
        self.eps = eps
        self._rng = np.random.default_rng(seed)

    def __call__(self, batch: Mapping[str, ArrayLike], priorities: ArrayLike) -> dict[str, NDArray[Any]]:
        """Draw the rows to learn from out of a large batch.

        Parameters
        ----------
        batch : mapping of str to array [m * batch_size, ...]
            Uniform sample.
        priorities : array [m * batch_size]
            Not negative.

        Returns
        -------
        dict of str to array [batch_size, ...]
            The drawn rows of every entry, ``"weights"`` (float32) and ``"indexes"`` (int64), the rows' positions in
            the large batch.

        Raises
        ------
        ValueError
            An array has a wrong length, the batch already has entries named weights or indexes, or a priority is NaN,
            infinite or negative.
        """
        if taken := {"weights", "indexes"} & set(batch):
            raise ValueError(
                f"the large batch has {sorted(taken)} already, which LaBER adds: sample it uniformly, or take them "
                "out of it and apply them yourself"
            )
        entries = {name: np.asarray(value) for name, value in batch.items()}
        size = self.m * self.batch_size
        for name, entry in entries.items():
            if entry.shape[:1] != (size,):
                raise ValueError(
                    f"batch[{name!r}] must have m * batch_size = {size} rows, found shape {list(entry.shape)}"
                )
        raised = self._raised(priorities)
        cumulative = np.cumsum(raised)
        # At most (1 - 2**-53) * total, which rounds to below the total; "right" skips rows of probability zero.
        masses = self._rng.random(self.batch_size) * cumulative[-1]
        indexes = np.searchsorted(cumulative, masses, side="right")
        weights = self._weights(raised / cumulative[-1], indexes)
        return {**{name: entry[indexes] for name, entry in entries.items()}, "weights": weights, "indexes": indexes}

    def _raised(self, priorities: ArrayLike) -> NDArray[np.float64]:
        """Check the priorities, add eps, and scale the largest to 1, so that no sum overflows."""
        p = np.asarray(priorities, dtype=np.float64)
        size = self.m * self.batch_size
        if p.shape != (size,):
            raise ValueError(f"priorities must have shape [m * batch_size] = [{size}], found {list(p.shape)}")
        if not np.all((p >= 0) & (p < np.inf)):
            first = int(np.argmin((p >= 0) & (p < np.inf)))
            raise ValueError(f"priorities[{first}] is {p[first]}: every priority must be finite and not negative")
        raised = p + self.eps
        if not raised.any():
            raise ValueError("all priorities are zero and so is eps: there is nothing to draw; use eps > 0")
        return raised / raised.max()

    def _weights(self, probabilities: NDArray[np.float64], indexes: NDArray[np.int64]) -> NDArray[np.float32]:
        weights = 1.0 / probabilities[indexes]
        if self.variant == "mean":
            weights /= len(probabilities)
        elif self.variant == "max":
            weights /= weights.max()
        return weights.astype(np.float32)
