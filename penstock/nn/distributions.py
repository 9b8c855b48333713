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


Distribution = Categorical | DiagonalGaussian


def distribution_class(action: ActionSpec) -> type[Categorical] | type[DiagonalGaussian]:
    """Class of the distributions over an action space: categorical for Discrete, Gaussian for Box."""
    return Categorical if action.is_discrete else DiagonalGaussian
