"""Environments that break their contract in one way each."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

GOOD = np.zeros(2, np.float32)


class FaultyEnv(gymnasium.Env):
    """Well-behaved, except for a given result or error of the n-th reset or step."""

    metadata: dict[str, Any] = {}  # noqa: RUF012

    def __init__(
        self,
        space: gymnasium.Space | None = None,
        *,
        reset_answers: dict[int, Any] | None = None,
        step_answers: dict[int, Any] | None = None,
        close_error: Exception | None = None,
    ) -> None:
        self.observation_space = space or gymnasium.spaces.Box(-1, 1, (2,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(2)
        self.good = GOOD if space is None else np.zeros(space.shape or (), space.dtype)
        self.reset_answers = reset_answers or {}
        self.step_answers = step_answers or {}
        self.close_error = close_error
        self.num_resets = 0
        self.num_steps = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.num_resets += 1
        return self._answer(self.reset_answers.get(self.num_resets, (self.good, {})))

    def step(self, action: Any) -> Any:
        self.num_steps += 1
        return self._answer(self.step_answers.get(self.num_steps, (self.good, 0.0, False, False, {})))

    def close(self) -> None:
        if self.close_error is not None:
            raise self.close_error

    @staticmethod
    def _answer(answer: Any) -> Any:
        if isinstance(answer, BaseException):
            raise answer
        return answer
