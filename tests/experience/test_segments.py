"""The engine's writer puts each observation, reward and boundary into its row; nothing is lost and nothing doubled."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.experience import segments
from penstock.experience.arena import READER, Control
from penstock.experience.segments import busy_backlog
from penstock.ipc import SlotState
from tests.envs.arrangements import ARRANGEMENTS, AT_ONCE, counting_lanes, episodes
from tests.envs.counting import Ending
from tests.experience.writing import Segment, Writing, true_steps, write, written_steps

ENDINGS: list[Ending] = [(2, "truncated"), (1, "terminated"), (3, "truncated")]


def rows(segment: Segment) -> list[tuple]:
    """Each row's observation as (episode, step), whether it is first, and what came of it."""
    places = [tuple(obs[1:].astype(int).tolist()) for obs in segment.obs]
    shown = list(zip(places, segment.first.tolist(), strict=True))
    came = []
    for t, reward in enumerate(segment.reward.tolist()):
        ending = "terminated" if segment.terminated[t] else "truncated" if segment.truncated[t] else ""
        came.append((reward, ending) if segment.valid[t] else "invalid")
    return [(*what, came[t]) if t < len(came) else what for t, what in enumerate(shown)]


# Two segments of T = 4 of a lane with the endings above. Where an environment resets at once, or in the next step
# after a truncation alone, only truncations have a final row.
EXPECTED = {
    "single": [
        [((0, 0), True, (1.0, "")), ((0, 1), False, (2.0, "truncated")), ((0, 2), False, "invalid"),
         ((1, 0), True, (1001.0, "terminated")), ((2, 0), True)],
        [((2, 0), True, (2001.0, "")), ((2, 1), False, (2002.0, "")), ((2, 2), False, (2003.0, "truncated")),
         ((2, 3), False, "invalid"), ((3, 0), True)],
    ],
    "next_step": [
        [((0, 0), True, (1.0, "")), ((0, 1), False, (2.0, "truncated")), ((0, 2), False, "invalid"),
         ((1, 0), True, (1001.0, "terminated")), ((1, 1), False)],
        [((1, 1), False, "invalid"), ((2, 0), True, (2001.0, "")), ((2, 1), False, (2002.0, "")),
         ((2, 2), False, (2003.0, "truncated")), ((2, 3), False)],
    ],
}  # fmt: skip
EXPECTED["same_step"] = EXPECTED["disabled"] = EXPECTED["single"]


@pytest.mark.parametrize("arrangement", ARRANGEMENTS)
def test_every_observation_reward_and_boundary_lands_in_its_row(arrangement):
    writing = write(arrangement, [ENDINGS], length=4, num_steps=8)
    assert [rows(segment) for segment in writing.finished[0][:2]] == EXPECTED[arrangement]


@pytest.mark.parametrize("arrangement", ARRANGEMENTS)
def test_a_truncation_in_the_last_transition_leaves_the_final_observation_in_the_last_row(arrangement):
    writing = write(arrangement, [[(3, "truncated")]], length=3, num_steps=6)
    one, two = writing.finished[0][:2]
    assert rows(one)[2:] == [((0, 2), False, (3.0, "truncated")), ((0, 3), False)]
    if arrangement in AT_ONCE:
        assert rows(two)[0] == ((1, 0), True, (1001.0, ""))
    else:
        assert rows(two)[:2] == [((0, 3), False, "invalid"), ((1, 0), True, (1001.0, ""))]


@pytest.mark.parametrize("arrangement", ARRANGEMENTS)
def test_a_final_row_as_second_to_last_is_followed_by_the_new_episode_in_the_last_row(arrangement):
    writing = write(arrangement, [[(2, "truncated")]], length=3, num_steps=6)
    one, two = writing.finished[0][:2]
    assert rows(one)[2:] == [((0, 2), False, "invalid"), ((1, 0), True)]
    assert rows(two)[0] == ((1, 0), True, (1001.0, ""))


@pytest.mark.parametrize("arrangement", ARRANGEMENTS)
def test_truncated_episodes_of_one_step_take_two_rows_each(arrangement):
    segment = write(arrangement, [[(1, "truncated")]], length=4, num_steps=4).finished[0][0]
    assert rows(segment) == [
        ((0, 0), True, (1.0, "truncated")), ((0, 1), False, "invalid"),
        ((1, 0), True, (1001.0, "truncated")), ((1, 1), False, "invalid"),
        ((2, 0), True),
    ]  # fmt: skip


