"""Counting environments whose masks encode their observation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np

from tests.envs.counting import CountingEnv, Ending

NUM_ACTIONS = 7


def legal_action(episode: int, count: int) -> int:
    """The one action that is legal at this step of this episode."""
    return (3 * episode + count) % NUM_ACTIONS


class MaskedEnv(CountingEnv):
    """Counts, and lets one action be legal, another one in every step and episode.

    Parameters
    ----------
    tag, endings
        As for `CountingEnv`.
    at
        Where its mask is: "info" or "observation".
    masks
        What to show instead at (episode, step).
    """

    def __init__(
        self,
        tag: int = 0,
        endings: Sequence[Ending] = ((3, "terminated"),),
        at: str = "info",
        masks: dict[tuple[int, int], Any] | None = None,
    ) -> None:
        super().__init__(tag, endings)
        self.action_space = gymnasium.spaces.Discrete(NUM_ACTIONS)
        self.at = at
        self.masks = masks or {}
        if at == "observation":
            mask = gymnasium.spaces.MultiBinary(NUM_ACTIONS)
            self.observation_space = gymnasium.spaces.Dict(action_mask=mask, seen=self.observation_space)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        observation, info = super().reset(seed=seed, options=options)
        return self._with_mask(observation, info)

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        observation, *outcome, info = super().step(action)
        observation, info = self._with_mask(observation, info)
        return observation, *outcome, info  # type: ignore[return-value]

    def _with_mask(self, observation: Any, info: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        mask = np.zeros(NUM_ACTIONS, np.int8)
        mask[legal_action(self.episode, self.count)] = 1
        mask = self.masks.get((self.episode, self.count), mask)
        if self.at == "observation":
            return {"action_mask": mask, "seen": observation}, info
        return observation, info if mask is None else {**info, "action_mask": mask}


class Strict(MaskedEnv):
    """Takes the one action that is legal, and no other."""

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        assert action == legal_action(self.episode, self.count), "an illegal action"
        return super().step(action)
