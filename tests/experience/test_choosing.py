"""Which candidates are taken: the four strategies, on the example that they are specified by, and at their edges."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.paths.drawing import ComparingDraw, Uses, choose, num_candidates

DISTANCE = np.array([0.1, 0.2, 0.3, 0.4, 0.5, 0.6])
USES = np.array([3, 1, 1, 1, 2, 5])


@pytest.mark.parametrize(("strategy", "expected"), [(1, "abc"), (2, "ace"), (3, "bcd"), (4, "bce")])
def test_each_strategy_chooses_as_it_is_specified(strategy, expected):
    order = np.array([4, 2, 0, 5, 1, 3])  # candidates come in any order
    chosen = order[choose(DISTANCE[order], USES[order], 3, strategy)]
    assert "".join(sorted("abcdef"[i] for i in chosen)) == expected


@given(st.integers(1, 40), st.data(), st.sampled_from([1, 2, 3, 4]))
def test_every_strategy_ends_and_takes_each_candidate_at_most_once(size, data, strategy):
    count = data.draw(st.integers(1, size))
    distance = np.array(data.draw(st.lists(st.sampled_from([0.0, 1.0, np.inf, np.nan]), min_size=size, max_size=size)))
    uses = np.array(data.draw(st.lists(st.integers(1, 3), min_size=size, max_size=size)))
    chosen = choose(distance, uses, count, strategy)
    assert len(chosen) == count and len(set(chosen.tolist())) == count


def test_what_has_no_distance_counts_as_farthest():
    assert choose(np.array([np.nan, 2.0, np.inf, 1.0]), np.ones(4, int), 2, 1).tolist() == [3, 1]


def test_the_number_of_candidates_falls_in_step_with_the_updates_and_never_below_what_is_needed():
    counts = [num_candidates(100, 6.0, 2.0, updates / 10_000, 10**6) for updates in range(0, 30_000, 100)]
    assert counts[0] == 600 and counts[1] == 597, "6 - 100 * 0.00025"
    assert counts[200:] == [100] * 100 and counts[199] > 100, "at 1 after 20,000 updates, and there it stays"
    assert num_candidates(8, 6.0, 1.0, 0.0, 20) == 20, "no more than there are"
    assert num_candidates(8, 1.0, 1.0, 0.0, 1000) == 8


def test_the_current_state_of_a_lane_is_the_last_step_of_its_newest_segment():
    """Segments of three steps, the second of which ended after its first; features number all states."""
    valid = np.array([[True, True, True, True], [True, False, False, True]])
    draw = object.__new__(ComparingDraw)
    draw._fields, draw._projected = ("valid",), lambda features: features
    draw._store = SimpleNamespace(read=lambda rows, ids, fields: ({"valid": valid}, np.array([True, True])))
    draw._encoder = SimpleNamespace(features=lambda segments: torch.arange(6.0).view(3, 2, 1))
    assert draw._current_states(np.array([0, 1]), np.array([0, 1])).flatten().tolist() == [4.0, 1.0]


def test_uses_are_counted_from_one_and_forgotten_with_the_segment():
    uses = Uses(4)
    rows, ids = np.array([0, 2]), np.array([7, 9])
    assert uses.of(rows, ids).tolist() == [1, 1]
    uses.add(rows, ids)
    uses.add(rows[:1], ids[:1])
    assert uses.of(rows, ids).tolist() == [3, 2]
    assert uses.of(np.array([0, 1, 2]), np.array([11, 3, 9])).tolist() == [1, 1, 2], "another segment lies in row 0"
