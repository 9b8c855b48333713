"""Actions reach the environment counted, clipped and scaled as its space asks."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv
from hypothesis import given
from hypothesis import strategies as st

from penstock.envs.actions import ActionDecoder
from penstock.envs.single import SingleLanes
from penstock.envs.translation import action_spec
from penstock.envs.vector import VectorLanes
from tests.envs.counting import CountingEnv


def decode(space: spaces.Space, actions: list) -> np.ndarray:
    spec = action_spec(space)
    return ActionDecoder(spec)(np.array(actions, np.int64 if spec.is_discrete else np.float32))


def test_discrete_actions_are_counted_from_start() -> None:
    assert decode(spaces.Discrete(3, start=-1), [0, 1, 2]).tolist() == [-1, 0, 1]
    assert decode(spaces.Discrete(3), [0, 1, 2]).tolist() == [0, 1, 2]


def test_bounded_actions_are_scaled_from_minus_one_to_one() -> None:
    space = spaces.Box(np.float32([-2.0, 0.0]), np.float32([2.0, 10.0]))
    decoded = decode(space, [[-1, -1], [0, 0], [0.5, 0.5], [1, 1]])
    assert decoded.dtype == np.float32
    assert decoded.tolist() == [[-2, 0], [0, 5], [1, 7.5], [2, 10]]


def test_bounded_actions_beyond_the_nominal_range_are_clipped() -> None:
    assert decode(spaces.Box(-2.0, 4.0, (2,)), [[-9, 9]]).tolist() == [[-2, 4]]


def test_unbounded_actions_are_passed_on_and_half_bounded_ones_only_clipped() -> None:
    space = spaces.Box(np.float32([-np.inf, 0.5, -np.inf]), np.float32([np.inf, np.inf, 3.0]))
    assert decode(space, [[7, 7, 7], [-7, -7, -7]]).tolist() == [[7, 7, 3], [-7, 0.5, -7]]
    assert decode(spaces.Box(-np.inf, np.inf, (1,)), [[123.0]]).tolist() == [[123.0]]


def test_actions_take_the_shape_and_dtype_of_the_space() -> None:
    decoded = decode(spaces.Box(-1.0, 1.0, (2, 2), np.float64), [[0.25, 0.5, -0.25, -0.5]])
    assert decoded.shape == (1, 2, 2) and decoded.dtype == np.float64
    assert decode(spaces.Box(0, 255, (1,), np.uint8), [[-1], [0.001], [1]]).tolist() == [[0], [128], [255]]


@given(
    low=st.floats(-(2.0**127), 2.0**127, width=32),
    high=st.floats(-(2.0**127), 2.0**127, width=32),
    action=st.floats(-10, 10, width=32),
)
def test_no_scaled_action_ever_leaves_its_box(low: float, high: float, action: float) -> None:
    space = spaces.Box(np.float32(min(low, high)), np.float32(max(low, high)), (1,), np.float32)
    assert space.contains(decode(space, [[action]])[0])


class Remembering(CountingEnv):
    """A counting environment with the action space it is given."""

    def __init__(self, action_space: gymnasium.Space) -> None:
        super().__init__(endings=[(9, "terminated")])
        self.action_space = action_space


@pytest.mark.parametrize("is_vector", [False, True])
def test_each_lane_gets_its_own_action(is_vector: bool) -> None:
    for space, actions, expected in (
        (spaces.Discrete(5, start=2), np.array([1, 2]), [3, 4]),
        (spaces.Box(-2.0, 2.0, (1,)), np.array([[0.5], [-4.0]], np.float32), [[1.0], [-2.0]]),
    ):
        envs = [Remembering(space), Remembering(space)]
        if is_vector:
            makers = [lambda env=env: env for env in envs]
            lanes = VectorLanes(SyncVectorEnv(makers), [0, 1], name="remembering")
        else:
            lanes = SingleLanes(envs, [0, 1], name="remembering")
        lanes.reset()
        lanes.step(actions)
        assert [np.asarray(env.actions[0]).tolist() for env in envs] == expected
        assert all(space.contains(env.actions[0]) for env in envs)
        lanes.close()


def test_an_environment_may_keep_the_action_it_was_given() -> None:
    env = Remembering(spaces.Box(-1.0, 1.0, (1,)))
    lanes = SingleLanes([env], [0], name="remembering")
    lanes.reset()
    for value in (0.25, 0.5):
        lanes.step(np.array([[value]], np.float32))
    assert [action.tolist() for action in env.actions] == [[0.25], [0.5]]
