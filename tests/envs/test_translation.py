"""Spaces become specs, or are refused by name."""

from __future__ import annotations

import dataclasses
import pickle
import subprocess
import sys

import numpy as np
import pytest
from gymnasium import spaces

from penstock.envs import ActionSpec, ObservationSpec, UnsupportedSpaceError
from penstock.envs.spaces import ObservationPart
from penstock.envs.translation import action_spec, environment_specs, observation_spec


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


LIMITS = np.iinfo(np.int32)


@pytest.mark.parametrize(
    ("low", "high", "dtype", "scaling"),
    [
        (0, 255, np.uint8, ((0,), (255.0,))),
        (0, 1, np.uint8, None),
        (-128, 127, np.int8, ((0,), (128.0,))),
        (-5, 20, np.int64, ((0,), (20.0,))),
        (-9, -4, np.int16, ((-4,), (5.0,))),
        (7, 7, np.int32, ((7,), (1.0,))),
        (2**53 + 1, 2**53 + 3, np.int64, ((2**53 + 1,), (2.0,))),
        (-np.inf, np.inf, np.int32, None),
        (0, LIMITS.max, np.int32, None),
        (LIMITS.min, 9, np.int32, None),
        (0, np.iinfo(np.uint16).max, np.uint16, None),
        (0, 1, np.bool_, None),
        (0, 255, np.float32, None),
    ],
)  # fmt: skip
def test_integers_are_scaled_by_bounds_around_the_legal_value_nearest_zero(low, high, dtype, scaling) -> None:
    spec = observation_spec(spaces.Box(low, high, (3,), dtype))
    assert spec.scaling == scaling
    assert len(spec.low) == len(spec.high) == 1, "one for all"


def test_each_number_has_bounds_of_its_own() -> None:
    spec = observation_spec(spaces.Box(np.array([0, -4, LIMITS.min]), np.array([9, LIMITS.max, 3]), dtype=np.int32))
    assert spec.scaling == ((0, 0, 0), (9.0, 1.0, 1.0))
    spec = observation_spec(spaces.Box(np.array([-np.inf, 0.5]), np.array([1.0, np.inf]), dtype=np.float32))
    assert (spec.low, spec.high) == ((-np.inf, 0.5), (1.0, np.inf))


def test_specs_agree_where_only_what_scales_nothing_differs() -> None:
    near, far = (observation_spec(spaces.Box(-x, x, (2,), np.float32)) for x in (1, 9))
    assert near.is_seen_as(far)
    near, far = (observation_spec(spaces.Dict(x=spaces.Box(0, x, (2,), np.int8))) for x in (1, 9))
    assert near == far and not near.is_seen_as(far)


@pytest.mark.parametrize("n", [(5,), (2, 3)])
def test_a_multi_binary_observation_is_like_a_box_of_bits(n: tuple[int, ...]) -> None:
    assert observation_spec(spaces.MultiBinary(n)) == ObservationSpec(n, "int8")


def test_a_multi_discrete_observation_is_a_flat_vector_counted_from_zero() -> None:
    space = spaces.MultiDiscrete([[2, 3], [4, 5]], start=[[0, -1], [7, 0]])
    assert observation_spec(space) == ObservationSpec((4,), "int64", nvec=(2, 3, 4, 5), starts=(0, -1, 7, 0))


def test_leaves_of_a_composite_observation_lie_side_by_side_each_where_any_dtype_may_begin() -> None:
    camera = spaces.Box(0, 255, (3, 3, 3), np.uint8)  # 27 bytes
    arm = spaces.Dict({"angles": spaces.Box(-1, 1, (3,), np.float64), "grip": spaces.Discrete(4, start=1)})
    spec = observation_spec(spaces.Dict({"robot/left": arm, "eyes": spaces.Tuple([camera, spaces.MultiBinary(9)])}))
    assert spec == ObservationSpec(
        (72,),
        "uint8",
        parts=(
            ObservationPart("eyes/0", ObservationSpec((3, 3, 3), "uint8"), 0),
            ObservationPart("eyes/1", ObservationSpec((9,), "int8"), 32),
            ObservationPart("robot/left/angles", ObservationSpec((3,), "float32"), 48),
            ObservationPart("robot/left/grip", ObservationSpec((), "int64", num_values=4, start=1), 64),
        ),
    )
    assert spec.is_image


