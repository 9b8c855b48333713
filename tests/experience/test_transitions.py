"""The engine's writer puts each step into the replay buffer once, with its true next observation."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.algorithms.arithmetic.priorities import absolute_td_error
from penstock.envs import Lanes
from penstock.envs.single import SingleLanes
from penstock.envs.spaces import ActionSpec, ObservationSpec
from penstock.experience.arena import READER, Control, ExperienceArena
from penstock.experience.layout import Column
from penstock.experience.run_replay import Replay, TransitionWriter, transition_fields
from penstock.ipc import SlotState
from penstock.replay import NStep, Prioritized, RateLimiter, ReplayBuffer, Uniform
from tests.envs.arrangements import ARRANGEMENTS, AT_ONCE, counting_lanes
from tests.envs.counting import Ending
from tests.experience.writing import run_shape, true_steps
from tests.replay.buffers import priorities_of

GAMMA = 0.9
ACTION = ActionSpec((), "int64", num_actions=2)
VALUES = (Column("value", (), "float32"), Column("max_value", (), "float32"))

Transition = tuple[list[float], int, float, list[float] | None, float]
"""Observation, action, reward, what the last of its steps led to (None after a termination), and discount."""


def action_at(obs: Sequence[float]) -> int:
    """What is done where a counting lane stands, so that what was done is known from where."""
    tag, episode, step = map(int, obs)
    return ((31 * episode + 17 * step + 7 * tag) // 3) % 2


def value_at(obs: Sequence[float]) -> float:
    return 10.0 * obs[0] + 3.0 * obs[1] - 2.0 * obs[2]


def max_value_at(obs: Sequence[float]) -> float:
    return value_at(obs) + 5.0 + obs[2]


class Playing:
    """Lanes with their writer, and the replay that they write to; the functions above play inference."""

    def __init__(
        self, lanes: Lanes, n_step: int = 1, *, limiter: RateLimiter | None = None, with_values: bool = False,
        spec: ObservationSpec | None = None, **numbers: Any,
    ) -> None:  # fmt: skip
        self.lanes = lanes
        observation = spec or ObservationSpec((3,), "float32")
        shape = run_shape(
            num_envs_per_worker=lanes.num_lanes, segment_length=1, observation=observation,
            records=VALUES if with_values else (),
        )  # fmt: skip
        self.arena = ExperienceArena.create(shape)
        self.arena.control[Control.GOAL] = 10**9
        for column in self.arena.columns.values():
            column[...] = 77
        buffer = ReplayBuffer(
            1000,
            transition_fields(
                observation, ACTION, with_values=with_values, with_returns=numbers.get("return_discount") is not None
            ),
            sampler=Prioritized(alpha=1.0, eps=0.0) if with_values else Uniform(),
            n_step=NStep(n_step, GAMMA),
        )
        first = absolute_td_error if with_values else None
        self.replay = Replay(buffer, limiter or RateLimiter(1.0, 10**6), 1, 1.0, initial_priorities=first, **numbers)
        self.writer = TransitionWriter(self.arena, 0, lanes, 0, self.replay)
        self.num_steps = np.zeros(lanes.num_lanes, np.int64)
        """Valid steps of each lane."""
        self.num_steps_before = self.num_steps.copy()
        """The same, one row earlier."""
        lanes.reset()

    def play(self, num_rows: int) -> Playing:
        """Move all lanes on by so many rows."""
        for _ in range(num_rows):
            assert self.writer.open()
            self.step()
        return self

    def step(self) -> None:
        columns, rows = self.arena.columns, self.writer.rows
        for row, obs in zip(rows, columns["obs"][rows], strict=True):
            columns["action"][row] = action_at(obs) if obs.shape == (3,) else 0
            if self.replay.initial_priorities:
                columns["value"][row], columns["max_value"][row] = value_at(obs), max_value_at(obs)
        self.lanes.step(columns["action"][rows])
        self.num_steps_before = self.num_steps.copy()
        self.num_steps += self.lanes.valid
        self.writer.record()

    def written(self, lane: int) -> list[Transition]:
        """The lane's transitions in the order in which they were written."""
        batch = self.replay.buffer.get_all()
        return [
            (obs.tolist(), int(action), float(reward), next_obs.tolist() if discount else None, float(discount))
            for obs, action, reward, next_obs, discount in zip(
                *(batch[name] for name in ("obs", "action", "reward", "next_obs", "discount")), strict=True
            )
            if obs[0] == lane
        ]


