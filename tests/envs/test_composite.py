"""Observations of several leaves lie side by side in one row, and can be read back out of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector.utils import concatenate, create_empty_array
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.envs import EnvironmentFailure, ObservationSpec
from penstock.envs.columns import BadObservationError, observation_writer
from penstock.envs.spaces import ObservationPart
from penstock.envs.translation import observation_spec
from tests.envs.arrangements import ARRANGEMENTS, lanes_of

ROWS = np.array([4, 0, 2])

sizes = st.lists(st.integers(1, 3), max_size=3).map(tuple)
leaf_spaces = st.one_of(
    st.builds(lambda n, start: spaces.Discrete(n, start=start), st.integers(1, 9), st.integers(-3, 3)),
    st.builds(spaces.MultiBinary, sizes.filter(bool)),
    st.builds(
        lambda shape, n: spaces.MultiDiscrete(np.full(shape, n), start=np.full(shape, n - 4)),
        sizes.filter(bool),
        st.integers(1, 5),
    ),
    st.builds(
        lambda shape, dtype: spaces.Box(0, 1, shape, dtype),
        sizes,
        st.sampled_from([np.uint8, np.bool_, np.int16, np.int64, np.float16, np.float32, np.float64]),
    ),
)
keys = st.sampled_from(["a", "b", "a/b", "walker/joints_pos", "0"])
nested_spaces = st.recursive(
    leaf_spaces,
    lambda inner: st.one_of(
        st.dictionaries(keys, inner, min_size=1, max_size=3).map(spaces.Dict),
        st.lists(inner, min_size=1, max_size=3).map(spaces.Tuple),
    ),
    max_leaves=6,
)
composite_spaces = st.lists(nested_spaces, min_size=1, max_size=2).map(spaces.Tuple)


def leaves_of(space: spaces.Space, observation: Any) -> list[tuple[spaces.Space, np.ndarray]]:
    if isinstance(space, spaces.Dict):
        return [leaf for key, part in space.spaces.items() for leaf in leaves_of(part, observation[key])]
    if isinstance(space, spaces.Tuple):
        return [leaf for index, part in enumerate(space.spaces) for leaf in leaves_of(part, observation[index])]
    return [(space, np.asarray(observation))]


def read(row: np.ndarray, part: ObservationPart) -> np.ndarray:
    """Read a leaf out of a row of bytes, by its offset alone."""
    count = int(np.prod(part.spec.shape))
    return np.frombuffer(row.tobytes(), part.spec.dtype, count, part.offset).reshape(part.spec.shape)


def paths_are_distinct(space: spaces.Space) -> bool:
    try:
        observation_spec(space)
    except ValueError:
        return False
    return True


@settings(max_examples=200)
@given(space=composite_spaces.filter(paths_are_distinct), seed=st.integers(0, 2**31))
def test_every_leaf_of_any_space_is_found_again_in_its_row(space: spaces.Tuple, seed: int) -> None:
    space.seed(seed)
    observations = [space.sample() for _ in ROWS]
    spec = observation_spec(space)
    columns = [np.full((6, *spec.shape), 77, np.uint8) for _ in range(2)]
    observation_writer(spec).write_each(columns[0], ROWS, observations)
    batch = concatenate(space, observations, create_empty_array(space, len(ROWS)))
    observation_writer(spec).write_batch(columns[1], ROWS, batch)
    assert np.array_equal(*columns)
    assert (columns[0][[1, 3, 5]] == 77).all()
    assert spec.shape[0] % 8 == 0 and all(part.offset % 8 == 0 for part in spec.parts)
    for row, observation in zip(ROWS, observations, strict=True):
        for part, (leaf, value) in zip(spec.parts, leaves_of(space, observation), strict=True):
            expected = value - leaf.start if isinstance(leaf, (spaces.Discrete, spaces.MultiDiscrete)) else value
            assert np.array_equal(
                read(columns[0][row], part), expected.astype(part.spec.dtype).reshape(part.spec.shape)
            )


def test_members_may_be_lists_and_mappings_of_any_kind() -> None:
    class Readings(Mapping):
        def __getitem__(self, key: str) -> list[float]:
            return {"x": [1.5], "y": [2.5]}[key]

        def __iter__(self) -> Any:
            return iter("yx")

        def __len__(self) -> int:
            return 2

    spec = observation_spec(spaces.Tuple([spaces.Dict(x=spaces.Box(0, 9, (1,)), y=spaces.Box(0, 9, (1,)))]))
    column = np.zeros((1, *spec.shape), np.uint8)
    observation_writer(spec).write_each(column, np.zeros(1, np.int64), [[Readings()]])
    assert [read(column[0], part).tolist() for part in spec.parts] == [[1.5], [2.5]]


@pytest.mark.parametrize(
    "mask", [[[0, 2], [-1, 0]], np.array([0.0, 0.5, 0.25, 0.0]), np.array([False, True, True, False])]
)
def test_a_mask_may_be_of_any_numbers_and_shape(mask: Any) -> None:
    space = spaces.Dict(action_mask=spaces.MultiBinary(4), seen=spaces.Discrete(2))
    spec = observation_spec(space, choices=(4,))
    assert spec.mask is not None
    columns = [np.zeros((2, *spec.shape), np.uint8) for _ in range(2)]
    rows = np.arange(2)
    observation_writer(spec).write_each(columns[0], rows, [{"action_mask": mask, "seen": 1}] * 2)
    observation_writer(spec).write_batch(
        columns[1], rows, {"action_mask": np.array([mask] * 2), "seen": np.ones(2, int)}
    )
    assert np.array_equal(*columns)
    assert read(columns[0][1], spec.mask).tolist() == [False, True, True, False]


@pytest.mark.parametrize("place", [0, 1])
def test_a_mask_of_a_dict_observation_without_an_answer_is_refused(place: int) -> None:
    spec = observation_spec(spaces.Dict(action_mask=spaces.MultiBinary(4), seen=spaces.Discrete(2)), choices=(4,))
    masks = np.ones((2, 4), np.float32)
    masks[place, 3] = np.nan  # which is not 0, and so would be legal
    column, rows = np.zeros((2, *spec.shape), np.uint8), np.arange(2)
    story = "^action_mask: expected a mask of numbers, not 0 where legal, found NaN among them"
    with pytest.raises(BadObservationError, match=story) as caught:
        observation_writer(spec).write_each(column, rows, [{"action_mask": mask, "seen": 1} for mask in masks])
    assert caught.value.index == place
    with pytest.raises(BadObservationError, match=story) as caught:
        observation_writer(spec).write_batch(column, rows, {"action_mask": masks, "seen": np.ones(2, int)})
    assert caught.value.index == place


ARM = spaces.Dict(
    joints=spaces.Tuple([spaces.Box(-1, 1, (2,)), spaces.Discrete(3)]), grip=spaces.MultiDiscrete([2, 3], start=[0, 5])
)


def arm(**members: Any) -> dict[str, Any]:
    return {"joints": (np.zeros(2), 0), "grip": np.array([0, 5]), **members}


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (arm(joints=(np.zeros(3), 0)), r"joints/0: expected an observation of shape \(2,\), found \(3,\)"),
        (arm(joints=(np.array([0, np.nan]), 0)), "joints/0: expected a finite observation"),
        (arm(joints=(np.zeros(2), 3)), "joints/1: expected a discrete observation from 0 to 2, found 3"),
        (arm(joints=(np.zeros(2),)), "joints/1: expected an observation that has it, found a dict with the keys 'j"),
        (arm(grip=np.array([0, 8])), r"grip: expected a discrete observation from \[0 5\] to \[1 7\], found \[0 8\]"),
        (arm(grip=np.array([0, 5, 5])), r"grip: expected an observation of shape \(2,\), found \(3,\)"),
        ({"grip": np.array([0, 5])}, "joints/0: expected an observation that has it, found a dict with the keys 'gri"),
        ({"joint": 0, "grip": 0}, "joints/0: .* found a dict with the keys 'joint', 'grip'"),
        (np.zeros(4), "joints/0: expected an observation that has it, found a ndarray"),
        (3.0, "joints/0: expected an observation that has it, found a float"),
        ((0, 1), "joints/0: expected an observation that has it, found a tuple of 2"),
    ],
)
def test_a_leaf_that_does_not_fit_is_named_by_its_path_and_its_place(bad: Any, message: str) -> None:
    spec = observation_spec(ARM)
    for place in (0, 1):
        observations = [arm(), arm()]
        observations[place] = bad
        with pytest.raises(BadObservationError, match=f"^{message}") as caught:
            observation_writer(spec).write_each(np.zeros((6, *spec.shape), np.uint8), ROWS[:2], observations)
        assert caught.value.index == place


def test_a_batch_that_lacks_a_leaf_is_refused() -> None:
    batch = {"joints": (np.zeros((3, 2)),), "grip": np.full((3, 2), [0, 5])}
    spec = observation_spec(ARM)
    with pytest.raises(BadObservationError, match="joints/1: expected an observation that has it") as caught:
        observation_writer(spec).write_batch(np.zeros((6, *spec.shape), np.uint8), ROWS, batch)
    assert caught.value.index is None


@pytest.mark.parametrize(
    ("spec", "one"),
    [
        (ObservationSpec((3,), "float32"), np.zeros(3)),
        (ObservationSpec((), "int64", num_values=4), 2),
        (observation_spec(spaces.MultiDiscrete([2, 3])), np.zeros(2, int)),
        (observation_spec(spaces.MultiDiscrete([[2, 3], [2, 2]])), np.zeros((2, 2), int)),
        (observation_spec(ARM), arm()),
    ],
)
def test_a_batch_of_observations_is_distinguished_from_one(spec: ObservationSpec, one: Any) -> None:
    def batch(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: batch(member) for key, member in value.items()}
        return tuple(map(batch, value)) if isinstance(value, tuple) else np.stack([value] * 5)

    writer = observation_writer(spec)
    assert writer.batch_size(one) is None and writer.batch_size(batch(one)) == 5


class ArmEnv(gymnasium.Env):
    """Shows a random arm; episodes of two steps are truncated. It remembers what it has shown."""

    metadata: dict[str, Any] = {}  # noqa: RUF012
    observation_space = ARM
    action_space = spaces.Discrete(2)

    def __init__(self, seed: int = 0) -> None:
        self.observation_space = spaces.Dict(ARM.spaces)
        self.observation_space.seed(seed)
        self.shown: list[Any] = []

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self.count = 0
        return self._observation(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.count += 1
        return self._observation(), 0.0, False, self.count == 2, {}

    def _observation(self) -> Any:
        self.shown.append(self.observation_space.sample())
        return self.shown[-1]


@pytest.mark.parametrize("arrangement", ARRANGEMENTS)
def test_lanes_write_composite_observations_and_finals(arrangement: str) -> None:
    envs = [ArmEnv(1), ArmEnv(2)]
    lanes = lanes_of(arrangement, [lambda env=env: env for env in envs], name="arm")
    lanes.reset()
    column = np.zeros((4, *lanes.observation.shape), np.uint8)
    written: list[list[bytes]] = [[], []]
    for step in range(6):
        if step:
            lanes.step(np.zeros(2, np.int64))
        lanes.write_finals(column, 2 + lanes.finals)
        lanes.write_observations(column, np.arange(2))
        for lane in range(2):
            if lane in lanes.finals:
                written[lane].append(column[2 + lane].tobytes())
            written[lane].append(column[lane].tobytes())
    lanes.close()
    for lane, env in enumerate(envs):
        expected = np.zeros((len(env.shown), *lanes.observation.shape), np.uint8)
        observation_writer(lanes.observation).write_each(expected, np.arange(len(env.shown)), env.shown)
        assert written[lane] == [row.tobytes() for row in expected]


def test_the_lane_of_a_bad_leaf_is_named() -> None:
    class Broken(ArmEnv):
        def _observation(self) -> Any:
            return {"grip": np.array([0, 5])}

    lanes = lanes_of("single", [ArmEnv, Broken], name="arm", first_lane=10)
    lanes.reset()
    with pytest.raises(EnvironmentFailure, match=r"reset \(lane 11, step 0\): joints/0: expected an observation"):
        lanes.write_observations(np.zeros((2, *lanes.observation.shape), np.uint8), np.arange(2))
