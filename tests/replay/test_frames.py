"""Frames are stored once for all stacks and rows that they are in, and come back unchanged."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.replay import Field, NStep, ReplayBuffer, Sequences
from tests.replay.buffers import make_buffer

DEPTH = 4
AXES = [0, 1, -1]
DTYPES = ["uint8", "float32", "float64"]


def frame(number: int, dtype: str = "uint8") -> np.ndarray:
    """A frame [3, 5] that no other number has. Number 0 is the frame of zeros."""
    flat = np.arange(15)
    return ((number * (flat + 1) + (number >> 8) * flat) % 251 + (number > 0)).astype(dtype).reshape(3, 5)


def stack(numbers: list[int], axis: int = -1, dtype: str = "uint8") -> np.ndarray:
    return np.stack([frame(number, dtype) for number in numbers], axis=axis)


def pictures(axis: int = -1, dtype: str = "uint8") -> Field:
    return Field(stack([0] * DEPTH, axis).shape, dtype, stack=axis)


class Screen:
    """An environment whose frames are numbered; the stack starts with copies of the first one, or with zeros."""

    def __init__(self, *, zeros: bool = False) -> None:
        self._zeros = zeros
        self._newest = 0

    @property
    def frames_shown(self) -> int:
        return self._newest

    def episode(self, length: int, ending: str = "terminated") -> Iterator[tuple[list[int], list[int], str]]:
        """Successive (numbers of obs, numbers of next_obs, ending)."""
        self._newest += 1
        numbers = [0 if self._zeros else self._newest] * (DEPTH - 1) + [self._newest]
        for time in range(length):
            self._newest += 1
            following = [*numbers[1:], self._newest]
            yield numbers, following, ending if time == length - 1 else ""
            numbers = following


def add(
    buffer: ReplayBuffer, numbers: list[int], following: list[int], ending: str, axis: int = -1, dtype: str = "uint8"
) -> None:
    buffer.add(
        obs=stack(numbers, axis, dtype),
        action=numbers[-1],
        reward=1.0,
        next_obs=stack(following, axis, dtype),
        terminated=ending == "terminated",
        truncated=ending == "truncated",
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize("zeros", [False, True])
def test_each_frame_of_many_episodes_is_stored_once(axis: int, dtype: str, zeros: bool) -> None:
    screen = Screen(zeros=zeros)
    buffer = make_buffer(256, pictures(axis, dtype))
    steps = [step for length in (1, 2, 3, 4, 5, 30, 1, 1) for step in screen.episode(length)]
    for numbers, following, ending in steps:
        add(buffer, numbers, following, ending, axis, dtype)
    rows = buffer.get_all()
    assert buffer.stats().frames_stored == screen.frames_shown
    assert rows["obs"].dtype == rows["next_obs"].dtype == np.dtype(dtype)
    np.testing.assert_array_equal(rows["obs"], [stack(numbers, axis) for numbers, _, _ in steps])
    np.testing.assert_array_equal(rows["next_obs"], [stack(following, axis) for _, following, _ in steps])


def test_the_order_in_which_fields_are_declared_does_not_matter() -> None:
    shape = (3, 5, DEPTH)
    fields = {
        "next_obs": Field(shape, "uint8", stack=-1, next_of="obs"),
        "reward": Field(),
        "obs": Field(shape, "uint8", stack=-1),
    }
    screen = Screen()
    buffer = ReplayBuffer(256, fields)
    for length in (6, 1, 9):
        for numbers, following, ending in screen.episode(length):
            ends = ending == "terminated"
            buffer.add(obs=stack(numbers), next_obs=stack(following), reward=0.0, terminated=ends, truncated=False)
    assert buffer.stats().frames_stored == screen.frames_shown


@pytest.mark.parametrize("depth", [1, 2, 3, 5])
@pytest.mark.parametrize("axis", [0, -1])
def test_stacks_of_any_depth_come_back_as_they_were(depth: int, axis: int) -> None:
    shape = stack([0] * depth, axis).shape
    buffer = ReplayBuffer(256, {"obs": Field(shape, "float32", stack=axis)})
    stacks = [stack(list(range(t, t + depth)), axis, "float32") for t in range(1, 31)]
    buffer.add(obs=np.array(stacks))
    rows = buffer.get_all()
    assert buffer.stats().frames_stored == 30 + depth - 1
    np.testing.assert_array_equal(rows["obs"], stacks)


def test_a_large_unstacked_observation_is_shared_by_the_step_before_and_the_step_after() -> None:
    fields = {
        "obs": Field((3, 5), "uint8", shared=True),
        "action": Field((), "int64"),
        "next_obs": Field((3, 5), "uint8", shared=True, next_of="obs"),
    }
    buffer = ReplayBuffer(256, fields)
    for number in range(1, 41):
        buffer.add(obs=frame(number), action=number, next_obs=frame(number + 1))
    rows = buffer.get_all()
    assert buffer.stats().frames_stored == 41
    np.testing.assert_array_equal(rows["obs"], [frame(number) for number in range(1, 41)])
    np.testing.assert_array_equal(rows["next_obs"], [frame(number) for number in range(2, 42)])


def test_frames_of_zeros_are_not_stored_at_all() -> None:
    buffer = make_buffer(256, pictures())
    for _ in range(3):
        add(buffer, [0, 0, 0, 0], [0, 0, 0, 0], "terminated")
    rows = buffer.get_all()
    assert buffer.stats().frames_stored == 0
    assert rows["obs"].shape == (3, 3, 5, DEPTH)
    assert not rows["obs"].any()
    assert not rows["next_obs"].any()


def test_a_picture_that_never_changes_stays_readable_for_ever() -> None:
    buffer = make_buffer(100, pictures())
    for _ in range(1000):
        add(buffer, [7, 7, 7, 7], [7, 7, 7, 7], "")
    rows = buffer.get_all()
    assert buffer.stats().frames_stored < 100
    np.testing.assert_array_equal(rows["obs"], [stack([7] * DEPTH)] * 100)


def test_a_frame_that_stays_while_others_pass_is_stored_again_before_it_is_lost() -> None:
    buffer = make_buffer(100, pictures())
    for time in range(1, 1001):
        add(buffer, [7, 300 + time, 301 + time, 302 + time], [7, 301 + time, 302 + time, 303 + time], "")
    rows = buffer.get_all()
    assert len(rows["obs"]) == 100
    np.testing.assert_array_equal(rows["obs"][..., 0], [frame(7)] * 100)
    np.testing.assert_array_equal(rows["obs"][..., 3], [frame(302 + time) for time in range(901, 1001)])


def test_after_many_laps_every_row_that_is_read_is_right() -> None:
    screen = Screen()
    buffer = make_buffer(50, pictures(), seed=0)
    for length in (100, 1, 33, 250, 7):
        for numbers, following, ending in screen.episode(length):
            add(buffer, numbers, following, ending)
    rows = buffer.get_all()
    batch = buffer.sample(64)
    # Episodes of 7 and of 250 steps; an episode of T steps shows T + 1 frames.
    newest = screen.frames_shown
    assert rows["action"].tolist() == [*range(newest - 51, newest - 8), *range(newest - 7, newest)]
    for values in (rows, batch):
        np.testing.assert_array_equal(values["obs"][..., -1], [frame(number) for number in values["action"]])
        np.testing.assert_array_equal(values["next_obs"][..., -1], [frame(number + 1) for number in values["action"]])


def test_lanes_and_writers_do_not_mix_their_frames() -> None:
    screens = [Screen() for _ in range(6)]
    episodes = [list(screen.episode(20)) for screen in screens]
    buffer = make_buffer(512, pictures())
    one = buffer.writer(lanes=3)
    other = buffer.writer(lanes=3)
    for time in range(20):
        for writer, lanes in ((one, range(3)), (other, range(3, 6))):
            steps = [episodes[lane][time] for lane in lanes]
            # Lane by lane the numbers lie 50 apart, so that no two lanes show the same frame.
            obs, following = (
                [[number + 50 * lane for number in step[which]] for lane, step in zip(lanes, steps, strict=True)]
                for which in (0, 1)
            )
            writer.add(
                obs=np.array([stack(numbers) for numbers in obs]),
                action=np.array([numbers[-1] for numbers in obs]),
                reward=np.ones(3),
                next_obs=np.array([stack(numbers) for numbers in following]),
                terminated=np.zeros(3, bool),
            )
    rows = buffer.get_all()
    assert buffer.stats().frames_stored == 6 * 21
    assert len(rows["action"]) == 6 * 20
    np.testing.assert_array_equal(rows["obs"][..., -1], [frame(number) for number in rows["action"]])
    np.testing.assert_array_equal(rows["next_obs"][..., -1], [frame(number + 1) for number in rows["action"]])


def test_frames_that_a_clear_took_away_are_stored_again() -> None:
    buffer = make_buffer(8, pictures())
    writer = buffer.writer()  # it does not notice a clear
    number = 0
    for steps in range(1, 80):
        for _ in range(steps):
            number += 1
            writer.add(
                obs=stack([number] * DEPTH), action=0, reward=0.0, next_obs=stack([number] * DEPTH), terminated=False
            )
        buffer.clear()
        writer.add(
            obs=stack([number] * DEPTH), action=0, reward=0.0, next_obs=stack([number] * DEPTH), terminated=False
        )
        np.testing.assert_array_equal(buffer.get_all()["obs"], [stack([number] * DEPTH)])


def test_frames_of_the_time_before_a_load_are_not_taken_for_those_of_the_file(tmp_path: Path) -> None:
    buffer = make_buffer(256, pictures())
    add(buffer, [9, 9, 9, 9], [9, 9, 9, 9], "")
    buffer.save(tmp_path / "saved")
    add(buffer, [1, 2, 3, 4], [1, 2, 3, 4], "")
    buffer.load(tmp_path / "saved")
    for numbers in ([5, 6, 7, 8], [1, 2, 3, 4]):
        add(buffer, numbers, numbers, "")
    expected = [stack(numbers) for numbers in ([9, 9, 9, 9], [5, 6, 7, 8], [1, 2, 3, 4])]
    np.testing.assert_array_equal(buffer.get_all()["obs"], expected)


def test_n_step_rows_share_frames_with_one_another() -> None:
    screen = Screen()
    buffer = make_buffer(256, pictures(), n_step=NStep(steps=3, gamma=0.9))
    for length in (10, 2, 5):
        for numbers, following, ending in screen.episode(length, "truncated"):
            add(buffer, numbers, following, ending)
    rows = buffer.get_all()
    assert buffer.stats().frames_stored == screen.frames_shown
    np.testing.assert_array_equal(rows["obs"][..., -1], [frame(number) for number in rows["action"]])
    last = [min(t + 3, length) - t for length in (10, 2, 5) for t in range(length)]
    following = [frame(number + steps) for number, steps in zip(rows["action"], last, strict=True)]
    np.testing.assert_array_equal(rows["next_obs"][..., -1], following)


@pytest.mark.parametrize("axis", AXES)
def test_overlapping_sequences_share_frames_and_padded_steps_are_zeros(axis: int) -> None:
    screen = Screen()
    buffer = make_buffer(256, pictures(axis), sequences=Sequences(length=4, period=2))
    for length in (9, 3):
        for numbers, following, ending in screen.episode(length):
            add(buffer, numbers, following, ending, axis)
    rows = buffer.get_all()
    assert buffer.stats().frames_stored == screen.frames_shown
    assert rows["mask"].sum(axis=1).tolist() == [4, 4, 4, 3, 3]
    for obs, action, mask in zip(rows["obs"], rows["action"], rows["mask"], strict=True):
        newest = np.moveaxis(obs, axis % 3 + 1, -1)[..., -1]
        np.testing.assert_array_equal(newest[mask], [frame(number) for number in action[mask]])
        assert not obs[~mask].any()


@st.composite
def any_steps(draw: st.DrawFn) -> list[tuple[int, list[int], list[int], str]]:
    """Steps of no environment at all: (lane, numbers of obs, of next_obs, ending), with many repeated frames."""
    numbers = st.lists(st.integers(0, 5), min_size=DEPTH, max_size=DEPTH)
    endings = st.sampled_from(["", "", "", "terminated", "truncated"])
    return draw(st.lists(st.tuples(st.integers(0, 1), numbers, numbers, endings), max_size=30))


@settings(max_examples=60)
@given(steps=any_steps(), axis=st.sampled_from(AXES), dtype=st.sampled_from(DTYPES))
def test_stacks_that_no_environment_would_give_come_back_as_they_were(
    steps: list[tuple[int, list[int], list[int], str]], axis: int, dtype: str
) -> None:
    buffer = make_buffer(256, pictures(axis, dtype))
    writer = buffer.writer(lanes=2)
    for lane, numbers, following, ending in steps:
        writer.add(
            mask=np.arange(2) == lane,
            obs=np.array([stack(numbers, axis, dtype)] * 2),
            action=np.array([0, 0]),
            reward=np.zeros(2),
            next_obs=np.array([stack(following, axis, dtype)] * 2),
            terminated=np.full(2, ending == "terminated"),
            truncated=np.full(2, ending == "truncated"),
        )
    rows = buffer.get_all()
    distinct = [{*numbers, *following} - {0} for _, numbers, following, _ in steps]
    assert buffer.stats().frames_stored <= sum(map(len, distinct))
    for name, given_numbers in (("obs", [s[1] for s in steps]), ("next_obs", [s[2] for s in steps])):
        assert len(rows[name]) == len(steps)
        for found, numbers in zip(rows[name], given_numbers, strict=True):
            np.testing.assert_array_equal(found, stack(numbers, axis, dtype))