def true_transitions(
    lane: int, endings: Sequence[Ending], num_steps: int, n_step: int = 1,
    learned_from: Callable[[float], float] = float,
) -> list[Transition]:  # fmt: skip
    """True finished rows, of up to `n_step` steps, of a counting lane after a number of steps."""
    steps = true_steps(lane, endings, num_steps)
    rows: list[Transition] = []
    for t, (obs, *_) in enumerate(steps):
        total = 0.0
        for m, (_, _, reward, ending, led_to) in enumerate(steps[t : t + n_step], 1):
            total += GAMMA ** (m - 1) * learned_from(reward)
            if ending or m == n_step:
                rows.append((obs, action_at(obs), total, led_to, 0.0 if ending == "terminated" else GAMMA**m))
                break
    return rows


def assert_same(found: Sequence[Transition], true: Sequence[Transition]) -> None:
    assert [(obs, action, led_to) for obs, action, _, led_to, _ in found] == [
        (obs, action, led_to) for obs, action, _, led_to, _ in true
    ]
    for one, two in zip(found, true, strict=True):
        assert (one[2], one[4]) == pytest.approx((two[2], two[4]), rel=1e-6)


ENDINGS: list[Ending] = [(2, "truncated"), (1, "terminated"), (3, "both"), (1, "truncated")]

# What the first seven steps of a lane with the endings above bring, by hand.
FIRST = [
    ([0, 0, 0], 1.0, [0, 0, 1], 0.9),
    ([0, 0, 1], 2.0, [0, 0, 2], 0.9),  # truncated: goes on from the true final observation
    ([0, 1, 0], 1001.0, None, 0.0),
    ([0, 2, 0], 2001.0, [0, 2, 1], 0.9),
    ([0, 2, 1], 2002.0, [0, 2, 2], 0.9),
    ([0, 2, 2], 2003.0, None, 0.0),  # both: terminated wins
    ([0, 3, 0], 3001.0, [0, 3, 1], 0.9),
]


@pytest.mark.parametrize("arrangement", ARRANGEMENTS)
def test_every_step_lands_once_with_its_action_reward_true_successor_and_discount(arrangement):
    playing = Playing(counting_lanes(arrangement, [ENDINGS])).play(11)
    found = playing.written(0)
    assert len(found) == playing.num_steps[0], "no row of an autoreset is among them"
    shown = [(obs, reward, led_to, pytest.approx(discount)) for obs, _, reward, led_to, discount in found[:7]]
    assert shown == FIRST
    assert [action for _, action, *_ in found] == [action_at(obs) for obs, *_ in found]
    assert {action for _, action, *_ in found} == {0, 1}


def test_environments_that_reset_in_the_next_step_take_rows_that_are_no_steps():
    playing = Playing(counting_lanes("next_step", [[(1, "truncated")]])).play(6)
    assert playing.num_steps[0] == len(playing.replay.buffer) == 3


@pytest.mark.parametrize("arrangement", ARRANGEMENTS)
def test_three_step_rows_of_several_lanes_end_with_their_own_episode(arrangement):
    endings: list[list[Ending]] = [
        [(5, "truncated"), (2, "terminated")],
        [(1, "truncated"), (4, "both")],
        [(2, "truncated")],
    ]
    playing = Playing(counting_lanes(arrangement, endings), 3).play(16)
    for lane, of_lane in enumerate(endings):
        assert_same(playing.written(lane), true_transitions(lane, of_lane, playing.num_steps[lane], 3))
    lengths = {round(math.log(row[4], GAMMA)) for row in playing.written(0) if row[4]}
    assert lengths == {1, 2, 3}, "rows of one, two and three steps were to be among them"


