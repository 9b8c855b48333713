"""The engine's writer makes sequences of what happened: every step is learned from, and none crosses an episode."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.engine.paths.replay_learner import SequenceReader
from penstock.envs import Lanes
from penstock.envs.single import SingleLanes
from penstock.envs.spaces import ActionSpec, ObservationSpec
from penstock.experience.arena import Control, ExperienceArena
from penstock.experience.layout import Column
from penstock.experience.run_replay import Replay
from penstock.experience.sequences import SequenceWriter, sequence_fields
from penstock.replay import Prioritized, RateLimiter, ReplayBuffer, Sequences, Uniform
from tests.envs.arrangements import ARRANGEMENTS, counting_lanes
from tests.envs.counting import Ending
from tests.experience.writing import run_shape, true_steps

GAMMA = 0.9
ACTION = ActionSpec((), "int64", num_actions=2)
OBSERVATION = ObservationSpec((3,), "float32")
VALUES = (Column("value", (), "float32"), Column("max_value", (), "float32"))


def action_at(obs: Sequence[float]) -> int:
    return int(31 * obs[1] + 17 * obs[2] + 7 * obs[0]) // 3 % 2


def memory_at(obs: Sequence[float]) -> list[float]:
    """The state before a step, which an episode begins without."""
    return [1.0 + obs[1], obs[2]] if obs[2] else [0.0, 0.0]


class Playing:
    """Counting lanes with their writer, and the sequences that it writes; the test plays inference."""

    def __init__(
        self, lanes: Lanes, length: int, overlap: int = 0, burn_in: int = 0, *, limiter: RateLimiter | None = None,
        initial_priorities: Any = None, spec: ObservationSpec = OBSERVATION, **numbers: Any,
    ) -> None:  # fmt: skip
        self.lanes, self.burn_in = lanes, burn_in
        with_values = initial_priorities is not None
        shape = run_shape(
            num_envs_per_worker=lanes.num_lanes, segment_length=1, observation=spec,
            records=(Column("memory", (2,), "float32"), *(VALUES if with_values else ())),
        )  # fmt: skip
        self.arena = ExperienceArena.create(shape)
        self.arena.control[Control.GOAL] = 10**9
        for column in self.arena.columns.values():
            column[...] = 77
        buffer = ReplayBuffer(
            1000,
            sequence_fields(spec, ACTION, 2, with_values=with_values),
            sampler=Prioritized(alpha=1.0, eps=0.0) if with_values else Uniform(),
            sequences=Sequences(burn_in + length + 1, length - overlap),
        )
        self.replay = Replay(
            buffer, limiter or RateLimiter(1.0, 10**6), 1, 1.0, initial_priorities=initial_priorities, **numbers
        )
        self.writer = SequenceWriter(self.arena, 0, lanes, 0, self.replay, burn_in, GAMMA)
        self.num_steps = np.zeros(lanes.num_lanes, np.int64)
        lanes.reset()

    def play(self, num_rows: int) -> Playing:
        """Move all lanes on by so many rows."""
        for _ in range(num_rows):
            assert self.writer.open()
            columns, rows = self.arena.columns, self.writer.rows
            for row, obs in zip(rows, columns["obs"][rows].tolist(), strict=True):
                if len(obs) != 3:  # a picture, which does not say where it was shown
                    columns["action"][row], columns["memory"][row] = 0, 0.0
                    continue
                columns["action"][row] = action_at(obs)
                columns["memory"][row] = memory_at(obs)
                if self.replay.initial_priorities:
                    columns["value"][row], columns["max_value"][row] = obs[2], 100.0 + obs[2]
            self.lanes.step(columns["action"][rows])
            self.num_steps += self.lanes.valid
            self.writer.record()
        return self

    def sequences(self) -> list[dict[str, Any]]:
        """All of them, oldest first."""
        rows = self.replay.buffer.get_all()
        return [{name: array[i] for name, array in rows.items()} for i in range(len(rows["ids"]))]


Step = tuple[tuple[float, ...], int, float, tuple[float, ...] | None]
"""Observation, action, reward, and what it led to: None after a termination."""


def learned_steps(sequence: dict[str, Any], burn_in: int) -> list[Step]:
    """The steps of a sequence behind its burn-in, as a learner sees them."""
    return [
        (
            tuple(sequence["obs"][t].tolist()), int(sequence["action"][t]), float(sequence["reward"][t]),
            tuple(sequence["obs"][t + 1].tolist()) if sequence["discount"][t] else None,
        )
        for t in range(burn_in, len(sequence["obs"]) - 1)
        if sequence["valid"][t]
    ]  # fmt: skip


def happened(lane: int, endings: Sequence[Ending], count: int) -> list[Step]:
    steps = true_steps(lane, endings, count)
    return [(tuple(obs), action_at(obs), reward, led_to and tuple(led_to)) for obs, _, reward, _, led_to in steps]


def test_by_hand_an_episode_of_three_steps_and_the_beginning_of_the_next():
    """Two steps a sequence, one of burn-in, no overlap: rows are padding, 0, 1, 2, final; sequences are 4 rows."""
    playing = Playing(counting_lanes("single", [[(3, "truncated"), (4, "terminated")]]), 2, burn_in=1).play(8)
    first, second, *others = playing.sequences()
    assert first["obs"].tolist() == [[0, 0, 0], [0, 0, 0], [0, 0, 1], [0, 0, 2]]
    assert first["valid"].tolist() == [False, True, True, True]
    assert first["first"].tolist() == [False, True, False, False]
    assert first["reward"].tolist() == [0, 1, 2, 3]
    assert first["discount"].tolist() == pytest.approx([0, 0.9, 0.9, 0.9])
    assert first["memory"].tolist() == [0, 0]
    assert second["obs"][:3].tolist() == [[0, 0, 1], [0, 0, 2], [0, 0, 3]], "the last is the true final one"
    assert second["valid"].tolist() == [True, True, False, False]
    assert second["memory"].tolist() == [1, 1], "the state before its first row"
    assert second["discount"][:2].tolist() == pytest.approx([0.9, 0.9])
    last = others[-1]
    assert last["obs"][:3, 2].tolist() == [1, 2, 3] and last["valid"].tolist() == [True, True, True, False]
    assert last["discount"][:3].tolist() == pytest.approx([0.9, 0.9, 0.0])


@settings(max_examples=150)
@given(
    arrangement=st.sampled_from(ARRANGEMENTS),
    length=st.integers(1, 5),
    overlap=st.integers(0, 4),
    burn_in=st.integers(0, 4),
    endings_of_lanes=st.lists(
        st.lists(
            st.tuples(st.integers(1, 9), st.sampled_from(["terminated", "truncated", "both"])), min_size=1, max_size=3
        ),
        min_size=1,
        max_size=2,
    ),
    num_rows=st.integers(0, 30),
)
def test_with_any_overlap_and_burn_in_the_steps_learned_from_are_those_that_happened(
    arrangement, length, overlap, burn_in, endings_of_lanes, num_rows
):
    overlap, burn_in = min(overlap, length - 1), min(burn_in, length)
    playing = Playing(counting_lanes(arrangement, endings_of_lanes), length, overlap, burn_in).play(num_rows)
    playing.lanes.close()
    found: dict[int, list[Step]] = {lane: [] for lane in range(len(endings_of_lanes))}
    for sequence in playing.sequences():
        real = np.flatnonzero(sequence["valid"])
        assert (np.diff(real) == 1).all(), "padding is before an episode's steps and behind them, never between"
        assert len({tuple(obs[:2]) for obs in sequence["obs"][real]}) == 1, "all are of one episode"
        start = real[0]
        begins = [t for t in real if sequence["obs"][t][2] == 0]
        assert np.flatnonzero(sequence["first"]).tolist() == begins
        if start == 0:
            assert sequence["memory"].tolist() == memory_at(sequence["obs"][0].tolist())
        else:
            assert sequence["obs"][start][2] == 0 and sequence["memory"].tolist() == [0.0, 0.0]
        steps = learned_steps(sequence, burn_in)
        assert steps
        found[int(steps[0][0][0])] += steps
    for lane, endings in enumerate(endings_of_lanes):
        count = int(playing.num_steps[lane])
        true = happened(lane, endings, count)
        unique = set(found[lane])
        assert unique <= set(true)
        # What is missing is not finished yet: steps of the running episode, fewer than a period and the final row.
        ends = [i for i, step in enumerate(true_steps(lane, endings, count)) if step[3]]
        finished = true[: ends[-1] + 1] if ends else []
        assert set(finished) <= unique and len(unique) >= count - length
        if overlap == 0:
            assert len(found[lane]) == len(unique), "every step is learned from once"


class Pictures(gymnasium.Env):
    """Shows random pictures; episodes are of three steps, truncated and terminated by turns."""

    observation_space = gymnasium.spaces.Box(0, 255, (24, 24, 3), np.uint8)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self):
        self.random = np.random.default_rng(5)
        self.shown: list[list[np.ndarray]] = []

    def reset(self, *, seed=None, options=None):
        self.shown.append([])
        return self._show(), {}

    def step(self, action):
        obs, is_over, is_truncated = self._show(), len(self.shown[-1]) == 4, len(self.shown) % 2 == 1
        return obs, 1.0, is_over and not is_truncated, is_over and is_truncated, {}

    def _show(self):
        self.shown[-1].append(self.random.integers(0, 256, self.observation_space.shape, np.uint8))
        return self.shown[-1][-1]


def test_pictures_that_overlapping_sequences_share_come_back_as_they_were():
    env = Pictures()
    spec = ObservationSpec((24, 24, 3), "uint8")
    playing = Playing(SingleLanes([env], [0], name="pictures"), 2, 1, 1, spec=spec).play(14)
    pictures = {picture.tobytes(): (i, t) for i, shown in enumerate(env.shown) for t, picture in enumerate(shown)}
    sequences = playing.sequences()
    assert len(sequences) > 5
    for sequence in sequences:
        valid = np.flatnonzero(sequence["valid"])
        places = [pictures[sequence["obs"][t].tobytes()] for t in valid]
        assert len({i for i, _ in places}) == 1 and np.diff([t for _, t in places]).tolist() == [1] * (len(valid) - 1)
        if sequence["first"].any():
            assert places[0][1] == 0 and not sequence["obs"][: valid[0]].any(), "padding is of zeros"
        after = valid[-1] + 1
        if after < len(sequence["obs"]) and sequence["discount"][valid[-1]]:
            assert pictures[sequence["obs"][after].tobytes()] == (places[0][0], places[-1][1] + 1)


def test_rewards_are_scaled_then_clipped():
    playing = Playing(counting_lanes("single", [[(3, "terminated")]]), 3, reward_scale=0.5, reward_clip=1.2).play(3)
    assert playing.sequences()[0]["reward"].tolist() == pytest.approx([0.5, 1.0, 1.2, 0.0])


def test_a_finished_sequence_gets_the_priority_that_is_found_of_its_rows():
    seen = []

    def find(reward, discount, value, max_value, valid):
        seen.append((reward, discount, value, max_value, valid))
        return np.full(len(reward), 10.0 + len(seen))

    endings: list[Ending] = [(3, "truncated"), (2, "terminated")]
    playing = Playing(counting_lanes("single", [endings]), 2, burn_in=1, initial_priorities=find).play(6)
    assert [len(found[0]) for found in seen] == [1, 1, 1]
    reward, _, value, max_value, valid = (array[0] for array in seen[1])
    assert reward.tolist() == [2, 3, 0, 0] and valid.tolist() == [True, True, False, False]
    assert value[:2].tolist() == [1, 2] and max_value[:2].tolist() == [101, 102]
    assert np.isnan(max_value[2]), "nobody acts on the final observation of a truncated episode"
    assert seen[2][3][0][3] == 0.0, "after a termination no value is needed"
    leaves, ids, _ = playing.replay.buffer._core.read_priorities()
    by_id = dict(zip(ids.tolist(), leaves.tolist(), strict=False))
    assert [by_id[sequence["ids"]] for sequence in playing.sequences()] == [11.0, 12.0, 13.0]


def test_a_priority_that_is_not_known_is_the_largest_so_far():
    playing = Playing(
        counting_lanes("single", [[(2, "truncated")]]), 2, initial_priorities=lambda *rows: np.array([np.nan])
    ).play(5)
    leaves, _, _ = playing.replay.buffer._core.read_priorities()
    assert [leaf for leaf in leaves.tolist() if leaf] == [1.0, 1.0]


def test_while_the_buffer_is_empty_steps_are_let_in_though_the_limiter_has_counted_enough():
    """So it is where a worker was killed: its steps are counted, and the sequences that it had begun are gone."""
    limiter = RateLimiter(samples_per_insert=1.0, min_size=1, tolerance=1.0)
    assert limiter.try_insert(1) and limiter.try_insert(1) and not limiter.try_insert(1)
    playing = Playing(counting_lanes("single", [[(50, "terminated")]]), 4, limiter=limiter).play(5)
    assert len(playing.replay.buffer) == 1
    assert not playing.writer.open()


def test_a_batch_is_time_major_and_has_one_observation_more_than_steps():
    playing = Playing(counting_lanes("single", [[(9, "truncated")]]), 3, 1, 2).play(9)
    replay = Replay(playing.replay.buffer, RateLimiter(4.0, 1, 4.0), 4, 1.0)
    assert replay.limiter.try_insert(1)
    reader = SequenceReader(replay, torch.device("cpu"), in_order=True)
    assert reader.ask(None)
    batch, ids = reader.take(7, 0.25)
    rows = playing.replay.buffer.get(ids)
    assert batch.obs.shape == (6, 4, 3) and batch.first.shape == (6, 4)
    assert batch.action.shape == batch.reward.shape == batch.discount.shape == batch.valid.shape == (5, 4)
    assert batch.memory.shape == (4, 2) and batch.weights.tolist() == [1.0] * 4
    assert (batch.number, batch.progress) == (7, 0.25)
    np.testing.assert_array_equal(batch.obs.numpy(), rows["obs"].swapaxes(0, 1))
    np.testing.assert_array_equal(batch.reward.numpy(), rows["reward"].T[:-1])
    np.testing.assert_array_equal(batch.valid.numpy(), rows["valid"].T[:-1])
    observed, counts = batch.observed
    assert observed.shape == (5, 4, 3) and counts is batch.valid
    reader.close()
