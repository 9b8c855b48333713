"""Masks of legal actions reach the row of the observation they belong to, from wherever environments show them."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.wrappers import TimeLimit
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.envs import EnvironmentFailure, EnvSpec, Lanes, make_lanes, probe
from penstock.envs.masks import flat_mask, mask_of_lane, offers_nothing
from penstock.envs.translation import action_spec
from tests.envs.arrangements import ARRANGEMENTS, episodes, lanes_of
from tests.envs.counting import CountingEnv, Ending
from tests.envs.masked import NUM_ACTIONS, MaskedEnv, legal_action

PLAN = spaces.Dict(gear=spaces.Discrete(3), speed=spaces.Box(-1, 1, (2,)), turns=spaces.MultiDiscrete([2, 2]))


@pytest.mark.parametrize(
    ("space", "mask", "expected"),
    [
        (spaces.Discrete(3), np.array([1, 0, 1], np.int8), [1, 0, 1]),
        (spaces.Discrete(3), [True, False, True], [1, 0, 1]),
        (spaces.Discrete(3), (0.5, 0.0, -2.0), [1, 0, 1]),
        (spaces.MultiDiscrete([2, 3]), np.array([1, 0, 0, 0, 1]), [1, 0, 0, 0, 1]),
        (spaces.MultiDiscrete([2, 3]), (np.array([1, 0]), np.array([0, 0, 1])), [1, 0, 0, 0, 1]),
        (spaces.MultiDiscrete([[2, 2]]), ((np.array([1, 0]), np.array([0, 1])),), [1, 0, 0, 1]),
        (spaces.MultiBinary(2), np.array([[1, 0], [0, 1]]), [1, 0, 0, 1]),
        (spaces.Tuple([spaces.Discrete(2), spaces.Discrete(1)]), (np.array([0, 1]), np.array([1])), [0, 1, 1]),
        (spaces.Tuple([spaces.Discrete(2), spaces.Discrete(1)]), [0, 1, 1], [0, 1, 1]),
        (PLAN, np.array([1, 0, 0, 1, 0, 0, 1]), [1, 0, 0, 1, 0, 0, 1]),
        (
            PLAN,
            {"turns": (np.array([1, 0]), np.array([0, 1])), "speed": None, "gear": np.array([1, 0, 0])},
            [1, 0, 0, 1, 0, 0, 1],
        ),
        (PLAN, {"turns": np.array([1, 0, 0, 1]), "gear": np.array([1, 0, 0])}, [1, 0, 0, 1, 0, 0, 1]),
    ],
)
def test_a_mask_may_be_flat_or_nested_as_gymnasiums_spaces_take_it(space: Any, mask: Any, expected: list[int]) -> None:
    flat = flat_mask(mask, action_spec(space))
    assert flat.dtype == np.bool_ and flat.tolist() == [bool(x) for x in expected]


@pytest.mark.parametrize(
    ("mask", "found"),
    [
        (None, "found none"),
        (np.ones(6), "found 6 of them"),
        (np.ones((7, 2)), "found 14 of them"),
        (1, "found 1 of them"),
        ("all of it", "found a str that is not an array: could not convert"),
        ([1, 1, 1, np.nan, 0, 1, 0], "found NaN among them"),
    ],
)
def test_a_mask_of_another_size_is_refused_with_what_was_expected(mask: Any, found: str) -> None:
    expected = (
        "expected 7 entries in info['action_mask'], one for each value of each choice (numbers of values: 3, 2, 2)"
    )
    with pytest.raises(ValueError, match=re.escape(expected) + f".*{found}"):
        flat_mask(mask, action_spec(PLAN))


PAIR = spaces.Tuple([spaces.Discrete(2), spaces.Dict(turn=spaces.Discrete(3))])


@pytest.mark.parametrize(
    ("space", "mask", "expected", "found"),
    [
        (PLAN, {"gear": np.ones(3)}, "4 entries in mask['turns']", "none"),
        (PLAN, {"wheel": np.ones(7)}, "3 entries in mask['gear']", "none"),
        (PLAN, {"gear": np.ones(4), "turns": np.ones(3)}, "3 entries in mask['gear']", "4 of them"),  # 7 in all
        (PAIR, (np.ones(3), {"turn": np.ones(2)}), "2 entries in mask[0]", "3 of them"),  # 5 in all
        (PAIR, (np.ones(2), {"turn": np.ones(2)}), "3 entries in mask[1]['turn']", "2 of them"),
    ],
)
def test_each_leaf_of_a_nested_mask_must_fit_and_is_named(space: Any, mask: Any, expected: str, found: str) -> None:
    with pytest.raises(ValueError, match=re.escape(f"expected {expected}, one for each") + f".*; found {found}$"):
        flat_mask(mask, action_spec(space), "mask")


def test_a_lanes_mask_is_found_in_a_batch_nested_in_dicts_and_tuples() -> None:
    batch = {"gear": np.array([[1, 0], [0, 1]]), "turns": (np.array([[1, 1], [1, 0]]), None)}
    mask = mask_of_lane(batch, 1)
    assert (mask["gear"].tolist(), mask["turns"][0].tolist(), mask["turns"][1]) == ([0, 1], [1, 0], None)


def test_nothing_is_offered_where_any_choice_has_no_legal_value() -> None:
    masks = np.array([[1, 0, 0, 1, 0], [0, 0, 1, 1, 1], [1, 1, 0, 0, 0], [0, 0, 0, 0, 0], [0, 1, 0, 0, 1]], bool)
    assert offers_nothing(masks, (2, 3)).tolist() == [False, True, True, True, False]
    assert offers_nothing(masks, (5,)).tolist() == [False, False, False, True, False]


def masked_lanes(arrangement: str, at: str, endings_of_lanes: Sequence[Sequence[Ending]], **faults: Any) -> Lanes:
    makers = [partial(MaskedEnv, tag, endings, at, **faults) for tag, endings in enumerate(endings_of_lanes)]
    return lanes_of(arrangement, makers, name="masked", first_lane=10, mask_is_in_info=at == "info")


def read(lanes: Lanes, row: np.ndarray) -> tuple[list[int], list[bool]]:
    """Return tag, episode and step of a row, and its mask."""
    (part,), mask = lanes.observation.parts, lanes.observation.mask
    assert mask is not None
    seen = np.frombuffer(row.tobytes(), np.float32, 3, part.offset)
    return seen.astype(int).tolist(), np.frombuffer(row.tobytes(), np.bool_, NUM_ACTIONS, mask.offset).tolist()


def rows_of(lanes: Lanes, num_steps: int) -> list[tuple[int, bool, list[int], list[bool]]]:
    """Lane, whether its episode is over, and what its row holds, for every row that is shown."""
    column = np.zeros((2 * lanes.num_lanes, *lanes.observation.shape), np.uint8)
    rows = []
    lanes.reset()
    for step in range(num_steps + 1):
        if step:
            lanes.step(np.zeros(lanes.num_lanes, np.int64))
        lanes.write_observations(column, np.arange(lanes.num_lanes))
        lanes.write_finals(column, lanes.num_lanes + lanes.finals)
        for lane in range(lanes.num_lanes):
            if lane in lanes.finals:
                rows.append((lane, True, *read(lanes, column[lanes.num_lanes + lane])))
            is_over = bool((lanes.terminated | lanes.truncated)[lane] and not lanes.first[lane])
            rows.append((lane, is_over, *read(lanes, column[lane])))
    lanes.close()
    return rows


@settings(max_examples=120)
@given(
    arrangement=st.sampled_from(ARRANGEMENTS),
    at=st.sampled_from(["info", "observation"]),
    endings_of_lanes=st.lists(st.lists(episodes, min_size=1, max_size=3), min_size=1, max_size=3),
)
def test_every_row_has_the_mask_of_its_own_observation(
    arrangement: str, at: str, endings_of_lanes: list[list[Ending]]
) -> None:
    for lane, _, (tag, episode, count), mask in rows_of(masked_lanes(arrangement, at, endings_of_lanes), 15):
        assert tag == lane and mask == [action == legal_action(episode, count) for action in range(NUM_ACTIONS)]


@pytest.mark.parametrize("arrangement", ARRANGEMENTS)
@pytest.mark.parametrize("ending", ["terminated", "truncated"])
@pytest.mark.parametrize("missing", [None, np.zeros(NUM_ACTIONS, np.int8)])
def test_everything_is_legal_when_the_episode_is_over_and_its_mask_says_nothing(
    arrangement: str, ending: str, missing: Any
) -> None:
    makers = [partial(MaskedEnv, lane, [(2 + lane, ending)], masks={(0, 2 + lane): missing}) for lane in range(2)]
    lanes = lanes_of(arrangement, makers, name="masked", mask_is_in_info=True)
    rows = rows_of(lanes, 6)
    ends = [mask for _, is_over, (_, episode, _), mask in rows if is_over and episode == 0]
    assert all(all(mask) for mask in ends)
    assert ends or ending == "terminated"  # whose final observations only NEXT_STEP shows


@pytest.mark.parametrize("arrangement", ARRANGEMENTS)
@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (None, r"expected 7 entries in info\['action_mask'\].*found none"),
        (np.zeros(7, np.int8), "expected a mask of legal actions that leaves each choice a value"),
    ],
)
@pytest.mark.parametrize(
    ("at", "phase", "step"), [((0, 0), "reset", 0), ((0, 1), "step", 1), ((1, 0), None, None), ((1, 1), "step", None)]
)
def test_a_bad_mask_is_the_failure_of_its_lane(
    arrangement: str, fault: Any, message: str, at: tuple[int, int], phase: str | None, step: int | None
) -> None:
    makers = [
        partial(MaskedEnv, 0, [(2, "truncated")]),
        partial(MaskedEnv, 1, [(2, "truncated")], masks={at: fault}),
    ]
    lanes = lanes_of(arrangement, makers, name="masked", first_lane=10, mask_is_in_info=True)
    with pytest.raises(EnvironmentFailure, match=message) as caught:
        rows_of(lanes, 6)
    assert caught.value.lane == 11
    assert phase in (None, caught.value.phase) and step in (None, caught.value.step)


@pytest.mark.parametrize("arrangement", ARRANGEMENTS)
def test_masks_of_another_size_are_a_failure(arrangement: str) -> None:
    lanes = masked_lanes(arrangement, "info", [[(2, "truncated")]] * 2, masks={(0, 0): np.ones(8, np.int8)})
    with pytest.raises(EnvironmentFailure, match=r"expected 7 entries in info\['action_mask'\].*found 8 of") as caught:
        rows_of(lanes, 1)
    assert (caught.value.phase, caught.value.lane, caught.value.step) == ("reset", 10, 0)


@pytest.mark.parametrize("arrangement", ARRANGEMENTS)
def test_a_mask_that_only_infos_of_steps_have_is_refused(arrangement: str) -> None:
    makers = [partial(MaskedEnv, lane, [(3, "truncated")], masks={(0, 0): None}) for lane in range(2)]
    lanes = lanes_of(arrangement, makers, name="masked", first_lane=10)
    lanes.reset()
    story = r"expected every info from reset\(\) on to have an 'action_mask'.*; found the first one in a later info"
    with pytest.raises(EnvironmentFailure, match=story) as caught:
        lanes.step(np.zeros(2, np.int64))
    assert (caught.value.phase, caught.value.lane) == ("step", 10 if arrangement == "single" else None)
    lanes.close()


def test_a_bad_mask_of_the_reset_after_a_truncation_is_the_resets_failure() -> None:
    lanes = masked_lanes("single", "info", [[(2, "truncated")]], masks={(1, 0): None})
    with pytest.raises(EnvironmentFailure) as caught:
        rows_of(lanes, 6)
    assert (caught.value.phase, caught.value.step) == ("reset", 3)


def test_an_observation_whose_mask_offers_nothing_is_refused_unless_the_episode_is_over() -> None:
    nothing = np.zeros(NUM_ACTIONS, np.int8)
    endings: list[Ending] = [(2, "truncated")]
    assert rows_of(masked_lanes("single", "observation", [endings], masks={(0, 2): nothing}), 3)
    with pytest.raises(EnvironmentFailure, match="leaves each choice a value"):
        rows_of(masked_lanes("single", "observation", [endings], masks={(0, 1): nothing}), 3)


class PlanningEnv(gymnasium.Env):
    """Takes a plan, and shows in its info which ones are legal, nested as the space is."""

    metadata: dict[str, Any] = {}  # noqa: RUF012
    observation_space = spaces.Discrete(4)
    action_space = PLAN

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self.count = 0
        return 0, self._info()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action)
        self.count += 1
        return self.count, 0.0, False, self.count == 3, self._info()

    def _info(self) -> dict[str, Any]:
        gear, turn = np.zeros(3, np.int8), np.zeros(2, np.int8)
        gear[self.count % 3] = turn[self.count % 2] = 1
        return {"action_mask": {"gear": gear, "speed": None, "turns": (turn, 1 - turn)}}


@pytest.mark.parametrize("arrangement", ARRANGEMENTS)
def test_nested_masks_are_found_in_batched_infos_too(arrangement: str) -> None:
    lanes = lanes_of(arrangement, [PlanningEnv, PlanningEnv], name="planning", mask_is_in_info=True)
    (part,), mask = lanes.observation.parts, lanes.observation.mask
    assert mask is not None
    column = np.zeros((2, *lanes.observation.shape), np.uint8)
    lanes.reset()
    for step in range(7):
        if step:
            lanes.step(np.zeros((2, 5), np.float32))
        lanes.write_observations(column, np.arange(2))
        counts = column[:, part.offset : part.offset + 8].copy().view(np.int64).ravel()
        for count, row in zip(counts, column, strict=True):
            even = int(count) % 2 == 0
            expected = [*(np.arange(3) == count % 3), even, not even, not even, even]
            assert row[mask.offset : mask.offset + 7].astype(bool).tolist() == expected
    lanes.close()


def test_masks_in_infos_are_found_by_probing() -> None:
    for env in (MaskedEnv, partial(MaskedEnv, at="observation")):
        observation, action, *_ = probe(EnvSpec.resolve(env))
        assert action.choices == (NUM_ACTIONS,) and observation.mask is not None
        assert observation.mask_is_in_info == (env is MaskedEnv)
    assert probe(EnvSpec.resolve(CountingEnv))[0].mask is None


def test_a_mask_is_ignored_with_a_note_where_there_is_nothing_to_choose() -> None:
    class Numbers(MaskedEnv):
        def __init__(self) -> None:
            super().__init__()
            self.action_space = spaces.Box(-1, 1, (7,))

    found = probe(EnvSpec.resolve(Numbers))
    assert found.observation.mask is None and str(found.note_of_mask).startswith("info['action_mask'] is ignored")


def test_masks_that_only_a_method_returns_are_ignored_with_a_note() -> None:
    class WithMethod(gymnasium.Wrapper):
        def action_masks(self) -> np.ndarray:
            return np.ones(NUM_ACTIONS, np.bool_)

    note = probe(EnvSpec.resolve(lambda: TimeLimit(WithMethod(CountingEnv()), 9))).note_of_mask
    assert str(note).startswith("the environment's action_masks() is not called")
    assert probe(EnvSpec.resolve(lambda: WithMethod(MaskedEnv()))).note_of_mask is None
    assert probe(EnvSpec.resolve(CountingEnv)).note_of_mask is None


def test_an_error_in_the_reset_is_not_the_probes_to_report() -> None:
    class Unready(CountingEnv):
        def reset(self, **arguments: Any) -> Any:
            raise OSError("no display")

    observation, *_ = probe(EnvSpec.resolve(Unready))
    assert observation.mask is None and observation.shape == (3,)


@pytest.mark.parametrize("vectorize", ["make", "vector"])
def test_taxi_shows_in_every_row_which_moves_its_place_allows(vectorize: Any) -> None:
    newest = max(name for name in gymnasium.registry if name.startswith("Taxi-v"))
    env = EnvSpec.resolve(newest, {"max_episode_steps": 5} if vectorize == "make" else None, vectorize)
    observation, action, *_ = probe(env)
    assert observation.mask_is_in_info and observation.parts[0].spec.num_values == 500 and action.num_actions == 6
    lanes = make_lanes(dataclasses.replace(env, mask_is_in_info=True), 3)
    assert lanes.observation == observation
    taxi: Any = gymnasium.make(newest).unwrapped
    column, random = np.zeros((3, *observation.shape), np.uint8), np.random.default_rng(0)
    lanes.reset()
    for _ in range(30):
        lanes.write_observations(column, np.arange(3))
        states, masks = column[:, :8].copy().view(np.int64).ravel(), column[:, 8:14].astype(bool)
        for state, mask in zip(states, masks, strict=True):
            assert mask.tolist() == taxi.action_mask(state).astype(bool).tolist()
        lanes.step(np.array([random.choice(mask.nonzero()[0]) for mask in masks]))
    lanes.close()
