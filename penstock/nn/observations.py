"""Inputs of encoders: observations as float32, whatever their dtype in the column."""

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
"""Input of an encoder: float32 ``[N, *encoder_input_shape]``, or bytes of images; of a composite a dict of parts."""


def unmasked(observation: ObservationSpec) -> ObservationSpec:
    """Spec that an encoder is built for: the plain observation of a composite that only adds a mask."""
    parts = observation.parts
    return parts[0].spec if len(parts) == 1 and not parts[0].path else observation


def encoder_input_shape(observation: ObservationSpec) -> tuple[int, ...]:
    """Shape of one plain observation as an encoder sees it: one-hot if discrete, a vector of one if a scalar."""
    if observation.num_values is not None:
        return (observation.num_values,)
    if observation.nvec:
        return (sum(observation.nvec),)
    return observation.shape or (1,)


def encoder_input_size(observation: ObservationSpec) -> int:
    """Number of inputs of an encoder for one observation, plain or composite."""
    if observation.parts:
        return sum(encoder_input_size(part.spec) for part in observation.parts)
    return math.prod(encoder_input_shape(observation))


class ObservationInput(nn.Module):
    """First stage of every network: integers scaled by their bounds, choices one-hot, floats normalised if asked.

    A multi-discrete observation becomes the one-hot vectors of its components, side by side. See
    :attr:`ObservationSpec.scaling`.

    Parameters
    ----------
    observation : ObservationSpec
        What the column holds: a plain observation.
    normalize : bool
        Subtract the running mean from each element and divide by its running standard deviation, where
        observations are floating point in their column; others have a known range already.
    raw_images : bool
        Images whose bytes have one range from 0 stay the bytes that they are, for an encoder that takes them so.
    moments : type of RunningMoments
        How it is normalised.
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
        self._firsts = torch.tensor([0, *accumulate(self.nvec[:-1])])  # of each component's values among all
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
        """Turn observations ``[N, *shape]`` as they lie in their column into float32 ``[N, *encoder_input_shape]``."""
        if self.is_raw:
            return observation
        if self.num_values is not None:
            one_hot = torch.zeros(observation.shape[0], self.num_values, device=observation.device)
            return one_hot.scatter_(1, observation.unsqueeze(-1), 1.0)
        if self.nvec:
            one_hot = torch.zeros(observation.shape[0], sum(self.nvec), device=observation.device)
            self._firsts = self._firsts.to(observation.device)  # once: no CUDA graph holds a copy from the host
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
        """Say what is done to each leaf before an encoder sees it, by the leaf's path: of a plain one ""."""
        if self.num_values is not None:
            return {"": f"one of {self.num_values} values, one-hot"}
        if self.nvec:
            return {"": f"one of {', '.join(map(str, self.nvec))} values, one-hot"}
        if self.moments is not None:
            return {"": "less its running mean, by its running deviation"}
        return {"": "as it is" if self.scaling is None else _in_words(self.scaling)}

    def mask(self, observation: Tensor) -> None:
        """Which actions are legal: a plain observation does not say."""

    def update_moments(self, observation: Tensor, mask: Tensor | None = None) -> None:
        """Take observations ``[..., *shape]`` (of them ``mask``, bool ``[...]``) into their running moments if kept."""
        if self.moments is not None:
            self.moments.update(observation, mask)


class CompositeInput(nn.Module):
    """First stage of a network over composite observations: each part of a row of bytes as it would be by itself.

    Parameters
    ----------
    observation : ObservationSpec
        What the column holds: a composite observation.
    normalize, raw_images, moments
        As for :class:`ObservationInput`, of each part.
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
        """Turn rows, uint8 ``[N, nbytes]``, into what encoders see: of a plain observation with a mask a tensor."""
        seen = {part.path: stage(leaf(observation, part)) for part, stage in self._stages()}
        return seen[""] if self.is_plain else seen

    def describe(self) -> dict[str, str]:
        """Say what is done to each leaf, by its path. See :meth:`ObservationInput.describe`."""
        return {part.path: stage.describe()[""] for part, stage in self._stages()}

    def mask(self, observation: Tensor) -> Tensor | None:
        """Which actions are legal by rows ``[..., nbytes]``: bool ``[..., M]``; ``None`` if they do not say."""
        return None if self.mask_part is None else leaf(observation, self.mask_part)

    def update_moments(self, observation: Tensor, mask: Tensor | None = None) -> None:
        """Take rows ``[..., nbytes]`` (of them ``mask``, bool ``[...]``) into the running moments that parts keep."""
        for part, stage in self._stages():
            stage.update_moments(leaf(observation, part), mask)

    def _stages(self) -> Iterable[tuple[ObservationPart, ObservationInput]]:
        return zip(self.parts, cast("Iterable[ObservationInput]", self.inputs), strict=True)


def build_input(
    observation: ObservationSpec, normalize: bool, raw_images: bool = False,
    moments: type[RunningMoments] = RunningMoments,
) -> ObservationInput | CompositeInput:  # fmt: skip
    """Build the first stage that fits an observation."""
    kind = CompositeInput if observation.parts else ObservationInput
    return kind(observation, normalize, raw_images, moments)


def _in_words(scaling: Scaling) -> str:
    if len(scaling.unit) > 1:
        return "each number scaled by its own bounds"
    origin, unit = scaling.origin[0], scaling.unit[0]
    return f"(x - {origin:,}) / {unit:,.10g}" if origin else f"x / {unit:,.10g}"


def leaf(rows: Tensor, part: ObservationPart) -> Tensor:
    """One leaf of composite rows, uint8 ``[..., nbytes]``: ``[..., *shape]`` in its dtype, in the rows' own memory."""
    shape, dtype = part.spec.shape, getattr(torch, part.spec.dtype)
    first = part.offset // dtype.itemsize
    values = rows.view(dtype)[..., first : first + math.prod(shape)]
    return values.unflatten(-1, shape) if shape else values.squeeze(-1)
