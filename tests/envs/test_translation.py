"""Spaces become specs, or are refused by name."""

from __future__ import annotations

import pickle
import subprocess
import sys

import numpy as np
import pytest
from gymnasium import spaces

from penstock.envs import ActionSpec, ObservationSpec, UnsupportedSpaceError
from penstock.envs.translation import action_spec, observation_spec


@pytest.mark.parametrize(
    ("declared", "stored"),
    [
        (np.float64, "float32"),
        (np.float32, "float32"),
        (np.float16, "float16"),
        (np.uint8, "uint8"),
        (np.int64, "int64"),
        (np.int8, "int8"),
        (np.bool_, "bool"),
    ],
)
def test_a_box_keeps_its_dtype_but_for_wide_floats(declared: type, stored: str) -> None:
    assert observation_spec(spaces.Box(0, 1, (2, 3), declared)) == ObservationSpec((2, 3), stored)


def test_a_discrete_observation_is_an_int64_scalar() -> None:
    assert observation_spec(spaces.Discrete(5, start=3)) == ObservationSpec((), "int64", num_values=5, start=3)


@pytest.mark.parametrize(
    ("shape", "dtype", "is_image"),
    [((84, 84, 3), np.uint8, True), ((84, 84), np.uint8, False), ((84, 84, 3), np.float32, False)],
)
def test_an_image_is_uint8_with_three_dimensions(shape: tuple[int, ...], dtype: type, is_image: bool) -> None:
    assert observation_spec(spaces.Box(0, 255, shape, dtype)).is_image is is_image


def test_a_discrete_action_takes_one_uniform_number() -> None:
    spec = action_spec(spaces.Discrete(4, start=-1))
    assert spec == ActionSpec((), "int64", num_actions=4, start=-1)
    assert (spec.is_discrete, spec.noise, spec.noise_size) == (True, "uniform", 1)


def test_a_continuous_action_takes_a_normal_number_for_each_dimension() -> None:
    spec = action_spec(spaces.Box(np.array([[-1, 0, -np.inf]]), np.array([[2, np.inf, np.inf]]), dtype=np.float64))
    assert spec == ActionSpec((1, 3), "float64", low=(-1.0, 0.0, -np.inf), high=(2.0, np.inf, np.inf))
    assert (spec.is_discrete, spec.noise, spec.noise_size) == (False, "normal", 3)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_bounds_at_the_limit_of_their_dtype_count_as_none(dtype: type) -> None:
    limit = np.finfo(dtype).max
    spec = action_spec(spaces.Box(-limit, limit, (2,), dtype))
    assert spec.low == (-np.inf, -np.inf) and spec.high == (np.inf, np.inf)


def test_specs_are_hashable_and_picklable() -> None:
    for spec in (ObservationSpec((3,), "float32"), ActionSpec((), "int64", num_actions=2)):
        assert pickle.loads(pickle.dumps(spec)) == spec and hash(spec)


def test_parts_of_a_composed_space_are_listed_with_their_paths() -> None:
    camera = spaces.Box(0, 255, (8, 8, 3), np.uint8)
    space = spaces.Dict({"eyes": spaces.Tuple([camera, spaces.Text(9)]), "speed": spaces.Discrete(3)})
    with pytest.raises(UnsupportedSpaceError) as caught:
        observation_spec(space)
    message = str(caught.value)
    assert message.startswith("observation space: found a Dict of observation space['eyes'][0] = Box(")
    assert "['eyes'][1] = Text(" in message and "['speed'] = Discrete(3) (supported)" in message
    assert message.count("(not supported)") == 1
    assert "Legal is one Box or one Discrete" in message and "FlattenObservation" in message


@pytest.mark.parametrize("space", [spaces.MultiDiscrete([2, 3]), spaces.MultiBinary(2), spaces.Text(3)])
def test_other_spaces_are_refused_with_advice(space: spaces.Space) -> None:
    with pytest.raises(UnsupportedSpaceError, match=r"action space: found .*Legal is one Box or one Discrete"):
        action_spec(space)
    with pytest.raises(UnsupportedSpaceError, match=r"observation space: found .*Legal is one Box or one Discrete"):
        observation_spec(space)


def test_what_is_no_space_is_refused() -> None:
    with pytest.raises(UnsupportedSpaceError, match="found None, which is no gymnasium"):
        observation_spec(None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("shape", "low", "high", "message"),
    [
        ((0,), 0.0, 1.0, r"a Box of shape \(0,\), which holds nothing"),
        ((3, 0, 2), 0.0, 1.0, r"a Box of shape \(3, 0, 2\), which holds nothing"),
        ((2,), np.nan, 1.0, "NaN among its bounds"),
        ((2,), 2.0, 1.0, "low above high"),
    ],
)
def test_impossible_boxes_are_refused(shape: tuple[int, ...], low: float, high: float, message: str) -> None:
    space = spaces.Box(0.0, 1.0, shape)
    space.low, space.high = np.full(shape, low), np.full(shape, high)
    for translate in (observation_spec, action_spec):
        with pytest.raises(UnsupportedSpaceError, match=message):
            translate(space)


def test_the_contract_can_be_imported_without_gymnasium_and_nothing_here_imports_torch() -> None:
    program = (
        "import sys, penstock.envs, penstock.envs.lanes, penstock.envs.spaces;"
        "assert 'gymnasium' not in sys.modules;"
        "import penstock.envs.making, penstock.envs.atari;"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