@settings(max_examples=100)
@given(
    arrangement=st.sampled_from(ARRANGEMENTS),
    n_step=st.integers(1, 4),
    endings_of_lanes=st.lists(
        st.lists(
            st.tuples(st.integers(1, 5), st.sampled_from(["terminated", "truncated", "both"])), min_size=1, max_size=4
        ),
        min_size=1,
        max_size=3,
    ),
    num_rows=st.integers(0, 25),
)
def test_what_lies_in_the_buffer_is_what_happened(arrangement, n_step, endings_of_lanes, num_rows):
    playing = Playing(counting_lanes(arrangement, endings_of_lanes), n_step).play(num_rows)
    rows = 0
    for lane, endings in enumerate(endings_of_lanes):
        true = true_transitions(lane, endings, int(playing.num_steps[lane]), n_step)
        assert_same(playing.written(lane), true)
        rows += len(true)
    assert len(playing.replay.buffer) == rows
    playing.lanes.close()


@pytest.mark.parametrize("n_step", [1, 3])
def test_rewards_are_scaled_then_clipped_then_summed(n_step):
    # 1, 2, 3, 4, 5 times 0.4 and clipped to 1.5: 0.4, 0.8, 1.2, 1.5, 1.5.
    endings: list[Ending] = [(5, "terminated")]
    playing = Playing(counting_lanes("single", [endings]), n_step, reward_scale=0.4, reward_clip=1.5).play(5)
    assert_same(playing.written(0), true_transitions(0, endings, 5, n_step, lambda reward: min(0.4 * reward, 1.5)))
    if n_step == 3:
        assert playing.written(0)[2][2] == pytest.approx(1.2 + 0.9 * 1.5 + 0.81 * 1.5)


@pytest.mark.parametrize("arrangement", ARRANGEMENTS)
def test_the_running_return_holds_an_episodes_last_reward_and_begins_anew_behind_it(arrangement):
    """Discount 0.5; rewards of episode k are 1000 k + 1, 2, ...: 1, 0.5 + 2 | 1001 | 2001, 1000.5 + 2002, ..."""
    playing = Playing(counting_lanes(arrangement, [ENDINGS]), return_discount=0.5)
    while playing.num_steps[0] < 7:
        playing.play(1)
    assert playing.replay.buffer.get_all()["running_return"].tolist()[:7] == [
        1.0, 2.5, 1001.0, 2001.0, 3002.5, 3504.25, 3001.0
    ]  # fmt: skip
    playing.lanes.close()


def test_a_row_that_is_no_step_leaves_the_running_return_as_it_was():
    playing = Playing(counting_lanes("single", [ENDINGS]), return_discount=0.5)
    playing.writer._return_before.fill(4.0)
    playing.lanes.valid[:] = False
    playing.lanes.reward[:] = 0.0
    playing.writer._store_reward()
    assert playing.writer._return_before.tolist() == [4.0]
    playing.lanes.close()


def test_negative_rewards_are_clipped_from_below_and_the_lanes_own_stay_true():
    class Falling(gymnasium.Env):
        observation_space = gymnasium.spaces.Box(-1, 1, (3,), np.float32)
        action_space = gymnasium.spaces.Discrete(2)

        def reset(self, *, seed=None, options=None):
            return np.zeros(3, np.float32), {}

        def step(self, action):
            return np.zeros(3, np.float32), -7.0, False, False, {}

    playing = Playing(SingleLanes([Falling()], [0], name="falling"), reward_clip=2.0).play(1)
    assert playing.replay.buffer.get_all()["reward"].tolist() == [-2.0]
    assert playing.lanes.reward.tolist() == [-7.0]


