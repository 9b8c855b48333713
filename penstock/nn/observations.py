"""Inputs of encoders: observations as float32, from any dtype of the column."""

from __future__ import annotations

import math
from itertools import accumulate
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor, nn

from penstock.nn.normalization import RunningMoments

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.envs.spaces import ObservationPart, ObservationSpec, Scaling

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
            self._firsts = self._firsts.to(observation.device)  # once: CUDA graphs cannot contain copies from the host
            return one_hot.scatter_(1, observation + self._firsts, 1.0)
        x = observation.unsqueeze(-1) if self.is_scalar else observation
        x = x.float() if self.scaling is None else self._scaled(x, self.scaling)
        return x if self.moments is None else self.moments.normalize(x)

    def _scaled(self, x: Tensor, scaling: Scaling) -> Tensor:
        if len(scaling.unit) == 1 and scaling.origin == (0,):
            return x / scaling.unit[0]
        self._origin, self._unit = self._origin.to(x.device), self._unit.to(x.device)
        return (x.to(torch.int64) - self._origin) / self._unit

    def describe(self) -> dict[str, str]:
        """Describe the preprocessing of each leaf, by the leaf's path; "" for a plain observation."""
        if self.num_values is not None:
            return {"": f"one of {self.num_values} values, one-hot"}
        if self.nvec:
            return {"": f"one of {', '.join(map(str, self.nvec))} values, one-hot"}
        if self.moments is not None:
            return {"": "less its running mean, by its running deviation"}
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

    def forward(self, observation: Tensor) -> Seen:
        """Convert rows, uint8 ``[N, nbytes]``, into an encoder's input; with one part besides a mask a tensor."""
        seen = {part.path: stage(leaf(observation, part)) for part, stage in self._stages()}
        return seen[""] if self.is_plain else seen

    def describe(self) -> dict[str, str]:
        """Describe the preprocessing of each leaf, by its path. See :meth:`ObservationInput.describe`."""
        return {part.path: stage.describe()[""] for part, stage in self._stages()}

    def mask(self, observation: Tensor) -> Tensor | None:
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


def leaf(rows: Tensor, part: ObservationPart) -> Tensor:
    """Return one leaf of composite rows, uint8 ``[..., nbytes]``, as a view ``[..., *shape]`` in its dtype."""
    shape, dtype = part.spec.shape, getattr(torch, part.spec.dtype)
    first = part.offset // dtype.itemsize
    values = rows.view(dtype)[..., first : first + math.prod(shape)]
    return values.unflatten(-1, shape) if shape else values.squeeze(-1)