def test_a_space_of_one_member_is_composite_too() -> None:
    plain = ObservationSpec((3,), "float32")
    spec = observation_spec(spaces.Dict({"only": spaces.Box(-1, 1, (3,))}))
    assert spec == ObservationSpec((16,), "uint8", parts=(ObservationPart("only", plain, 0),))


@pytest.mark.parametrize(
    "mask",
    [
        spaces.MultiBinary(5),
        spaces.Box(0, 1, (5,), np.int8),
        spaces.Box(0.0, 1.0, (5, 1)),
        spaces.Box(0, 1, (5,), np.bool_),
        spaces.MultiDiscrete([2] * 5),
    ],
)
def test_a_member_called_action_mask_is_the_mask_if_actions_have_choices(mask: spaces.Space) -> None:
    space = spaces.Dict({"action_mask": mask, "seen": spaces.Box(-1, 1, (3,))})
    spec, action = environment_specs(space, spaces.MultiDiscrete([2, 3]))
    assert action.choices == (2, 3) and [part.path for part in spec.parts] == ["seen"]
    assert spec.mask == ObservationPart("action_mask", ObservationSpec((5,), "bool"), 16) and spec.shape == (24,)
    assert environment_specs(space, spaces.MultiDiscrete([2, 3]), mask_is_in_info=True)[0] == spec
    without, _ = environment_specs(space, spaces.Box(-1, 1, (2,)))
    assert without.mask is None and [part.path for part in without.parts] == ["action_mask", "seen"]


def test_a_mask_in_the_info_lies_behind_the_observation() -> None:
    plain, mask = ObservationSpec((3,), "float32"), ObservationPart("action_mask", ObservationSpec((4,), "bool"), 16)
    spec, _ = environment_specs(spaces.Box(-1, 1, (3,)), spaces.Discrete(4), mask_is_in_info=True)
    part = ObservationPart("", plain, 0)
    assert spec == ObservationSpec((24,), "uint8", parts=(part,), mask=mask, mask_is_in_info=True)
    named, _ = environment_specs(spaces.Dict(a=spaces.Box(-1, 1, (3,))), spaces.Discrete(4), mask_is_in_info=True)
    assert named == dataclasses.replace(spec, parts=(ObservationPart("a", plain, 0),))


@pytest.mark.parametrize("mask", [spaces.MultiBinary(4), spaces.Discrete(5), spaces.Dict(a=spaces.MultiBinary(5))])
def test_a_mask_that_does_not_fit_the_choices_is_refused(mask: spaces.Space) -> None:
    space = spaces.Dict({"action_mask": mask, "seen": spaces.Box(-1, 1, (3,))})
    message = r"observation space\['action_mask'\]: found .*5 entries here.*numbers of values: 2, 3.*MultiBinary"
    with pytest.raises(UnsupportedSpaceError, match=message):
        environment_specs(space, spaces.MultiDiscrete([2, 3]))


@pytest.mark.parametrize("inner", [spaces.Dict, lambda members: spaces.Tuple([spaces.Dict(members)])])
def test_a_mask_that_is_not_a_member_of_the_outermost_dict_is_refused_if_actions_have_choices(inner) -> None:
    inner_space = inner({"action_mask": spaces.MultiBinary(5), "seen": spaces.Box(-1, 1, (3,))})
    space = spaces.Dict(agent=inner_space)
    message = r"observation space\['agent'\].*\['action_mask'\]: .* is a member of the outermost Dict, or in the info"
    with pytest.raises(UnsupportedSpaceError, match=message):
        environment_specs(space, spaces.Discrete(5))
    with pytest.raises(UnsupportedSpaceError, match=message):
        environment_specs(spaces.Dict(action_mask=spaces.MultiBinary(5), agent=inner_space), spaces.Discrete(5))
    spec, _ = environment_specs(space, spaces.Box(-1, 1, (5,)))
    assert spec.mask is None and [part.path.split("/")[-1] for part in spec.parts] == ["action_mask", "seen"]


def test_an_observation_of_nothing_is_refused() -> None:
    with pytest.raises(UnsupportedSpaceError, match="nothing but an 'action_mask'"):
        environment_specs(spaces.Dict(action_mask=spaces.MultiBinary(5)), spaces.Discrete(5))
    for space in (spaces.Dict(), spaces.Tuple([])):
        with pytest.raises(UnsupportedSpaceError, match=f"observation space: found a {type(space).__name__} that hol"):
            observation_spec(space)
        with pytest.raises(UnsupportedSpaceError, match=r"action space\['arm'\]: found a .* that holds nothing"):
            action_spec(spaces.Dict(arm=space))


