"""Observation and action specs as plain data: no Gymnasium, no torch."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np

ActionKind = Literal["discrete", "multi-discrete", "continuous", "mixed"]

ROW_ALIGNMENT = 8  # bytes: any part of a composite row can be viewed in its own dtype


class Scaling(NamedTuple):
    """Scale of integers: a network sees ``(x - origin) / unit``, which lies in [-1, 1].

    Attributes
    ----------
    origin
        The legal values nearest 0: one for each number of the observation, or one for all.
    unit
        The largest distances of legal values from them, as many.
    """

    origin: tuple[int, ...]
    unit: tuple[float, ...]


@dataclass(frozen=True)
class ObservationPart:
    """A leaf of a composite observation: which one, and where it lies in the row.

    Attributes
    ----------
    path
        Keys and indices that lead to it in the environment's observation, joined by "/", such as ``"robot/arm"``.
    spec
        The leaf by itself.
    offset
        Its first byte in the row, a multiple of 8.
    """

    path: str
    spec: ObservationSpec
    offset: int


@dataclass(frozen=True)
class ObservationSpec:
    """One observation of one lane, as it lies in its column.

    A composite observation (of a Dict or Tuple space, or one with an action mask) is one row of bytes, uint8
    ``[nbytes]``, in which its leaves lie side by side, each as it would lie in a column of its own. So whatever carries
    observations carries composite ones; only who writes them and the network's first stage look inside.

    Attributes
    ----------
    shape
        Shape of one observation; ``()`` for a scalar.
    dtype
        NumPy name of the column's dtype, such as ``"float32"`` or ``"uint8"``.
    num_values
        Number of values of a discrete observation, which is an int64 scalar counted from 0; else ``None``.
    start
        What the environment calls value 0 of a discrete observation; subtracted by the lanes.
    is_stacked
        The first axis is a stack of successive frames: each observation shares all but one with the one before.
    nvec
        Numbers of values of the components of a multi-discrete observation, an int64 vector counted from 0; else empty.
    starts
        What the environment calls value 0 of each of them.
    parts
        Leaves of a composite observation that the network sees; else empty.
    mask
        Where the mask of legal actions lies: bool ``[sum of the action's choices]``; ``None`` without one. It is no
        part: the network does not see it, the distribution of actions is restricted by it.
    mask_is_in_info
        The mask is found in ``info["action_mask"]``, not in the observation.
    low, high
        Bounds that the environment declares, one for each number of the observation or one for all of them, infinite
        where there is none. ``None`` where no number is bounded: of a composite, of choices, and in checkpoints that
        were saved without bounds. Specs compare equal whatever their bounds; `is_seen_as` compares what follows from
        them.
    """

    shape: tuple[int, ...]
    dtype: str
    num_values: int | None = None
    start: int = 0
    is_stacked: bool = False
    nvec: tuple[int, ...] = ()
    starts: tuple[int, ...] = ()
    parts: tuple[ObservationPart, ...] = ()
    mask: ObservationPart | None = None
    mask_is_in_info: bool = False
    low: tuple[float, ...] | None = field(default=None, compare=False)
    high: tuple[float, ...] | None = field(default=None, compare=False)

    @property
    def newest(self) -> ObservationSpec:
        """New part of each observation: the last frame of a stack, else all of it."""
        if not self.is_stacked:
            return self
        low, high = (bounds and bounds[-math.prod(self.shape[1:]) :] for bounds in (self.low, self.high))
        return replace(self, shape=(1, *self.shape[1:]), is_stacked=False, low=low, high=high)

    def newest_of(self, column: Any) -> Any:
        """New part of observations ``[..., *shape]``, an array or tensor: a view of it."""
        leading = (slice(None),) * (column.ndim - len(self.shape))
        return column[(*leading, slice(-1, None))] if self.is_stacked else column

    @property
    def is_image(self) -> bool:
        """Whether observations are pixels, or pixels are among them: uint8 with three dimensions."""
        if self.parts:
            return any(part.spec.is_image for part in self.parts)
        return self.dtype == "uint8" and len(self.shape) == 3

    @property
    def scaling(self) -> Scaling | None:
        """Scale of a plain observation of integers by its bounds; ``None`` if its numbers are seen as they are.

        A number without a bound on either side is seen as it is. In a dtype of more than 8 bits the dtype's own limit
        is no bound. Bytes without declared bounds lie in [0, 255].
        """
        kind = np.dtype(self.dtype)
        if self.parts or self.nvec or self.num_values is not None or kind.kind not in "iu":
            return None
        if self.low is None or self.high is None:
            return Scaling((0,), (255.0,)) if self.dtype == "uint8" else None
        each = [_scale(low, high, np.iinfo(kind)) for low, high in zip(self.low, self.high, strict=True)]
        origin, unit = zip(*each, strict=True)
        return None if set(each) == {(0, 1.0)} else Scaling(origin, unit)

    @property
    def brightest(self) -> float | None:
        """The largest value of an image whose bytes all count from 0 up to it; ``None`` of all else.

        Encoders of images take such bytes as they are.
        """
        if self.parts or not self.is_image:
            return None
        origin, unit = self.scaling or Scaling((0,), (1.0,))
        return unit[0] if len(unit) == 1 and origin == (0,) else None

    def is_seen_as(self, other: ObservationSpec) -> bool:
        """Whether a network sees observations of both alike: the same layout, and the same scales of integers."""
        return self == other and [leaf.scaling for leaf in self.leaves] == [leaf.scaling for leaf in other.leaves]

    @property
    def leaves(self) -> tuple[ObservationSpec, ...]:
        """The parts' specs, in order; the spec itself if it is plain."""
        return tuple(part.spec for part in self.parts) or (self,)


def _scale(low: float, high: float, limits: Any) -> tuple[int, float]:
    """Origin and unit of one integer."""
    is_wide = limits.bits > 8
    if math.isinf(low) or math.isinf(high) or (is_wide and (high == limits.max or low == limits.min < 0)):
        return 0, 1.0
    origin = int(min(max(0, low), high))
    return origin, float(max(high - origin, origin - low)) or 1.0


@dataclass(frozen=True)
class ActionSpec:
    """One action of one lane, as the policy chooses it and as the environment takes it.

    To the policy any action is some *choices*, each one of a number of values counted from 0, and some *numbers*,
    each with nominal range [-1, 1] if it is bounded. It is a vector: first all choices, then all numbers, each in the
    order of the environment's leaves; int64 if there are no numbers, else float32 (which holds choices exactly). A
    single Discrete is a scalar. The lanes make of it what the environment takes.

    Attributes
    ----------
    shape, dtype
        Shape and NumPy dtype name of what the environment itself takes; of no meaning if it takes several `parts`.
    num_actions
        Number of values of a Discrete; else ``None``.
    start
        What the environment calls value 0 of it; added by the lanes.
    low, high
        Bounds of all numbers, infinite where there is none; ``None`` without numbers.
    nvec
        Number of values of each component of a MultiDiscrete or MultiBinary (2 each), flattened; else empty.
    starts
        What the environment calls value 0 of each of them.
    parts
        Of a Dict, its keys and what each takes; of a Tuple, ``None`` and what each member takes; else empty.
    """

    shape: tuple[int, ...]
    dtype: str
    num_actions: int | None = None
    start: int = 0
    low: tuple[float, ...] | None = None
    high: tuple[float, ...] | None = None
    nvec: tuple[int, ...] = ()
    starts: tuple[int, ...] = ()
    parts: tuple[tuple[str | None, ActionSpec], ...] = ()

    @cached_property
    def is_discrete(self) -> bool:
        """Whether the policy chooses among ``num_actions`` actions, and nothing else."""
        return self.num_actions is not None

    @property
    def kind(self) -> ActionKind:
        """A single choice, several, numbers, or both."""
        if self.is_discrete:
            return "discrete"
        if not self.choices:
            return "continuous"
        return "mixed" if self.num_numbers else "multi-discrete"

    @property
    def leaves(self) -> tuple[ActionSpec, ...]:
        """Leaves of the tree of Dicts and Tuples, in order; the spec itself if it is no tree."""
        return tuple(self._leaves())

    @cached_property
    def choices(self) -> tuple[int, ...]:
        """Number of values of each choice, over all leaves."""
        if self.parts:
            return tuple(n for leaf in self._leaves() for n in leaf.choices)
        return self.nvec if self.num_actions is None else (self.num_actions,)

    @cached_property
    def num_numbers(self) -> int:
        """Number of numbers over all leaves."""
        if self.parts:
            return sum(leaf.num_numbers for leaf in self._leaves())
        return 0 if self.choices else math.prod(self.shape)

    @property
    def noise(self) -> Literal["uniform", "normal"]:
        """Distribution of the random numbers that a lane draws for each action: uniform if it is all choices."""
        return "normal" if self.num_numbers else "uniform"

    @cached_property
    def noise_size(self) -> int:
        """Random numbers per action: one for each choice and each number."""
        return len(self.choices) + self.num_numbers

    @property
    def column_shape(self) -> tuple[int, ...]:
        """Shape of one action as the policy chooses it."""
        return () if self.is_discrete else (self.noise_size,)

    @property
    def column_dtype(self) -> str:
        """NumPy dtype name of an action as the policy chooses it."""
        return "float32" if self.num_numbers else "int64"

    def _leaves(self) -> Iterator[ActionSpec]:
        if not self.parts:
            yield self
        for _, part in self.parts:
            yield from part._leaves()
