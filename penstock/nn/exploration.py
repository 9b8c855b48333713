"""Policies of agents that learn from replay, with their exploration.

As for distributions, a sample is a function of (parameters, noise).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import softplus

from penstock.nn import squashed_normal
from penstock.nn.distributions import HALF_LOG_TWO_PI
from penstock.nn.layers import is_native

LOG_STD_RANGE = (-5.0, 2.0)


class EpsilonGreedy:
    """Action of the highest value, or with probability ``epsilon`` any legal action.

    Parameters
    ----------
    q : Tensor
        Action values, float32 ``[..., A]``; :data:`ILLEGAL` for illegal actions.
    epsilon : float or Tensor
        Probability of an action drawn uniformly from all legal ones, in [0, 1]; a number, or float32 broadcast to
        ``[...]``.
    legal : Tensor, optional
        Legal actions, bool ``[..., A]``, at least one; default: all.

    Attributes
    ----------
    q, epsilon, legal
        As given.
    """

    __slots__ = ("epsilon", "legal", "q")

    def __init__(self, q: Tensor, epsilon: float | Tensor, legal: Tensor | None = None) -> None:
        self.q = q
        self.epsilon = epsilon
        self.legal = legal

    def sample(self, noise: Tensor) -> Tensor:
        """Choose actions, with one random number each.

        Noise below ``epsilon`` is uniform over [0, epsilon): its position in that interval selects the random action
        among the legal ones.

        Parameters
        ----------
        noise : Tensor
            Uniform in [0, 1), float32 ``[..., 1]``.

        Returns
        -------
        Tensor
            Actions, int64 ``[...]``.
        """
        noise = noise.squeeze(-1)
        explores = noise < self.epsilon
        # With epsilon 0 the quotient is not a number, but then no lane explores.
        fraction = torch.where(explores, noise / self.epsilon, 0.0)
        # On CUDA, division by a number multiplies by its inverse, which can round to 1.
        if self.legal is None:
            num_actions = self.q.shape[-1]
            action = (fraction * num_actions).long().clamp_(max=num_actions - 1)
        else:
            num_legal = self.legal.cumsum(-1)  # up to and including each action
            number = (fraction * num_legal[..., -1]).long().clamp_(max=num_legal[..., -1] - 1)
            action = (num_legal <= number.unsqueeze(-1)).sum(-1)
        return torch.where(explores, action, self.mode())

    def drawn(self, noise: Tensor) -> EpsilonGreedy:
        """Return the values to choose by; the noise is ignored (see :class:`NoisyGreedy`)."""
        return self

    def mode(self) -> Tensor:
        """Return the action of the highest value (the first of several), int64 ``[...]``."""
        return self.q.argmax(-1)


class NoisyGreedy:
    """Like :class:`EpsilonGreedy`, with the values of a noisy network; a lane's random number selects its noise.

    Parameters
    ----------
    values : callable
        Function of random numbers, float32 ``[..., 1]``, or ``None`` for no noise, that returns values ``[..., A]``.
    epsilon, legal
        As for :class:`EpsilonGreedy`.
    """

    __slots__ = ("epsilon", "legal", "values")

    def __init__(
        self, values: Callable[[Tensor | None], Tensor], epsilon: float | Tensor, legal: Tensor | None = None
    ) -> None:
        self.values = values
        self.epsilon = epsilon
        self.legal = legal

    def drawn(self, noise: Tensor) -> EpsilonGreedy:
        """Return the values to choose by, given the noise: uniform in [0, 1), float32 ``[..., 1]``."""
        return EpsilonGreedy(self.values(noise), self.epsilon, self.legal)

    def sample(self, noise: Tensor) -> Tensor:
        """Choose actions by noisy values, int64 ``[...]``; noise as for `drawn`."""
        return self.drawn(noise).sample(noise)

    def mode(self) -> Tensor:
        """Return the action of the highest value without noise, int64 ``[...]``."""
        return self.values(None).argmax(-1)


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
        """Draw actions ``clip(action + std * noise, -1, 1)``.

        Parameters
        ----------
        noise : Tensor
            Standard normal, float32 ``[..., d]``.

        Returns
        -------
        Tensor
            Actions in [-1, 1], float32 ``[..., d]``.
        """
        return torch.add(self.action, noise, alpha=self.std).clamp_(-1.0, 1.0)

    def mode(self) -> Tensor:
        """The action, float32 ``[..., d]``."""
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
    """

    __slots__ = ("outputs",)

    def __init__(self, outputs: Tensor) -> None:
        self.outputs = outputs

    def map(self, change: Callable[[Tensor], Tensor]) -> TanhGaussian:
        """Return a distribution with transformed parameters, for example joined from several."""
        return TanhGaussian(change(self.outputs))

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
        low, high = LOG_STD_RANGE
        return low + 0.5 * (high - low) * (1.0 + self.outputs.chunk(2, -1)[1].tanh())

    def sample(self, noise: Tensor) -> Tensor:
        """Draw actions ``tanh(mean + std * noise)``.

        Parameters
        ----------
        noise : Tensor
            Standard normal, float32 ``[..., d]``.

        Returns
        -------
        Tensor
            Actions in [-1, 1], float32 ``[..., d]``, with gradient.
        """
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
        if is_native(self.outputs, noise):
            return squashed_normal.sample(self.outputs, noise, LOG_STD_RANGE)
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
    """Return random actions computed from a policy's noise.

    The probability integral transform ``2 Phi(noise) - 1 = erf(noise / sqrt(2))``.

    Parameters
    ----------
    noise : Tensor
        Standard normal, float32 ``[..., d]``.

    Returns
    -------
    Tensor
        Actions uniform in [-1, 1], float32 ``[..., d]``.
    """
    return torch.erf(noise * math.sqrt(0.5))
