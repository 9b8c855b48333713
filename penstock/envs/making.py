"""Creation of lanes from an environment's spec: seeded, and closed again if one of them fails."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv, VectorEnv
from gymnasium.wrappers import FrameStackObservation

from penstock.envs.factories import OUTSIDE, requested
from penstock.envs.failures import FAILING, PROBED_LANE, EnvironmentFailure, EnvironmentUsageError
from penstock.envs.game_group import Games
from penstock.envs.games import Game, game_of
from penstock.envs.lanes import Group, Lanes
from penstock.envs.refusals import explained, require_single, require_vector
from penstock.envs.single import SingleLanes, frames_per_step
from penstock.envs.spaces import ActionSpec, ObservationSpec
from penstock.envs.spec import EnvSpec, Vectorize
from penstock.envs.statistics import Moments, RunningStatistics
from penstock.envs.vector import VectorLanes
from penstock.process_state import kept_settings


class Probed(NamedTuple):
    """Properties of an environment."""

    observation: ObservationSpec
    action: ActionSpec
    frame_skip: int | None
    """Simulator frames per step; None where nothing declares them."""
    agents: tuple[str, ...] = ()
    """Names of the agents; empty for one agent."""
    mask_is_in_info: bool = False
    """Whether infos hold a mask of legal actions."""
    statistics: tuple[Moments, ...] = ()
    """Running statistics of its wrappers, in their initial state."""
    unshared: tuple[str, ...] = ()
    """Names of running statistics that cannot be saved and shared."""
    note_of_mask: str | None = None
    """Note that a mask of legal actions is ignored; None if none is."""


def make_group(
    spec: EnvSpec, num_envs: int, *, seed: int = 0, first_lane: int = 0, worker_index: int = 0, incarnation: int = 0,
    num_threads: int = 1, games: Callable[..., Games] = Games,
) -> Group:  # fmt: skip
    """Make ``num_envs`` environments that step together.

    Parameters
    ----------
    spec
        The environment.
    num_envs
        Number of environments, at least 1.
    seed, first_lane, incarnation
        Environment ``i`` of A agents is seeded by `lane_seed` of ``(seed, first_lane + i * A, incarnation)``.
    worker_index
        Rollout worker of the lanes, for factories that request it (see `penstock.envs.factories`).
    num_threads
        Native threads for a vector environment that has such a setting.
    games
        Constructor of the group for environments of several agents.

    Raises
    ------
    UnsupportedSpaceError
        The environment's spaces have no column layout.
    EnvironmentFailure
        The environment cannot be made, or differs from its spec.
    """
    if num_envs < 1:
        raise ValueError(f"num_envs={num_envs}: use at least 1")
    if spec.population > 1:  # each policy plays the same episodes
        with contextlib.ExitStack() as on_failure:
            groups: list[Group] = []
            for _ in range(spec.population):
                made = make_group(
                    spec.of_one, num_envs, seed=seed, first_lane=first_lane, worker_index=worker_index,
                    incarnation=incarnation, num_threads=num_threads,
                )  # fmt: skip
                groups.append(on_failure.enter_context(contextlib.closing(made)))
            on_failure.pop_all()
        group = Group([lanes for each in groups for lanes in each.lanes])
        group.statistics = groups[0].statistics.join([each.statistics for each in groups[1:]])
        return group
    seeds = [lane_seed(seed, first_lane + number * spec.seats, incarnation) for number in range(num_envs)]
    order = _Order(spec, worker_index, first_lane, seeds, num_threads, games)
    try:
        group = _vector_group(order) if spec.is_vector else _single_group(order)
        group.statistics = _guarded(spec, None, partial(RunningStatistics, order.made, spec.statistics))
        return group
    except BaseException:
        for env in order.made:
            with contextlib.suppress(Exception):
                env.close()
        raise


def make_lanes(spec: EnvSpec, num_envs: int, **given: Any) -> Lanes:
    """Make the lanes of environments with one acting policy; parameters and errors are those of `make_group`."""
    (lanes,) = make_group(spec, num_envs, **given).lanes
    return lanes


def make_env(
    env: str | Callable[..., Any], num_envs: int = 1, *, env_kwargs: Mapping[str, Any] | None = None,
    vectorize: Vectorize = "make", mask_is_in_info: bool = False, seed: int = 0, num_threads: int = 1,
) -> Lanes:  # fmt: skip
    """Make lanes of anything that `EnvSpec.resolve` accepts; raise what it and `make_lanes` raise.

    With `mask_is_in_info`, observations include the mask of legal actions from ``info["action_mask"]``.
    """
    spec = dataclasses.replace(EnvSpec.resolve(env, env_kwargs, vectorize), mask_is_in_info=mask_is_in_info)
    return make_lanes(spec, num_envs, seed=seed, num_threads=num_threads)


def probe(spec: EnvSpec) -> Probed:
    """Return the properties of an environment with one acting policy; see `probe_all`."""
    (found,) = probe_all(spec)
    return found


def probe_all(spec: EnvSpec, games: Callable[..., Games] = Games) -> list[Probed]:
    """Return an environment's properties for each acting policy, by making one (see `make_group`) and closing it.

    If observations have no mask, reset it to look for a mask in its info.
    """
    if spec.population > 1:
        return probe_all(spec.of_one) * spec.population
    with contextlib.closing(make_group(spec, 1, first_lane=PROBED_LANE, worker_index=OUTSIDE, games=games)) as group:
        statistics = tuple(moments.start for moments in group.statistics.moments)
        if not spec.mask_is_in_info and any(lanes.observation.mask is None for lanes in group.lanes):
            # A failing reset is reported when the lanes are reset.
            with contextlib.suppress(EnvironmentFailure):
                group.reset()
    if any(lanes.mask_was_in_info and lanes.action.choices for lanes in group.lanes):
        return probe_all(dataclasses.replace(spec, mask_is_in_info=True), games)
    return [
        Probed(
            lanes.observation, lanes.action, lanes.frame_skip, lanes.agents, spec.mask_is_in_info, statistics,
            group.statistics.unshared, _note_of_mask(lanes),
        )
        for lanes in group.lanes
    ]


def _note_of_mask(lanes: Lanes) -> str | None:
    if lanes.mask_was_in_info and not lanes.action.choices:
        return "info['action_mask'] is ignored: masks are for choices, and these actions are real numbers"
    if lanes.has_action_masks and lanes.action.choices and lanes.observation.mask is None:
        return "the environment's action_masks() is not called: return such masks in infos, as info['action_mask']"
    return None


def require_goal_rules(spec: EnvSpec) -> None:
    """Raise ValueError if an environment cannot compute rewards of other goals; makes one and closes it."""
    with contextlib.closing(make_lanes(spec, 1, first_lane=PROBED_LANE, worker_index=OUTSIDE)) as lanes:
        lanes.goal_rules()


def agents_of(spec: EnvSpec) -> tuple[str, ...]:
    """Return the names of an environment's agents, by making one and closing it; empty for one agent."""
    if spec.is_vector:
        return ()
    order = _Order(spec, OUTSIDE, PROBED_LANE, [lane_seed(0, PROBED_LANE, 0)], 1)
    source, kwargs = order.unpack()
    env = order.make(None, partial(_single_env, source, kwargs, order.values(0)))
    env.close()
    return env.agents if isinstance(env, Game) else ()


