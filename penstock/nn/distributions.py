"""Action distributions: a policy's answer, from which actions are drawn with noise made elsewhere.

``sample`` is a function of (parameters, noise): the random stream of a lane lives with the lane, so the same
noise gives the same action wherever the network runs. Light classes of a few tensor operations, because they
are built for every batch of actions; ``torch.distributions`` costs several times as much per call.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn.functional import softplus

if TYPE_CHECKING:
    from penstock.envs.spaces import ActionSpec

HALF_LOG_TWO_PI = 0.5 * math.log(2.0 * math.pi)


class Categorical:
    """Choice among ``A`` actions, counted from 0.

    Parameters
    ----------
    logits : Tensor
        Unnormalised log-probabilities, float32 ``[..., A]``.

    Attributes
    ----------
    logits : Tensor
        As given.
    log_probs : Tensor
        Normalised log-probabilities of all actions, float32 ``[..., A]``.
    """

    __slots__ = ("log_probs", "logits")

    def __init__(self, logits: Tensor) -> None:
        self.logits = logits
        self.log_probs = torch.log_softmax(logits, -1)

    @classmethod
    def num_parameters(cls, action: ActionSpec) -> int:
        """Width ``P`` of :attr:`flat` for this action space: the number of actions."""
        assert action.num_actions is not None
        return action.num_actions

    @classmethod
    def from_flat(cls, flat: Tensor) -> Categorical:
        """Distribution whose parameters were recorded as ``flat``, float32 ``[..., A]``."""
        return cls(flat)

    @property
    def flat(self) -> Tensor:
        """All parameters as one tensor, float32 ``[..., A]``: the logits."""
        return self.logits

    def __getitem__(self, index: Any) -> Categorical:
        """Distribution of the chosen rows: ``distribution[:-1]`` leaves out the last time step."""
        return Categorical(self.logits[index])

    def sample(self, noise: Tensor) -> Tensor:
        """Draw actions by inverting the cumulative distribution.

        Parameters
        ----------
        noise : Tensor
            Uniform in [0, 1), float32 ``[..., 1]``.

        Returns
        -------
        Tensor
            Actions, int64 ``[...]``; never one of probability zero.
        """
        cumulative = self.log_probs.exp().cumsum(-1)
        # Rounding leaves the last sum near 1, not at it. Noise times that sum stays below it in float32 for all
        # noise below 1, so the action found always has a share of its own; not counting the last column keeps
        # the answer below A even for noise that was rounded up to 1.
        return (cumulative[..., :-1] <= noise * cumulative[..., -1:]).sum(-1)

    def log_prob(self, action: Tensor) -> Tensor:
        """Log-probability of ``action`` (int64 ``[...]``), float32 ``[...]``."""
        return self.log_probs.gather(-1, action.unsqueeze(-1)).squeeze(-1)

    def entropy(self) -> Tensor:
        """Entropy in nats, float32 ``[...]``."""
        return -(self.log_probs.exp() * self.log_probs).sum(-1)

    def mode(self) -> Tensor:
        """Most probable action (the first of several), int64 ``[...]``."""
        return self.logits.argmax(-1)

    def kl(self, other: Categorical) -> Tensor:
        """``KL(self || other)`` in nats, float32 ``[...]``."""
        return (self.log_probs.exp() * (self.log_probs - other.log_probs)).sum(-1)


class DiagonalGaussian:
    """Independent normal distributions, one for each of ``d`` action dimensions.

    Parameters
    ----------
    mean : Tensor
        Means, float32 ``[..., d]``.
    log_std : Tensor
        Logarithms of the standard deviations, float32, ``[..., d]`` or broadcast to it.
    """

    __slots__ = ("log_std", "mean")

    def __init__(self, mean: Tensor, log_std: Tensor) -> None:
        self.mean = mean
        self.log_std = log_std.expand_as(mean)

    @classmethod
    def num_parameters(cls, action: ActionSpec) -> int:
        """Width ``P`` of :attr:`flat` for this action space: two numbers per action dimension."""
        return 2 * action.noise_size

    @classmethod
    def from_flat(cls, flat: Tensor) -> DiagonalGaussian:
        """Distribution whose parameters were recorded as ``flat``, float32 ``[..., 2 d]``."""
        return cls(*flat.chunk(2, -1))

    @property
    def flat(self) -> Tensor:
        """All parameters as one tensor, float32 ``[..., 2 d]``: means, then logarithms of standard deviations."""
        return torch.cat((self.mean, self.log_std), -1)

    def __getitem__(self, index: Any) -> DiagonalGaussian:
        """Distribution of the chosen rows: ``distribution[:-1]`` leaves out the last time step."""
        return DiagonalGaussian(self.mean[index], self.log_std[index])

    def sample(self, noise: Tensor) -> Tensor:
        """Draw actions ``mean + std * noise``.

        Parameters
        ----------
        noise : Tensor
            Standard normal, float32 ``[..., d]``.

        Returns
        -------
        Tensor
            Actions, not clipped, float32 ``[..., d]``.
        """
        return torch.addcmul(self.mean, self.log_std.exp(), noise)

    def log_prob(self, action: Tensor) -> Tensor:
        """Log-density of ``action`` (float32 ``[..., d]``), summed over its dimensions, float32 ``[...]``."""
        deviation = (action - self.mean) * torch.exp(-self.log_std)
        return -(0.5 * deviation.square() + self.log_std).sum(-1) - HALF_LOG_TWO_PI * self.mean.shape[-1]

    def entropy(self) -> Tensor:
        """Differential entropy in nats, summed over the dimensions, float32 ``[...]``."""
        return self.log_std.sum(-1) + (0.5 + HALF_LOG_TWO_PI) * self.mean.shape[-1]

    def mode(self) -> Tensor:
        """The mean, float32 ``[..., d]``."""
        return self.mean

    def kl(self, other: DiagonalGaussian) -> Tensor:
        """``KL(self || other)`` in nats, summed over the dimensions, float32 ``[...]``."""
        spread = self.log_std - other.log_std
        shift = (self.mean - other.mean) * torch.exp(-other.log_std)
        return (0.5 * (torch.exp(2.0 * spread) + shift.square() - 1.0) - spread).sum(-1)


class EpsilonGreedy:
    """The action of the highest value, or with probability ``epsilon`` any action.

    Parameters
    ----------
    q : Tensor
        Action values, float32 ``[..., A]``.
    epsilon : float or Tensor
        Probability of an action drawn uniformly from all ``A``, in [0, 1]; a number, or float32 broadcast to
        ``[...]``.

    Attributes
    ----------
    q, epsilon
        As given.
    """

    __slots__ = ("epsilon", "q")

    def __init__(self, q: Tensor, epsilon: float | Tensor) -> None:
        self.q = q
        self.epsilon = epsilon

    def sample(self, noise: Tensor) -> Tensor:
        """Choose actions, all with one random number each.

        Below ``epsilon``, noise is uniform over [0, epsilon): where in that interval it lies is the random action.

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
        num_actions = self.q.shape[-1]
        explores = noise < self.epsilon
        # Where epsilon is 0 the quotient is no number, but there nothing explores.
        fraction = torch.where(explores, noise / self.epsilon, 0.0)
        # On CUDA dividing by a number is multiplying by its inverse, which can round to 1.
        action = (fraction * num_actions).long().clamp_(max=num_actions - 1)
        return torch.where(explores, action, self.mode())

    def mode(self) -> Tensor:
        """Action of the highest value (the first of several), int64 ``[...]``."""
        return self.q.argmax(-1)


