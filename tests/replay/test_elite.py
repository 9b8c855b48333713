"""Buffers that keep rows of low score: what goes first, what stays, and what is refused."""

import numpy as np
import pytest

from penstock.replay import Elite, Field, ReplayBuffer


def scored(capacity=100, group=20, seed=1):
    buffer = ReplayBuffer(capacity, {"number": Field()}, sampler=Elite(group), seed=seed)
    buffer.add(number=np.arange(capacity))
    rows, ids = buffer.live()
    numbers, is_there = buffer.read(rows, ids)
    assert is_there.all()
    assert buffer.update_scores(rows, ids, numbers["number"]) == 0
    return buffer


def numbers_in(buffer):
    batch, is_there = buffer.read(*buffer.live())
    assert is_there.all()
    return sorted(batch["number"].tolist())


def test_a_new_row_replaces_the_one_of_the_largest_score_among_those_compared():
    buffer = scored(group=4_000)  # enough for every row to be among them
    buffer.add(number=np.full(3, -1.0))
    assert numbers_in(buffer) == [-1.0, -1.0, -1.0, *range(97)]
    assert len(buffer) == 100 and buffer.num_added == 103


def test_the_score_of_a_new_row_is_zero_until_it_is_given_another():
    buffer = scored(capacity=3, group=200)
    buffer.add(number=-1.0)  # in the place of 2
    buffer.add(number=-2.0)  # in the place of 1: the new row has none
    assert numbers_in(buffer) == [-2.0, -1.0, 0.0]


def test_of_a_small_group_rows_of_low_score_stay_longer():
    buffer = scored(group=3)
    buffer.add(number=np.full(80, -1.0))
    kept = [number for number in numbers_in(buffer) if number >= 0]
    assert np.mean(kept) < 40


def test_scores_of_rows_that_are_gone_are_dropped():
    buffer = scored(group=4_000)
    rows, ids = buffer.live()
    buffer.add(number=-1.0)
    assert buffer.update_scores(rows, ids, np.zeros(100)) == 1
    _, is_there = buffer.read(rows, ids)
    assert is_there.sum() == 99


def test_a_saved_buffer_comes_back(tmp_path):
    buffer = scored()
    buffer.add(number=np.full(10, -1.0))
    buffer.save(tmp_path / "saved")
    again = ReplayBuffer(100, {"number": Field()}, sampler=Elite(20), seed=2)
    again.load(tmp_path / "saved")
    assert numbers_in(again) == numbers_in(buffer)


def test_what_has_no_scores_and_what_has_no_order_says_so():
    plain = ReplayBuffer(3, {"number": Field()})
    with pytest.raises(TypeError, match=r"needs a buffer with scores: make it with sampler=Elite\(\)"):
        plain.update_scores(np.zeros(1, np.int64), np.zeros(1, np.int64), np.zeros(1))
    with pytest.raises(TypeError, match="one of the elite"):
        scored().get([0])
    with pytest.raises(ValueError, match=r"Elite\(group=0\) is not legal"):
        ReplayBuffer(3, {"number": Field()}, sampler=Elite(0))
    with pytest.raises(ValueError, match="one of each for each row"):
        scored().update_scores(np.zeros(2, np.int64), np.zeros(2, np.int64), np.zeros(1))
