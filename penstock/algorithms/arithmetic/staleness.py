"""Measures of and corrections for experience of earlier policies, by probability ratios ``r = pi(a) / mu(a)``."""

from __future__ import annotations

import torch
from torch import Tensor

from penstock.algorithms.arithmetic.losses import log_importance_ratio


@torch.no_grad()
def truncated_weight(log_prob: Tensor, behaviour_log_prob: Tensor, bound: float) -> Tensor:
    """Importance weight ``min(pi(a) / mu(a), bound)`` of each step; without gradient."""
    return log_importance_ratio(log_prob, behaviour_log_prob).exp().clamp(max=bound)


@torch.no_grad()
def effective_samples(log_ratio: Tensor, learn: Tensor) -> Tensor:
    """Effective sample size as a share of the steps, ``(sum w r)^2 / (n sum (w r)^2)`` (Kong 1992).

    Parameters
    ----------
    log_ratio
        Logarithms of the ratios, floating, of any shape.
    learn
        Weights ``w`` of the steps in the loss, of the same shape; n of them are not 0.

    Returns
    -------
    Tensor
        0-dimensional: 1 where all steps count alike, 1/n where one outweighs all others; 0 without a step.
    """
    weight = log_ratio.exp() * learn
    return weight.sum().square() / ((learn > 0).sum() * weight.square().sum()).clamp(min=1e-30)


@torch.no_grad()
def trusted_steps(log_ratio: Tensor, learn: Tensor, share: float) -> Tensor:
    """Drop the steps of largest ``|log r|`` until the rest's effective sample size is `share` of the rest.

    Parameters
    ----------
    log_ratio, learn
        As for :func:`effective_samples`.
    share
        Share to reach, at most 1. A single step has 1, so one is always left.

    Returns
    -------
    Tensor
        `learn` with 0 at each step dropped.
    """
    distance = log_ratio.abs().masked_fill(learn <= 0, torch.inf).flatten()
    order = distance.argsort(stable=True)
    weight = (log_ratio.exp() * learn).flatten()[order].double()
    number = torch.arange(1, len(order) + 1, device=order.device)
    effective = weight.cumsum(0).square() / (number * weight.square().cumsum(0)).clamp(min=1e-30)
    most = torch.where((effective >= share) & (distance[order] < torch.inf), number, 0).max()
    is_kept = torch.zeros_like(distance).scatter(0, order, (number <= most).to(distance.dtype))
    return learn * is_kept.view_as(learn)
