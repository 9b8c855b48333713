"""Episodes put together from segments, and the few that are kept to learn from."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.rudder.learning import Episode, Lessons
from penstock.rudder.redistributor import Assembly


def lane_of(lengths, final_rows):
    """Rows of episodes of these lengths, as a lane writes them: an observation encodes episode and step."""
    rows = []
    for episode, length in enumerate(lengths):
        for t in range(length):
            rows.append(([episode, t], 10 * episode + t, 1.0 + t, t == 0, t == length - 1, True))
        if final_rows:
            rows.append(([-1, -1], -1, 99.0, False, False, False))
    names = ("obs", "action", "reward", "first", "ended", "valid")
    lane = {name: np.array(values) for name, values in zip(names, zip(*rows, strict=True), strict=True)}
    return lane | {"truncated": np.zeros(len(rows), np.bool_)}


def cut(lane, size):
    """Segments of `size` rows; the last is padded with rows that are no steps."""
    length = len(lane["first"])
    filled = {
        name: np.concatenate([values, np.zeros((-length % size, *values.shape[1:]), values.dtype)])
        for name, values in lane.items()
    }
    return [{name: values[a : a + size] for name, values in filled.items()} for a in range(0, length, size)]


def assembled(segments, max_steps=1_000, without=()):
    assembly = Assembly(max_steps)
    found = [
        episode
        for number, segment in enumerate(segments)
        if number not in without
        for episode in assembly.add(7, number, segment)
    ]
    return found, assembly


@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.integers(1, 11), st.booleans())
def test_however_segments_are_cut_episodes_come_out_whole(lengths, size, final_rows):
    found, assembly = assembled(cut(lane_of(lengths, final_rows), size))
    assert [episode.length for episode in found] == lengths
    for number, episode in enumerate(found):
        steps = np.arange(lengths[number])
        assert episode.obs.tolist() == [[number, t] for t in steps]
        assert episode.action.tolist() == (10 * number + steps).tolist()
        assert episode.return_ == (1.0 + steps).sum(), "rewards of rows that are no steps count nowhere"
    assert assembly.missed == assembly.too_long == 0


def test_an_episode_of_which_a_segment_is_missing_is_dropped_and_counted():
    lengths = [4, 9, 3, 2]
    found, assembly = assembled(cut(lane_of(lengths, False), 3), without={2})
    assert [episode.obs[0, 0] for episode in found] == [0, 2, 3] and assembly.missed == 1


def test_a_truncated_episode_counts_what_was_expected_instead_of_its_last_reward():
    lane = lane_of([4, 3, 2], False)
    ends = np.flatnonzero(lane["ended"])
    lane["value"] = np.full(9, np.nan)
    lane["truncated"][ends[1]], lane["value"][ends[1]] = True, 50.0
    found, _ = assembled(cut(lane, 4))
    assert [episode.return_ for episode in found] == [1.0 + 2.0 + 3.0 + 4.0, 1.0 + 2.0 + 50.0, 1.0 + 2.0]
    assert [episode.is_truncated for episode in found] == [False, True, False]


def test_lanes_are_put_together_by_themselves():
    assembly, (one, other) = Assembly(99), (cut(lane_of([4], False), 2), cut(lane_of([3, 1], False), 2))
    found = [
        (lane, episode.length)
        for number in range(2)
        for lane, segments in ((0, one), (1, other))
        for episode in assembly.add(lane, number, segments[number])
    ]
    assert found == [(0, 4), (1, 3), (1, 1)] and assembly.missed == 0


def test_a_worker_that_comes_back_begins_anew():
    assembly = Assembly(99)
    segments = cut(lane_of([5, 2], False), 3)
    assert list(assembly.add(0, 4, segments[0])) == []
    found = [e for number, segment in enumerate(segments) for e in assembly.add(0, number + 1, segment)]
    assert [episode.length for episode in found] == [5, 2] and assembly.missed == 1


def test_an_episode_without_end_takes_no_more_memory_than_it_may():
    found, assembly = assembled(cut(lane_of([50, 4], False), 5), max_steps=12)
    assert [episode.length for episode in found] == [4] and assembly.too_long == 1 and assembly.missed == 0


# -- lessons -----------------------------------------------------------------------------------------------------------


def episode_of(loss, nbytes=8):
    return Episode(np.zeros(nbytes // 2, np.uint8), np.zeros(nbytes // 2, np.uint8), 0.0, loss)


def test_lessons_are_kept_while_there_is_room_then_in_place_of_the_one_that_costs_least():
    lessons = Lessons(3, 1_000)
    assert [lessons.add(episode_of(loss)) for loss in (3.0, 1.0, 2.0, 0.5, 1.0, 1.5)] == [
        True, True, True, False, False, True
    ]  # fmt: skip
    assert sorted(episode.loss for episode in lessons.episodes) == [1.5, 2.0, 3.0]


def test_lessons_take_no_more_memory_than_they_may_and_those_that_cost_least_go():
    lessons = Lessons(100, 30)
    for loss in (1.0, 4.0, 2.0, 3.0):
        lessons.add(episode_of(loss))
    assert sorted(episode.loss for episode in lessons.episodes) == [2.0, 3.0, 4.0]
    lessons.add(episode_of(9.0, nbytes=28))
    assert [episode.loss for episode in lessons.episodes] == [9.0]
    lessons.add(episode_of(1.0, nbytes=99))
    assert len(lessons) == 1, "the last one stays, however large"


def test_memory_is_full_where_one_more_like_the_largest_does_not_fit():
    lessons = Lessons(100, 30)
    assert not lessons.is_full
    for nbytes, is_full in ((8, False), (8, False), (8, True), (4, True)):
        lessons.add(episode_of(1.0, nbytes))
        assert lessons.is_full == is_full
    alone = Lessons(100, 30)
    alone.add(episode_of(1.0, nbytes=20))
    assert alone.is_full


def test_lessons_are_drawn_by_the_softmax_of_what_they_cost():
    lessons = Lessons(3, 1_000)
    for loss in (0.0, 1.0, 2.0):
        lessons.add(episode_of(loss))
    drawn = lessons.draw(20_000, np.random.default_rng(0))
    shares = np.bincount([int(episode.loss) for episode in drawn]) / len(drawn)
    assert shares == pytest.approx(np.exp([0.0, 1.0, 2.0]) / np.exp([0.0, 1.0, 2.0]).sum(), abs=0.015)


def test_huge_costs_can_be_drawn_by():
    lessons = Lessons(2, 1_000)
    for loss in (1e9, 0.0):
        lessons.add(episode_of(loss))
    assert {episode.loss for episode in lessons.draw(50, np.random.default_rng(0))} == {1e9}
