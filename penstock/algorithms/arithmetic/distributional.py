"""Distributional Q-learning: projections and distances of distributions of returns.

Pure functions of a batch; `td.td_target` computes targets, atom by atom or quantile by quantile.
"""

from __future__ import annotations

import torch
from torch import Tensor


def categorical_projection(returns: Tensor, probability: Tensor, atoms: Tensor) -> Tensor:
    """Project a distribution onto evenly spaced atoms (C51, arXiv:1707.06887, equation 7).

    Each return's probability is divided between the two nearest atoms, in proportion to their distances:

        (Phi p)_i = sum_j [ 1 - |clip(x_j, z_0, z_{M-1}) - z_i| / dz ]_0^1  p_j

    Without clipping, the mean is preserved.

    Parameters
    ----------
    returns : Tensor
        Returns ``x``, float32 ``[B, N]``.
    probability : Tensor
        Probability ``p`` of each return, float32 ``[B, N]``.
    atoms : Tensor
        Atoms ``z`` in rising order, 2 or more, float32 ``[M]``.

    Returns
    -------
    Tensor
        Probabilities of the atoms, float32 ``[B, M]``.
    """
    last = len(atoms) - 1
    spacing = (atoms[-1] - atoms[0]) / last
    position = ((returns - atoms[0]) / spacing).clamp(0, last)
    # The lower neighbour of the last atom is the one before it, so that every return has two neighbours.
    below = position.floor().clamp_(max=last - 1)
    share = probability * (position - below)
    lower = below.long()
    projected = probability.new_zeros(len(probability), len(atoms))
    return projected.scatter_add_(1, lower, probability - share).scatter_add_(1, lower + 1, share)


def categorical_kl(target: Tensor, log_probability: Tensor) -> Tensor:
    """Kullback-Leibler divergence ``sum_i m_i (log m_i - log p_i)``: Rainbow's loss and priority (arXiv:1710.02298).

    Its gradient is that of the cross-entropy (arXiv:1707.06887, algorithm 1); it is 0 for equal distributions.

    Parameters
    ----------
    target : Tensor
        Probabilities ``m``, float32 ``[..., M]``.
    log_probability : Tensor
        ``log p`` of the model, float32 ``[..., M]``.

    Returns
    -------
    Tensor
        float32 ``[...]``.
    """
    return (torch.special.xlogy(target, target) - target * log_probability).sum(-1)
