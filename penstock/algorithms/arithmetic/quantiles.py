"""Distributions of returns as quantiles: losses, and truncated mixtures of several distributions."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from penstock import _native
from penstock.algorithms.arithmetic.td import huber
from penstock.nn.mlp import is_native, watcher


def truncated_mixture(atoms: Tensor, num_dropped: int) -> Tensor:
    """Atoms of several distributions without the largest, in ascending order (TQC, arXiv:2005.04269, section 3).

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
    is_plain = quantile.ndim == target.ndim == 2 and fraction.shape in (quantile.shape[1:], quantile.shape)
    is_plain &= len(target) == len(quantile) and not (fraction.requires_grad or target.requires_grad)
    if is_plain and is_native(quantile, fraction, target):
        loss: Tensor = _NativeQuantileHuber.apply(quantile, fraction, target)
        return loss
    error = target.unsqueeze(-2) - quantile.unsqueeze(-1)
    weight = (fraction.unsqueeze(-1) - (error < 0.0).float()).abs()
    return (weight * huber(error)).mean(-1).sum(-1)


class _NativeQuantileHuber(torch.autograd.Function):
    """One pass over all pairs of quantiles and samples, without storing them; torch needs about ten."""

    @staticmethod
    def forward(ctx: Any, quantile: Tensor, fraction: Tensor, target: Tensor) -> Tensor:
        quantile, fraction, target = quantile.contiguous(), fraction.contiguous(), target.contiguous()
        loss, slope, (rows, count) = quantile.new_empty(len(quantile)), torch.empty_like(quantile), quantile.shape
        _native.quantile_huber(
            quantile.data_ptr(), fraction.data_ptr(), fraction.ndim == 2, target.data_ptr(), rows, count,
            target.shape[1], loss.data_ptr(), slope.data_ptr(), torch.get_num_threads(),
        )  # fmt: skip
        if (seen := watcher()) is not None:
            seen.quantile_huber(quantile, fraction, target, loss, slope)
        ctx.save_for_backward(slope)
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (slope,) = ctx.saved_tensors
        return slope * gradients[0].unsqueeze(-1), None, None
