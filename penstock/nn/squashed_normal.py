"""Actions of a squashed normal policy on a CPU, with their log-densities, in one call of the native core.

Torch needs some twenty calls forward and backward, each of which costs more than its arithmetic.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from penstock._native import sample_squashed, squashed_gradient


def sample(outputs: Tensor, noise: Tensor, log_std_range: tuple[float, float]) -> tuple[Tensor, Tensor]:
    """Draw actions; see `penstock.nn.TanhGaussian.sample_with_log_prob`.

    Parameters
    ----------
    outputs : Tensor
        Means, then raw standard deviations, ``[..., 2 d]``; like the noise, accepted by `is_native`.
    noise : Tensor
        Standard normal, float32 ``[..., d]``.
    log_std_range : tuple of float
        Bounds of the standard deviation's logarithm.

    Returns
    -------
    action, log_prob : Tensor
        float32 ``[..., d]`` and ``[...]``, with gradient.
    """
    low, high = log_std_range
    shape = 0.5 * (low + high), 0.5 * (high - low)
    outputs, noise = outputs.contiguous(), noise.contiguous()
    if torch.is_grad_enabled() and outputs.requires_grad:
        answer: tuple[Tensor, Tensor] = _Drawn.apply(outputs, noise, *shape)
        return answer
    return _draw(outputs, noise, *shape)


def _draw(outputs: Tensor, noise: Tensor, centre: float, reach: float) -> tuple[Tensor, Tensor]:
    action, log_prob, d = torch.empty_like(noise), torch.empty(noise.shape[:-1]), noise.shape[-1]
    sample_squashed(
        outputs.data_ptr(), log_prob.numel(), d, centre, reach, noise.data_ptr(), action.data_ptr(), log_prob.data_ptr()
    )
    return action, log_prob


class _Drawn(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, outputs: Tensor, noise: Tensor, centre: float, reach: float) -> tuple[Tensor, Tensor]:
        action, log_prob = _draw(outputs, noise, centre, reach)
        ctx.save_for_backward(outputs, noise, action)
        ctx.shape = centre, reach
        return action, log_prob

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        outputs, noise, action = ctx.saved_tensors
        d_action, d_log_prob = (gradient.contiguous() for gradient in gradients)
        d_outputs, (centre, reach) = torch.empty_like(outputs), ctx.shape
        squashed_gradient(
            outputs.data_ptr(), d_log_prob.numel(), noise.shape[-1], centre, reach, noise.data_ptr(), action.data_ptr(),
            d_action.data_ptr(), d_log_prob.data_ptr(), d_outputs.data_ptr(),
        )  # fmt: skip
        return d_outputs, None, None, None
