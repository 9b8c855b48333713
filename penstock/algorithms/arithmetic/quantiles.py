"""Distributions of returns as quantiles: losses, and truncated mixtures of several distributions."""

from __future__ import annotations

import torch
from torch import Tensor

from penstock.algorithms.arithmetic.td import huber


def truncated_mixture(atoms: Tensor, num_dropped: int) -> Tensor:
    """Atoms of several distributions without the largest, in rising order (TQC, arXiv:2005.04269, section 3).

    Parameters
    ----------
    atoms : Tensor
        ``M`` atoms of each of ``C`` distributions, float32 ``[C, N, M]``.
    num_dropped : int
        Number of atoms dropped from the ``C M`` of each row, less than ``C M``.

    Returns
    -------
    Tensor
        float32 ``[N, C M - num_dropped]``.
    """
    mixture = atoms.transpose(0, 1).flatten(1)
    return mixture.sort(-1).values[:, : mixture.shape[1] - num_dropped]


def quantile_huber(quantile: Tensor, fraction: Tensor, target: Tensor) -> Tensor:
    """Quantile Huber loss with threshold 1 (QR-DQN, arXiv:1710.10044, equation 10; IQN, arXiv:1806.06923, equation 3).

        sum_i mean_j |tau_i - 1{y_j < theta_i}| Huber(y_j - theta_i)

    Parameters
    ----------
    quantile : Tensor
        Quantiles ``theta`` of the model, float32 ``[B, N]``.
    fraction : Tensor
        Fractions ``tau`` of the quantiles, float32 ``[N]`` or ``[B, N]``.
    target : Tensor
        Samples ``y`` of the target's distribution, float32 ``[B, N']``.

    Returns
    -------
    Tensor
        float32 ``[B]``.
    """
    error = target.unsqueeze(-2) - quantile.unsqueeze(-1)
    weight = (fraction.unsqueeze(-1) - (error < 0.0).float()).abs()
    return (weight * huber(error)).mean(-1).sum(-1)


def quantile_huber_of_sorted(quantiles: Tensor, samples: Tensor) -> Tensor:
    """`quantile_huber` of quantiles at ``tau_m = (2 m - 1) / (2 M)`` from sorted samples, faster if there are many.

    Pairs of quantiles and samples are not enumerated. The samples at most 1 below a quantile, at most 1 above, and
    farther away are four stretches of the sorted samples. Of a stretch the loss needs the number of samples, their sum
    and the sum of their squares. These are differences of running sums, in float64.

    Parameters
    ----------
    quantiles : Tensor
        ``theta``: ``M`` quantiles of each of ``C`` distributions, float32 ``[C, N, M]``.
    samples : Tensor
        ``y``: ``K`` samples for each row, in rising order, float32 ``[N, K]``; no gradient flows to them.

    Returns
    -------
    Tensor
        float32 ``[C, N]``.
    """
    num_networks, _, count = quantiles.shape
    y = samples.detach().double()
    center = y.mean(1, keepdim=True)
    y = y - center  # against cancellation in the squares
    theta = quantiles.double().transpose(0, 1).flatten(1) - center
    tau = ((torch.arange(count, device=y.device) + 0.5) / count).repeat(num_networks)
    sums = torch.nn.functional.pad(torch.stack((torch.ones_like(y), y, y.square())).cumsum(-1), (1, 0))

    def below(bound: Tensor) -> Tensor:
        """Number, sum and sum of squares of the samples below each bound, ``[3, N, C M]``."""
        place = torch.searchsorted(y, bound.detach().contiguous())
        return sums.gather(2, place.expand(3, -1, -1))

    def near(stretch: Tensor) -> Tensor:
        """Sum of ``u^2 / 2`` over a stretch."""
        return 0.5 * (stretch[2] - 2.0 * theta * stretch[1] + theta.square() * stretch[0])

    far_below, all_below, not_far_above = below(theta - 1.0), below(theta), below(theta + 1.0)
    far_above = sums[..., -1:] - not_far_above
    under = far_below[0] * (theta - 0.5) - far_below[1] + near(all_below - far_below)
    over = far_above[1] - far_above[0] * (theta + 0.5) + near(not_far_above - all_below)
    loss = ((1.0 - tau) * under + tau * over) / y.shape[1]
    return loss.unflatten(1, (num_networks, count)).sum(2).T.float()
