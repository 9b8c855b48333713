"""Actions reach the environment counted, clipped and scaled as its space asks."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.spaces.utils import flatten
from gymnasium.vector import SyncVectorEnv
from gymnasium.vector.utils import batch_space, iterate
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.envs.columns import ActionDecoder
from penstock.envs.single import SingleLanes
from penstock.envs.translation import action_spec
from penstock.envs.vector import VectorLanes
from tests.envs.counting import CountingEnv


def decode(space: spaces.Space, actions: list) -> np.ndarray:
    spec = action_spec(space)
    return ActionDecoder(spec)(np.array(actions, spec.column_dtype))


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


def test_several_choices_are_counted_from_their_starts_and_have_the_spaces_shape() -> None:
    decoded = decode(spaces.MultiDiscrete([[2, 3], [4, 5]], np.int16, start=[[0, -1], [7, 0]]), [[1, 2, 3, 4]])
    assert decoded.tolist() == [[[1, 1], [10, 4]]] and decoded.dtype == np.int16
    decoded = decode(spaces.MultiBinary((2, 2)), [[1, 0, 0, 1]])
    assert decoded.tolist() == [[[1, 0], [0, 1]]] and decoded.dtype == np.int8


def test_choices_come_first_then_numbers_each_in_the_order_of_the_leaves() -> None:
    space = spaces.Dict(
        a=spaces.Box(-2.0, 2.0, (2,)),
        b=spaces.Tuple([spaces.Discrete(3, start=1), spaces.Box(-np.inf, np.inf, ())]),
        c=spaces.MultiDiscrete([2, 9]),
    )
    spec = action_spec(space)
    actions = np.array([[2, 1, 8, 0.5, -9.0, 0.25]], np.float32)
    (action,) = ActionDecoder(spec).each(actions)
    assert action["a"].tolist() == [1.0, -2.0] and action["c"].tolist() == [1, 8]
    assert action["b"] == (3, 0.25) and isinstance(action["b"], tuple)
    assert space.contains({**action, "b": (action["b"][0], np.asarray(action["b"][1]))})


leaf_spaces = st.one_of(
    st.builds(lambda n, start: spaces.Discrete(n, start=start), st.integers(1, 9), st.integers(-3, 3)),
    st.builds(spaces.MultiBinary, st.integers(1, 3)),
    st.builds(lambda n, start: spaces.MultiDiscrete([n, 2], start=[start, 0]), st.integers(1, 9), st.integers(-3, 3)),
    st.builds(lambda size, dtype: spaces.Box(-3, 5, (size, 1), dtype), st.integers(1, 3),
              st.sampled_from([np.float32, np.float64, np.int8])),
)  # fmt: skip
nested_spaces = st.recursive(
    leaf_spaces,
    lambda inner: st.one_of(
        st.dictionaries(st.sampled_from("abc"), inner, min_size=1).map(spaces.Dict),
        st.lists(inner, min_size=1, max_size=3).map(spaces.Tuple),
    ),
    max_leaves=5,
)


@settings(max_examples=200)
@given(space=nested_spaces, seed=st.integers(0, 2**31))
def test_any_vector_a_policy_chooses_is_an_action_of_any_space(space: spaces.Space, seed: int) -> None:
    spec, random = action_spec(space), np.random.default_rng(seed)
    choices = random.integers(0, spec.choices, (3, len(spec.choices)))
    actions = np.concatenate([choices, random.normal(size=(3, spec.num_numbers))], axis=1).astype(spec.column_dtype)
    actions = actions.reshape(3, *spec.column_shape)
    decoder = ActionDecoder(spec)
    each, batch = decoder.each(actions), decoder(actions)
    assert len(each) == 3 and all(space.contains(action) for action in each)
    for single, member in zip(each, iterate(batch_space(space, 3), batch), strict=True):
        assert flatten(space, single).tolist() == flatten(space, member).tolist()


class Remembering(CountingEnv):
    """A counting environment with the action space it is given."""

    def __init__(self, action_space: gymnasium.Space) -> None:
        super().__init__(endings=[(9, "terminated")])
        self.action_space = action_space


MIXED = spaces.Dict(a=spaces.Discrete(3, start=2), b=spaces.Box(-2.0, 2.0, (1,)))


def listed(action: Any) -> Any:
    if isinstance(action, dict):
        return {key: listed(member) for key, member in action.items()}
    return np.asarray(action).tolist()


@pytest.mark.parametrize("is_vector", [False, True])
def test_each_lane_gets_its_own_action(is_vector: bool) -> None:
    for space, actions, expected in (
        (spaces.Discrete(5, start=2), np.array([1, 2]), [3, 4]),
        (spaces.Box(-2.0, 2.0, (1,)), np.array([[0.5], [-4.0]], np.float32), [[1.0], [-2.0]]),
        (spaces.MultiBinary(2), np.array([[0, 1], [1, 1]]), [[0, 1], [1, 1]]),
        (MIXED, np.array([[1, 0.5], [0, 9]], np.float32), [{"a": 3, "b": [1.0]}, {"a": 2, "b": [2.0]}]),
    ):
        envs = [Remembering(space), Remembering(space)]
        if is_vector:
            makers = [lambda env=env: env for env in envs]
            lanes = VectorLanes(SyncVectorEnv(makers), [0, 1], name="remembering")
        else:
            lanes = SingleLanes(envs, [0, 1], name="remembering")
        lanes.reset()
        lanes.step(actions)
        assert [listed(env.actions[0]) for env in envs] == expected
        assert all(space.contains(env.actions[0]) for env in envs)
        lanes.close()


def test_an_environment_may_keep_the_action_it_was_given() -> None:
    env = Remembering(spaces.Box(-1.0, 1.0, (1,)))
    lanes = SingleLanes([env], [0], name="remembering")
    lanes.reset()
    for value in (0.25, 0.5):
        lanes.step(np.array([[value]], np.float32))
    assert [action.tolist() for action in env.actions] == [[0.25], [0.5]]