def lane_seed(seed: int, lane: int, incarnation: int) -> int:
    """Return the seed of a lane's environment, in [0, 2^31): different for each lane and each restart."""
    return int(np.random.SeedSequence([seed, lane, incarnation]).generate_state(1)[0]) >> 1


@dataclass
class _Order:
    """Lanes to be made, and the environments made for them so far."""

    spec: EnvSpec
    worker_index: int
    first_lane: int
    seeds: list[int]
    num_threads: int
    games: Callable[..., Games] = Games
    made: list[Any] = field(default_factory=list)

    def make(self, lane: int | None, make: Callable[[], Any]) -> Any:
        """Make an environment of one lane, or of all lanes (None)."""
        self.made.append(_guarded(self.spec, lane, make))
        return self.made[-1]

    def unpack(self) -> tuple[Any, dict[str, Any]]:
        return _guarded(self.spec, None, self.spec.unpack)

    def values(self, index: int) -> dict[str, int]:
        """Return the values that a factory may request for the environment of this index."""
        lane = self.first_lane + index * self.spec.seats
        return {"worker_index": self.worker_index, "lane": lane, "seed": self.seeds[index]}


def construct(source: Any, kwargs: Mapping[str, Any], values: Mapping[str, int]) -> Any:
    """Make an environment from a registered spec or a callable; a vector environment if `values` have "num_envs"."""
    if callable(source):
        return source(**requested(source, kwargs, values))
    if "num_envs" in values:
        return gymnasium.make_vec(source, num_envs=values["num_envs"], **kwargs)
    return gymnasium.make(source, **kwargs)


