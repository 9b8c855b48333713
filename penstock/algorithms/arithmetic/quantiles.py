"""Distributions of returns as quantiles: how they are learned, and how several of them are mixed and cut."""

from __future__ import annotations

import torch
from torch import Tensor

from penstock.algorithms.arithmetic.td import huber


def truncated_mixture(atoms: Tensor, num_dropped: int) -> Tensor:
    """All atoms of several distributions but the largest ones, in rising order (TQC, arXiv:2005.04269, section 3).

    Parameters
    ----------
    atoms : Tensor
        ``M`` atoms of each of ``C`` distributions, float32 ``[C, N, M]``.
    num_dropped : int
        How many of the ``C M`` atoms of each row are left out, less than ``C M``.

    Returns
    -------
    Tensor
        float32 ``[N, C M - num_dropped]``.
    """
    mixture = atoms.transpose(0, 1).flatten(1)
    return mixture.sort(-1).values[:, : mixture.shape[1] - num_dropped]


def quantile_huber(quantiles: Tensor, samples: Tensor) -> Tensor:
    """Distance of quantiles from samples of a distribution (QR-DQN, arXiv:1710.10044, equation 10, kappa 1).

        L     = mean_m mean_k |tau_m - 1{u < 0}| Huber(u),    u = y_k - theta_m
        tau_m = (2 m - 1) / (2 M)

    Parameters
    ----------
    quantiles : Tensor
        ``theta``: ``M`` quantiles of each row, float32 ``[..., N, M]``.
    samples : Tensor
        ``y``: ``K`` samples for each row, float32 ``[N, K]``.

    Returns
    -------
    Tensor
        float32 ``[..., N]``.
    """
    count = quantiles.shape[-1]
    tau = (torch.arange(count, device=quantiles.device) + 0.5) / count
    error = samples.unsqueeze(-2) - quantiles.unsqueeze(-1)
    weight = torch.where(error < 0.0, 1.0 - tau.unsqueeze(-1), tau.unsqueeze(-1))
    return (weight * huber(error)).mean((-1, -2))
