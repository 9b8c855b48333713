"""Eviction by priority: which rows go, against golden numbers and a plain model; and what stays as without it."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.replay import Field, NStep, Prioritized, ReplayBuffer
from tests.replay.stress import FIELDS, assert_whole, sample_under_writers
from tests.starting import Start

CHI_SQUARE_2, CHI_SQUARE_3 = 13.82, 16.27  # exceeded with a chance of 0.001 (2 and 3 degrees of freedom)
LEAST = -60.0  # so low an exponent that the row of the least priority goes, if all are powers of 2


def evicting(capacity: int, eviction_alpha: float = -0.4, seed: int = 7, **more: Any) -> ReplayBuffer:
    """Rows with numbers, drawn in proportion to their priorities."""
    sampler = Prioritized(alpha=1.0, beta=1.0, eps=1e-12, eviction_alpha=eviction_alpha)
    return ReplayBuffer(capacity, {"number": Field((), "int64")}, sampler=sampler, seed=seed, **more)


def add(buffer: ReplayBuffer, *priorities: float, first: int = 0) -> None:
    for number, priority in enumerate(priorities, first):
        buffer.add(number=number, priorities=priority)


def numbers_in(buffer: ReplayBuffer) -> list[int]:
    return sorted(buffer.get_all()["number"].tolist())


# ---- which rows go


# p^-0.4 over their sum, of 1, 2 and 4: 1, 0.7579, 0.5743. With the exponent 0 every row has the same chance.
@pytest.mark.parametrize(
    ("eviction_alpha", "probabilities"), [(-0.4, [0.4288, 0.3250, 0.2463]), (0.0, [1 / 3, 1 / 3, 1 / 3])]
)
def test_rows_are_evicted_in_proportion_to_their_priorities_to_the_power_of_the_exponent(
    eviction_alpha: float, probabilities: list[float]
) -> None:
    buffer, evicted = evicting(3, eviction_alpha), np.zeros(3)
    for _ in range(10_000):
        buffer.clear()
        add(buffer, 1.0, 2.0, 4.0, 1.0)
        (number,) = {0, 1, 2, 3} - set(numbers_in(buffer))
        evicted[number] += 1
    expected = 10_000 * np.array(probabilities)
    assert ((evicted - expected) ** 2 / expected).sum() < CHI_SQUARE_2


# The leaves are p^0.6 and go into the second tree to the power of -0.4 / 0.6.
def test_the_exponent_is_of_the_priority_whatever_alpha_is() -> None:
    sampler = Prioritized(alpha=0.6, eps=1e-12, eviction_alpha=-0.4)
    buffer, evicted = ReplayBuffer(3, {"number": Field((), "int64")}, sampler=sampler, seed=1), np.zeros(3)
    for _ in range(10_000):
        buffer.clear()
        add(buffer, 1.0, 2.0, 4.0, 1.0)
        (number,) = {0, 1, 2, 3} - set(numbers_in(buffer))
        evicted[number] += 1
    expected = 10_000 * np.array([0.4288, 0.3250, 0.2463])
    assert ((evicted - expected) ** 2 / expected).sum() < CHI_SQUARE_2


@given(
    capacity=st.integers(1, 6),
    history=st.lists(st.tuples(st.sampled_from(["add", "update", "clear", "sample"]), st.integers(0, 14)), max_size=60),
)
@settings(max_examples=200)
def test_any_history_leaves_the_rows_of_a_plain_model(capacity: int, history: list[tuple[str, int]]) -> None:
    """The row of the least priority goes. Equal priorities are left out: of these any may go."""
    buffer, model, added = evicting(capacity, LEAST), dict[int, int](), 0
    for event, power in history:
        if event == "clear":
            buffer.clear()
            model.clear()
        elif event == "sample" and model:
            assert set(buffer.sample(8)["number"].tolist()) <= set(model)
        elif event == "add" and power not in model.values():
            if len(model) == capacity:
                del model[min(model, key=lambda number: model[number])]
            add(buffer, 2.0**power, first=added)
            model[added], added = power, added + 1
        elif event == "update" and model and power not in model.values():
            rows = buffer.get_all()
            number = max(model)
            assert buffer.update_priorities(rows["ids"][rows["number"] == number], [2.0**power]) == 0
            model[number] = power
        assert numbers_in(buffer) == sorted(model)
        assert len(buffer) == len(model)


# ---- what stays as it is


def test_rows_are_drawn_in_proportion_to_their_priorities_after_many_evictions() -> None:
    buffer = evicting(4, LEAST)
    add(buffer, *(2.0**power for power in (1, 3, 2, 0, 5, 4)))  # 3 goes first, and then 0
    batch = buffer.sample(100_000)
    drawn = np.bincount(batch["number"], minlength=6)[[1, 2, 4, 5]]
    expected = 100_000 * np.array([8, 4, 32, 16]) / 60
    assert ((drawn - expected) ** 2 / expected).sum() < CHI_SQUARE_3
    weight = dict(zip(batch["number"].tolist(), batch["weights"].tolist(), strict=True))
    assert weight == {2: 1.0, 1: pytest.approx(0.5), 5: pytest.approx(0.25), 4: pytest.approx(0.125)}


def test_a_priority_for_a_row_that_was_evicted_is_dropped_and_counted() -> None:
    buffer = evicting(3, LEAST)
    add(buffer, 2.0, 1.0, 4.0)
    before = buffer.get_all()
    add(buffer, 8.0, first=3)
    assert buffer.update_priorities(before["ids"], [16.0, 32.0, 64.0]) == 1
    assert buffer.stats().updates_late == 1
    add(buffer, 128.0, first=4)  # in the place of 3, whose priority, 8, is the least now
    assert numbers_in(buffer) == [0, 2, 4]


def test_ids_name_rows_and_none_is_given_twice() -> None:
    buffer, seen = evicting(5, -0.4), dict[int, int]()
    for number in range(2000):
        row = buffer.add(number=number, priorities=1.0 + number % 3)
        assert row is not None and row not in seen
        seen[row] = number
        if number % 500 == 499:
            buffer.clear()
            continue
        rows = buffer.get_all()
        assert [seen[row] for row in rows["ids"].tolist()] == rows["number"].tolist()
        assert buffer.get(rows["ids"])["number"].tolist() == rows["number"].tolist()


def test_a_cleared_buffer_is_empty_however_often_one_row_was_evicted() -> None:
    buffer = evicting(3, LEAST)
    add(buffer, 8.0, 4.0, 2.0, *[1.0] * 20)  # each in the place of the one before
    buffer.clear()
    assert numbers_in(buffer) == []
    add(buffer, 1.0, first=30)
    assert set(buffer.sample(100)["number"].tolist()) == {30}


def test_new_rows_without_a_priority_have_the_largest_and_are_not_the_ones_that_go() -> None:
    buffer = evicting(3, LEAST)
    add(buffer, 1.0, 2.0, 4.0)
    buffer.add(number=3)  # in the place of 0, with priority 4
    add(buffer, 8.0, first=4)
    assert numbers_in(buffer) == [2, 3, 4]


def test_rows_of_several_steps_are_evicted_too() -> None:
    sampler = Prioritized(alpha=1.0, eviction_alpha=LEAST)
    fields = {"number": Field((), "int64"), "reward": Field()}
    buffer = ReplayBuffer(2, fields, sampler=sampler, n_step=NStep(2, 0.5))
    for number, priority in enumerate([4.0, 1.0, 2.0]):
        for reward in (1.0, 2.0):
            buffer.add(number=number, reward=reward, terminated=reward == 2.0, truncated=False, priorities=priority)
    rows = buffer.get_all()
    assert sorted(zip(rows["number"].tolist(), rows["reward"].tolist(), strict=True)) == [(0, 2.0), (2, 2.0)]


def test_a_row_whose_frames_are_gone_goes_first() -> None:
    pictures = {"obs": Field((4,), "uint8", shared=True)}
    sampler = Prioritized(alpha=1.0, eps=1e-12, eviction_alpha=LEAST / 4)
    buffer = ReplayBuffer(64, pictures, sampler=sampler, frame_capacity=48, seed=1)
    for number in range(64):
        buffer.add(obs=np.full(4, 1 + number, np.uint8), priorities=1.0)
    for _ in range(20):
        buffer.sample(64)  # finds the rows without frames, the 16 oldest, and takes their priorities away
    for number in range(64, 80):
        before = set(buffer.live()[1].tolist())
        buffer.add(obs=np.full(4, 1 + number, np.uint8), priorities=1.0)
        (evicted,) = before - set(buffer.live()[1].tolist())
        assert evicted < 16


# ---- files


def test_a_loaded_buffer_evicts_by_the_saved_priorities(tmp_path: Any) -> None:
    buffer = evicting(4, LEAST)
    add(buffer, 8.0, 1.0, 4.0, 2.0)
    add(buffer, 16.0, first=4)  # in the place of 1
    buffer.save(tmp_path)
    loaded = evicting(4, LEAST, seed=8)
    loaded.load(tmp_path)
    assert numbers_in(loaded) == [0, 2, 3, 4]
    add(loaded, 32.0, 64.0, first=5)  # in the places of 3 and 2
    assert numbers_in(loaded) == [0, 4, 5, 6]


@pytest.mark.parametrize("other", [None, -0.8])
def test_a_save_with_another_exponent_is_refused(tmp_path: Any, other: float | None) -> None:
    sampler = Prioritized(alpha=1.0, beta=1.0, eps=1e-12, eviction_alpha=other)
    ReplayBuffer(4, {"number": Field((), "int64")}, sampler=sampler).save(tmp_path)
    with pytest.raises(ValueError, match="eviction_alpha"):
        evicting(4).load(tmp_path)


# ---- processes


@pytest.mark.parametrize("capacity", [64, 1])
def test_no_sampled_row_is_torn_by_the_writers_that_evict_it(fork: Start, capacity: int) -> None:
    buffer = ReplayBuffer(capacity, FIELDS, sampler=Prioritized(eviction_alpha=-0.4))
    sample_under_writers(fork, buffer, writers=3, samples=100_000 if capacity > 1 else 2_000)
    if capacity > 1:
        assert_whole(buffer.get_all())
        assert buffer.stats().rows_skipped == 0


# ---- what is refused


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"eviction_alpha": 0.4}, r"Prioritized\(eviction_alpha=0.4\) is not legal: give a finite number, 0 or less"),
        ({"eviction_alpha": -math.inf}, r"Prioritized\(eviction_alpha=-inf\) is not legal"),
        ({"eviction_alpha": "oldest"}, r"Prioritized\(eviction_alpha='oldest'\) is not legal"),
        ({"eviction_alpha": -0.4, "alpha": 0.0}, r"Prioritized\(alpha=0.0, eviction_alpha=-0.4\) is not legal"),
        ({"eviction_alpha": -0.4, "eps": 0.0}, r"Prioritized\(eps=0.0, eviction_alpha=-0.4\) is not legal"),
    ],
)
def test_illegal_settings_are_named(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ReplayBuffer(4, {"number": Field()}, sampler=Prioritized(**settings))


def test_episodes_are_refused_as_they_have_gaps() -> None:
    with pytest.raises(TypeError, match=r"eviction_alpha=-0.4: use get_all\(\)"):
        evicting(4).episodes()
