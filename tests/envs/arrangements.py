"""The same environments behind each adapter and autoreset mode."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import gymnasium
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from hypothesis import strategies as st

from penstock.envs import Lanes
from penstock.envs.single import SingleLanes
from penstock.envs.vector import VectorLanes
from tests.envs.counting import CountingEnv, Ending

ARRANGEMENTS = ("single", "next_step", "same_step", "disabled")
AT_ONCE = ("same_step", "disabled")  # arrangements that show the new episode in the step that ends the old one

episodes = st.tuples(st.integers(1, 5), st.sampled_from(["terminated", "truncated", "both"]))
"""Any `Ending`."""


def lanes_of(arrangement: str, makers: Sequence[Callable[[], gymnasium.Env]], **arguments: Any) -> Lanes:
    """Lanes of what the makers return; a vector environment writes every step into the same buffers."""
    seeds = list(range(len(makers)))
    if arrangement == "single":
        return SingleLanes([make() for make in makers], seeds, **arguments)
    mode = AutoresetMode[arrangement.upper()]
    return VectorLanes(SyncVectorEnv(makers, copy=False, autoreset_mode=mode), seeds, **arguments)


def counting_lanes(arrangement: str, endings_of_lanes: Sequence[Sequence[Ending]]) -> Lanes:
    """Lanes tagged 0, 1, 2, ..., each with endings of its own."""
    makers = [partial(CountingEnv, tag, endings) for tag, endings in enumerate(endings_of_lanes)]
    return lanes_of(arrangement, makers, name="counting")
