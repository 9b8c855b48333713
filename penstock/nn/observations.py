"""First stage of networks, from observations of any dtype to float32; running moments of observations and returns."""

from __future__ import annotations

import math
from itertools import accumulate
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor, nn

from penstock.nn.noisy import NoisyLinear

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from penstock.envs.spaces import ObservationPart, ObservationSpec, Scaling

VARIANCE_FLOOR = 1e-8
# With rare rewards, the first returns hardly vary: in units of their deviation, the first reward would be immense.
RETURN_PRIOR_ROWS = 1_000.0

Seen = Tensor | dict[str, Tensor]
"""Input of an encoder: float32 ``[N, *encoder_input_shape]``, or bytes of images; for a composite a dict of parts."""


def unmasked(observation: ObservationSpec) -> ObservationSpec:
    """Return the spec that an encoder is built for: the plain observation of a composite that only adds a mask."""
    parts = observation.parts
    return parts[0].spec if len(parts) == 1 and not parts[0].path else observation


def encoder_input_shape(observation: ObservationSpec) -> tuple[int, ...]:
    """Return the shape of a plain observation at an encoder: one-hot if discrete, a vector of one if a scalar."""
    if observation.num_values is not None:
        return (observation.num_values,)
    if observation.nvec:
        return (sum(observation.nvec),)
    return observation.shape or (1,)


def encoder_input_size(observation: ObservationSpec) -> int:
    """Return the number of an encoder's inputs for one observation, plain or composite."""
    if observation.parts:
        return sum(encoder_input_size(part.spec) for part in observation.parts)
    return math.prod(encoder_input_shape(observation))