@pytest.mark.parametrize("arrangement", ["single", *AT_ONCE])
def test_terminated_episodes_of_one_step_take_one_row_each(arrangement):
    segment = write(arrangement, [[(1, "terminated")]], length=3, num_steps=3).finished[0][0]
    assert rows(segment) == [((e, 0), True, (1000.0 * e + 1, "terminated")) for e in range(3)] + [((3, 0), True)]


@pytest.mark.parametrize("arrangement", AT_ONCE)
def test_a_lane_that_is_behind_is_padded_and_goes_on_in_the_next_segment_where_it_stood(arrangement):
    # Lane 0 takes two rows per step, so that both segments are closed after two steps.
    writing = write(arrangement, [[(1, "truncated")], [(9, "terminated")]], length=4, num_steps=4)
    one, two = writing.finished[1]
    assert rows(one)[:2] == [((0, 0), True, (1.0, "")), ((0, 1), False, (2.0, ""))]
    assert one.valid.tolist() == [True, True, False, False]
    assert one.obs[2].tolist() == two.obs[0].tolist() == [1, 0, 2] and not one.first[2]
    assert rows(two)[0] == ((0, 2), False, (3.0, ""))


@pytest.mark.parametrize("arrangement", AT_ONCE)
def test_padding_and_final_rows_hold_nothing_of_the_slots_earlier_use(arrangement):
    writing = write(arrangement, [[(1, "truncated")], [(9, "terminated")]], length=4, num_steps=2)
    for segment in (writing.finished[0][0], writing.finished[1][0]):
        for name in ("reward", "terminated", "truncated", "log_prob", "version"):
            assert not getattr(segment, name)[~segment.valid].any(), name


def test_a_new_run_epoch_begins_the_open_segments_anew_in_the_same_slots():
    writing = Writing(counting_lanes("same_step", [[(9, "terminated")]] * 2), length=3)
    writing.play(1)
    slots = writing.writer.slots.tolist()
    writing.fence()
    assert writing.writer.slots.tolist() == slots and writing.writer.cursor.tolist() == [0, 0]
    writing.play(3)
    segment = writing.finished[1][0]
    assert segment.slot == slots[1] and segment.epoch == 1
    # The step before the fence is gone; the lanes themselves go on in the midst of their episodes.
    assert rows(segment) == [((0, t + 1), False, (t + 2.0, "")) for t in range(3)] + [((0, 4), False)]


def test_without_a_new_epoch_open_segments_go_on():
    writing = Writing(counting_lanes("single", [[(9, "terminated")]]), length=3)
    writing.play(1)
    writing.writer.restart_if_fenced()
    assert writing.writer.cursor.tolist() == [1]


def test_an_epoch_that_begins_between_two_segments_marks_the_next_one():
    writing = Writing(counting_lanes("single", [[(9, "terminated")]]), length=2)
    writing.play(2)
    writing.fence()
    writing.play(2)
    assert [segment.epoch for segment in writing.finished[0]] == [0, 1]
    assert len(written_steps(writing.finished[0])) == 4


def test_slots_go_from_free_to_writing_to_full_with_their_lane_and_epoch():
    writing = Writing(counting_lanes("single", [[(9, "terminated")]] * 2), length=1)
    arena, writer = writing.arena, writing.writer
    assert arena.slots.in_state(SlotState.FREE).tolist() == [0, 1]
    assert writer.open()
    slots = writer.slots.tolist()
    assert arena.slots.owned_by(0, SlotState.WRITING).tolist() == sorted(slots)
    assert arena.lane_of(writer.slots).tolist() == [0, 1] and arena.slot_epoch[slots].tolist() == [0, 0]
    rung = arena.learner_bell.value
    writing.step()
    assert not writer.is_open and arena.learner_bell.value != rung
    assert sorted(arena.slots.in_state(SlotState.FULL).tolist()) == sorted(slots)
    assert arena.full.pop_many(9).tolist() == slots


def test_while_a_lane_has_no_free_slot_nothing_opens_and_what_the_others_won_is_kept():
    writing = Writing(counting_lanes("single", [[(9, "terminated")]] * 3), length=1)
    arena, writer = writing.arena, writing.writer
    arena.slots.claim(np.array([1]), SlotState.FREE, SlotState.READING, READER)
    for _ in range(2):
        assert not writer.open() and not writer.is_open and writer.slots.tolist() == [0, -1, 2]
    assert arena.slots.owned_by(0, SlotState.WRITING).tolist() == [0, 2]
    arena.release(np.array([1]))
    writing.play(2)
    assert [[segment.slot for segment in segments] for segments in writing.finished] == [[0, 0], [1, 1], [2, 2]]
    assert [len(written_steps(segments)) for segments in writing.finished] == [2, 2, 2]


