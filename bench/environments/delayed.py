"""Tasks with delayed rewards and a known best policy (after arXiv:1806.07857).

    penstock train ppo --env bench/environments/delayed.py:WatchRepair --rewards rudder --total-steps 200000

At the end of an episode ``info["is_success"]`` is whether every decision was the best one.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete

Step = tuple[np.ndarray, float, bool, bool, dict[str, Any]]
IDLE = 0  # the action that does nothing


class DelayedTask(gymnasium.Env[np.ndarray, int]):
    """Base of the tasks: observations are float32 vectors, the whole return comes with the last step.

    Parameters
    ----------
    size
        Numbers in an observation.
    num_actions
        Actions to choose from.
    """

    def __init__(self, size: int, num_actions: int) -> None:
        self.observation_space = Box(-1.0, 1.0, (size,), np.float32)
        self.action_space = Discrete(num_actions)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        """Begin an episode."""
        super().reset(seed=seed)
        self._steps, self._earned, self._is_best = 0, 0.0, True
        self._begin()
        return self._shown(), {}

    def step(self, action: int) -> Step:
        """Act; the reward is the return at the end of the episode, and 0 before."""
        self._steps += 1
        is_over = self._act(int(action))
        info = {"is_success": self._is_best} if is_over else {}
        return self._shown(), self._earned if is_over else 0.0, is_over, False, info

    def _begin(self) -> None:
        raise NotImplementedError

    def _act(self, action: int) -> bool:
        """Update the state by an action; return whether the episode is over."""
        raise NotImplementedError

    def _shown(self) -> np.ndarray:
        raise NotImplementedError


class WatchRepair(DelayedTask):
    """Decision to repair a watch, whose profit is paid `delay` days later (section 1 of the paper).

    Each of `brands` brands yields 1 more than its repair costs, or 1 less. On the way to the buyer of a repaired watch,
    every day has an observed event: most cost nothing, some cost or yield `noise`. The return is the sum; that of a
    watch that is not repaired is 0. Only the first action counts.
    """

    def __init__(self, delay: int = 50, brands: int = 4, noise: float = 1.0) -> None:
        super().__init__(brands + 4, 2)
        self._delay, self._brands, self._noise = delay, brands, noise

    def _begin(self) -> None:
        self._brand, self._event, self._is_repaired = int(self.np_random.integers(self._brands)), 0, False

    def _act(self, action: int) -> bool:
        if self._steps == 1:
            self._is_repaired = action == 1
            self._is_best = self._is_repaired == (self._brand % 2 == 0)
            if self._is_repaired:
                self._earned = 1.0 if self._brand % 2 == 0 else -1.0
        self._event = int(self.np_random.choice(3, p=(0.9, 0.05, 0.05)))
        if self._is_repaired and self._steps < self._delay:  # the last event is not observed
            self._earned += self._noise * (0.0, 1.0, -1.0)[self._event]
        return self._steps == self._delay

    def _shown(self) -> np.ndarray:
        shown = np.zeros(self._brands + 4, np.float32)
        if self._steps == 0:
            shown[self._brand] = 1.0
        else:
            shown[self._brands + self._event] = 1.0
            shown[-1] = self._is_repaired
        return shown


class DelayedGrid(DelayedTask):
    """A walk of `length` steps on a grid of `width` x `width`: treasures are added up and paid at the end.

    The treasures are in one corner, where a walker earns 1 for each step. The best walk goes there without a detour;
    this counts as success.
    """

    def __init__(self, width: int = 5, length: int = 30) -> None:
        super().__init__(2 * width, 4)
        self._width, self._length = width, length

    def _begin(self) -> None:
        self._place = self.np_random.integers(self._width, size=2)
        self._nearest = int((self._width - 1 - self._place).sum())

    def _act(self, action: int) -> bool:
        axis, sign = divmod(action, 2)
        self._place[axis] = np.clip(self._place[axis] + (1 if sign == 0 else -1), 0, self._width - 1)
        self._earned += float((self._place == self._width - 1).all())
        is_over = self._steps == self._length
        if is_over:
            self._is_best = self._earned >= self._length - max(1, self._nearest) + 1
        return is_over

    def _shown(self) -> np.ndarray:
        shown = np.zeros(2 * self._width, np.float32)
        shown[self._place[0]] = shown[self._width + self._place[1]] = 1.0
        return shown


class KeyAndDoor(DelayedTask):
    """A key at the start of a corridor of `delay` steps is worth 1 at the door at its end.

    The key hangs on one of three hooks. The first observation shows which, and only the first action can take it; the
    fourth action does nothing. Whether the walker has the key is shown once; later observations show the progress. On
    the way there are `apples` apples on average, each observed, and good (1/2) or bad (-1/2) by chance. Their worth is
    also paid at the door.
    """

    def __init__(self, delay: int = 100, apples: float = 8.0) -> None:
        super().__init__(7, 4)
        self._delay, self._apples = delay, apples

    def _begin(self) -> None:
        self._hook, self._has_key, self._apple = int(self.np_random.integers(3)), False, 0.0

    def _act(self, action: int) -> bool:
        if self._steps == 1:
            self._has_key = self._is_best = action == self._hook
            self._earned = float(self._has_key)
        is_there = self.np_random.random() < self._apples / self._delay
        self._apple = float(self.np_random.choice((-0.5, 0.5))) if is_there else 0.0
        if self._steps < self._delay:
            self._earned += self._apple
        return self._steps == self._delay

    def _shown(self) -> np.ndarray:
        shown = np.zeros(7, np.float32)
        if self._steps == 0:
            shown[self._hook] = 1.0
        shown[3:] = self._has_key and self._steps == 1, self._apple, self._steps / self._delay, self._steps == 0
        return shown


class ChoiceAtStart(DelayedTask):
    """One of `num_actions` choices is the best; the `delay` steps after it do not show which.

    Choice i is worth i / (num_actions - 1). While waiting, one step in ten earns or costs `noise` by chance, which is
    observed.
    """

    def __init__(self, delay: int = 200, num_actions: int = 4, noise: float = 0.5) -> None:
        super().__init__(num_actions + 2, num_actions)
        self._delay, self._num_actions, self._noise = delay, num_actions, noise

    def _begin(self) -> None:
        self._choice, self._sign = -1, 0.0

    def _act(self, action: int) -> bool:
        if self._steps == 1:
            self._choice = action
            self._earned = action / (self._num_actions - 1)
            self._is_best = action == self._num_actions - 1
        self._sign = float(self.np_random.choice((-1.0, 0.0, 1.0), p=(0.05, 0.9, 0.05)))
        if self._steps < self._delay:
            self._earned += self._noise * self._sign
        return self._steps == self._delay

    def _shown(self) -> np.ndarray:
        shown = np.zeros(self._num_actions + 2, np.float32)
        shown[-1] = self._steps == 0
        shown[-2] = self._sign
        if self._steps == 1:
            shown[self._choice] = 1.0
        return shown


class AtOnce(gymnasium.Wrapper[Any, Any, Any, Any]):
    """One of these tasks with rewards paid when they are earned, as after a perfect redistribution.

    Parameters
    ----------
    task
        Name of the task's class.
    **settings
        Arguments of the task.
    """

    def __init__(self, task: str, **settings: Any) -> None:
        kinds = (WatchRepair, DelayedGrid, KeyAndDoor, ChoiceAtStart)
        super().__init__({kind.__name__: kind for kind in kinds}[task](**settings))

    def reset(self, **arguments: Any) -> tuple[Any, dict]:
        """Begin an episode."""
        self._paid = 0.0
        return super().reset(**arguments)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        """Act; the reward is that of this step."""
        observation, _, terminated, truncated, info = super().step(action)
        earned: float = self.unwrapped._earned  # type: ignore[attr-defined]
        reward, self._paid = earned - self._paid, earned
        return observation, reward, terminated, truncated, info


class AllAtTheEnd(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Another environment with the whole return paid in the last step of each episode.

    Parameters
    ----------
    env_id
        Gymnasium id of the environment.
    **settings
        Arguments of the environment.
    """

    def __init__(self, env_id: str = "CartPole-v1", **settings: Any) -> None:
        super().__init__(gymnasium.make(env_id, **settings))

    def reset(self, **arguments: Any) -> tuple[Any, dict]:
        """Begin an episode."""
        self._earned = 0.0
        return super().reset(**arguments)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        """Act; the reward is 0 unless the episode ends."""
        observation, reward, terminated, truncated, info = super().step(action)
        self._earned += float(reward)
        return observation, self._earned if terminated or truncated else 0.0, terminated, truncated, info
