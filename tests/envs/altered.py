"""A vector environment whose answers are altered on the way out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gymnasium.vector import AutoresetMode, SyncVectorEnv

from penstock.envs.vector import VectorLanes
from tests.envs.faulty import FaultyEnv


class AlteredVector(SyncVectorEnv):
    """Three environments, the last with the faults it is given; ``alter`` gets and returns each answer of step."""

    def __init__(
        self,
        alter: Callable[..., Any] | None = None,
        mode: AutoresetMode = AutoresetMode.NEXT_STEP,
        **faults: Any,
    ) -> None:
        super().__init__([FaultyEnv, FaultyEnv, lambda: FaultyEnv(**faults)], autoreset_mode=mode)
        self.alter = alter

    def step(self, actions: Any) -> Any:
        answer = super().step(actions)
        return self.alter(*answer) if self.alter else answer


def altered_lanes(*arguments: Any, **faults: Any) -> VectorLanes:
    """Lanes of an altered vector environment, numbers 10 to 12 of a run."""
    return VectorLanes(AlteredVector(*arguments, **faults), [0, 1, 2], name="vector", first_lane=10)
