"""Goal environments whose observations encode lane, episode and step, and whose goals are places."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete

from tests.envs.counting import Ending

NOWHERE = 9
"""The place that is always meant, and never reached."""
COST = 0.25
"""Of each step of an odd number; only infos say so."""

SPACES = {
    "numbers": Box(-99.0, 99.0, (2,), np.float64),
    "number": Box(-99.0, 99.0, (), np.float32),
    "discrete": Discrete(10, start=3),
    "multi-discrete": MultiDiscrete([[10, 2], [2, 2]], start=[[5, 0], [1, 0]]),
    "bits": MultiBinary(4),
    "image": Box(0, 255, (2, 3, 3), np.uint8),
}


def place_at(tag: int, episode: int, count: int) -> int:
    """Place of a lane after a number of steps of an episode: from 0 to 3, so that places recur."""
    return (7 * episode + 3 * (count // 2) + tag) % 4


def goal_of(space: gymnasium.Space, place: int) -> Any:
    """A place as an environment of this space shows it."""
    if isinstance(space, Discrete):
        return place + 3
    if isinstance(space, MultiDiscrete):
        return np.array([[place + 5, place % 2], [1 + place // 2 % 2, 0]])
    if isinstance(space, MultiBinary):
        return np.array([place >> bit & 1 for bit in range(4)], np.int8)
    return np.full(space.shape, place / 4 if space.dtype == np.float64 else place, space.dtype)


class Places(gymnasium.Env):
    """Observes ``[tag, episode, step]``; the place reached is the achieved goal, and `NOWHERE` the desired one.

    The reward is -1 away from the goal, less `COST` in odd steps, which the info alone tells. The endings of episodes
    are given; a termination is a fall, of which the info tells too. Its infos are all the same dict, written anew.
    What a subclass computes, it is only asked for by others.

    Parameters
    ----------
    tag, endings
        As for `CountingEnv`.
    goals
        Of which of `SPACES` they are.
    """

    def __init__(self, tag: int = 0, endings: Sequence[Ending] = ((5, "truncated"),), goals: str = "numbers") -> None:
        self.goal_space = SPACES[goals]
        self.observation_space = Dict(
            observation=Box(-np.inf, np.inf, (3,), np.float32),
            achieved_goal=self.goal_space,
            desired_goal=self.goal_space,
        )
        self.action_space = Discrete(2)
        self.tag, self.endings = tag, list(endings)
        self.episode = -1
        self.info: dict[str, Any] = {}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.episode += 1
        self.count = 0
        return self.view(), {}

    def step(self, action: Any) -> Any:
        length, kind = self.endings[self.episode % len(self.endings)]
        assert self.count < length, "stepped after the episode's end"
        self.count += 1
        is_over = self.count == length
        terminated, truncated = is_over and kind != "truncated", is_over and kind != "terminated"
        self.info.update(step=self.count, fell=terminated, is_success=False)
        view = self.view()
        reward = Places.compute_reward(self, view["achieved_goal"], view["desired_goal"], self.info)
        return view, float(reward), terminated, truncated, self.info

    def compute_reward(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
        """Of one goal, or of many with an array of infos."""
        is_odd = np.array([each["step"] % 2 for each in info]) if isinstance(info, np.ndarray) else info["step"] % 2
        return self.are_same(achieved_goal, desired_goal) - 1.0 - COST * is_odd

    def compute_terminated(self, achieved_goal: Any, desired_goal: Any, info: Any) -> bool:
        """Of one goal alone, as Gymnasium-Robotics' mazes do."""
        return bool(self.are_same(achieved_goal, desired_goal) or info["fell"])

    def are_same(self, achieved_goal: Any, desired_goal: Any) -> Any:
        """Whether goals are equal, over the axes of one; each must have the space's shape and dtype."""
        dimensions = len(self.goal_space.shape or ())
        for goal in map(np.asarray, (achieved_goal, desired_goal)):
            assert goal.dtype == self.goal_space.dtype
            goals = goal if goal.ndim > dimensions else [goal]
            assert all(self.goal_space.contains(np.asarray(each)) for each in goals)
        return np.all(np.equal(achieved_goal, desired_goal), axis=tuple(range(-dimensions, 0)))

    def view(self) -> dict[str, Any]:
        place = place_at(self.tag, self.episode, self.count)
        return {
            "observation": np.array([self.tag, self.episode, self.count], np.float32),
            "achieved_goal": goal_of(self.goal_space, place),
            "desired_goal": goal_of(self.goal_space, NOWHERE),
        }


class OneGoalAtATime(Places):
    """Computes the reward of one goal, and raises if it is asked about many."""

    def compute_reward(self, achieved_goal: Any, desired_goal: Any, info: Any) -> float:
        return 0.0 - (not self.are_same(achieved_goal, desired_goal)) - COST * (info["step"] % 2)


class ManyGoalsAtOnce(Places):
    """Computes rewards of many goals, and raises if it is asked about one."""

    def compute_reward(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
        assert isinstance(info, np.ndarray)
        return super().compute_reward(achieved_goal, desired_goal, info)


class MixedUp(Places):
    """Returns an array of the right shape and wrong numbers where it is asked about many: one goal decides for all."""

    def compute_reward(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
        if isinstance(info, np.ndarray):
            return np.full(len(info), super().compute_reward(achieved_goal, desired_goal, info)[0])
        return super().compute_reward(achieved_goal, desired_goal, info)


class WithoutTermination(Places):
    """Has no compute_terminated."""

    compute_terminated = None  # type: ignore[assignment]