class RunningMoments(nn.Module):
    """Elementwise mean and variance of all rows seen so far.

    The moments are buffers and part of the weights; only the learner updates them. Before the first update they are 0
    and 1.

    Parameters
    ----------
    shape : tuple of int
        Shape of one row; ``()`` for scalars.
    prior_rows : float
        Weight of the initial 0 and 1, in rows; 0: the first update replaces them.
    most_rows : float
        Largest weight of earlier rows against new ones, in rows; beyond it, earlier rows are forgotten exponentially.

    Attributes
    ----------
    mean, var : Tensor
        Mean and population variance, float32 ``[*shape]``.
    std : Tensor
        Root of the variance (never below 1e-4), float32 ``[*shape]``; stored, because acting needs it at every step.
    count : Tensor
        Weight of the rows seen, their number up to `most_rows`, float64 ``[]`` (float32 would stop counting at
        16.8 million).
    """

    mean: Tensor
    var: Tensor
    std: Tensor
    count: Tensor

    def __init__(self, shape: tuple[int, ...], prior_rows: float = 0.0, most_rows: float = math.inf) -> None:
        super().__init__()
        self._most_rows = most_rows
        self.register_buffer("mean", torch.zeros(shape))
        self.register_buffer("var", torch.ones(shape))
        self.register_buffer("std", torch.ones(shape))
        self.register_buffer("count", torch.tensor(prior_rows, dtype=torch.float64))

    @torch.no_grad()
    def update(self, x: Tensor, mask: Tensor | None = None) -> None:
        """Add rows to the moments, in place.

        Merges the batch's moments with the running ones, after Chan, Golub and LeVeque 1983
        (doi:10.1080/00031305.1983.10483115).

        Parameters
        ----------
        x : Tensor
            Rows, ``[..., *shape]``, any real dtype.
        mask : Tensor, optional
            Rows that count, bool or numbers other than 0, ``[...]``; default: all. Without any, nothing changes.
        """
        if x.numel():
            self._add(*self._rows(x, mask))

    def _add(self, rows: Tensor, counted: Tensor) -> None:
        added = counted.sum()
        mean = rows.sum(0) / added.clamp(min=1.0)
        var = ((rows - mean).square() * counted).sum(0) / added.clamp(min=1.0)
        total = self.count + added
        part, shift = added / total.clamp(min=1.0), mean - self.mean
        self.mean.add_(shift * part)
        self.var.mul_(1.0 - part).add_(part * (var + shift.square() * (1.0 - part)))
        self.std.copy_(self.var.clamp(min=VARIANCE_FLOOR).sqrt_())
        self.count.copy_(total.clamp(max=self._most_rows))

    def _rows(self, x: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return rows, 0 if they do not count, float32 ``[N, *shape]``, and 1 or 0 for whether each counts."""
        rows, shape = x.reshape(-1, *self.mean.shape).float(), (-1, *(1 for _ in self.mean.shape))
        if mask is None:
            return rows, rows.new_ones(()).expand(len(rows)).reshape(shape)
        is_counted = mask.reshape(shape) != 0
        return torch.where(is_counted, rows, 0.0), is_counted.float()

    def normalize(self, x: Tensor, clip: float = 10.0) -> Tensor:
        """Return ``(x - mean) / std``, clipped to ``[-clip, clip]``; float32, the shape of ``x``."""
        return ((x - self.mean) / self.std).clamp(-clip, clip)

    def denormalize(self, x: Tensor) -> Tensor:
        """Return ``x * std + mean``: the inverse of :meth:`normalize` without clipping."""
        return x * self.std + self.mean


class BoundedMoments(RunningMoments):
    """Moments that normalise no value seen beyond a bound, so that rare features are not amplified.

    A feature that is 1 in one row of a hundred and 0 in others has a deviation of 0.1. Divided by that, it would
    dominate its row. Here `std` is at least the largest distance from the mean, divided by the bound.

    Parameters
    ----------
    shape : tuple of int
        Shape of one row; ``()`` for scalars.
    bound : float
        Largest normalised value, in deviations.

    Attributes
    ----------
    largest : Tensor
        Largest magnitude seen, float32 ``[*shape]``.
    """

    largest: Tensor

    def __init__(self, shape: tuple[int, ...], bound: float = 2.0) -> None:
        super().__init__(shape)
        self._bound = bound
        self.register_buffer("largest", torch.zeros(shape))

    def _add(self, rows: Tensor, counted: Tensor) -> None:
        super()._add(rows, counted)
        torch.maximum(self.largest, rows.abs().amax(0), out=self.largest)
        torch.maximum(self.std, (self.largest + self.mean.abs()) / self._bound, out=self.std)


class NormalizedReturns(nn.Module):
    """Base of networks whose value head may predict returns minus their running mean, in units of their deviation.

    Attributes
    ----------
    return_moments : RunningMoments or None
        Moments of returns, part of the weights; None: the head predicts returns.
    """

    return_moments: RunningMoments | None

    def value_layers(self) -> Iterable[tuple[nn.Linear, bool]]:
        """Return the layers that add up to the value, each with whether its bias carries the value's mean."""
        raise NotImplementedError

    def denormalize_value(self, value: Tensor) -> Tensor:
        """Convert values of the head into returns; unchanged without normalisation of returns."""
        return value if self.return_moments is None else self.return_moments.denormalize(value)

    def normalize_return(self, target: Tensor) -> Tensor:
        """Convert returns into targets for the head, without clipping: the inverse of :meth:`denormalize_value`."""
        return target if self.return_moments is None else self.return_moments.normalize(target, clip=math.inf)

    def normalize_difference(self, difference: Tensor) -> Tensor:
        """Convert differences of returns, such as advantages, into units of the head."""
        return difference if self.return_moments is None else difference / self.return_moments.std

    @torch.no_grad()
    def update_return_statistics(
        self, target: Tensor, mask: Tensor | None = None, copies: Iterable[NormalizedReturns] = ()
    ) -> None:
        """Update the running moments with returns, and keep the value head's predictions.

        When the moments ``(m, s)`` change to ``(m', s')``, the head becomes ``W' = s / s' W`` and
        ``b' = (s b + m - m') / s'``: denormalised values stay the same (PopArt, arXiv:1602.07714, proposition 1).
        Otherwise every update of the moments would shift bootstrapped targets, which feed back into the moments.

        Parameters
        ----------
        target : Tensor
            Returns, ``[...]``, in the units of :meth:`denormalize_value`.
        mask : Tensor, optional
            Returns that count, bool or numbers other than 0, ``[...]``; default: all.
        copies : iterable of NormalizedReturns
            Networks that share these moments, such as a target network: their predictions are kept, too.
        """
        moments = self.return_moments
        if moments is None:
            return
        mean, std = moments.mean.clone(), moments.std.clone()
        moments.update(target, mask)
        for network in (self, *copies):
            for layer, has_mean in network.value_layers():
                layer.bias.mul_(std).add_(mean - moments.mean if has_mean else 0.0).div_(moments.std)
                noise = (layer.sigma_weight, layer.sigma_bias) if isinstance(layer, NoisyLinear) else ()
                for weight in (layer.weight, *noise):
                    weight.mul_(std / moments.std)


class ObservationInput(nn.Module):
    """First stage of every network: integers scaled by their bounds, choices one-hot, floats optionally normalised.

    A multi-discrete observation becomes the one-hot vectors of its components side by side. See
    :attr:`ObservationSpec.scaling`.

    Parameters
    ----------
    observation : ObservationSpec
        Spec of a plain observation.
    normalize : bool
        Whether to normalise floating-point observations elementwise by running moments; others have known ranges.
    raw_images : bool
        Whether images whose bytes share one range from 0 stay bytes, for an encoder that accepts them.
    moments : type of RunningMoments
        Class of the running moments.

    Attributes
    ----------
    takes_floats : bool
        Whether observations are float32 arrays that pass unchanged but for the running moments.
    """

    def __init__(
        self, observation: ObservationSpec, normalize: bool, raw_images: bool = False,
        moments: type[RunningMoments] = RunningMoments,
    ) -> None:  # fmt: skip
        super().__init__()
        self.is_raw = raw_images and observation.brightest is not None
        is_float = observation.dtype.startswith("float")
        self.num_values = observation.num_values
        self.nvec = observation.nvec
        self._firsts = torch.tensor([0, *accumulate(self.nvec[:-1])])  # first column of each component
        self.scaling = observation.scaling
        if self.scaling is not None:
            count, shape = len(self.scaling.unit), encoder_input_shape(observation)
            self._origin, self._unit = (
                torch.tensor(values, dtype=dtype).view(shape if count > 1 else ())
                for values, dtype in zip(self.scaling, (torch.int64, torch.float32), strict=True)
            )
        self.is_scalar = not observation.shape and observation.num_values is None
        self.takes_floats = observation.dtype == "float32" and not self.is_scalar
        self.moments = moments(encoder_input_shape(observation)) if normalize and is_float else None

    def forward(self, observation: Tensor) -> Tensor:
        """Convert observations ``[N, *shape]`` of the column into float32 ``[N, *encoder_input_shape]``."""
        if self.is_raw:
            return observation
        if self.num_values is not None:
            one_hot = torch.zeros(observation.shape[0], self.num_values, device=observation.device)
            return one_hot.scatter_(1, observation.unsqueeze(-1), 1.0)
        if self.nvec:
            one_hot = torch.zeros(observation.shape[0], sum(self.nvec), device=observation.device)
            if self._firsts.device != observation.device:  # once: CUDA graphs cannot contain copies from the host
                self._firsts = self._firsts.to(observation.device)
            return one_hot.scatter_(1, observation + self._firsts, 1.0)
        x = observation.unsqueeze(-1) if self.is_scalar else observation
        x = x.float() if self.scaling is None else self._scaled(x, self.scaling)
        return x if self.moments is None else self.moments.normalize(x)

    def _scaled(self, x: Tensor, scaling: Scaling) -> Tensor:
        if len(scaling.unit) == 1 and scaling.origin == (0,):
            return x / scaling.unit[0]
        if self._origin.device != x.device:
            self._origin, self._unit = self._origin.to(x.device), self._unit.to(x.device)
        return (x.to(torch.int64) - self._origin) / self._unit

    def describe(self) -> dict[str, str]:
        """Describe the preprocessing of each leaf, by the leaf's path; "" for a plain observation."""
        if self.num_values is not None:
            return {"": f"one of {self.num_values} values, one-hot"}
        if self.nvec:
            return {"": f"one of {', '.join(map(str, self.nvec))} values, one-hot"}
        if self.moments is not None:
            return {"": "minus its running mean, divided by its running standard deviation"}
        return {"": "as it is" if self.scaling is None else _in_words(self.scaling)}

    def mask(self, observation: Tensor) -> None:
        """Return None: a plain observation has no mask of legal actions."""

    def update_moments(self, observation: Tensor, mask: Tensor | None = None) -> None:
        """Update running moments, if any, with observations ``[..., *shape]`` (those in ``mask``, bool ``[...]``)."""
        if self.moments is not None:
            self.moments.update(observation, mask)


class CompositeInput(nn.Module):
    """First stage of a network over composite observations: an `ObservationInput` per part of a row of bytes.

    Parameters
    ----------
    observation : ObservationSpec
        Spec of a composite observation.
    normalize, raw_images, moments
        As for :class:`ObservationInput`, for each part.
    """

    def __init__(
        self, observation: ObservationSpec, normalize: bool, raw_images: bool = False,
        moments: type[RunningMoments] = RunningMoments,
    ) -> None:  # fmt: skip
        super().__init__()
        self.is_plain = not unmasked(observation).parts
        self.parts = observation.parts
        self.mask_part = observation.mask
        self.inputs = nn.ModuleList(
            ObservationInput(part.spec, normalize, raw_images, moments) for part in observation.parts
        )

    def forward(self, observation: Tensor | Mapping[str, Tensor]) -> Seen:
        """Convert rows, see :func:`leaf`, into an encoder's input: a tensor if only a mask adds to one part."""
        seen = {part.path: stage(leaf(observation, part)) for part, stage in self._stages()}
        return seen[""] if self.is_plain else seen

    def describe(self) -> dict[str, str]:
        """Describe the preprocessing of each leaf, by its path. See :meth:`ObservationInput.describe`."""
        return {part.path: stage.describe()[""] for part, stage in self._stages()}

    def mask(self, observation: Tensor | Mapping[str, Tensor]) -> Tensor | None:
        """Return the legal actions of rows ``[..., nbytes]``: bool ``[..., M]``; ``None`` without a mask."""
        return None if self.mask_part is None else leaf(observation, self.mask_part)

    def update_moments(self, observation: Tensor, mask: Tensor | None = None) -> None:
        """Update the parts' running moments with rows ``[..., nbytes]`` (those in ``mask``, bool ``[...]``)."""
        for part, stage in self._stages():
            stage.update_moments(leaf(observation, part), mask)

    def _stages(self) -> Iterable[tuple[ObservationPart, ObservationInput]]:
        return zip(self.parts, cast("Iterable[ObservationInput]", self.inputs), strict=True)


def build_input(
    observation: ObservationSpec, normalize: bool, raw_images: bool = False,
    moments: type[RunningMoments] = RunningMoments,
) -> ObservationInput | CompositeInput:  # fmt: skip
    """Return the first stage for an observation."""
    kind = CompositeInput if observation.parts else ObservationInput
    return kind(observation, normalize, raw_images, moments)


def _in_words(scaling: Scaling) -> str:
    if len(scaling.unit) > 1:
        return "each number scaled by its own bounds"
    origin, unit = scaling.origin[0], scaling.unit[0]
    return f"(x - {origin:,}) / {unit:,.10g}" if origin else f"x / {unit:,.10g}"


def leaf(rows: Tensor | Mapping[str, Tensor], part: ObservationPart) -> Tensor:
    """Return one leaf of composite rows, ``[..., *shape]`` in its dtype.

    Parameters
    ----------
    rows
        Rows of bytes, uint8 ``[..., nbytes]``, of which the leaf is a view; or leaves by path, in exported programs.
    part
        Place of the leaf.
    """
    if not isinstance(rows, Tensor):
        return rows[part.path]
    shape, dtype = part.spec.shape, getattr(torch, part.spec.dtype)
    first = part.offset // dtype.itemsize
    values = rows.view(dtype)[..., first : first + math.prod(shape)]
    return values.unflatten(-1, shape) if shape else values.squeeze(-1)
