"""Sequences: rows of successive steps of one episode, padded at its end, against a written-out table and a model."""

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.replay import Field, Prioritized, ReplayBuffer, Sequences
from tests.replay.buffers import add_episode, make_buffer

OBS = Field((2,), "int64")  # [episode + 1, time + 1]: never zero, so that padding can be told apart
MEMORY = {"memory": Field((3,), "float64", first=True)}


def in_sequences(length: int, period: int, capacity: int = 128, **options: object) -> ReplayBuffer:
    return make_buffer(capacity, OBS, MEMORY, sequences=Sequences(length=length, period=period), **options)


def step(time: int, *, episode: int = 0, ending: str = "") -> dict[str, object]:
    return {
        "obs": [episode + 1, time + 1],
        "action": time,
        "reward": 0.5 + time,
        "next_obs": [episode + 1, time + 2],
        "memory": np.full(3, 1000.0 * episode + time),
        "terminated": ending == "terminated",
        "truncated": ending == "truncated",
    }


def times(rows: dict[str, np.ndarray]) -> list[list[int]]:
    """The times of each sequence's real steps."""
    return [(obs[mask, 1] - 1).tolist() for obs, mask in zip(rows["obs"], rows["mask"], strict=True)]


@pytest.mark.parametrize("ending", ["terminated", "truncated", "cut"])
@pytest.mark.parametrize(
    ("episode_length", "sequences"),
    [
        (1, [[0]]),
        (2, [[0, 1]]),
        (3, [[0, 1, 2]]),
        (4, [[0, 1, 2, 3]]),
        (5, [[0, 1, 2, 3], [2, 3, 4]]),
        (6, [[0, 1, 2, 3], [2, 3, 4, 5]]),
        (7, [[0, 1, 2, 3], [2, 3, 4, 5], [4, 5, 6]]),
        (8, [[0, 1, 2, 3], [2, 3, 4, 5], [4, 5, 6, 7]]),
        (9, [[0, 1, 2, 3], [2, 3, 4, 5], [4, 5, 6, 7], [6, 7, 8]]),
    ],
)
def test_sequences_of_four_every_two_steps(episode_length: int, sequences: list[list[int]], ending: str) -> None:
    buffer = in_sequences(4, 2)
    add_episode(buffer, step, episode_length, ending)
    add_episode(buffer, step, episode_length, ending, episode=1)
    rows = buffer.get_all()
    assert times(rows) == 2 * sequences
    assert rows["obs"][:, 0, 0].tolist() == [1] * len(sequences) + [2] * len(sequences)


@pytest.mark.parametrize(
    ("period", "sequences"),
    [
        (1, [[0, 1, 2], [1, 2, 3], [2, 3, 4], [3, 4, 5], [4, 5, 6]]),
        (2, [[0, 1, 2], [2, 3, 4], [4, 5, 6]]),
        (3, [[0, 1, 2], [3, 4, 5], [6]]),
        (5, [[0, 1, 2], [5, 6]]),
    ],
)
def test_the_period_says_how_far_apart_sequences_start(period: int, sequences: list[list[int]]) -> None:
    buffer = in_sequences(3, period)
    add_episode(buffer, step, 7)
    assert times(buffer.get_all()) == sequences


def test_shapes_and_types_of_a_batch() -> None:
    buffer = in_sequences(4, 2)
    add_episode(buffer, step, 9)
    batch = buffer.sample(5)
    found = {name: (values.shape, values.dtype) for name, values in batch.items()}
    assert found == {
        "obs": ((5, 4, 2), np.dtype("int64")),
        "action": ((5, 4), np.dtype("int64")),
        "reward": ((5, 4), np.dtype("float32")),
        "next_obs": ((5, 4, 2), np.dtype("int64")),
        "memory": ((5, 3), np.dtype("float64")),
        "terminated": ((5, 4), np.dtype("bool")),
        "mask": ((5, 4), np.dtype("bool")),
        "ids": ((5,), np.dtype("int64")),
    }


def test_padded_steps_are_zeros_and_masked() -> None:
    buffer = in_sequences(4, 4)
    add_episode(buffer, step, 6)
    rows = buffer.get_all()
    assert rows["mask"].tolist() == [[True] * 4, [True, True, False, False]]
    assert rows["obs"][1].tolist() == [[1, 5], [1, 6], [0, 0], [0, 0]]
    assert rows["reward"][1].tolist() == [4.5, 5.5, 0.0, 0.0]
    assert rows["terminated"][1].tolist() == [False, True, False, False]


def test_a_first_field_keeps_the_value_of_the_first_step_alone() -> None:
    buffer = in_sequences(4, 2)
    add_episode(buffer, step, 7)
    assert buffer.get_all()["memory"].tolist() == [[0.0] * 3, [2.0] * 3, [4.0] * 3]


def test_a_sequence_is_there_as_soon_as_it_is_full() -> None:
    buffer = in_sequences(3, 2)
    assert [buffer.add(**step(time)) for time in range(6)] == [None, None, 0, None, 1, None]
    assert buffer.end_episode() == 2
    assert buffer.end_episode() is None


