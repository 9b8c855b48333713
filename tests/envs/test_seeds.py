"""Every lane has a stream of its own, the same in every run with the same seed."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import VectorEnv

from penstock.envs import EnvSpec, Lanes, lane_seed, make_lanes
from penstock.envs.single import SingleLanes
from penstock.envs.vector import VectorLanes
from tests.envs.arrangements import counting_lanes
from tests.envs.counting import CountingEnv


def shown_by(lanes: Lanes, num_steps: int = 30) -> np.ndarray:
    """All observations of all lanes under a fixed sequence of actions: ``[steps + 1, N, *shape]``."""
    column = np.zeros(((num_steps + 1) * lanes.num_lanes, *lanes.observation.shape), lanes.observation.dtype)
    rows = np.arange(lanes.num_lanes)
    lanes.reset()
    lanes.write_observations(column, rows)
    for number in range(1, num_steps + 1):
        lanes.step(np.full(lanes.num_lanes, number % 2))
        lanes.write_observations(column, rows + number * lanes.num_lanes)
    lanes.close()
    return column.reshape(num_steps + 1, lanes.num_lanes, -1)


POOL = pytest.param(
    "EnvPool/CartPole-v1", marks=pytest.mark.skipif(find_spec("envpool") is None, reason="envpool is not installed")
)


@pytest.mark.long
@pytest.mark.parametrize("vectorize", ["make", "vector"])
@pytest.mark.parametrize("env", ["CartPole-v1", "ALE/Pong-v5", POOL])
def test_the_same_seed_gives_the_same_lanes_and_another_seed_or_incarnation_others(env: str, vectorize: Any) -> None:
    spec = EnvSpec.resolve(env, vectorize=vectorize)
    first = shown_by(make_lanes(spec, 2, seed=5))
    assert np.array_equal(first, shown_by(make_lanes(spec, 2, seed=5)))
    assert not np.array_equal(first[:, 0], first[:, 1])
    for other in ({"seed": 6}, {"seed": 5, "incarnation": 1}, {"seed": 5, "first_lane": 2}):
        assert not np.array_equal(first, shown_by(make_lanes(spec, 2, **other)))


@pytest.mark.parametrize(
    ("env", "vectorize"),
    [
        ("CartPole-v1", "make"), ("ALE/Pong-v5", "make"), pytest.param(*POOL.values, "make", marks=POOL.marks),
        pytest.param("Acrobot-v1", "vector", id="Gymnasium's own vector environment"),
    ],
)  # fmt: skip
def test_a_lane_is_the_same_whichever_worker_has_it(env: str, vectorize: Any) -> None:
    spec = EnvSpec.resolve(env, vectorize=vectorize)
    together = shown_by(make_lanes(spec, 3, seed=5))
    alone = shown_by(make_lanes(spec, 1, seed=5, first_lane=2))
    assert np.array_equal(together[:, 2], alone[:, 0])


def test_lane_seeds_are_pinned_small_and_all_different() -> None:
    # The first 32-bit word of NumPy's SeedSequence([1, 2, 3]), halved.
    assert lane_seed(1, 2, 3) == 1_911_094_848
    seeds = {lane_seed(seed, lane, again) for seed in range(4) for lane in range(50) for again in range(3)}
    assert len(seeds) == 600 and max(seeds) < 2**31


@pytest.mark.parametrize("arrangement", ["single", "next_step", "same_step", "disabled"])
def test_only_the_first_reset_passes_a_seed(arrangement: str) -> None:
    lanes = counting_lanes(arrangement, [[(1, "terminated"), (1, "truncated")]] * 2)
    envs = lanes._envs if isinstance(lanes, SingleLanes) else lanes._env.envs  # type: ignore[attr-defined]
    lanes.reset()
    for _ in range(4):
        lanes.step(np.zeros(2, np.int64))
    lanes.reset()
    assert [env.seeds[0] for env in envs] == [0, 1]
    assert all(len(env.seeds) >= 4 and set(env.seeds[1:]) == {None} for env in envs)
    lanes.close()


class OwnVector(VectorEnv):
    """A vector environment of a class of its own, which takes one number as its seed, as Gymnasium asks."""

    metadata: dict[str, Any] = {"autoreset_mode": gymnasium.vector.AutoresetMode.NEXT_STEP}  # noqa: RUF012

    def __init__(self, num_envs: int) -> None:
        single = CountingEnv()
        self.num_envs = num_envs
        self.single_observation_space, self.single_action_space = single.observation_space, single.action_space

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        return np.full((self.num_envs, 3), self.np_random.integers(1 << 20), np.float32), {}


def test_a_vector_class_of_its_own_is_seeded_by_one_number() -> None:
    spec = EnvSpec.resolve(OwnVector, vectorize="vector")
    values = []
    for seed in (1, 1, 2):
        lanes = make_lanes(spec, 2, seed=seed)
        assert isinstance(lanes, VectorLanes)
        lanes.reset()
        column = np.zeros((2, 3), np.float32)
        lanes.write_observations(column, np.arange(2))
        values.append(column[0, 0])
    assert values[0] == values[1] != values[2]