class Deterministic:
    """One action for each observation, explored around with normal noise (arXiv:1802.09477, section 6.1).

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

    Log-densities are those of actions in [-1, 1], whatever the environment scales them to; a target entropy of ``-d``
    (arXiv:1812.05905, appendix D) is in the same units.

    Parameters
    ----------
    mean : Tensor
        Means before the tanh, float32 ``[..., d]``.
    log_std : Tensor
        Logarithms of the standard deviations before the tanh, float32 ``[..., d]``.
    """

    __slots__ = ("log_std", "mean")

    def __init__(self, mean: Tensor, log_std: Tensor) -> None:
        self.mean = mean
        self.log_std = log_std

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
        """Draw actions as :meth:`sample` does, with their log-densities (arXiv:1812.05905, equation 21).

            u     = mean + std * noise
            log p = sum_j [ log N(u_j; mean_j, std_j) - 2 (log 2 - u_j - softplus(-2 u_j)) ]

        The second term is ``log(1 - tanh(u_j)^2)``, exact where the tanh has rounded to 1.

        Parameters
        ----------
        noise : Tensor
            Standard normal, float32 ``[..., d]``.

        Returns
        -------
        action : Tensor
            Actions in [-1, 1], float32 ``[..., d]``, with gradient.
        log_prob : Tensor
            Their log-densities as actions in [-1, 1], in nats, float32 ``[...]``, with gradient.
        """
        u = torch.addcmul(self.mean, self.log_std.exp(), noise)
        # The deviation of u from its mean, in standard deviations, is the noise itself.
        terms = 2.0 * (u + softplus(-2.0 * u)) - self.log_std - 0.5 * noise.square()
        constant = HALF_LOG_TWO_PI + 2.0 * math.log(2.0)
        return u.tanh(), terms.sum(-1) - constant * u.shape[-1]

    def mode(self) -> Tensor:
        """``tanh(mean)``, float32 ``[..., d]``: the median of each dimension, and how a trained policy acts."""
        return self.mean.tanh()


def uniform_action(noise: Tensor) -> Tensor:
    """Random actions made of the noise that a policy would have acted with.

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


Distribution = Categorical | DiagonalGaussian


def distribution_class(action: ActionSpec) -> type[Categorical] | type[DiagonalGaussian]:
    """Class of the distributions over an action space: categorical for Discrete, Gaussian for Box."""
    return Categorical if action.is_discrete else DiagonalGaussian
