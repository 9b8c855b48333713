"""Policies for continuous actions, learned from replay, with their exploration.

As for distributions, a sample is a function of (parameters, noise).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import softplus

from penstock._native import sample_squashed, squashed_gradient
from penstock.nn.distributions import HALF_LOG_TWO_PI
from penstock.nn.mlp import is_native, watcher

LOG_STD_RANGE = (-5.0, 2.0)
CLIPPED_LOG_STD_RANGE = (-20.0, 2.0)


class Deterministic:
    """One action per observation, with normal exploration noise (arXiv:1802.09477, section 6.1).

    Parameters
    ----------
    action : Tensor
        Actions in [-1, 1], float32 ``[..., d]``.
    std : float
        Standard deviation of the exploration noise, in units of actions in [-1, 1].
    """

    __slots__ = ("action", "std")

    def __init__(self, action: Tensor, std: float) -> None:
        self.action = action
        self.std = std

    def sample(self, noise: Tensor) -> Tensor:
        """Draw actions ``clip(action + std * noise, -1, 1)``, with standard normal noise: float32 ``[..., d]``."""
        return torch.add(self.action, noise, alpha=self.std).clamp_(-1.0, 1.0)

    def mode(self) -> Tensor:
        """Return the action, float32 ``[..., d]``."""
        return self.action


class TanhGaussian:
    """Normal distribution squashed by tanh into (-1, 1), independent in ``d`` action dimensions.

    Log-densities are of actions in [-1, 1], before the environment's scaling; a target entropy of ``-d``
    (arXiv:1812.05905, appendix D) has the same units.

    The logarithm of the standard deviation is ``-5 + 3.5 (1 + tanh(x))`` of an output ``x``, within [-5, 2] as in
    CleanRL: unlike the published code's hard clamp to [-20, 2] it has a gradient everywhere, so that a policy can
    always widen again.

    Parameters
    ----------
    outputs : Tensor
        Outputs of the actor, float32 ``[..., 2 d]``: means before the tanh, then ``x``.
    clips_log_std : bool
        Whether the logarithm of the standard deviation is ``clip(x, -20, 2)``, as in the published code.
    """

    __slots__ = ("clips_log_std", "outputs")

    def __init__(self, outputs: Tensor, clips_log_std: bool = False) -> None:
        self.outputs = outputs
        self.clips_log_std = clips_log_std

    def map(self, change: Callable[[Tensor], Tensor]) -> TanhGaussian:
        """Return a distribution with transformed parameters, for example joined from several."""
        return TanhGaussian(change(self.outputs), self.clips_log_std)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of actions and of their noise: ``[..., d]``."""
        *leading, numbers = self.outputs.shape
        return *leading, numbers // 2

    @property
    def mean(self) -> Tensor:
        """Means before the tanh, float32 ``[..., d]``."""
        return self.outputs.chunk(2, -1)[0]

    @property
    def log_std(self) -> Tensor:
        """Logarithms of the standard deviations before the tanh, float32 ``[..., d]``."""
        x = self.outputs.chunk(2, -1)[1]
        if self.clips_log_std:
            return x.clamp(*CLIPPED_LOG_STD_RANGE)
        low, high = LOG_STD_RANGE
        return low + 0.5 * (high - low) * (1.0 + x.tanh())

    def sample(self, noise: Tensor) -> Tensor:
        """Draw actions ``tanh(mean + std * noise)``, with gradient; the noise is standard normal, ``[..., d]``."""
        return torch.addcmul(self.mean, self.log_std.exp(), noise).tanh()

    def sample_with_log_prob(self, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Draw actions like :meth:`sample`, with their log-densities (arXiv:1812.05905, equation 21).

            u     = mean + std * noise
            log p = sum_j [ log N(u_j; mean_j, std_j) - 2 (log 2 - u_j - softplus(-2 u_j)) ]

        The second term is ``log(1 - tanh(u_j)^2)``, exact even if the tanh rounds to 1.

        Parameters
        ----------
        noise : Tensor
            Standard normal, float32 ``[..., d]``.

        Returns
        -------
        action : Tensor
            Actions in [-1, 1], float32 ``[..., d]``, with gradient.
        log_prob : Tensor
            Log-densities as actions in [-1, 1], in nats, float32 ``[...]``, with gradient.
        """
        if not self.clips_log_std and is_native(self.outputs, noise):
            return _sample_natively(self.outputs, noise)
        log_std = self.log_std
        u = torch.addcmul(self.mean, log_std.exp(), noise)
        # The noise is u's deviation from its mean, in standard deviations.
        terms = 2.0 * (u + softplus(-2.0 * u)) - log_std - 0.5 * noise.square()
        constant = HALF_LOG_TWO_PI + 2.0 * math.log(2.0)
        return u.tanh(), terms.sum(-1) - constant * u.shape[-1]

    def mode(self) -> Tensor:
        """Return ``tanh(mean)``, float32 ``[..., d]``: the median of each dimension, and a trained policy's action."""
        return self.mean.tanh()


def uniform_action(noise: Tensor) -> Tensor:
    """Return random actions, uniform in [-1, 1], computed from a policy's standard normal noise: float32 ``[..., d]``.

    The probability integral transform ``2 Phi(noise) - 1 = erf(noise / sqrt(2))``.
    """
    return torch.erf(noise * math.sqrt(0.5))


def _sample_natively(outputs: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Draw as `TanhGaussian.sample_with_log_prob` does, in one call of the native core; torch needs some twenty."""
    low, high = LOG_STD_RANGE
    shape = 0.5 * (low + high), 0.5 * (high - low)
    outputs, noise = outputs.contiguous(), noise.contiguous()
    if torch.is_grad_enabled() and outputs.requires_grad:
        answer: tuple[Tensor, Tensor] = _NativeSample.apply(outputs, noise, *shape)
        return answer
    return _draw(outputs, noise, *shape)


def _draw(outputs: Tensor, noise: Tensor, centre: float, reach: float) -> tuple[Tensor, Tensor]:
    action, log_prob, d = torch.empty_like(noise), torch.empty(noise.shape[:-1]), noise.shape[-1]
    sample_squashed(
        outputs.data_ptr(), log_prob.numel(), d, centre, reach, noise.data_ptr(), action.data_ptr(), log_prob.data_ptr()
    )
    if (seen := watcher()) is not None:
        seen.squashed_sample(outputs, noise, action, log_prob, centre=centre, reach=reach)
    return action, log_prob


class _NativeSample(torch.autograd.Function):
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
        if (seen := watcher()) is not None:
            seen.squashed_gradient(
                outputs, noise, action, d_action, d_log_prob, d_outputs, centre=centre, reach=reach
            )
        return d_outputs, None, None, None