def test_leaves_that_would_have_the_same_path_are_refused() -> None:
    bit = spaces.MultiBinary(1)
    with pytest.raises(UnsupportedSpaceError, match="two leaves called 'a/b'"):
        observation_spec(spaces.Dict({"a": spaces.Dict({"b": bit}), "a/b": bit}))


def test_actions_of_several_choices_take_a_uniform_number_for_each() -> None:
    spec = action_spec(spaces.MultiDiscrete([[2, 3]], start=[[0, 5]]))
    assert spec == ActionSpec((1, 2), "int64", nvec=(2, 3), starts=(0, 5))
    assert (spec.kind, spec.noise, spec.noise_size, spec.column_dtype) == ("multi-discrete", "uniform", 2, "int64")
    assert action_spec(spaces.MultiBinary(3)) == ActionSpec((3,), "int8", nvec=(2, 2, 2), starts=(0, 0, 0))


def test_a_composite_action_is_its_members_with_the_bounds_of_all_numbers() -> None:
    torque = spaces.Box(np.float32([-2, 0]), np.float32([2, np.inf]))
    space = spaces.Tuple([torque, spaces.Dict(gear=spaces.Discrete(4), turn=spaces.Box(-1, 1, (1,)))])
    spec = action_spec(space)
    gear = ("gear", action_spec(spaces.Discrete(4)))
    turn = ("turn", action_spec(spaces.Box(-1, 1, (1,))))
    assert spec.parts[0] == (None, action_spec(torque)) and spec.parts[1][1].parts == (gear, turn)
    assert spec.low == (-2.0, 0.0, -1.0) and spec.high == (2.0, np.inf, 1.0)
    assert (spec.kind, spec.choices, spec.num_numbers, spec.noise_size) == ("mixed", (4,), 3, 4)


@pytest.mark.parametrize(
    ("space", "kind"),
    [
        (spaces.Dict(a=spaces.Discrete(4)), "multi-discrete"),
        (spaces.Tuple([spaces.MultiBinary(2), spaces.Discrete(4)]), "multi-discrete"),
        (spaces.Dict(a=spaces.Box(-1, 1, (2,)), b=spaces.Box(-1, 1, ())), "continuous"),
        (spaces.Discrete(3), "discrete"),
    ],
)
def test_the_kind_of_an_action_follows_from_its_leaves(space: spaces.Space, kind: str) -> None:
    assert action_spec(space).kind == kind


def test_a_choice_that_a_float32_cannot_count_is_refused_beside_numbers() -> None:
    number = spaces.Box(-1, 1, (1,))
    assert action_spec(spaces.Tuple([spaces.Discrete(2**24), number])).kind == "mixed"
    assert action_spec(spaces.Tuple([spaces.Discrete(2**24 + 1)])).kind == "multi-discrete"
    with pytest.raises(UnsupportedSpaceError, match=r"among 16777217 values beside numbers.*at most 16777216"):
        action_spec(spaces.Tuple([spaces.Discrete(2**24 + 1), number]))


@pytest.mark.parametrize(
    "space",
    [
        spaces.Text(3),
        spaces.Sequence(spaces.Discrete(2)),
        spaces.Graph(spaces.Discrete(2), None),
        spaces.OneOf([spaces.Discrete(2), spaces.Discrete(3)]),
    ],
)
def test_other_spaces_are_refused_with_their_place_and_advice(space: spaces.Space) -> None:
    legal = r"found .*Legal are Box, Discrete, MultiDiscrete and MultiBinary, alone or in Dict and Tuple: .*gymnasium"
    nested = spaces.Dict({"eyes": spaces.Tuple([spaces.Discrete(3), space])})
    for role, translate in (("action", action_spec), ("observation", observation_spec)):
        with pytest.raises(UnsupportedSpaceError, match=f"^{role} space: {legal}"):
            translate(space)
        with pytest.raises(UnsupportedSpaceError, match=rf"^{role} space\['eyes'\]\[1\]: {legal}"):
            translate(nested)


def test_what_is_no_space_is_refused() -> None:
    with pytest.raises(UnsupportedSpaceError, match="found None, which is not a gymnasium"):
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
        "print('gymnasium' in sys.modules);"
        "import penstock.envs.making, penstock.envs.atari;"
        "print('gymnasium' in sys.modules, 'torch' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", program], check=True, timeout=60, capture_output=True, text=True)
    assert run.stdout.split() == ["False", "True", "False"]