def _vector_group(order: _Order) -> Group:
    spec, seeds = order.spec, order.seeds
    source, kwargs = order.unpack()
    seed: Any
    num_stacked = 1
    if spec.kind == "atari":
        from penstock.envs.atari import make_atari

        env = order.make(None, lambda: make_atari(kwargs, len(seeds), order.num_threads))
        seed, frame_skip, num_stacked = np.array(seeds), kwargs["frameskip"], kwargs["stack_num"]
    elif spec.kind == "envpool":
        from penstock.envs.envpool import make_pool

        env = order.make(None, lambda: make_pool(kwargs, seeds, order.num_threads))
        seed, frame_skip, num_stacked = None, env.config.get("frame_skip"), env.config.get("stack_num", 1)
    else:
        env = order.make(None, partial(_vector_env, source, kwargs, {**order.values(0), "num_envs": len(seeds)}))
        # Gymnasium requires custom vector environments to accept a single seed only.
        seed = seeds if isinstance(env.unwrapped, (SyncVectorEnv, AsyncVectorEnv)) else seeds[0]
        frame_skip = frames_per_step(env.unwrapped.envs[0] if isinstance(env.unwrapped, SyncVectorEnv) else env)
    lanes = VectorLanes(
        env, seed, name=spec.name, first_lane=order.first_lane, frame_skip=frame_skip,
        mask_is_in_info=spec.mask_is_in_info,
    )  # fmt: skip
    return _stacked(lanes, num_stacked > 1)


def _single_group(order: _Order) -> Group:
    source, kwargs = order.unpack()
    envs = [
        order.make(order.values(index)["lane"], partial(_single_env, source, kwargs, order.values(index)))
        for index in range(len(order.seeds))
    ]
    if isinstance(envs[0], Game):
        return order.games(
            envs, order.seeds, name=order.spec.name, teams=order.spec.teams, team_reward=order.spec.team_reward,
            is_shuffled=order.spec.is_shuffled, first_lane=order.first_lane, mask_is_in_info=order.spec.mask_is_in_info,
        )  # fmt: skip
    lanes = SingleLanes(
        envs, order.seeds, name=order.spec.name, first_lane=order.first_lane,
        mask_is_in_info=order.spec.mask_is_in_info,
    )  # fmt: skip
    return _stacked(lanes, isinstance(envs[0], FrameStackObservation))


def _stacked(lanes: Lanes, is_stacked: bool) -> Group:
    # Rows of bytes are never stacks.
    is_stacked = is_stacked and not lanes.observation.parts
    lanes.observation = dataclasses.replace(lanes.observation, is_stacked=is_stacked)
    return Group([lanes])


def _single_env(source: Any, kwargs: dict[str, Any], values: dict[str, int]) -> gymnasium.Env | Game:
    env = construct(source, kwargs, values)
    if game := game_of(env):
        return game
    require_single(env)
    return env


def _vector_env(source: Any, kwargs: dict[str, Any], values: dict[str, int]) -> VectorEnv:
    env = construct(source, kwargs, values)
    require_vector(env, values["num_envs"])
    return env


def _guarded(spec: EnvSpec, lane: int | None, make: Callable[[], Any]) -> Any:
    try:
        with kept_settings():
            return make()
    except EnvironmentUsageError as error:
        raise type(error)(f"env={spec.name!r}: {error}") from None
    except tuple(FAILING) as error:
        if refusal := explained(error, *spec.unpack()):
            raise type(refusal)(f"env={spec.name!r}: {refusal}") from None
        raise EnvironmentFailure.of(spec.name, "make", lane, 0, error) from error
