"""Lanes made from an environment's spec, seeded, and closed again if any of them cannot be made."""

from __future__ import annotations

import contextlib
import dataclasses
import traceback
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv, VectorEnv
from gymnasium.wrappers import FrameStackObservation

from penstock.envs.failures import EnvironmentFailure, UnsupportedSpaceError
from penstock.envs.lanes import Lanes
from penstock.envs.made import several_agents
from penstock.envs.single import SingleLanes
from penstock.envs.spaces import ActionSpec, ObservationSpec
from penstock.envs.spec import EnvSpec, Vectorize
from penstock.envs.vector import VectorLanes

PROBED_LANE = 3_000_000  # none of training, evaluation or scoring: nobody plays the episode that is looked at


def make_lanes(
    spec: EnvSpec,
    num_lanes: int,
    *,
    seed: int = 0,
    first_lane: int = 0,
    incarnation: int = 0,
    num_threads: int = 1,
) -> Lanes:
    """Make ``num_lanes`` environments that step together.

    Parameters
    ----------
    spec
        Which environment.
    num_lanes
        How many lanes, at least 1.
    seed, first_lane, incarnation
        Lane ``i`` is seeded by `lane_seed` of ``(seed, first_lane + i, incarnation)``.
    num_threads
        Native threads that a vector environment may use, where it can be told.

    Raises
    ------
    UnsupportedSpaceError
        The environment's spaces have no column layout.
    EnvironmentFailure
        The environment could not be made, or is not what its spec promises.
    """
    if num_lanes < 1:
        raise ValueError(f"num_lanes={num_lanes}: use at least 1")
    seeds = [lane_seed(seed, lane, incarnation) for lane in range(first_lane, first_lane + num_lanes)]
    source, kwargs = _guarded(spec, None, spec.unpack)
    made: list[Any] = []
    try:
        if spec.kind == "atari":
            from penstock.envs.atari import make_atari

            made.append(_guarded(spec, None, lambda: make_atari(kwargs, num_lanes, num_threads)))
            skip = kwargs["frameskip"]
            lanes: Lanes = VectorLanes(made[0], np.array(seeds), name=spec.name, first_lane=first_lane, frame_skip=skip)
            return _stacked(lanes, kwargs["stack_num"] > 1)
        if spec.vectorize == "vector":
            made.append(_guarded(spec, None, lambda: _vector_env(source, kwargs, num_lanes)))
            return VectorLanes(
                made[0], _vector_seed(made[0], seeds), name=spec.name, first_lane=first_lane,
                mask_is_in_info=spec.mask_is_in_info,
            )  # fmt: skip
        for lane in range(first_lane, first_lane + num_lanes):
            made.append(_guarded(spec, lane, lambda: _single_env(source, kwargs)))
        lanes = SingleLanes(
            made, seeds, name=spec.name, first_lane=first_lane, mask_is_in_info=spec.mask_is_in_info
        )  # fmt: skip
        return _stacked(lanes, isinstance(made[0], FrameStackObservation))
    except BaseException:
        for env in made:
            with contextlib.suppress(Exception):
                env.close()
        raise


def make_env(
    env: str | Callable[..., Any],
    num_lanes: int = 1,
    *,
    env_kwargs: Mapping[str, Any] | None = None,
    vectorize: Vectorize = "make",
    mask_is_in_info: bool = False,
    seed: int = 0,
    num_threads: int = 1,
) -> Lanes:
    """Make lanes of whatever `EnvSpec.resolve` understands, in one call; raises what it and `make_lanes` raise.

    With `mask_is_in_info` observations hold the mask of legal actions that is found in ``info["action_mask"]``.
    """
    spec = dataclasses.replace(EnvSpec.resolve(env, env_kwargs, vectorize), mask_is_in_info=mask_is_in_info)
    return make_lanes(spec, num_lanes, seed=seed, num_threads=num_threads)


def probe(spec: EnvSpec) -> tuple[ObservationSpec, ActionSpec, int]:
    """Return what an environment shows, what it takes and its frames per step, by making one and closing it.

    If actions have choices, and no observation says which are legal, it is reset to see whether its info does.
    """
    lanes = make_lanes(spec, 1, first_lane=PROBED_LANE)
    if lanes.action.choices and lanes.observation.mask is None:
        # What is wrong with a reset is for those to tell who go on from it.
        with contextlib.suppress(EnvironmentFailure):
            lanes.reset()
    lanes.close()
    if lanes.mask_was_in_info:
        return probe(dataclasses.replace(spec, mask_is_in_info=True))
    return lanes.observation, lanes.action, lanes.frame_skip


def lane_seed(seed: int, lane: int, incarnation: int) -> int:
    """Return the seed of a lane's environment, in [0, 2^31): another for each lane and each of its restarts."""
    return int(np.random.SeedSequence([seed, lane, incarnation]).generate_state(1)[0]) >> 1


def _stacked(lanes: Lanes, is_stacked: bool) -> Lanes:
    # Rows of bytes are no stacks, whatever lies in them.
    is_stacked = is_stacked and not lanes.observation.parts
    lanes.observation = dataclasses.replace(lanes.observation, is_stacked=is_stacked)
    return lanes


def _single_env(source: Any, kwargs: dict[str, Any]) -> gymnasium.Env:
    env = source(**kwargs) if callable(source) else gymnasium.make(source, **kwargs)
    if agents := several_agents(env):
        raise UnsupportedSpaceError(f"found {agents}")
    if isinstance(env, VectorEnv):
        raise TypeError(f"found the vector environment {type(env).__name__}: pass vectorize='vector' to use one")
    if not isinstance(env, gymnasium.Env):
        raise TypeError(f"expected a gymnasium.Env, found a {type(env).__name__}: derive it from gymnasium.Env")
    return env


def _vector_env(source: Any, kwargs: dict[str, Any], num_lanes: int) -> VectorEnv:
    make = source if callable(source) else lambda **arguments: gymnasium.make_vec(source, **arguments)
    env = make(num_envs=num_lanes, **kwargs)
    if not isinstance(env, VectorEnv):
        raise TypeError(
            f"vectorize='vector' expects a gymnasium.vector.VectorEnv, found a {type(env).__name__}: use "
            "vectorize='make' for single environments"
        )
    if env.num_envs != num_lanes:
        raise ValueError(f"expected a vector environment with num_envs={num_lanes}, found num_envs={env.num_envs}")
    return env


def _vector_seed(env: VectorEnv, seeds: list[int]) -> list[int] | int:
    # A single number is all that Gymnasium asks a vector environment of a class of its own to take.
    return seeds if isinstance(env.unwrapped, (SyncVectorEnv, AsyncVectorEnv)) else seeds[0]


def _guarded(spec: EnvSpec, lane: int | None, make: Callable[[], Any]) -> Any:
    try:
        return make()
    except UnsupportedSpaceError as error:
        raise UnsupportedSpaceError(f"env={spec.name!r}: {error}") from None
    except (Exception, SystemExit) as error:
        problem = "".join(traceback.format_exception(error)).rstrip()
        raise EnvironmentFailure(spec.name, "make", lane, 0, problem) from error
