"""Observation and action specs as plain data: no Gymnasium, no torch."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np

ActionKind = Literal["discrete", "multi-discrete", "continuous", "mixed"]

ROW_ALIGNMENT = 8  # bytes: any part of a composite row can be viewed in its own dtype


class Scaling(NamedTuple):
    """Scale of integers: networks see ``(x - origin) / unit``, in [-1, 1].

    Attributes
    ----------
    origin
        Legal values nearest 0: one per number of the observation, or one for all.
    unit
        Largest distances of legal values from `origin`, in the same number.
    """

    origin: tuple[int, ...]
    unit: tuple[float, ...]


@dataclass(frozen=True)
class ObservationPart:
    """Leaf of a composite observation, with its place in the row.

    Attributes
    ----------
    path
        Keys and indices of the leaf in the environment's observation, joined by "/", such as ``"robot/arm"``.
    spec
        Spec of the leaf alone.
    offset
        First byte in the row, a multiple of 8.
    """

    path: str
    spec: ObservationSpec
    offset: int


@dataclass(frozen=True)
class ObservationSpec:
    """Layout of one lane's observation in its column.

    A composite observation (of a Dict or Tuple space, or with an action mask) is one row of bytes, uint8 ``[nbytes]``,
    in which its leaves lie side by side, each as in a column of its own. All code that carries observations carries
    composite ones; only the writer and the network's first stage look inside.

    Attributes
    ----------
    shape
        Shape of one observation; ``()`` for a scalar.
    dtype
        NumPy name of the column's dtype, such as ``"float32"`` or ``"uint8"``.
    num_values
        Number of values of a discrete observation, which is an int64 scalar counted from 0; else ``None``.
    start
        Environment's number for value 0 of a discrete observation; subtracted by the lanes.
    is_stacked
        Whether the first axis is a stack of successive frames: consecutive observations share all but one.
    nvec
        Numbers of values of the components of a multi-discrete observation, an int64 vector counted from 0; else empty.
    starts
        Environment's numbers for value 0 of each component.
    parts
        Leaves of a composite observation that the network sees; else empty.
    mask
        Place of the mask of legal actions, bool ``[sum of the action's choices]``; ``None`` without one. The network
        does not see it; it restricts the distribution of actions.
    mask_is_in_info
        Whether the mask comes from ``info["action_mask"]`` rather than the observation.
    low, high
        Declared bounds, one per number of the observation or one for all, infinite where unbounded. ``None`` without
        any bound: for composites, choices, and checkpoints saved without bounds. Comparison of specs ignores bounds;
        `is_seen_as` compares their consequences.
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
        """Spec of the new part of each observation: the last frame of a stack, else all of it."""
        if not self.is_stacked:
            return self
        low, high = (bounds and bounds[-math.prod(self.shape[1:]) :] for bounds in (self.low, self.high))
        return replace(self, shape=(1, *self.shape[1:]), is_stacked=False, low=low, high=high)

    def newest_of(self, column: Any) -> Any:
        """Return the new part of observations ``[..., *shape]``, an array or tensor, as a view."""
        leading = (slice(None),) * (column.ndim - len(self.shape))
        return column[(*leading, slice(-1, None))] if self.is_stacked else column

    @property
    def is_image(self) -> bool:
        """Whether observations are or contain pixels: uint8 with three dimensions."""
        if self.parts:
            return any(part.spec.is_image for part in self.parts)
        return self.dtype == "uint8" and len(self.shape) == 3

    @property
    def scaling(self) -> Scaling | None:
        """Scale of a plain integer observation from its bounds; ``None`` if numbers stay unscaled.

        A number without a lower or upper bound stays unscaled. The limit of a dtype of more than 8 bits does not count
        as a bound. Bytes without declared bounds lie in [0, 255].
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
        """Largest value of an image whose bytes all range from 0 to it; ``None`` for other observations.

        Image encoders take such bytes directly.
        """
        if self.parts or not self.is_image:
            return None
        origin, unit = self.scaling or Scaling((0,), (1.0,))
        return unit[0] if len(unit) == 1 and origin == (0,) else None

    def is_seen_as(self, other: ObservationSpec) -> bool:
        """Return whether networks see observations of both alike: same layout and same integer scales."""
        return self == other and [leaf.scaling for leaf in self.leaves] == [leaf.scaling for leaf in other.leaves]

    def is_fit_for(self, other: ObservationSpec) -> bool:
        """Return whether a policy trained on these observations can act on those of `other`.

        Bounds count only if they were known in training. Frame stacks count as plain arrays.
        """
        plain, others = replace(self, is_stacked=False), replace(other, is_stacked=False)
        known = [leaf.low is not None or leaf.high is not None for leaf in self.leaves]
        pairs = zip(self.leaves, other.leaves, known, strict=False)
        return plain == others and all(mine.scaling == its.scaling for mine, its, is_known in pairs if is_known)

    @property
    def leaves(self) -> tuple[ObservationSpec, ...]:
        """Specs of the parts, in order; the spec itself if it is plain."""
        return tuple(part.spec for part in self.parts) or (self,)

    def __str__(self) -> str:
        mask = " with a mask of legal actions" if self.mask is not None else ""
        if self.parts:
            parts = (f"{part.path!r}: {part.spec}" if part.path else f"{part.spec}" for part in self.parts)
            return f"{{{', '.join(parts)}}}{mask}"
        if self.num_values is not None:
            return f"{_one_of(self.num_values, self.start)}{mask}"
        if self.nvec:
            return f"choices of {', '.join(map(str, self.nvec))} values{mask}"
        return f"{self.dtype} {self.shape}{_within(self.low, self.high)}{mask}"


def _one_of(count: int, start: int) -> str:
    return f"one of {count} values" + (f" from {start} on" if start else "")


def _within(low: tuple[float, ...] | None, high: tuple[float, ...] | None) -> str:
    """Describe bounds; "" without any."""
    least, most = min(low or (-math.inf,)), max(high or (math.inf,))
    return "" if math.isinf(least) and math.isinf(most) else f" within [{least:g}, {most:g}]"


def _scale(low: float, high: float, limits: Any) -> tuple[int, float]:
    """Return origin and unit of one integer."""
    is_wide = limits.bits > 8
    if math.isinf(low) or math.isinf(high) or (is_wide and (high == limits.max or low == limits.min < 0)):
        return 0, 1.0
    origin = int(min(max(0, low), high))
    return origin, float(max(high - origin, origin - low)) or 1.0


@dataclass(frozen=True)
class ActionSpec:
    """One action of one lane, in the policy's form and in the environment's.

    For the policy, an action is a vector of *choices*, each among a number of values counted from 0, followed by
    *numbers*, each with nominal range [-1, 1] if bounded; both in the order of the environment's leaves. Its dtype is
    int64 without numbers, else float32 (which holds choices exactly). A single Discrete is a scalar. The lanes convert
    it to the environment's form.

    Attributes
    ----------
    shape, dtype
        Shape and NumPy dtype name of the environment's action; meaningless with several `parts`.
    num_actions
        Number of values of a Discrete; else ``None``.
    start
        Environment's number for value 0; added by the lanes.
    low, high
        Bounds of all numbers, infinite where unbounded; ``None`` without numbers.
    nvec
        Number of values of each component of a MultiDiscrete or MultiBinary (2 each), flattened; else empty.
    starts
        Environment's numbers for value 0 of each component.
    parts
        For a Dict, pairs of key and spec; for a Tuple, pairs of ``None`` and spec; else empty.
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
        """Whether an action is one choice among ``num_actions`` values."""
        return self.num_actions is not None

    @property
    def kind(self) -> ActionKind:
        """Kind of action: a single choice, several, numbers, or both."""
        if self.is_discrete:
            return "discrete"
        if not self.choices:
            return "continuous"
        return "mixed" if self.num_numbers else "multi-discrete"

    @property
    def leaves(self) -> tuple[ActionSpec, ...]:
        """Leaves of the tree of Dicts and Tuples, in order; the spec itself without a tree."""
        return tuple(leaf for _, part in self.parts for leaf in part.leaves) or (self,)

    @cached_property
    def choices(self) -> tuple[int, ...]:
        """Number of values of each choice, over all leaves."""
        if self.parts:
            return tuple(n for leaf in self.leaves for n in leaf.choices)
        return self.nvec if self.num_actions is None else (self.num_actions,)

    @cached_property
    def num_numbers(self) -> int:
        """Number of numbers over all leaves."""
        if self.parts:
            return sum(leaf.num_numbers for leaf in self.leaves)
        return 0 if self.choices else math.prod(self.shape)

    @cached_property
    def is_bounded(self) -> bool:
        """Whether every number has two finite bounds; true without numbers."""
        return all(math.isfinite(bound) for bound in (*(self.low or ()), *(self.high or ())))

    @property
    def noise(self) -> Literal["uniform", "normal"]:
        """Distribution of the random numbers drawn for each action: uniform if all are choices."""
        return "normal" if self.num_numbers else "uniform"

    @cached_property
    def noise_size(self) -> int:
        """Random numbers per action: one per choice and number."""
        return len(self.choices) + self.num_numbers

    def __str__(self) -> str:
        if self.parts:
            return f"{{{', '.join(f'{part}' if key is None else f'{key!r}: {part}' for key, part in self.parts)}}}"
        if self.num_actions is not None:
            return _one_of(self.num_actions, self.start)
        if self.nvec:
            return f"choices of {', '.join(map(str, self.nvec))} values"
        return f"{self.dtype} {self.shape}{_within(self.low, self.high)}"

    @property
    def column_shape(self) -> tuple[int, ...]:
        """Shape of one action of the policy."""
        return () if self.is_discrete else (self.noise_size,)

    @property
    def column_dtype(self) -> str:
        """NumPy dtype name of the policy's actions."""
        return "float32" if self.num_numbers else "int64"