class Pictures(gymnasium.Env):
    """Shows random pictures; the third step of an episode truncates it, or terminates every other one."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.observation_space = gymnasium.spaces.Box(0, 255, shape, np.uint8)
        self.action_space = gymnasium.spaces.Discrete(2)
        self.random = np.random.default_rng(5)
        self.shown: list[list[np.ndarray]] = []

    def reset(self, *, seed=None, options=None):
        self.shown.append([])
        return self._show(), {}

    def step(self, action):
        obs = self._show()
        is_over = len(self.shown[-1]) == 4
        is_truncated = len(self.shown) % 2 == 1
        return obs, 1.0, is_over and not is_truncated, is_over and is_truncated, {}

    def _show(self) -> np.ndarray:
        self.shown[-1].append(self.random.integers(0, 256, self.observation_space.shape, np.uint8))
        return self.shown[-1][-1]


@pytest.mark.parametrize("shape", [(3, 24, 24), (24, 24, 3), (8, 8, 3)], ids=str)
def test_pictures_come_back_unchanged_with_any_sharing_in_memory(shape):
    env = Pictures(shape)
    playing = Playing(SingleLanes([env], [0], name="pictures"), spec=ObservationSpec(shape, "uint8")).play(14)
    batch = playing.replay.buffer.get_all()
    steps = [pair for episode in env.shown for pair in itertools.pairwise(episode)]
    assert len(steps) == len(batch["ids"]) == playing.num_steps[0] == 12
    for i, (obs, next_obs) in enumerate(steps):
        assert (batch["obs"][i] == obs).all()
        assert not batch["discount"][i] or (batch["next_obs"][i] == next_obs).all()


# ---- first priorities


def initial_priorities(transitions: Sequence[Transition], is_unknown: Sequence[bool]) -> list[float]:
    """``|R + discount * max_a q(o', a) - q(o, a)|``; where the bootstrap is unknown, the largest until then."""
    priorities, largest = [], 1.0
    for (obs, _, reward, led_to, discount), unknown in zip(transitions, is_unknown, strict=True):
        if unknown:
            priorities.append(largest)
            continue
        bootstrap = 0.0 if led_to is None else discount * max_value_at(led_to)
        priorities.append(abs(reward + bootstrap - value_at(obs)))
        largest = max(largest, priorities[-1])
    return priorities


@pytest.mark.parametrize("n_step", [1, 3])
@pytest.mark.parametrize("arrangement", ARRANGEMENTS)
def test_a_new_row_begins_with_the_temporal_difference_that_its_worker_sees(arrangement, n_step):
    endings: list[Ending] = [(4, "terminated"), (5, "truncated"), (1, "truncated"), (2, "both")]
    playing = Playing(counting_lanes(arrangement, [endings]), n_step, with_values=True).play(30)
    found = playing.written(0)
    # The last row waits for the values of what it led to.
    assert_same(found, true_transitions(0, endings, int(playing.num_steps_before[0]), n_step))
    length = {episode: endings[episode % 4][0] for episode in range(30)}
    is_final = [led_to is not None and led_to[2] == length[led_to[1]] for *_, led_to, _ in found]
    assert any(is_final) and not all(is_final)
    unknown = is_final if arrangement in AT_ONCE else [False] * len(found)
    np.testing.assert_allclose(priorities_of(playing.replay.buffer), initial_priorities(found, unknown), rtol=1e-5)


def test_first_priorities_of_several_lanes_go_to_their_own_rows():
    endings: list[list[Ending]] = [[(4, "terminated")], [(3, "terminated"), (2, "both")], [(7, "terminated")]]
    playing = Playing(counting_lanes("single", endings), 3, with_values=True).play(20)
    batch = playing.replay.buffer.get_all()
    order = [playing.written(lane) for lane in range(3)]
    at = [0, 0, 0]
    transitions = []
    for lane in batch["obs"][:, 0].astype(int):
        transitions.append(order[lane][at[lane]])
        at[lane] += 1
    expected = initial_priorities(transitions, [False] * len(transitions))
    np.testing.assert_allclose(priorities_of(playing.replay.buffer), expected, rtol=1e-5)


def test_steps_that_wait_for_their_values_are_copies():
    # What the lanes report is overwritten by their next step, before the step that waited is written.
    endings: list[Ending] = [(2, "terminated"), (3, "truncated")]
    playing = Playing(counting_lanes("next_step", [endings] * 2), with_values=True).play(12)
    for lane in range(2):
        assert_same(playing.written(lane), true_transitions(lane, endings, int(playing.num_steps_before[lane])))


# ---- being let in


def test_a_step_is_let_in_before_its_action_is_chosen_and_counted_once():
    limiter = RateLimiter(1.0, min_size=3, tolerance=1.0)
    playing = Playing(counting_lanes("single", [[(9, "terminated")]]), limiter=limiter)
    assert playing.writer.open() and playing.writer.is_open and limiter.inserts == 1
    assert playing.writer.open() and limiter.inserts == 1
    playing.step()
    assert not playing.writer.is_open and limiter.inserts == len(playing.replay.buffer) == 1


def test_while_the_learner_is_behind_no_step_is_let_in_and_none_is_lost():
    # Three steps fill it; of one sample per step, within a band of one, one more may go before the learner.
    limiter = RateLimiter(1.0, min_size=3, tolerance=1.0)
    playing = Playing(counting_lanes("single", [[(9, "terminated")]]), limiter=limiter).play(4)
    assert not playing.writer.open() and not playing.writer.is_open
    assert not playing.writer.open() and limiter.inserts == 4
    assert playing.writer.waits_for == "wait for learner"
    assert limiter.try_sample(1)
    playing.play(1)
    assert not playing.writer.open()
    assert_same(playing.written(0), true_transitions(0, [(9, "terminated")], 5))


def test_before_learning_starts_no_step_is_let_in_beyond_the_goal():
    # The rate limiter would admit any number of steps, as nothing learns from them.
    playing = Playing(counting_lanes("single", [[(9, "terminated")]] * 2), limiter=RateLimiter(1.0, min_size=100))
    playing.arena.control[Control.GOAL] = 5
    playing.play(3)
    assert not playing.writer.open() and playing.replay.steps_taken == 6
    playing.arena.control[Control.GOAL] = 7
    assert playing.writer.open()


def test_the_lanes_of_a_group_are_let_in_together():
    limiter = RateLimiter(1.0, min_size=5, tolerance=3.0)
    playing = Playing(counting_lanes("single", [[(9, "terminated")]] * 3), limiter=limiter).play(2)
    assert limiter.inserts == 6 and not playing.writer.open() and limiter.inserts == 6
    assert limiter.try_sample(1) and playing.writer.open() and limiter.inserts == 9


@pytest.mark.parametrize("arrangement", ARRANGEMENTS)
def test_an_autoreset_is_no_step_for_the_rate_limiter(arrangement):
    endings: list[list[Ending]] = [[(1, "truncated")], [(2, "terminated")], [(9, "terminated")]]
    limiter = RateLimiter(1.0, 10**6)
    playing = Playing(counting_lanes(arrangement, endings), limiter=limiter)
    for _ in range(12):
        playing.play(1)
        assert limiter.inserts == playing.num_steps.sum()


def test_what_a_lane_shows_lies_in_its_own_slot_and_stays_there_until_its_step_is_written():
    playing = Playing(counting_lanes("single", [[(9, "terminated")]] * 2))
    arena, writer = playing.arena, playing.writer
    assert writer.open() and writer.slots.tolist() == [0, 1]
    assert arena.slots.owned_by(0, SlotState.WRITING).tolist() == [0, 1]
    for step in range(4):
        assert writer.open() and (writer.rows // 2).tolist() == [0, 1]
        assert arena.columns["obs"][writer.rows].tolist() == [[0, 0, step], [1, 0, step]]
        assert arena.columns["first"][writer.rows].tolist() == [step == 0] * 2
        rows = writer.rows.copy()
        playing.step()
        assert arena.columns["obs"][rows].tolist() == [[0, 0, step], [1, 0, step]]


def test_slots_that_are_not_free_yet_are_waited_for_without_being_let_in():
    playing = Playing(counting_lanes("single", [[(9, "terminated")]] * 2))
    arena, writer = playing.arena, playing.writer
    arena.slots.claim(np.array([1]), SlotState.FREE, SlotState.READING, READER)
    assert not writer.open() and not writer.is_open
    assert playing.replay.limiter.inserts == 0
    arena.release(np.array([1]))
    playing.play(3)
    assert playing.replay.limiter.inserts == len(playing.replay.buffer) == 6


def test_every_step_rings_the_learners_bell_and_a_new_run_epoch_loses_none():
    playing = Playing(counting_lanes("single", [[(9, "terminated")]]))
    assert playing.writer.open()
    rung = playing.arena.learner_bell.value
    playing.writer.restart_if_fenced()
    playing.step()
    assert playing.arena.learner_bell.value != rung and len(playing.replay.buffer) == 1