def test_a_lane_writes_all_of_its_own_slots_and_then_waits_however_many_others_are_free():
    writing = Writing(counting_lanes("single", [[(9, "terminated")]] * 2), length=1, slots_per_lane=3)
    arena, writer = writing.arena, writing.writer
    arena.slots.claim(np.array([2]), SlotState.FREE, SlotState.READING, READER)  # lane 0 has two left, lane 1 three
    for slots in ([0, 1], [4, 3]):
        assert writer.open() and writer.slots.tolist() == slots
        writing.step()
    assert not writer.open() and writer.slots.tolist() == [-1, 5]
    writing.take_finished()
    assert writer.open() and writer.slots.tolist() == [0, 5]


def test_slots_are_used_over_and_over():
    writing = write("single", [[(9, "terminated")]], length=2, num_steps=20)
    assert [segment.slot for segment in writing.finished[0]] == [0] * 10
    assert writing.arena.slots.generation(0) >= 10


def end_of(segment: Segment, arrangement: str) -> int:
    """The row that shows what the lane showed when its segment was closed: T, or the first row of padding."""
    length = len(segment.valid)
    if arrangement not in AT_ONCE:
        return length
    used = int(np.flatnonzero(segment.valid)[-1]) + 1
    return min(length, used + int(segment.truncated[used - 1]))


@settings(max_examples=120)
@given(
    arrangement=st.sampled_from(ARRANGEMENTS),
    length=st.integers(1, 6),
    endings_of_lanes=st.lists(st.lists(episodes, min_size=1, max_size=4), min_size=1, max_size=3),
    slots_per_lane=st.integers(1, 3),
)
def test_segments_hold_every_step_once_in_order_with_what_it_led_to(
    arrangement, length, endings_of_lanes, slots_per_lane
):
    writing = write(arrangement, endings_of_lanes, length, 20, slots_per_lane)
    for lane, endings in enumerate(endings_of_lanes):
        segments = writing.finished[lane]
        steps = written_steps(segments)
        assert steps and steps == true_steps(lane, endings, len(steps))
        for one, two in itertools.pairwise(segments):
            end = end_of(one, arrangement)
            follows_final = bool(one.truncated[-1]) and end == length and arrangement in AT_ONCE
            if follows_final:
                assert two.first[0] and not one.first[end]
            else:
                assert one.obs[end].tolist() == two.obs[0].tolist() and one.first[end] == two.first[0]


@settings(max_examples=40)
@given(
    arrangement=st.sampled_from(ARRANGEMENTS),
    length=st.integers(1, 5),
    endings=st.lists(episodes, min_size=1, max_size=3),
    until_fence=st.lists(st.integers(1, 7), min_size=1, max_size=3),
)
def test_a_fence_loses_only_what_stood_in_open_segments(arrangement, length, endings, until_fence):
    writing = Writing(counting_lanes(arrangement, [endings]), length)
    for num_steps in until_fence:
        writing.play(num_steps)
        writing.fence()
    writing.play(2 * length)
    story = true_steps(0, endings, sum(until_fence) + 2 * length)
    at = 0
    for epoch in range(len(until_fence) + 1):
        steps = written_steps([segment for segment in writing.finished[0] if segment.epoch == epoch])
        if steps:
            begin = story.index(steps[0], at)
            assert steps == story[begin : begin + len(steps)]
            at = begin + len(steps)
    assert any(segment.epoch == len(until_fence) for segment in writing.finished[0])
    writing.lanes.close()


@pytest.mark.parametrize(
    ("seconds", "pace", "batches"),
    [(1, 0, np.inf), (0, 5, 1.0), (1, 5, 1.0), (4, 5, 1.0), (8, 5, 2.0), (40, 5, 10.0)],
)
def test_the_backlog_of_a_busy_learner_takes_it_a_quarter_longer_than_the_lanes_their_segment(
    monkeypatch, seconds, pace, batches
):
    now = [0]
    monkeypatch.setattr(segments.time, "monotonic_ns", lambda: now[0])
    writing = Writing(counting_lanes("single", [[(9, "terminated")]] * 2), length=2, slots_per_lane=9)
    writing.arena.control[Control.PACE] = pace
    writer = writing.writer
    assert busy_backlog(writer.arena, writer._took) == (np.inf if pace == 0 else 2.0)  # nothing has been written yet
    for took in (99, seconds):  # it is the last one that counts
        now[0] += 1000  # waiting for slots is not writing
        assert writer.open()
        while writer.is_open:
            now[0] += took / 2
            writer.lanes.step(np.zeros(2, np.int64))
            writer.record()
        assert writing.arena.slots.in_state(SlotState.FULL).size
    assert busy_backlog(writer.arena, writer._took) == 2 * batches
