"""The same counting environments behind each adapter and autoreset mode."""

from __future__ import annotations

from collections.abc import Sequence

from gymnasium.vector import AutoresetMode

from penstock.envs import Lanes
from penstock.envs.single import SingleLanes
from penstock.envs.vector import VectorLanes
from tests.envs.counting import CountingEnv, Ending, counting_vector

ARRANGEMENTS = ("single", "next_step", "same_step", "disabled")


def counting_lanes(arrangement: str, endings_of_lanes: Sequence[Sequence[Ending]]) -> Lanes:
    """Lanes tagged 0, 1, 2, ..., each with endings of its own."""
    seeds = list(range(len(endings_of_lanes)))
    if arrangement == "single":
        envs = [CountingEnv(tag, endings) for tag, endings in enumerate(endings_of_lanes)]
        return SingleLanes(envs, seeds, name="counting")
    vector = counting_vector(endings_of_lanes, AutoresetMode[arrangement.upper()])
    return VectorLanes(vector, seeds, name="counting")
