"""Action distributions. Actions are drawn with noise from outside.

``sample`` is a function of (parameters, noise): each lane owns its random stream, so that the same noise gives the same
action in any process. The classes cost a few tensor operations each, because one is made for every batch of actions;
``torch.distributions`` costs several times as much per call.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad, softplus

from penstock._native import sample_choices
from penstock.nn.mlp import computes_natively

if TYPE_CHECKING:
    from penstock.envs.spaces import ActionSpec

ContinuousActions = Literal["squashed", "clipped"]

HALF_LOG_TWO_PI = 0.5 * math.log(2.0 * math.pi)

ILLEGAL = -1e8
"""Logit or value of an illegal action: its probability is exactly 0, and results computed from it are finite."""

BELOW_ONE = 1.0 - 2.0**-24
"""The largest float32 below 1."""

NUM_NODES = 8
"""Nodes of the quadrature of a squashed distribution's entropy."""


class Drawn:
    """Base of distributions that actions are drawn from."""

    __slots__ = ()
    sample: Callable[[Tensor], Tensor]
    log_prob: Callable[[Tensor], Tensor]

    def sample_with_log_prob(self, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Draw actions like `sample`, with their log-probabilities, float32 ``[...]``."""
        action = self.sample(noise)
        return action, self.log_prob(action)


class Categorical(Drawn):
    """Choice among ``A`` actions, counted from 0.

    Parameters
    ----------
    logits : Tensor
        Unnormalised log-probabilities, float32 ``[..., A]``.

    Attributes
    ----------
    logits : Tensor
        As given.
    """

    __slots__ = ("_log_probs", "logits")

    def __init__(self, logits: Tensor) -> None:
        self.logits = logits
        self._log_probs: Tensor | None = None

    @property
    def log_probs(self) -> Tensor:
        """Normalised log-probabilities of all actions, float32 ``[..., A]``."""
        if self._log_probs is None:
            # The first use may be in a block without gradients, and a later one may need them.
            with torch.set_grad_enabled(self.logits.requires_grad or torch.is_grad_enabled()):
                self._log_probs = torch.log_softmax(self.logits, -1)
        return self._log_probs

    @property
    def flat(self) -> Tensor:
        """Return all parameters as one tensor, float32 ``[..., A]``: the logits."""
        return self.logits

    def __getitem__(self, index: Any) -> Categorical:
        """Return the distribution of selected rows: ``distribution[:-1]`` omits the last time step."""
        return Categorical(self.logits[index])

    def map(self, change: Callable[[Tensor], Tensor]) -> Categorical:
        """Return a distribution with transformed parameters, for example joined from several."""
        return Categorical(change(self.logits))

    def sample(self, noise: Tensor) -> Tensor:
        """Draw actions by inverting the cumulative distribution, int64 ``[...]``; never one of probability zero.

        The noise is uniform in [0, 1), float32 ``[..., 1]``.
        """
        cumulative = self.log_probs.exp().cumsum(-1)
        # Rounding leaves the last sum near 1. For noise below 1, noise times that sum stays below it in float32, so the
        # action found always has a positive probability; without the last column, the result stays below A even for
        # noise rounded up to 1.
        return (cumulative[..., :-1] <= noise * cumulative[..., -1:]).sum(-1)

    def sample_with_log_prob(self, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Draw actions like :meth:`sample`, with their log-probabilities, float32 ``[...]``.

        Without gradient, this is one call of the native core; torch needs some twelve.
        """
        if not computes_natively(self.logits, noise):
            return super().sample_with_log_prob(noise)
        logits, noise = self.logits.contiguous(), noise.contiguous()
        action, log_prob = torch.empty(noise.shape[:-1], dtype=torch.int64), torch.empty(noise.shape[:-1])
        shape, results = (log_prob.numel(), logits.shape[-1]), (action.data_ptr(), log_prob.data_ptr())
        sample_choices(logits.data_ptr(), *shape, noise.data_ptr(), *results)
        return action, log_prob

    def log_prob(self, action: Tensor) -> Tensor:
        """Return the log-probability of ``action`` (int64 ``[...]``), float32 ``[...]``."""
        return self.log_probs.gather(-1, action.unsqueeze(-1)).squeeze(-1)

    def entropy(self) -> Tensor:
        """Return the entropy in nats, float32 ``[...]``."""
        return -(self.log_probs.exp() * self.log_probs).sum(-1)

    def mode(self) -> Tensor:
        """Return the most probable action (the first of several), int64 ``[...]``."""
        return self.logits.argmax(-1)

    def kl(self, other: Categorical) -> Tensor:
        """Return ``KL(self || other)`` in nats, float32 ``[...]``."""
        return (self.log_probs.exp() * (self.log_probs - other.log_probs)).sum(-1)


class MultiCategorical(Drawn):
    """Several independent choices, among ``n_1 .. n_k`` values each, counted from 0.

    Parameters
    ----------
    logits : Tensor
        Unnormalised log-probabilities of all choices' values side by side, float32 ``[..., n_1 + .. + n_k]``.
    nvec : tuple of int
        Numbers of values of the choices.

    Attributes
    ----------
    logits, nvec
        As given.
    table : Categorical
        Choices as rows ``[..., k, max n]``; values beyond a choice's own number are illegal.
    """

    __slots__ = ("logits", "nvec", "table")

    def __init__(self, logits: Tensor, nvec: tuple[int, ...]) -> None:
        self.logits = logits
        self.nvec = nvec
        self.table = Categorical(_rows(logits, nvec))

    @property
    def flat(self) -> Tensor:
        """Return all parameters as one tensor, float32 ``[..., n_1 + .. + n_k]``: the logits."""
        return self.logits

    def __getitem__(self, index: Any) -> MultiCategorical:
        """Return the distribution of selected rows: ``distribution[:-1]`` omits the last time step."""
        return MultiCategorical(self.logits[index], self.nvec)

    def map(self, change: Callable[[Tensor], Tensor]) -> MultiCategorical:
        """Return a distribution with transformed parameters, for example joined from several."""
        return MultiCategorical(change(self.logits), self.nvec)

    def sample(self, noise: Tensor) -> Tensor:
        """Draw actions, int64 ``[..., k]``: each choice as in :class:`Categorical`, with noise ``[..., k]``."""
        return self.table.sample(noise.unsqueeze(-1))

    def sample_with_log_prob(self, noise: Tensor) -> tuple[Tensor, Tensor]:
        action, log_probs = self.table.sample_with_log_prob(noise.unsqueeze(-1))
        return action, log_probs.sum(-1)

    def log_prob(self, action: Tensor) -> Tensor:
        """Return the log-probability of ``action`` (int64 ``[..., k]``), summed over choices, float32 ``[...]``."""
        return self.table.log_prob(action).sum(-1)

    def entropy(self) -> Tensor:
        """Return the entropy in nats, summed over choices, float32 ``[...]``."""
        return self.table.entropy().sum(-1)

    def mode(self) -> Tensor:
        """Return the most probable value of each choice, int64 ``[..., k]``."""
        return self.table.mode()

    def kl(self, other: MultiCategorical) -> Tensor:
        """Return ``KL(self || other)`` in nats, summed over choices, float32 ``[...]``."""
        return self.table.kl(other.table).sum(-1)


class DiagonalGaussian(Drawn):
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
        """Return all parameters as one tensor, float32 ``[..., 2 d]``: means, then log standard deviations."""
        return torch.cat((self.mean, self.log_std), -1)

    def __getitem__(self, index: Any) -> Self:
        """Return the distribution of selected rows: ``distribution[:-1]`` omits the last time step."""
        return type(self)(self.mean[index], self.log_std[index])

    def map(self, change: Callable[[Tensor], Tensor]) -> Self:
        """Return a distribution with transformed parameters, for example joined from several."""
        return type(self)(change(self.mean), change(self.log_std))

    def sample(self, noise: Tensor) -> Tensor:
        """Draw actions ``mean + std * noise``, not clipped, with standard normal noise: float32 ``[..., d]``."""
        return torch.addcmul(self.mean, self.log_std.exp(), noise)

    def log_prob(self, action: Tensor) -> Tensor:
        """Return the log-density of ``action`` (float32 ``[..., d]``), summed over dimensions, float32 ``[...]``."""
        deviation = (action - self.mean) * torch.exp(-self.log_std)
        return -(0.5 * deviation.square() + self.log_std).sum(-1) - HALF_LOG_TWO_PI * self.mean.shape[-1]

    def entropy(self) -> Tensor:
        """Return the differential entropy in nats, summed over dimensions, float32 ``[...]``."""
        return self.log_std.sum(-1) + (0.5 + HALF_LOG_TWO_PI) * self.mean.shape[-1]

    def mode(self) -> Tensor:
        """Return the mean, float32 ``[..., d]``."""
        return self.mean

    def kl(self, other: DiagonalGaussian) -> Tensor:
        """Return ``KL(self || other)`` in nats, summed over dimensions, float32 ``[...]``."""
        spread = self.log_std - other.log_std
        shift = (self.mean - other.mean) * torch.exp(-other.log_std)
        return (0.5 * (torch.exp(2.0 * spread) + shift.square() - 1.0) - spread).sum(-1)


class SquashedGaussian(DiagonalGaussian):
    """Independent normal distributions, squashed by tanh into (-1, 1): actions ``a = tanh(u)``, with ``u`` normal.

    Ratios of densities and KL divergences are those of the normal distributions. Log-densities invert the tanh: in
    float32, ``u`` is recovered with an error below 0.01 up to 6.5, and never beyond 8.7.

    Parameters
    ----------
    mean : Tensor
        Means before the tanh, float32 ``[..., d]``.
    log_std : Tensor
        Logarithms of the standard deviations before the tanh, float32, ``[..., d]`` or broadcast to it.
    """

    __slots__ = ()

    def sample(self, noise: Tensor) -> Tensor:
        """Draw actions ``tanh(mean + std * noise)``, with standard normal noise: float32 ``[..., d]``."""
        return super().sample(noise).tanh()

    def log_prob(self, action: Tensor) -> Tensor:
        """Return the log-density of ``action`` (in [-1, 1], float32 ``[..., d]``), summed over dimensions.

            log p(a) = log N(atanh a; mean, std) - log(1 - a^2)
        """
        action = action.clamp(-BELOW_ONE, BELOW_ONE)
        deviation = (action.atanh() - self.mean) * torch.exp(-self.log_std)
        terms = 0.5 * deviation.square() + self.log_std + torch.log1p(-action.square())
        return -terms.sum(-1) - HALF_LOG_TWO_PI * self.mean.shape[-1]

    def entropy(self) -> Tensor:
        """Return the differential entropy in nats, summed over dimensions, float32 ``[...]``.

            H = H(u) + E log(1 - tanh(u)^2)

        The expectation is by Gauss-Hermite quadrature: the error is below 0.001 per dimension for standard deviations
        up to 1.
        """
        node, weight = _hermite(self.mean.device)
        u = torch.addcmul(self.mean.unsqueeze(-1), self.log_std.exp().unsqueeze(-1), node)
        slope = 2.0 * (math.log(2.0) - u - softplus(-2.0 * u))  # log(1 - tanh(u)^2)
        return super().entropy() + (slope * weight).sum((-1, -2))

    def mode(self) -> Tensor:
        """Return ``tanh(mean)``, float32 ``[..., d]``: the median of each dimension."""
        return self.mean.tanh()


@cache
def _hermite(device: torch.device) -> tuple[Tensor, Tensor]:
    """Return nodes and weights of the expectation over a standard normal number, float32 ``[n]`` each."""
    node, weight = np.polynomial.hermite_e.hermegauss(NUM_NODES)
    table = torch.tensor(np.array((node, weight / weight.sum())), dtype=torch.float32, device=device)
    return table[0], table[1]


class Joint(Drawn):
    """``k`` choices and ``d`` numbers, independent of each other: the distribution of mixed actions.

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
        """Return all parameters as one tensor, float32 ``[..., n_1 + .. + n_k + 2 d]``, those of the choices first."""
        return torch.cat((self.choices.flat, self.numbers.flat), -1)

    def __getitem__(self, index: Any) -> Joint:
        """Return the distribution of selected rows: ``distribution[:-1]`` omits the last time step."""
        return Joint(self.choices[index], self.numbers[index])

    def map(self, change: Callable[[Tensor], Tensor]) -> Joint:
        """Return a distribution with transformed parameters, for example joined from several."""
        return Joint(self.choices.map(change), self.numbers.map(change))

    def sample(self, noise: Tensor) -> Tensor:
        """Draw actions, float32 ``[..., k + d]``, from standard normal noise of that shape; choices by ``Phi``."""
        for_choices, for_numbers = self._split(noise)
        uniform = torch.special.ndtr(for_choices).clamp(max=BELOW_ONE)
        return self._joined(self.choices.sample(uniform), self.numbers.sample(for_numbers))

    def log_prob(self, action: Tensor) -> Tensor:
        """Return the log-density of ``action`` (float32 ``[..., k + d]``), summed over all parts, float32 ``[...]``."""
        choices, numbers = self._split(action)
        return self.choices.log_prob(choices.long()) + self.numbers.log_prob(numbers)

    def entropy(self) -> Tensor:
        """Return the choices' entropy plus the numbers' differential entropy in nats, float32 ``[...]``."""
        return self.choices.entropy() + self.numbers.entropy()

    def mode(self) -> Tensor:
        """Return the most probable value of each choice, and the means, float32 ``[..., k + d]``."""
        return self._joined(self.choices.mode(), self.numbers.mode())

    def kl(self, other: Joint) -> Tensor:
        """Return ``KL(self || other)`` in nats, summed over choices and numbers, float32 ``[...]``."""
        return self.choices.kl(other.choices) + self.numbers.kl(other.numbers)

    def _split(self, action: Tensor) -> tuple[Tensor, Tensor]:
        num_choices = len(self.choices.nvec)
        return action[..., :num_choices], action[..., num_choices:]

    def _joined(self, choices: Tensor, numbers: Tensor) -> Tensor:
        return torch.cat((choices.to(numbers.dtype), numbers), -1)


Distribution = Categorical | MultiCategorical | DiagonalGaussian | SquashedGaussian | Joint


def num_parameters(action: ActionSpec) -> int:
    """Return the width ``P`` of :attr:`flat`: a logit for each value of each choice, two entries for each number."""
    return sum(action.choices) + 2 * action.num_numbers


def distribution_of(
    action: ActionSpec, outputs: Tensor, log_std: Tensor | None = None, legal: Tensor | None = None,
    numbers: ContinuousActions = "clipped",
) -> Distribution:  # fmt: skip
    """Return the distribution of actions with these parameters.

    Parameters
    ----------
    action : ActionSpec
        Spec of the actions.
    outputs : Tensor
        A logit for each value of each choice, then the mean of each number, float32 ``[..., n_1 + .. + n_k + d]``.
    log_std : Tensor, optional
        Logarithms of the numbers' standard deviations, float32 ``[..., d]`` or broadcast to it; ``None`` without
        numbers.
    legal : Tensor, optional
        Legal values of each choice, bool ``[..., n_1 + .. + n_k]``, at least one of each; default: all.
    numbers
        Distribution of the numbers: "squashed", or "clipped" (normal, clipped by the lanes).
    """
    choices = action.choices
    normal = SquashedGaussian if numbers == "squashed" else DiagonalGaussian
    if not choices:
        assert log_std is not None
        return normal(outputs, log_std)
    logits = outputs if log_std is None else outputs[..., : sum(choices)]
    if legal is not None:
        logits = logits.masked_fill(~legal, ILLEGAL)
    if action.is_discrete:
        return Categorical(logits)
    several = MultiCategorical(logits, choices)
    return several if log_std is None else Joint(several, normal(outputs[..., sum(choices) :], log_std))


def recorded_distribution(action: ActionSpec, flat: Tensor, numbers: ContinuousActions = "clipped") -> Distribution:
    """Return the distribution of actions whose parameters were recorded as :attr:`flat`, float32 ``[..., P]``."""
    num_numbers = action.num_numbers
    if not num_numbers:
        return distribution_of(action, flat)
    outputs, log_std = flat.split((flat.shape[-1] - num_numbers, num_numbers), -1)
    return distribution_of(action, outputs, log_std, numbers=numbers)


def numbers_of(action: ActionSpec, wanted: ContinuousActions) -> ContinuousActions:
    """Return the distribution of an action's numbers: as wanted if each has two bounds, else "clipped"."""
    return wanted if action.is_bounded else "clipped"


def legal_values(mask: Tensor, choices: tuple[int, ...]) -> Tensor:
    """Return the legal values of each choice: those of the mask, or all if the mask has none.

    Masks of final observations, which precede no action, often allow none.

    Parameters
    ----------
    mask : Tensor
        Mask of the environment, bool ``[..., n_1 + .. + n_k]``.
    choices : tuple of int
        Numbers of values ``n_1 .. n_k`` of the choices.

    Returns
    -------
    Tensor
        bool, in the shape of the mask, with at least one legal value per choice.
    """
    return torch.cat([values | ~values.any(-1, keepdim=True) for values in mask.split(choices, -1)], -1)


def _rows(logits: Tensor, nvec: tuple[int, ...]) -> Tensor:
    widest = max(nvec)
    if min(nvec) == widest:
        return logits.unflatten(-1, (len(nvec), widest))
    rows = [pad(row, (0, widest - row.shape[-1]), value=ILLEGAL) for row in logits.split(nvec, -1)]
    return torch.stack(rows, -2)
