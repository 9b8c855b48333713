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
        Atoms ``z`` in ascending order, 2 or more, float32 ``[M]``.

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
    lower = below.nan_to_num()  # NaN stays in the share, but cannot be an index
    projected = probability.new_zeros(len(probability), len(atoms))
    projected.scatter_add_(1, lower.long(), probability - share)
    return projected.scatter_add_(1, (lower + 1.0).long(), share)


def of_smaller_mean(probability: Tensor, atoms: Tensor) -> Tensor:
    """Return for each row the whole distribution of the critic with the smallest mean, float32 ``[B, M]``.

    This is clipped double Q-learning with distributions (arXiv:2604.04539); a minimum atom by atom would not be a
    distribution.

    Parameters
    ----------
    probability : Tensor
        Probabilities of the atoms by each critic, float32 ``[C, B, M]``.
    atoms : Tensor
        Returns, float32 ``[M]``.
    """
    found, *others = probability
    smallest, *means = (probability * atoms).sum(-1)  # a product would be rounded within autocast
    for one, mean in zip(others, means, strict=True):
        found = torch.where((mean >= smallest).unsqueeze(-1), found, one)
        smallest = torch.minimum(mean, smallest)
    return found


def gaussian_histogram(value: Tensor, atoms: Tensor, smoothing: float = 0.75) -> Tensor:
    """Return a normal distribution around each value as probabilities of evenly spaced atoms (arXiv:2403.03950, eq. 3).

    An atom has the probability of the bin around it, as wide as the atoms' spacing, divided by that of all bins:

        p_i = [Phi((z_i + dz/2 - v) / s) - Phi((z_i - dz/2 - v) / s)] / [Phi((z_{M-1} + dz/2 - v) / s) - ...]

    Values beyond the atoms count as the nearest atom.

    Parameters
    ----------
    value : Tensor
        Values ``v``, float32 ``[B]``.
    atoms : Tensor
        Atoms ``z`` in ascending order, 2 or more, float32 ``[M]``.
    smoothing : float
        Standard deviation ``s`` in units of the atoms' spacing ``dz``.

    Returns
    -------
    Tensor
        float32 ``[B, M]``.
    """
    spacing = (atoms[-1] - atoms[0]) / (len(atoms) - 1)
    edges = torch.cat((atoms - 0.5 * spacing, atoms[-1:] + 0.5 * spacing))
    value = value.clamp(atoms[0], atoms[-1]).unsqueeze(1)
    below = torch.special.ndtr((edges - value) / (smoothing * spacing))
    return below.diff(dim=1) / (below[:, -1:] - below[:, :1])


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
