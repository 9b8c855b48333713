"""Normalisations of hidden layers in several networks of the same sizes, each network separately."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm

from penstock.nn.sharing import is_in_share, moments_of_rows

MOMENTUM = 0.99
EPSILON = 1e-5


def normalized(x: Tensor, scale: Tensor, shift: Tensor, epsilon: float) -> tuple[Tensor, Tensor, Tensor]:
    """Normalise features by the moments of their rows, in one kernel for all networks.

    Parameters
    ----------
    x : Tensor
        float32 ``[..., N, F]``.
    scale, shift : Tensor
        ``[..., 1, F]``.
    epsilon : float
        Constant added to variances.

    Returns
    -------
    y : Tensor
        ``(x - mean) * inverse * scale + shift``.
    mean, inverse : Tensor
        Means, and inverse standard deviations, in the shape of `scale`.
    """
    rows = x.movedim(-2, 0)
    y, *moments = torch.native_batch_norm(
        rows.reshape(len(rows), -1), scale.reshape(-1), shift.reshape(-1), None, None, True, 0.0, epsilon
    )
    mean, inverse = (each.view(scale.shape) for each in moments)
    return y.view(rows.shape).movedim(0, -2), mean, inverse


class Norm(nn.Module):
    """Base of normalisations with a learned scale and, optionally, a learned shift.

    Parameters
    ----------
    shape : tuple of int
        Shape of scale and shift: ``(C, 1, F)`` for inputs ``[C, N, F]`` of ``C`` networks, or ``(1, F)``.
    is_constrained : bool
        Whether scale and shift together are kept at the norm sqrt(F) (arXiv:2604.04539).
    has_shift : bool
        Whether there is a shift.
    """

    def __init__(self, shape: tuple[int, ...], is_constrained: bool = False, has_shift: bool = True) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(shape))
        self.shift = nn.Parameter(torch.zeros(shape)) if has_shift else None
        self.is_constrained = is_constrained

    @torch.no_grad()
    def constrain_(self) -> None:
        """Restore the norm of constrained scales and shifts after a step of the optimiser."""
        if self.is_constrained:
            parts: list[Tensor] = [self.scale] if self.shift is None else [self.scale, self.shift]
            norm = torch.linalg.vector_norm(torch.cat(parts, -1), dim=-1, keepdim=True)
            for part in parts:
                part.mul_(math.sqrt(self.scale.shape[-1]) / norm.clamp(min=1e-8))


class BatchNorm(Norm):
    """Normalises each feature by a batch's moments, and outside updates by running ones (arXiv:1502.03167).

    Running moments are buffers, part of the weights: acting roles normalise as the learner's policy does. They change
    in `update_moments` alone, so that a failed update leaves them unchanged.

    Parameters
    ----------
    shape, is_constrained
        As for `Norm`.

    Attributes
    ----------
    mean, var : Tensor
        Running mean and population variance, float32 ``[*shape]``.
    seen : tuple of Tensor
        Moments of the last batch.
    """

    epsilon: ClassVar[float] = EPSILON
    mean: Tensor
    var: Tensor
    shift: nn.Parameter

    def __init__(self, shape: tuple[int, ...], is_constrained: bool = False) -> None:
        super().__init__(shape, is_constrained)
        self.register_buffer("mean", torch.zeros(shape))
        self.register_buffer("var", torch.ones(shape))
        self.seen: tuple[Tensor, Tensor] | None = None

    def forward(self, x: Tensor) -> Tensor:
        """Normalise inputs ``[..., N, F]``, float32, by the running moments, or in training mode by the batch's."""
        if not self.training:
            scale = self.scale * (self.var + self.epsilon).rsqrt()
            return torch.addcmul(self.shift - self.mean * scale, x, scale)
        if is_in_share():
            var, mean = moments_of_rows(x)
            self.seen = mean.detach(), var.detach()
            return torch.addcmul(self.shift, (x - mean) * (var + EPSILON).rsqrt(), self.scale)
        y, mean, inverse = normalized(x, self.scale, self.shift, EPSILON)
        self.seen = mean.detach(), (inverse.detach().pow(-2) - EPSILON).clamp_(min=0.0)
        return y

    @torch.no_grad()
    def update_moments(self, nonfinite: Tensor | None = None) -> None:
        """Update the running moments with those of the last batch, after an update.

        Parameters
        ----------
        nonfinite
            float32 ``[]``; 1: the moments stay unchanged. None: they are updated.
        """
        assert self.seen is not None
        mean, var = self.seen
        if nonfinite is not None:
            mean, var = torch.where(nonfinite > 0.0, self.mean, mean), torch.where(nonfinite > 0.0, self.var, var)
        self.mean.lerp_(mean, 1.0 - MOMENTUM)
        self.var.lerp_(var, 1.0 - MOMENTUM)


class LayerNorm(Norm):
    """Normalises each row by its own mean and variance over all features (arXiv:1607.06450)."""

    def forward(self, x: Tensor) -> Tensor:
        """Normalise inputs ``[..., N, F]``, float32."""
        assert self.shift is not None
        return torch.addcmul(self.shift, layer_norm(x, x.shape[-1:], eps=EPSILON), self.scale)


class RMSNorm(Norm):
    """Divides each row by its root mean square over all features; there is no shift (arXiv:1910.07467)."""

    def __init__(self, shape: tuple[int, ...], is_constrained: bool = False) -> None:
        super().__init__(shape, is_constrained, has_shift=False)

    def forward(self, x: Tensor) -> Tensor:
        """Normalise inputs ``[..., N, F]``, float32."""
        return x * (x.square().mean(-1, keepdim=True) + EPSILON).rsqrt() * self.scale


NORMS: dict[str, type[BatchNorm | LayerNorm | RMSNorm]] = {"batch": BatchNorm, "layer": LayerNorm, "rms": RMSNorm}
"""Normalisations by the names of settings."""


def update_moments(network: nn.Module, nonfinite: Tensor | None = None) -> None:
    """Update all running moments of a network with those of the last batch. See :meth:`BatchNorm.update_moments`."""
    for module in network.modules():
        if isinstance(module, BatchNorm):
            module.update_moments(nonfinite)
