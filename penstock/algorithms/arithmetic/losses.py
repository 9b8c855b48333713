"""Terms of the losses of policy-gradient algorithms."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from penstock.algorithms.arithmetic.returns import LOG_RATIO_LIMIT


def mean_over(mask: Tensor) -> Callable[[Tensor], Tensor]:
    """Return `masked_mean` for a fixed mask, which is summed only once."""
    count = mask.sum().clamp(min=1.0)
    return lambda x: (x * mask).sum() / count


def masked_mean(x: Tensor, mask: Tensor) -> Tensor:
    """Mean of `x` where `mask` (float, 0 or 1) is 1; 0 if there is none."""
    return mean_over(mask)(x)


def masked_sum(x: Tensor, mask: Tensor) -> Tensor:
    """Sum of `x` where `mask` (float, 0 or 1) is 1."""
    return (x * mask).sum()


REDUCTIONS = {"sum": masked_sum, "mean": masked_mean}


def normalize_advantage(advantage: Tensor, mask: Tensor) -> Tensor:
    """Shift and scale `advantage` to mean 0 and standard deviation 1 over the steps of `mask`."""
    mean = mean_over(mask)
    centred = advantage - mean(advantage)
    return centred / mean(centred.square()).sqrt().clamp(min=1e-7)


def log_importance_ratio(log_prob: Tensor, behaviour_log_prob: Tensor) -> Tensor:
    """``log pi(a) - log mu(a)`` per step, kept within [-20, 20] so that its exponential and gradient stay finite."""
    return (log_prob - behaviour_log_prob).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)


def clipped_surrogate(ratio: Tensor, advantage: Tensor, low: float, high: float) -> Tensor:
    """PPO's objective per step, ``min(ratio * A, clip(ratio, low, high) * A)`` (arXiv:1707.06347, equation 7)."""
    return torch.minimum(ratio * advantage, ratio.clamp(low, high) * advantage)


def clip_fraction(ratio: Tensor, mask: Tensor, low: float, high: float) -> Tensor:
    """Share of the steps of `mask` whose ratio lies outside [low, high]."""
    return masked_mean(((ratio < low) | (ratio > high)).float(), mask)


def value_error(value: Tensor, target: Tensor, old_value: Tensor | None = None, clip: float | None = None) -> Tensor:
    """Squared error per step, ``max((V - R)^2, (V_old + clip(V - V_old, -clip, clip) - R)^2)``, times one half."""
    error = (value - target).square()
    if clip is not None and old_value is not None:
        near = old_value + (value - old_value).clamp(-clip, clip)
        error = torch.maximum(error, (near - target).square())
    return 0.5 * error


def approximate_kl(log_ratio: Tensor) -> Tensor:
    """Low-variance, non-negative estimate of KL(mu || pi) per step: ``(ratio - 1) - log ratio``."""
    return log_ratio.exp() - 1.0 - log_ratio


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
        0-dimensional: 1 if all steps count alike, 1/n if one outweighs all others, 0 without a step.
    """
    weight = log_ratio.exp() * learn
    return weight.sum().square() / ((learn > 0).sum() * weight.square().sum()).clamp(min=1e-30)
