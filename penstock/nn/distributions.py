"""Action distributions: a policy's answer, from which actions are drawn with noise made elsewhere.

``sample`` is a function of (parameters, noise): the random stream of a lane lives with the lane, so the same
noise gives the same action wherever the network runs. Light classes of a few tensor operations, because they
are built for every batch of actions; ``torch.distributions`` costs several times as much per call.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn.functional import pad

if TYPE_CHECKING:
    from penstock.envs.spaces import ActionSpec

HALF_LOG_TWO_PI = 0.5 * math.log(2.0 * math.pi)

ILLEGAL = -1e8
"""Logit or value of an illegal action: its probability is exactly 0, and yet what is computed from it is finite."""

BELOW_ONE = 1.0 - 2.0**-24
"""The largest float32 below 1."""


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

    @property
    def flat(self) -> Tensor:
        """All parameters as one tensor, float32 ``[..., A]``: the logits."""
        return self.logits

    def __getitem__(self, index: Any) -> Categorical:
        """Distribution of the chosen rows: ``distribution[:-1]`` leaves out the last time step."""
        return Categorical(self.logits[index])

    def map(self, change: Callable[[Tensor], Tensor]) -> Categorical:
        """The distribution whose parameters are changed, such as put together of several."""
        return Categorical(change(self.logits))

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


class MultiCategorical:
    """Several independent choices, of ``n_1 .. n_k`` values each, counted from 0.

    Parameters
    ----------
    logits : Tensor
        Unnormalised log-probabilities of the values of all choices side by side, float32 ``[..., n_1 + .. + n_k]``.
    nvec : tuple of int
        Numbers of values of the choices.

    Attributes
    ----------
    logits, nvec
        As given.
    table : Categorical
        The choices as rows ``[..., k, max n]``; what a choice has less of values than the widest is illegal.
    """

    __slots__ = ("logits", "nvec", "table")

    def __init__(self, logits: Tensor, nvec: tuple[int, ...]) -> None:
        self.logits = logits
        self.nvec = nvec
        self.table = Categorical(_rows(logits, nvec))

    @property
    def flat(self) -> Tensor:
        """All parameters as one tensor, float32 ``[..., n_1 + .. + n_k]``: the logits."""
        return self.logits

    def __getitem__(self, index: Any) -> MultiCategorical:
        """Distribution of the chosen rows: ``distribution[:-1]`` leaves out the last time step."""
        return MultiCategorical(self.logits[index], self.nvec)

    def map(self, change: Callable[[Tensor], Tensor]) -> MultiCategorical:
        """The distribution whose parameters are changed, such as put together of several."""
        return MultiCategorical(change(self.logits), self.nvec)

    def sample(self, noise: Tensor) -> Tensor:
        """Draw actions, int64 ``[..., k]``, each choice as :class:`Categorical` does by its noise of ``[..., k]``."""
        return self.table.sample(noise.unsqueeze(-1))

    def log_prob(self, action: Tensor) -> Tensor:
        """Log-probability of ``action`` (int64 ``[..., k]``), summed over the choices, float32 ``[...]``."""
        return self.table.log_prob(action).sum(-1)

    def entropy(self) -> Tensor:
        """Entropy in nats, summed over the choices, float32 ``[...]``."""
        return self.table.entropy().sum(-1)

    def mode(self) -> Tensor:
        """Most probable value of each choice, int64 ``[..., k]``."""
        return self.table.mode()

    def kl(self, other: MultiCategorical) -> Tensor:
        """``KL(self || other)`` in nats, summed over the choices, float32 ``[...]``."""
        return self.table.kl(other.table).sum(-1)


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

    @property
    def flat(self) -> Tensor:
        """All parameters as one tensor, float32 ``[..., 2 d]``: means, then logarithms of standard deviations."""
        return torch.cat((self.mean, self.log_std), -1)

    def __getitem__(self, index: Any) -> DiagonalGaussian:
        """Distribution of the chosen rows: ``distribution[:-1]`` leaves out the last time step."""
        return DiagonalGaussian(self.mean[index], self.log_std[index])

    def map(self, change: Callable[[Tensor], Tensor]) -> DiagonalGaussian:
        """The distribution whose parameters are changed, such as put together of several."""
        return DiagonalGaussian(change(self.mean), change(self.log_std))

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


class Joint:
    """``k`` choices and ``d`` numbers, independent of each other: how mixed actions are drawn.

    An action is float32 ``[..., k + d]``: first the choices, then the numbers.

    Parameters
    ----------
    choices : MultiCategorical
        Distribution of the choices.
    numbers : DiagonalGaussian
        Distribution of the numbers.
    """

    __slots__ = ("choices", "numbers")

    def __init__(self, choices: MultiCategorical, numbers: DiagonalGaussian) -> None:
        self.choices = choices
        self.numbers = numbers

    @property
    def flat(self) -> Tensor:
        """All parameters as one tensor, float32 ``[..., n_1 + .. + n_k + 2 d]``: those of the choices come first."""
        return torch.cat((self.choices.flat, self.numbers.flat), -1)

    def __getitem__(self, index: Any) -> Joint:
        """Distribution of the chosen rows: ``distribution[:-1]`` leaves out the last time step."""
        return Joint(self.choices[index], self.numbers[index])

    def map(self, change: Callable[[Tensor], Tensor]) -> Joint:
        """The distribution whose parameters are changed, such as put together of several."""
        return Joint(self.choices.map(change), self.numbers.map(change))

    def sample(self, noise: Tensor) -> Tensor:
        """Draw actions, float32 ``[..., k + d]``, from as much standard normal noise: choices by ``Phi(noise)``."""
        for_choices, for_numbers = self._split(noise)
        uniform = torch.special.ndtr(for_choices).clamp(max=BELOW_ONE)
        return self._joined(self.choices.sample(uniform), self.numbers.sample(for_numbers))

    def log_prob(self, action: Tensor) -> Tensor:
        """Log-density of ``action`` (float32 ``[..., k + d]``), summed over choices and numbers, float32 ``[...]``."""
        choices, numbers = self._split(action)
        return self.choices.log_prob(choices.long()) + self.numbers.log_prob(numbers)

    def entropy(self) -> Tensor:
        """Entropy of the choices and differential entropy of the numbers in nats, summed, float32 ``[...]``."""
        return self.choices.entropy() + self.numbers.entropy()

    def mode(self) -> Tensor:
        """Most probable value of each choice, and the means, float32 ``[..., k + d]``."""
        return self._joined(self.choices.mode(), self.numbers.mode())

    def kl(self, other: Joint) -> Tensor:
        """``KL(self || other)`` in nats, summed over choices and numbers, float32 ``[...]``."""
        return self.choices.kl(other.choices) + self.numbers.kl(other.numbers)

    def _split(self, action: Tensor) -> tuple[Tensor, Tensor]:
        num_choices = len(self.choices.nvec)
        return action[..., :num_choices], action[..., num_choices:]

    def _joined(self, choices: Tensor, numbers: Tensor) -> Tensor:
        return torch.cat((choices.to(numbers.dtype), numbers), -1)


Distribution = Categorical | MultiCategorical | DiagonalGaussian | Joint


def num_parameters(action: ActionSpec) -> int:
    """Width ``P`` of :attr:`flat` for such actions: a logit for each value of each choice, two for each number."""
    return sum(action.choices) + 2 * action.num_numbers


def distribution_of(
    action: ActionSpec, outputs: Tensor, log_std: Tensor | None = None, legal: Tensor | None = None
) -> Distribution:
    """Distribution of such actions with these parameters.

    Parameters
    ----------
    action : ActionSpec
        Choices and numbers that an action is made of.
    outputs : Tensor
        A logit for each value of each choice, then the mean of each number, float32 ``[..., n_1 + .. + n_k + d]``.
    log_std : Tensor, optional
        Logarithms of the numbers' standard deviations, float32 ``[..., d]`` or broadcast to it; ``None`` if
        there are no numbers.
    legal : Tensor, optional
        Which values of each choice are legal, bool ``[..., n_1 + .. + n_k]``, one of each at least; all when left out.
    """
    choices = action.choices
    if not choices:
        assert log_std is not None
        return DiagonalGaussian(outputs, log_std)
    logits = outputs if log_std is None else outputs[..., : sum(choices)]
    if legal is not None:
        logits = logits.masked_fill(~legal, ILLEGAL)
    if action.is_discrete:
        return Categorical(logits)
    several = MultiCategorical(logits, choices)
    return several if log_std is None else Joint(several, DiagonalGaussian(outputs[..., sum(choices) :], log_std))


def recorded_distribution(action: ActionSpec, flat: Tensor) -> Distribution:
    """Distribution of such actions whose parameters were recorded as :attr:`flat`, float32 ``[..., P]``."""
    num_numbers = action.num_numbers
    if not num_numbers:
        return distribution_of(action, flat)
    return distribution_of(action, *flat.split((flat.shape[-1] - num_numbers, num_numbers), -1))


def legal_values(mask: Tensor, choices: tuple[int, ...]) -> Tensor:
    """Which values of each choice are legal: those of the mask, or all where it leaves none.

    Final observations, after which nothing is chosen, often have masks that leave none.

    Parameters
    ----------
    mask : Tensor
        As the environment gave it, bool ``[..., n_1 + .. + n_k]``.
    choices : tuple of int
        Numbers of values ``n_1 .. n_k`` of the choices.

    Returns
    -------
    Tensor
        bool, shaped as the mask; in each choice a value at least is legal.
    """
    return torch.cat([values | ~values.any(-1, keepdim=True) for values in mask.split(choices, -1)], -1)


def _rows(logits: Tensor, nvec: tuple[int, ...]) -> Tensor:
    widest = max(nvec)
    if min(nvec) == widest:
        return logits.unflatten(-1, (len(nvec), widest))
    rows = [pad(row, (0, widest - row.shape[-1]), value=ILLEGAL) for row in logits.split(nvec, -1)]
    return torch.stack(rows, -2)
