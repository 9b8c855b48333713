"""Running mean and variance, part of the weights, so that every process normalises alike."""

import torch
from torch import Tensor, nn

VARIANCE_FLOOR = 1e-8


class RunningMoments(nn.Module):
    """Elementwise mean and variance of all rows seen so far.

    The moments are buffers and part of the weights; only the learner updates them. Before the first update they are 0
    and 1.

    Parameters
    ----------
    shape : tuple of int
        Shape of one row; ``()`` for scalars.
    prior_rows : float
        Weight of the initial 0 and 1, in rows; 0: the first update replaces them.

    Attributes
    ----------
    mean, var : Tensor
        Mean and population variance, float32 ``[*shape]``.
    std : Tensor
        Root of the variance (never below 1e-4), float32 ``[*shape]``; stored, because every action is normalised by
        it.
    count : Tensor
        Number of rows seen, float64 ``[]`` (float32 would stop counting at 16.8 million).
    """

    mean: Tensor
    var: Tensor
    std: Tensor
    count: Tensor

    def __init__(self, shape: tuple[int, ...], prior_rows: float = 0.0) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(shape))
        self.register_buffer("var", torch.ones(shape))
        self.register_buffer("std", torch.ones(shape))
        self.register_buffer("count", torch.tensor(prior_rows, dtype=torch.float64))

    @torch.no_grad()
    def update(self, x: Tensor, mask: Tensor | None = None) -> None:
        """Add rows to the moments, in place.

        Merges the batch's moments with the running ones, after Chan, Golub and LeVeque 1983
        (doi:10.1080/00031305.1983.10483115).

        Parameters
        ----------
        x : Tensor
            Rows, ``[..., *shape]``, any real dtype.
        mask : Tensor, optional
            Rows that count, bool ``[...]``; default: all. Without any, nothing changes.
        """
        rows = (x if mask is None else x[mask]).reshape(-1, *self.mean.shape)
        added = rows.shape[0]
        if added == 0:
            return
        var, mean = torch.var_mean(rows.float(), 0, correction=0)
        total = self.count + added
        shift = mean - self.mean
        spread = self.var * self.count + var * added + shift.square() * (self.count * added / total)
        self.mean.add_(shift * (added / total))
        self.var.copy_(spread / total)
        self.std.copy_(self.var.clamp(min=VARIANCE_FLOOR).sqrt_())
        self.count.copy_(total)

    def normalize(self, x: Tensor, clip: float = 10.0) -> Tensor:
        """Return ``(x - mean) / std``, clipped to ``[-clip, clip]``; float32, the shape of ``x``."""
        return ((x - self.mean) / self.std).clamp(-clip, clip)

    def denormalize(self, x: Tensor) -> Tensor:
        """Return ``x * std + mean``: the inverse of :meth:`normalize` without clipping."""
        return x * self.std + self.mean


class BoundedMoments(RunningMoments):
    """Moments by which no value seen is normalised beyond a bound, so that rare features are not amplified.

    A feature that is 1 in one row of a hundred, else 0, has a deviation of 0.1. Divided by that it would dominate its
    row. Here `std` is at least the largest distance from the mean divided by the bound.

    Parameters
    ----------
    shape : tuple of int
        Shape of one row; ``()`` for scalars.
    bound : float
        Largest normalised value, in deviations.

    Attributes
    ----------
    largest : Tensor
        Largest magnitude seen, float32 ``[*shape]``.
    """

    largest: Tensor

    def __init__(self, shape: tuple[int, ...], bound: float = 2.0) -> None:
        super().__init__(shape)
        self._bound = bound
        self.register_buffer("largest", torch.zeros(shape))

    @torch.no_grad()
    def update(self, x: Tensor, mask: Tensor | None = None) -> None:
        """Add rows to the moments, in place; parameters as for `RunningMoments.update`."""
        rows = (x if mask is None else x[mask]).reshape(-1, *self.mean.shape)
        if not len(rows):
            return
        super().update(rows)
        torch.maximum(self.largest, rows.float().abs().amax(0), out=self.largest)
        torch.maximum(self.std, (self.largest + self.mean.abs()) / self._bound, out=self.std)
