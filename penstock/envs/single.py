"""Lanes of single environments: one Gymnasium environment per lane, stepped in a plain loop.

This loop is the hot path of CPU training: per lane it only calls the environment and copies its observation; NumPy
converts whole batches of answers.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import VectorEnv, VectorWrapper
from gymnasium.wrappers import MaxAndSkipObservation

from penstock.envs.columns import ActionDecoder, BadObservationError, observation_writer
from penstock.envs.failures import FAILING, EnvironmentFailure
from penstock.envs.goals import GoalRules
from penstock.envs.lanes import SUCCESS, Lanes, outline
from penstock.envs.masks import MASK
from penstock.envs.translation import environment_specs


class SingleLanes(Lanes):
    """One environment per lane.

    A terminated environment is reset at once, unless `show_finals` was called. A truncated one first shows its final
    observation; its lane's next step is the reset, so that every step advances every lane by one row.

    Parameters
    ----------
    envs
        One environment per lane, all with the same spaces.
    seeds
        Seeds of their first resets.
    name, first_lane
        As for `Lanes`.
    mask_is_in_info
        Whether every info holds a mask of legal actions.

    Raises
    ------
    UnsupportedSpaceError
        The environments' spaces have no column layout.
    EnvironmentFailure
        The environments' spaces differ.

    Attributes
    ----------
    infos
        Info of each environment's last `step`; empty before the first.
    """

    def __init__(
        self, envs: Sequence[gymnasium.Env], seeds: Sequence[int], *, name: str, first_lane: int = 0,
        mask_is_in_info: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(
            len(envs), *environment_specs(envs[0].observation_space, envs[0].action_space, mask_is_in_info),
            name=name, first_lane=first_lane, frame_skip=frames_per_step(envs[0]),
        )  # fmt: skip
        self._envs = list(envs)
        self.has_action_masks = envs[0].has_wrapper_attr("action_masks")
        self._require_equal_spaces(mask_is_in_info)
        self._seeds: list[int | None] = list(seeds)
        self._calls: list[Callable[[Any], Any]] = [env.step for env in envs]
        self._resuming: list[int] = []
        self._observations: list[Any] = []
        self._masks: list[Any] = [None] * len(envs)
        self._shows_finals = False
        self.infos: Sequence[Mapping[str, Any]] = ()
        self._decode = ActionDecoder(self.action)
        self._writer = observation_writer(self.observation)

    def reset(self) -> None:
        self._begin()
        self._restore_calls()
        self._observations = [self._reset_lane(lane) for lane in range(self.num_lanes)]

    def step(self, actions: np.ndarray) -> None:
        chosen = self._decode.each(actions)
        if len(chosen) != len(self._observations):
            raise ValueError(f"expected actions for {self.num_lanes} lanes after a reset, found {len(chosen)} actions")
        self._steps += 1
        resumed = self._resuming
        answers: list[Any] = []
        record = answers.append
        try:
            for call, action in zip(self._calls, chosen, strict=True):
                record(call(action))
        except EnvironmentFailure:
            raise
        except tuple(FAILING) as error:
            raise self._failure("step", len(answers), error) from error
        try:
            observations, rewards, terminated, truncated, infos = zip(*answers, strict=True)
            reward = _numbers(rewards)
            self.terminated[:] = _numbers(terminated)
            self.truncated[:] = _numbers(truncated)
            has_infos = any(infos)
        except (TypeError, ValueError) as error:
            raise self._malformed(answers) from error

        self._observations = list(observations)
        self.infos = infos
        np.greater(self.truncated, self.terminated, out=self.truncated)
        self.valid.fill(True)
        self.first[:] = False if self._shows_finals else self.terminated
        if resumed:
            self._restore_calls()
            self.valid[resumed] = False
            self.first[resumed] = True
        self._store_reward(reward)
        if has_infos:
            for lane, info in enumerate(infos):
                self._collect_info("step", lane, info)
            self._collect_successes(infos)
        if self.observation.mask_is_in_info:
            self._take_masks(infos)
        for lane in (self.terminated | self.truncated).nonzero()[0].tolist():
            if self.first[lane]:
                self._observations[lane] = self._reset_lane(lane)
            else:
                self._calls[lane] = partial(self._resume, lane)
                self._resuming.append(lane)

    def write_observations(self, column: np.ndarray, rows: np.ndarray) -> None:
        shown = self._observations
        if self.observation.mask_is_in_info:
            shown = list(zip(shown, self._masks, strict=True))
        try:
            self._writer.write_each(column, rows, shown)
        except BadObservationError as bad:
            raise self._observation_failure(bad.index, bad.problem) from bad
        self._check_masks(column, rows)

    def write_finals(self, column: np.ndarray, rows: np.ndarray) -> None:
        """Do nothing: final observations have their own rows here, and ``finals`` stays empty."""

    def close(self) -> None:
        envs, self._envs = self._envs, []
        failure = None
        for lane, env in enumerate(envs):
            try:
                env.close()
            except tuple(FAILING) as error:
                failure = failure or self._failure("close", lane, error)
        if failure is not None:
            raise failure

    def show_finals(self) -> None:
        """Show final observations of terminated episodes, too, from this call on."""
        self._shows_finals = True

    def goal_rules(self) -> list[GoalRules]:
        return [GoalRules(env, partial(self._failure_of, lane)) for lane, env in enumerate(self._envs)]

    def _failure_of(self, lane: int, phase: str, problem: str | BaseException) -> EnvironmentFailure:
        return self._failure(phase, lane, problem)

    def _reset_lane(self, lane: int) -> Any:
        seed, self._seeds[lane] = self._seeds[lane], None
        try:
            env = self._envs[lane]
            answer = env.reset() if seed is None else env.reset(seed=seed)
        except tuple(FAILING) as error:
            raise self._failure("reset", lane, error) from error
        if not isinstance(answer, tuple) or len(answer) != 2:
            raise self._failure("reset", lane, f"reset() must return (observation, info), found {outline(answer)}")
        observation, info = answer
        self._collect_info("reset", lane, info)
        if self.observation.mask_is_in_info:
            self._masks[lane] = self._mask_of("reset", lane, info.get(MASK))
        return observation

    def _resume(self, lane: int, _action: Any) -> tuple:
        return self._reset_lane(lane), 0.0, False, False, {}

    def _restore_calls(self) -> None:
        for lane in self._resuming:
            self._calls[lane] = self._envs[lane].step
        self._resuming = []

    def _take_masks(self, infos: Sequence[Any]) -> None:
        """Store the masks of all lanes, except those whose mask comes from a reset."""
        for lane in (self.valid & ~self.first).nonzero()[0].tolist():
            mask = (infos[lane] or {}).get(MASK)
            is_final = bool(self.terminated[lane] or self.truncated[lane])
            self._masks[lane] = self._mask_of("step", lane, mask, is_final=is_final)

    def _collect_successes(self, infos: Sequence[Mapping[str, Any]]) -> None:
        for lane in (self.terminated | self.truncated).nonzero()[0].tolist():
            if SUCCESS in infos[lane]:
                self._episodes.add_success(lane, infos[lane][SUCCESS])

    def _require_equal_spaces(self, mask_is_in_info: bool) -> None:
        for lane, env in enumerate(self._envs):
            found = environment_specs(env.observation_space, env.action_space, mask_is_in_info)
            if not (found[0].is_seen_as(self.observation) and found[1] == self.action):
                expected = f"{self.observation} and {self.action} as the first lane has"
                raise self._failure("make", lane, f"expected {expected}, found {found[0]} and {found[1]}")

    def _malformed(self, answers: Sequence[Any]) -> EnvironmentFailure:
        for lane, answer in enumerate(answers):
            if not isinstance(answer, tuple) or len(answer) != 5:
                legal = "(observation, reward, terminated, truncated, info)"
                return self._failure("step", lane, f"step() must return {legal}, found {outline(answer)}")
            for role, value in zip(("reward", "terminated", "truncated"), answer[1:4], strict=True):
                try:
                    _numbers([value])
                except (TypeError, ValueError):
                    problem = f"step() must return a single number as {role}, found {outline(value)}"
                    return self._failure("step", lane, problem)
            if not isinstance(answer[4], Mapping):
                return self._failure("step", lane, f"step() must return a dict as info, found {outline(answer[4])}")
        return self._failure("step", None, f"step() of the lanes returned answers that do not match: {answers!r}")


def _numbers(values: Sequence[Any]) -> np.ndarray:
    array = np.array(values)
    if array.ndim != 1 or array.dtype.kind not in "biuf":
        raise ValueError("not one number for each lane")
    return array


def frames_per_step(env: gymnasium.Env | VectorEnv) -> int | None:
    """Return the simulator frames of a step, as environment, spec and wrappers declare them; None if none does.

    Repeats of several wrappers multiply. A random number of frames, such as a range of ALE, counts as None.
    """
    declared = list[Any]()
    while isinstance(env, gymnasium.Wrapper | VectorWrapper):
        name = "_skip" if isinstance(env, MaxAndSkipObservation) else "frame_skip"
        declared.append(inspect.getattr_static(env, name, None))  # without attributes that a wrapper forwards
        env = env.env
    kwargs = getattr(getattr(env, "spec", None), "kwargs", {})
    declared.append(getattr(env, "frame_skip", kwargs.get("frameskip", kwargs.get("frame_skip"))))
    known = [frames for frames in declared if frames is not None]
    is_fixed = all(type(frames) is int and frames > 0 for frames in known)
    return math.prod(known) if known and is_fixed else None
