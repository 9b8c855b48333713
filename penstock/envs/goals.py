"""Goal environments: places of the goals in observations, and rewards under other goals.

The contract is that of ``gymnasium_robotics.core.GoalEnv``. No Gymnasium, no torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from penstock.envs.columns import PartView
from penstock.envs.failures import EnvironmentFailure
from penstock.envs.spaces import ObservationSpec

ACHIEVED, DESIRED = "achieved_goal", "desired_goal"
"""Keys of the goals in a Dict observation."""

Fail = Callable[[str, str | BaseException], EnvironmentFailure]
"""Function that makes an environment's failure from its phase and the problem."""


class Goals:
    """Places of the goals in the rows of a goal environment's observations.

    Parameters
    ----------
    observation
        Spec of the observations.

    Attributes
    ----------
    achieved, desired
        Views ``[N, *shape]`` of the goals in rows uint8 ``[N, nbytes]``, with the same shape and dtype.

    Raises
    ------
    ValueError
        The observation has no goals, or their specs differ.
    """

    def __init__(self, observation: ObservationSpec) -> None:
        parts = {part.path: part for part in observation.parts}
        if ACHIEVED not in parts or DESIRED not in parts:
            found = f"the parts {', '.join(map(repr, parts))}" if parts else "no Dict"
            raise ValueError(
                f"expected an environment with goals, whose observation is a Dict with {ACHIEVED!r} and {DESIRED!r}, "
                f"one array each; found {found}"
            )
        achieved, desired = parts[ACHIEVED], parts[DESIRED]
        if achieved.spec != desired.spec:
            raise ValueError(
                f"expected {ACHIEVED!r} and {DESIRED!r} of the same space, found {achieved.spec.dtype} of shape "
                f"{achieved.spec.shape} and {desired.spec.dtype} of shape {desired.spec.shape}"
            )
        self.achieved, self.desired = PartView(achieved), PartView(desired)


class GoalRules:
    """Rewards and terminations of an environment under other goals.

    Parameters
    ----------
    env
        Environment with its wrappers; the outermost ``compute_reward`` and ``compute_terminated`` are used.
    fail
        Makes the failure to raise if the environment violates its contract.

    Raises
    ------
    ValueError
        The environment has no ``compute_reward``.
    """

    def __init__(self, env: Any, fail: Fail) -> None:
        reward, terminated = (_found(env, f"compute_{what}") for what in ("reward", "terminated"))
        if reward is None:
            raise ValueError(
                "expected an environment with compute_reward(achieved_goal, desired_goal, info), as goal environments "
                f"of Gymnasium-Robotics have it; {type(env.unwrapped).__name__} and its wrappers have none"
            )
        self._space = env.observation_space[ACHIEVED]
        self._fail = fail
        self._reward = Rule(reward)
        self._terminated = None if terminated is None else Rule(terminated)
        self._is_checked = False

    def rewards(self, achieved: np.ndarray, desired: np.ndarray, infos: Sequence[Mapping[str, Any]]) -> np.ndarray:
        """Return the values of ``compute_reward``, float64 ``[N]``.

        Parameters
        ----------
        achieved, desired
            Goals as in rows of observations, ``[N, *shape]``.
        infos
            Infos of the steps that achieved them.

        Raises
        ------
        EnvironmentFailure
            The function raised, or did not return a finite float32 for each.
        """
        rewards = self._ask("compute_reward", self._reward, achieved, desired, infos)
        unfit = np.flatnonzero(~(np.abs(rewards) <= np.finfo(np.float32).max))
        if unfit.size:
            raise self._fail("compute_reward", f"expected a finite float32 reward, found {rewards[unfit[0]]}")
        return rewards

    def terminations(
        self, achieved: np.ndarray, desired: np.ndarray, infos: Sequence[Mapping[str, Any]]
    ) -> np.ndarray | None:
        """Return the values of ``compute_terminated``, bool ``[N]``; None without it. See `rewards`."""
        if self._terminated is None:
            return None
        return self._ask("compute_terminated", self._terminated, achieved, desired, infos) != 0

    def require_own_rewards(
        self, rewards: np.ndarray, achieved: np.ndarray, desired: np.ndarray, infos: Sequence[Mapping[str, Any]]
    ) -> None:
        """Compare ``step``'s rewards with those of ``compute_reward`` for the original goals, once.

        Raises
        ------
        EnvironmentFailure
            They differ, so that rewards under other goals would not be comparable.
        """
        if self._is_checked:
            return
        self._is_checked = True
        computed = self.rewards(achieved, desired, infos)
        other = np.flatnonzero(~np.isclose(computed, rewards, rtol=1e-4, atol=1e-4))
        if other.size:
            step = int(other[0])
            raise self._fail(
                "compute_reward",
                f"expected the reward that step() gave for the same goals, {rewards[step]:g}, found {computed[step]:g} "
                f"(step {step + 1} of the episode): let step() return what compute_reward() does, and scale rewards "
                "by reward_scale, not by a wrapper",
            )

    def _ask(
        self, name: str, rule: Rule, achieved: np.ndarray, desired: np.ndarray, infos: Sequence[Mapping[str, Any]]
    ) -> np.ndarray:
        try:
            return rule(self._as_shown(achieved), self._as_shown(desired), infos)
        except Exception as error:
            raise self._fail(name, error) from error

    def _as_shown(self, goals: np.ndarray) -> np.ndarray:
        """Return goals as the environment shows them: in its shape and dtype, counted from its start."""
        shown = goals.reshape(len(goals), *self._space.shape).astype(self._space.dtype)
        return shown + self._space.start if hasattr(self._space, "start") else shown


