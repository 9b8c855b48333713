"""Activations of the hidden layers, by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn


class Tanh(nn.Module):
    """The hyperbolic tangent; in float32 on a CPU by ``1 - 2 sigmoid(-2x)``, which torch computes five times as fast.

    Both are within 2e-7 of the true value. A small mlp spends a third of its time in tangents. There the input is
    overwritten: nobody else needs what a layer answers.
    """

    def forward(self, x: Tensor) -> Tensor:
        if x.dtype != torch.float32 or x.device.type != "cpu":
            return x.tanh()
        if torch.is_grad_enabled() and x.requires_grad:
            tangent: Tensor = _TanhBySigmoid.apply(x)
            return tangent
        return _tanh_by_sigmoid_(x)


class _TanhBySigmoid(torch.autograd.Function):
    """With the tangent's own derivative, ``1 - tanh^2``, of which only the result has to be kept."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        tangent = _tanh_by_sigmoid_(x)
        ctx.mark_dirty(tangent)
        ctx.save_for_backward(tangent)
        return tangent

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (tangent,) = ctx.saved_tensors
        return torch.ops.aten.tanh_backward(gradient, tangent)


_ONE = torch.tensor(1.0, device="cpu")  # unlike rsub, sub can be told where to write


def _tanh_by_sigmoid_(x: Tensor) -> Tensor:
    return torch.sub(_ONE, x.mul_(-2.0).sigmoid_(), alpha=2.0, out=x)


ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {"tanh": Tanh, "relu": nn.ReLU, "elu": nn.ELU, "silu": nn.SiLU}
