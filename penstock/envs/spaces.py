"""What an environment shows and what it takes, as plain data: no Gymnasium, no torch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class ObservationSpec:
    """One observation of one lane, as it lies in its column.

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
    """

    shape: tuple[int, ...]
    dtype: str
    num_values: int | None = None
    start: int = 0
    is_stacked: bool = False

    @property
    def is_image(self) -> bool:
        """Whether observations are pixels: uint8 with three dimensions."""
        return self.dtype == "uint8" and len(self.shape) == 3


@dataclass(frozen=True)
class ActionSpec:
    """One action of one lane, as the policy chooses it.

    A discrete action is an int64 scalar counted from 0. A continuous action is a float32 vector of ``noise_size``
    numbers, with nominal range [-1, 1] in the dimensions that are bounded; the lanes scale it to the environment.

    Attributes
    ----------
    shape, dtype
        Shape and NumPy dtype name of what the environment itself takes.
    num_actions
        Number of discrete actions; ``None`` for continuous ones.
    start
        What the environment calls action 0; added by the lanes. 0 for continuous actions.
    low, high
        Bounds of a continuous action, flattened, infinite where there is none; ``None`` for discrete actions.
    """

    shape: tuple[int, ...]
    dtype: str
    num_actions: int | None = None
    start: int = 0
    low: tuple[float, ...] | None = None
    high: tuple[float, ...] | None = None

    @property
    def is_discrete(self) -> bool:
        """Whether the policy chooses among ``num_actions`` actions."""
        return self.num_actions is not None

    @property
    def noise(self) -> Literal["uniform", "normal"]:
        """Distribution of the random numbers that a lane draws for each action."""
        return "uniform" if self.is_discrete else "normal"

    @property
    def noise_size(self) -> int:
        """How many random numbers one action takes: 1 if discrete, else one for each dimension."""
        return 1 if self.is_discrete else math.prod(self.shape)
