"""A factory of environments gets the values it requests, and the user's arguments are never replaced."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, VectorEnv

from penstock.envs import EnvSpec, lane_seed, make_lanes
from tests.envs.counting import CountingEnv

# Lanes 6 and 7 of worker 3 of a run with seed 5.
PLACE: dict[str, Any] = {"seed": 5, "first_lane": 6, "worker_index": 3}
SEEDS = [lane_seed(5, 6, 0), lane_seed(5, 7, 0)]


class Told(CountingEnv):
    """Keeps the values that its factory got."""

    def __init__(self, told: Any) -> None:
        super().__init__()
        self.told = told


class ToldVector(VectorEnv):
    """Draws what it shows from the seed of its constructor alone, as environments of EnvPool do."""

    metadata: dict[str, Any] = {"autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012

    def __init__(self, num_envs: int, seed: int = 0, worker_index: Any = None, lane: Any = None) -> None:
        single = CountingEnv()
        self.num_envs, self.told = num_envs, (worker_index, lane, num_envs, seed)
        self.single_observation_space, self.single_action_space = single.observation_space, single.action_space
        self._generator = np.random.default_rng(seed)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        return self._generator.normal(size=(self.num_envs, 3)).astype(np.float32), {}


def predictor_metrics(source: Any, vectorize: Any = "make", env_kwargs: Mapping[str, Any] | None = None) -> Any:
    """Values that the factory got for each of two lanes, or for the vector environment of both."""
    lanes = make_lanes(EnvSpec.resolve(source, env_kwargs, vectorize), 2, **PLACE)
    made: Any = lanes
    told = made._env.told if vectorize == "vector" else [env.told for env in made._envs]
    lanes.close()
    return told


def everything(worker_index: int, lane: int, seed: int) -> gymnasium.Env:
    return Told((worker_index, lane, seed))


def with_defaults(*, worker_index: int | None = None, lane: int = -7, seed: int = -7) -> gymnasium.Env:
    return Told((worker_index, lane, seed))


def test_a_function_gets_worker_lane_and_seed_of_each_environment_with_defaults_or_without() -> None:
    expected = [(3, 6, SEEDS[0]), (3, 7, SEEDS[1])]
    assert predictor_metrics(everything) == predictor_metrics(with_defaults) == expected
    assert predictor_metrics("tests.envs.test_factories:everything") == expected


def test_a_function_gets_only_the_values_that_it_requests() -> None:
    assert predictor_metrics(lambda lane: Told(lane)) == [6, 7]
    assert predictor_metrics(lambda: Told("nothing")) == ["nothing", "nothing"]
    assert predictor_metrics(lambda **others: Told(others)) == [{}, {}]

    def positional(seed: int = 9, /) -> gymnasium.Env:
        return Told(seed)

    assert predictor_metrics(positional) == [9, 9]


def test_what_the_user_gives_is_kept() -> None:
    assert predictor_metrics(everything, env_kwargs={"lane": 1, "seed": None}) == [(3, 1, None)] * 2
    assert predictor_metrics(functools.partial(everything, seed=4)) == [(3, 6, 4), (3, 7, 4)]
    assert predictor_metrics(functools.partial(everything, 8)) == [(8, 6, SEEDS[0]), (8, 7, SEEDS[1])]


class Road(Told):
    """The default of its lane means something else."""

    def __init__(self, worker_index: int, lane: int = 2, seed: int = 0) -> None:
        super().__init__((worker_index, lane, seed))


@pytest.mark.parametrize("source", [Road, functools.partial(Road), "tests.envs.test_factories:Road"])
def test_a_class_keeps_its_defaults_and_gets_its_required_values(source: Any) -> None:
    assert predictor_metrics(source) == [(3, 2, 0)] * 2


@pytest.mark.parametrize("source", [ToldVector, lambda num_envs, lane, **others: ToldVector(num_envs, 4, 8, lane)])
def test_a_vector_environment_gets_the_first_of_its_lanes_and_their_number(source: Callable[..., Any]) -> None:
    is_class = source is ToldVector
    assert predictor_metrics(source, "vector") == ((3, 6, 2, SEEDS[0]) if is_class else (8, 6, 2, 4))


def test_a_restart_has_another_seed_but_the_same_worker_and_lanes() -> None:
    spec = EnvSpec.resolve(everything)
    again: Any = make_lanes(spec, 1, **PLACE, incarnation=1)
    assert again._envs[0].told == (3, 6, lane_seed(5, 6, 1)) != (3, 6, SEEDS[0])
    again.close()


def test_vector_environments_seeded_when_they_are_made_show_other_episodes_in_every_group() -> None:
    def make(num_envs: int, seed: int) -> VectorEnv:
        return ToldVector(num_envs, seed)

    def shown(**place: Any) -> np.ndarray:
        lanes = make_lanes(EnvSpec.resolve(make, vectorize="vector"), 2, seed=5, **place)
        lanes.reset()
        column = np.zeros((2, 3), np.float32)
        lanes.write_observations(column, np.arange(2))
        lanes.close()
        return column

    first = shown(first_lane=0)
    assert np.array_equal(first, shown(first_lane=0))
    assert not np.array_equal(first, shown(first_lane=2))


def test_a_number_of_environments_is_the_run_s_affair() -> None:
    for env in (ToldVector, "CartPole-v1"):
        with pytest.raises(
            ValueError, match=r"num_envs=4 is not legal with vectorize='vector'.*set num_envs_per_worke"
        ):
            EnvSpec.resolve(env, {"num_envs": 4}, "vector")
    # A single environment's own parameter of that name is its own.
    assert predictor_metrics(lambda num_envs=1: Told(num_envs), env_kwargs={"num_envs": 4}) == [4, 4]
    assert predictor_metrics(lambda num_envs=1: Told(num_envs)) == [1, 1]


def test_a_vector_factory_that_is_not_called_one_is_refused_with_the_setting_to_use() -> None:
    with pytest.raises(ValueError, match=r"missing a required argument: 'num_envs'; .*with vectorize='vector'"):
        EnvSpec.resolve(ToldVector)
