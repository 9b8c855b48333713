"""Lanes of a vector environment, for every autoreset mode."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv

from penstock.envs.columns import ActionDecoder, BadObservationError, observation_writer
from penstock.envs.failures import FAILING
from penstock.envs.lanes import SUCCESS, Lanes
from penstock.envs.masks import MASK, mask_of_lane
from penstock.envs.translation import environment_specs


class VectorLanes(Lanes):
    """The sub-environments of one Gymnasium vector environment.

    ========== =====================================================================================================
    autoreset  end of an episode
    ========== =====================================================================================================
    NEXT_STEP  the final observation is shown; the next step is the reset and ignores the lane's action
    SAME_STEP  the next episode's first observation is shown; a truncated lane's final one is ``info["final_obs"]``
    DISABLED   the lanes reset ended episodes at once, with ``options={"reset_mask": ...}``: like SAME_STEP from outside
    ========== =====================================================================================================

    Parameters
    ----------
    env
        Vector environment; its ``autoreset_mode``, or else ``metadata["autoreset_mode"]``, selects the row of the
        table.
    seed
        Seed of its first reset: one number per lane, or a single one, as its class takes them; None if it was seeded
        when made.
    name, first_lane, frame_skip
        As for `Lanes`.
    mask_is_in_info
        Whether infos hold a mask of legal actions for every lane.

    Raises
    ------
    UnsupportedSpaceError
        The environment's spaces have no column layout.
    EnvironmentFailure
        The environment declares no autoreset mode.
    """

    def __init__(
        self, env: VectorEnv, seed: int | list[int] | np.ndarray | None, *, name: str, first_lane: int = 0,
        frame_skip: int | None = None, mask_is_in_info: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(
            env.num_envs,
            *environment_specs(env.single_observation_space, env.single_action_space, mask_is_in_info),
            name=name,
            first_lane=first_lane,
            frame_skip=frame_skip,
        )
        self._env = env
        self._is_open = True
        self._seed: int | list[int] | np.ndarray | None = seed
        self._mode = self._autoreset_mode()
        self._observations: Any = None
        self._final_observations: list[Any] = []
        self._masks: list[Any] = [None] * env.num_envs
        self._decode = ActionDecoder(self.action)
        self._writer = observation_writer(self.observation)

    def reset(self) -> None:
        self._begin()
        seed, self._seed = self._seed, None
        self._observations = self._reset_env() if seed is None else self._reset_env(seed=seed)

    def step(self, actions: np.ndarray) -> None:
        if self._observations is None or len(actions) != self.num_lanes:
            raise ValueError(f"expected {self.num_lanes} actions after a reset, found {len(actions)} actions")
        resetting = self._ended() if self._mode is AutoresetMode.NEXT_STEP else np.zeros(self.num_lanes, np.bool_)
        self._steps += 1
        try:
            answer = self._env.step(self._decode(actions))
        except tuple(FAILING) as error:
            raise self._failure("step", None, error) from error
        if not isinstance(answer, tuple) or len(answer) != 5:
            legal = "(observations, rewards, terminations, truncations, infos)"
            raise self._failure("step", None, f"step() must return {legal}, found a {type(answer).__name__}")
        self._observations, rewards, terminated, truncated, infos = answer

        np.logical_not(resetting, out=self.valid)
        self.first[:] = resetting
        np.logical_and(self._one_per_lane("terminations", terminated), self.valid, out=self.terminated)
        np.logical_and(self._one_per_lane("truncations", truncated), self.valid, out=self.truncated)
        np.greater(self.truncated, self.terminated, out=self.truncated)
        self._store_reward(np.where(resetting, 0.0, self._one_per_lane("rewards", rewards)))
        self._collect_metrics("step", infos)
        if self.observation.mask_is_in_info:
            is_final = self._ended() & (self._mode is not AutoresetMode.SAME_STEP)
            self._masks = [self._mask_in(infos, "step", lane, is_final[lane]) for lane in range(self.num_lanes)]
        if self._mode is not AutoresetMode.NEXT_STEP:
            self._start_next_episodes(infos)

    def write_observations(self, column: np.ndarray, rows: np.ndarray) -> None:
        try:
            self._writer.write_batch(column, rows, self._paired(self._observations, self._masks))
        except BadObservationError as bad:
            raise self._observation_failure(bad.index, bad.problem) from bad
        self._check_masks(column, rows)

    def write_finals(self, column: np.ndarray, rows: np.ndarray) -> None:
        if not self.finals.size:
            return
        try:
            self._writer.write_each(column, rows, self._final_observations)
        except BadObservationError as bad:
            lane = None if bad.index is None else int(self.finals[bad.index])
            place = "info['final_obs']: " if self._mode is AutoresetMode.SAME_STEP else ""
            raise self._failure("step", lane, place + bad.problem) from bad
        self._check_masks(column, rows, np.ones(len(rows), np.bool_))

    def close(self) -> None:
        if not self._is_open:
            return
        self._is_open = False
        try:
            self._env.close()
        except tuple(FAILING) as error:
            raise self._failure("close", None, error) from error

    def _start_next_episodes(self, infos: Mapping[str, Any]) -> None:
        self.first[:] = self._ended()
        self.finals = self.truncated.nonzero()[0]
        lanes = self.finals.tolist()
        if self._mode is AutoresetMode.DISABLED:
            # Copied, because the reset may reuse the buffer.
            self._final_observations = [
                self._paired(copy.deepcopy(self._shown_by(lane)), self._masks[lane]) for lane in lanes
            ]
            if self.first.any():
                self._observations = self._reset_env(options={"reset_mask": self.first.copy()})
        else:
            reports = infos.get("final_info")
            self._final_observations = [
                self._paired(self._reported_final(infos, lane), self._mask_in(reports, "step", lane, is_final=True))
                for lane in lanes
            ]

    def _shown_by(self, lane: int) -> Any:
        try:
            return _of_lane(self._env.single_observation_space, self._observations, lane)
        except (KeyError, IndexError, TypeError) as error:
            raise self._failure("step", lane, error) from error

    def _reported_final(self, infos: Mapping[str, Any], lane: int) -> Any:
        reported = infos.get("final_obs")
        if reported is None or reported[lane] is None:
            problem = "truncated in SAME_STEP mode without its final observation: expected info['final_obs']"
            raise self._failure("step", lane, problem)
        final = reported[lane]
        # NumPy joins observations of equal shape into one array of objects.
        return final.tolist() if isinstance(final, np.ndarray) and final.dtype == object else final

    def _reset_env(self, **arguments: Any) -> Any:
        try:
            answer = self._env.reset(**arguments)
        except tuple(FAILING) as error:
            raise self._failure("reset", None, error) from error
        if not isinstance(answer, tuple) or len(answer) != 2:
            found = type(answer).__name__
            raise self._failure("reset", None, f"reset() must return (observations, infos), found a {found}")
        observations, infos = answer
        self._collect_metrics("reset", infos)
        for lane in self.first.nonzero()[0].tolist():
            self._masks[lane] = self._mask_in(infos, "reset", lane)
        return observations

    def _mask_in(self, infos: Any, phase: str, lane: int, is_final: bool = False) -> np.ndarray | None:
        """Return the mask of a lane, if masks are in infos; the key "_action_mask" marks the lanes that have one."""
        if not self.observation.mask_is_in_info:
            return None
        found = infos if isinstance(infos, Mapping) else {}
        has_mask = f"_{MASK}" not in found or found[f"_{MASK}"][lane]
        mask = mask_of_lane(found.get(MASK), lane) if has_mask else None
        return self._mask_of(phase, lane, mask, is_final=is_final)

    def _paired(self, observation: Any, mask: Any) -> Any:
        """Return the input of the observation writer."""
        return (observation, mask) if self.observation.mask_is_in_info else observation

    def _ended(self) -> np.ndarray:
        return self.terminated | self.truncated

    def _one_per_lane(self, role: str, values: Any) -> np.ndarray:
        array = np.asarray(values)
        if array.shape != (self.num_lanes,) or array.dtype.kind not in "biuf":
            expected = f"one number for each of {self.num_lanes} lanes"
            problem = f"expected {role} to be {expected}, found {array.dtype} of shape {array.shape}"
            raise self._failure("step", None, problem)
        return array

    def _collect_metrics(self, phase: str, infos: Any) -> None:
        if not isinstance(infos, Mapping):
            raise self._failure(phase, None, f"{phase}() must return a dict as infos, found a {type(infos).__name__}")
        if infos.get(MASK) is not None:
            self._note_mask(phase, None)
        if phase == "step":
            self._collect_successes(infos)
        # In SAME_STEP, an episode's last step reports in final_info, and the reset after it in infos itself.
        for source in (infos, infos.get("final_info")):
            if isinstance(source, Mapping) and "metrics" in source:
                self._metrics.add_batch(self._metrics_in(phase, None, source))

    def _collect_successes(self, infos: Mapping[str, Any]) -> None:
        source = infos.get("final_info") if self._mode is AutoresetMode.SAME_STEP else infos
        if not isinstance(source, Mapping) or SUCCESS not in source:
            return
        successes, reported = np.asarray(source[SUCCESS]), source.get(f"_{SUCCESS}")
        if successes.shape[:1] != (self.num_lanes,):
            return
        for lane in self._ended().nonzero()[0].tolist():
            if reported is None or reported[lane]:
                self._episodes.add_success(lane, successes[lane])

    def _autoreset_mode(self) -> AutoresetMode:
        # With ALE, and with Gymnasium before 1.4, environments of a class share their metadata, which has the mode of
        # the last one made: the attribute comes first. A wrapper's own metadata overrules both.
        metadata, inner = self._env.metadata or {}, self._env.unwrapped
        found = getattr(inner, "autoreset_mode", None) if metadata is inner.metadata else None
        found = metadata.get("autoreset_mode") if found is None else found
        try:
            return AutoresetMode(found)
        except ValueError:
            legal = ", ".join(str(mode) for mode in AutoresetMode)
            problem = f"metadata['autoreset_mode'] says how episodes restart: found {found!r}, legal are {legal}"
            raise self._failure("make", None, problem) from None


def _of_lane(space: spaces.Space, batch: Any, lane: int) -> Any:
    if isinstance(space, spaces.Dict):
        return {key: _of_lane(member, batch[key], lane) for key, member in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(_of_lane(member, batch[index], lane) for index, member in enumerate(space.spaces))
    return batch[lane]