class Rule:
    """Function of an achieved goal, a desired goal and an info, applied to N of each.

    ``GoalEnv`` defines it for one. Most environments' functions also take arrays ``[N, ...]`` with an object array of
    infos: if the first such call agrees with single calls, later calls use arrays.

    Parameters
    ----------
    function
        Function of an environment.
    """

    def __init__(self, function: Callable[[Any, Any, Any], Any]) -> None:
        self._function = function
        self._takes_batches: bool | None = None

    def __call__(self, achieved: np.ndarray, desired: np.ndarray, infos: Sequence[Mapping[str, Any]]) -> np.ndarray:
        """Return the values, float64 ``[N]``; raises what the function raises, or `ValueError`."""
        if self._takes_batches is None and len(desired) > 1:
            return self._try(achieved, desired, infos)
        return (self._at_once if self._takes_batches else self._one_by_one)(achieved, desired, infos)

    def _try(self, *rows: Any) -> np.ndarray:
        each, problem = _attempt(self._one_by_one, rows)
        batch, _ = _attempt(self._at_once, rows)
        if each is None and batch is None:
            assert problem is not None
            raise problem
        self._takes_batches = each is None or (batch is not None and np.allclose(batch, each))
        result = batch if each is None else each
        assert result is not None
        return result

    def _at_once(self, achieved: np.ndarray, desired: np.ndarray, infos: Sequence[Mapping[str, Any]]) -> np.ndarray:
        many = np.empty(len(infos), object)
        many[:] = infos
        values = np.asarray(self._function(achieved, desired, many), np.float64)
        if values.shape != (len(desired),):
            raise ValueError(f"expected one number for each of {len(desired)} goals, found shape {values.shape}")
        return values

    def _one_by_one(self, achieved: np.ndarray, desired: np.ndarray, infos: Sequence[Mapping[str, Any]]) -> np.ndarray:
        rows = zip(achieved, desired, infos, strict=True)
        values = np.asarray([self._function(*row) for row in rows], np.float64)
        if values.size != len(desired):
            raise ValueError(f"expected one number for one goal, found shape {values.shape[1:]}")
        return values.reshape(len(desired))


def _attempt(call: Callable[..., np.ndarray], rows: tuple[Any, ...]) -> tuple[np.ndarray | None, Exception | None]:
    try:
        return call(*rows), None
    except Exception as error:  # the other way of calling may work
        return None, error


def _found(env: Any, name: str) -> Callable[[Any, Any, Any], Any] | None:
    """Return the method of the outermost wrapper that has it, or of the environment; None without one."""
    try:
        function = env.get_wrapper_attr(name)
    except AttributeError:
        return None
    return function if callable(function) else None