def test_steps_added_together_give_the_sequences_of_steps_added_one_by_one() -> None:
    steps = [step(t, ending="truncated" if t == 5 else "") for t in range(11)]
    one_by_one = in_sequences(4, 2)
    together = in_sequences(4, 2)
    for each in steps:
        one_by_one.add(**each)
    together.add(**{name: np.array([each[name] for each in steps]) for name in steps[0]})
    expected, found = one_by_one.get_all(), together.get_all()
    for name in ("obs", "action", "reward", "next_obs", "memory", "terminated", "mask"):
        np.testing.assert_array_equal(found[name], expected[name], err_msg=name)


def test_the_priority_of_a_sequence_is_nine_tenths_of_the_largest_and_one_of_the_mean() -> None:
    # TD errors (1, 2, 3, 10) give 0.9 * 10 + 0.1 * 4 = 9.4; those of the other sequence are all 9.4 too.
    priorities = [1.0, 2.0, 3.0, 10.0, 9.4, 9.4, 9.4, 9.4]
    buffer = in_sequences(4, 4, sampler=Prioritized(alpha=1.0, beta=1.0, eps=0.0), seed=3)
    for time, priority in enumerate(priorities):
        buffer.add(**step(time), priorities=priority)
    assert buffer.max_priority == pytest.approx(9.4)
    np.testing.assert_allclose(buffer.sample(64)["weights"], 1.0, rtol=1e-6)


def test_the_priority_of_a_padded_sequence_is_of_its_real_steps() -> None:
    buffer = in_sequences(4, 4, sampler=Prioritized(alpha=1.0, eps=0.0))
    for time, priority in enumerate([2.0, 4.0]):
        buffer.add(**step(time, ending="terminated" if time == 1 else ""), priorities=priority)
    assert buffer.max_priority == pytest.approx(0.9 * 4.0 + 0.1 * 3.0)


def test_clear_forgets_steps_that_wait_for_their_sequence() -> None:
    buffer = in_sequences(3, 3)
    add_episode(buffer, step, 2, ending="")
    buffer.clear()
    add_episode(buffer, step, 3, episode=1)
    rows = buffer.get_all()
    assert rows["obs"].tolist() == [[[2, 1], [2, 2], [2, 3]]]


def test_the_newest_sequences_stay_when_the_buffer_is_full() -> None:
    buffer = in_sequences(3, 1, capacity=5)
    add_episode(buffer, step, 40)
    assert times(buffer.get_all()) == [[t, t + 1, t + 2] for t in range(33, 38)]


# ---- against a plain model


@dataclass
class LaneModel:
    """One lane's current episode, kept as the number of its steps."""

    lane: int
    episode: int = 0
    steps: int = 0

    def rows(self, length: int, period: int, ended: bool) -> list[tuple[int, ...]]:
        """(lane, episode, first time, time after the last) of every sequence so far."""
        rows = []
        covered = 0
        for start in range(0, self.steps, period):
            stop = min(start + length, self.steps)
            if stop - start == length or (ended and stop > covered):
                rows.append((self.lane, self.episode, start, stop))
                covered = stop
        return rows


@st.composite
def events(draw: st.DrawFn) -> list[tuple[int, str]]:
    """Successive steps: which lane, and how its episode ends with that step."""
    endings = st.sampled_from(["", "", "", "", "", "", "terminated", "truncated", "cut"])
    return draw(st.lists(st.tuples(st.integers(0, 2), endings), max_size=60))


@settings(max_examples=60)
@given(events=events(), length=st.integers(1, 5), period=st.integers(1, 7))
def test_lanes_with_any_episodes_give_the_sequences_of_the_model(
    events: list[tuple[int, str]], length: int, period: int
) -> None:
    fields = {"step": Field((3,), "int64"), "memory": Field((3,), "int64", first=True)}
    models = [LaneModel(lane) for lane in range(3)]
    expected: list[tuple[int, ...]] = []
    buffer = ReplayBuffer(200, fields, sequences=Sequences(length=length, period=period))
    writer = buffer.writer(lanes=3)
    for lane, ending in events:
        now = np.array([[model.lane, model.episode, model.steps] for model in models])
        writer.add(
            mask=np.arange(3) == lane,
            step=now,
            memory=now,
            terminated=np.full(3, ending == "terminated"),
            truncated=np.full(3, ending == "truncated"),
        )
        model = models[lane]
        model.steps += 1
        if ending == "cut":
            writer.end_episode(lane)
        if ending:
            expected += model.rows(length, period, ended=True)
            models[lane] = LaneModel(lane, model.episode + 1)
    for model in models:
        expected += model.rows(length, period, ended=False)
    rows = buffer.get_all()
    found = []
    for steps, mask, memory in zip(rows["step"], rows["mask"], rows["memory"], strict=True):
        lane, episode, start = steps[0].tolist()
        stop = start + int(mask.sum())
        np.testing.assert_array_equal(mask, np.arange(length) < stop - start)
        np.testing.assert_array_equal(steps[mask], [[lane, episode, time] for time in range(start, stop)])
        np.testing.assert_array_equal(steps[~mask], 0)
        np.testing.assert_array_equal(memory, steps[0])
        found.append((lane, episode, start, stop))
    assert sorted(found) == sorted(expected)
