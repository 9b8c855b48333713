"""Prioritized sampling: frequencies and weights against golden numbers and a plain model, with processes that die."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from penstock.replay import Field, NotReady, Prioritized, ReplayBuffer
from tests.starting import Start

WIDTH = 16  # numbers in a row that must all be equal
CHI_SQUARE_3 = 16.27  # exceeded with a chance of 0.001 (3 degrees of freedom)


def prioritized(capacity: int = 8, **options: object) -> ReplayBuffer:
    """Priorities unchanged by default: alpha = beta = 1, eps = 0."""
    sampler = Prioritized(**{"alpha": 1.0, "beta": 1.0, "eps": 0.0, **options})
    return ReplayBuffer(capacity, {"value": Field((WIDTH,), "int64")}, sampler=sampler, seed=7)


def add(buffer: ReplayBuffer, *priorities: float) -> None:
    for priority in priorities:
        buffer.add(value=np.full(WIDTH, 5), priorities=priority)


def add_default(buffer: ReplayBuffer, count: int = 1) -> None:
    for _ in range(count):
        buffer.add(value=np.full(WIDTH, 5))


def relative_priorities(buffer: ReplayBuffer, draws: int = 4000) -> dict[int, float]:
    """By id: how many times the least priority. With alpha = beta = 1 that is the inverse of the weight."""
    batch = buffer.sample(draws, beta=1.0)
    return dict(zip(batch["ids"].tolist(), (1.0 / batch["weights"].astype(np.float64)).tolist(), strict=True))


def approx(*values: float) -> dict[int, object]:
    return {i: pytest.approx(value, rel=1e-6) for i, value in enumerate(values)}


def weight_by_id(buffer: ReplayBuffer, beta: float) -> dict[int, float]:
    batch = buffer.sample(1000, beta=beta)
    return dict(zip(batch["ids"].tolist(), batch["weights"].tolist(), strict=True))


# ---- frequencies and weights


@pytest.mark.parametrize("stratified", [True, False])
@pytest.mark.parametrize(
    ("alpha", "probabilities"),
    [(1.0, [0.1, 0.2, 0.3, 0.4]), (0.6, [0.148230, 0.224674, 0.286555, 0.340542]), (0.0, [0.25] * 4)],
)
def test_rows_are_drawn_in_proportion_to_their_priorities_to_the_power_of_alpha(
    alpha: float, probabilities: Sequence[float], stratified: bool
) -> None:
    buffer = prioritized(alpha=alpha, stratified=stratified)
    add(buffer, 1.0, 2.0, 3.0, 4.0)
    drawn = np.concatenate([buffer.sample(100)["ids"] for _ in range(1000)])
    expected = len(drawn) * np.array(probabilities)
    assert ((np.bincount(drawn, minlength=4) - expected) ** 2 / expected).sum() < CHI_SQUARE_3


def test_a_stratified_batch_holds_every_row_as_often_as_its_share_says() -> None:
    buffer = prioritized()
    add(buffer, 1.0, 2.0, 3.0, 4.0)
    for _ in range(20):
        assert np.bincount(buffer.sample(100)["ids"]).tolist() == [10, 20, 30, 40]


# w = (N P)^-beta over the largest: with alpha = beta = 1 that is 1/p, with 0.6 and 0.4 it is p^-0.24.
@pytest.mark.parametrize(
    ("alpha", "beta", "weights"),
    [
        (1.0, 1.0, [1.0, 0.5, 1 / 3, 0.25]),
        (0.6, 0.4, [1.0, 0.846745, 0.768229, 0.716978]),
        (0.6, 0.0, [1.0, 1.0, 1.0, 1.0]),
    ],
)
@pytest.mark.parametrize("normalize", ["buffer", "batch"])
def test_weights_make_up_for_the_frequencies(
    alpha: float, beta: float, weights: Sequence[float], normalize: str
) -> None:
    buffer = prioritized(alpha=alpha, normalize=normalize)
    add(buffer, 1.0, 2.0, 3.0, 4.0)
    assert weight_by_id(buffer, beta) == {i: pytest.approx(weight, abs=1e-6) for i, weight in enumerate(weights)}


def test_weights_are_float32_with_the_beta_of_the_sampler_unless_told_otherwise() -> None:
    buffer = prioritized(alpha=0.6, beta=0.4)
    add(buffer, 1.0, 4.0)
    batch = buffer.sample(100)
    assert batch["weights"].dtype == np.float32
    assert batch["weights"][batch["ids"] == 1] == pytest.approx(0.716978, abs=1e-6)


def test_the_largest_weight_is_that_of_the_whole_buffer_or_of_the_batch_as_asked() -> None:
    by_buffer, by_batch = prioritized(normalize="buffer"), prioritized(normalize="batch")
    for buffer in (by_buffer, by_batch):
        add(buffer, 1.0, 4.0)
    for _ in range(50):
        alone = by_buffer.sample(1)
        assert alone["weights"][0] == pytest.approx({0: 1.0, 1: 0.25}[alone["ids"][0]], abs=1e-6)
        assert by_batch.sample(1)["weights"][0] == 1.0


def test_eps_is_added_before_the_power() -> None:
    buffer = prioritized(alpha=0.5, eps=1.0)
    add(buffer, 0.0, 3.0, 8.0)
    assert relative_priorities(buffer) == approx(1.0, 2.0, 3.0)


# ---- zero, huge, and illegal priorities


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
def test_a_row_of_priority_zero_is_never_drawn_without_eps(alpha: float) -> None:
    buffer = prioritized(alpha=alpha)
    add(buffer, 0.0, 1.0, 0.0, 2.0, 0.0)
    assert set(buffer.sample(5000)["ids"].tolist()) == {1, 3}
    buffer.update_priorities([0, 1], [1.0, 0.0])
    assert set(buffer.sample(5000)["ids"].tolist()) == {0, 3}


def test_a_buffer_whose_priorities_are_all_zero_is_not_ready() -> None:
    buffer = prioritized()
    add(buffer, 0.0, 0.0)
    with pytest.raises(NotReady, match="priorities are all 0"):
        buffer.sample(4)
    add(buffer, 1.0)
    assert buffer.sample(4)["ids"].tolist() == [2] * 4


def test_huge_and_tiny_priorities_can_lie_side_by_side() -> None:
    buffer = prioritized()
    add(buffer, 1.7e308, 1.7e308, 1.7e308, 1e-300, 5e-324)
    batch = buffer.sample(3000)
    assert np.bincount(batch["ids"]).tolist() == [1000, 1000, 1000]
    assert np.isfinite(batch["weights"]).all() and (batch["weights"] >= 0).all()
    buffer.update_priorities([0, 1, 2], [0.0, 0.0, 0.0])
    assert set(buffer.sample(100)["ids"].tolist()) == {3}


@pytest.mark.parametrize("illegal", [math.nan, math.inf, -math.inf, -1e-9])
def test_illegal_priorities_are_named_and_change_nothing(illegal: float) -> None:
    buffer = prioritized()
    add(buffer, 1.0, 2.0)
    with pytest.raises(ValueError, match=r"priorities\[1\]"):
        buffer.update_priorities([0, 1], [50.0, illegal])
    with pytest.raises(ValueError, match=r"priorities\[2\]"):
        buffer.add(value=np.full((3, WIDTH), 5), priorities=[50.0, 1.0, illegal])
    assert relative_priorities(buffer) == approx(1.0, 2.0)
    assert len(buffer) == 2 and buffer.max_priority == 2.0


# ---- the default


def test_new_rows_get_the_largest_priority_given_before_them() -> None:
    buffer = prioritized()
    add_default(buffer)  # 1, as nothing was given
    add(buffer, 0.5)
    add_default(buffer)  # still 1: the largest does not fall
    add(buffer, 6.0)
    add_default(buffer)  # 6
    buffer.update_priorities([1], [10.0])
    add_default(buffer)  # 10
    buffer.update_priorities([1], [0.25])
    add_default(buffer)  # still 10
    assert relative_priorities(buffer) == approx(*(p / 0.25 for p in [1.0, 0.25, 1.0, 6.0, 6.0, 10.0, 10.0]))


def test_the_largest_priority_is_one_at_first_and_never_falls_until_the_buffer_is_cleared() -> None:
    buffer = prioritized()
    assert buffer.max_priority == 1.0
    add(buffer, 0.5)
    assert buffer.max_priority == 1.0
    add(buffer, 3.0)
    assert buffer.max_priority == 3.0
    buffer.update_priorities([0, 1], [8.0, 2.0])
    assert buffer.max_priority == 8.0
    buffer.update_priorities([0], [1.0])
    assert buffer.max_priority == 8.0
    buffer.clear()
    assert buffer.max_priority == 1.0


def test_a_cleared_buffer_forgets_all_priorities() -> None:
    buffer = prioritized(capacity=5)
    add(buffer, 4.0, 5.0, 6.0)
    buffer.sample(10)
    buffer.clear()
    with pytest.raises(NotReady):
        buffer.sample(1)
    add_default(buffer)
    add(buffer, 3.0)
    relative = relative_priorities(buffer)
    assert list(relative.values()) == [pytest.approx(1.0), pytest.approx(3.0)]


# ---- updates


def test_of_unsorted_and_repeated_ids_the_last_priority_counts() -> None:
    buffer = prioritized()
    add(buffer, 1.0, 1.0, 1.0, 1.0)
    assert buffer.update_priorities([3, 0, 2, 0, 3], [9.0, 9.0, 3.0, 2.0, 4.0]) == 0
    assert relative_priorities(buffer) == approx(2.0, 1.0, 3.0, 4.0)


def test_updates_of_overwritten_rows_are_dropped_and_counted() -> None:
    buffer = prioritized(capacity=4)
    add(buffer, 1.0, 1.0, 1.0, 1.0)
    ids = buffer.sample(1000)["ids"]
    add(buffer, 2.0, 2.0)  # in the rows of 0 and 1
    assert set(ids.tolist()) == {0, 1, 2, 3}
    assert buffer.update_priorities([0, 1, 2, 3], [50.0, 60.0, 3.0, 4.0]) == 2
    assert buffer.stats().updates_late == 2
    assert relative_priorities(buffer) == {id: pytest.approx(p / 2) for id, p in {2: 3, 3: 4, 4: 2, 5: 2}.items()}


def test_updates_of_ids_that_were_never_given_out_are_dropped_and_counted() -> None:
    buffer = prioritized(capacity=4)
    add(buffer, 1.0, 2.0)
    assert buffer.update_priorities([-1, 2, 4, 2**62, 1], [9.0, 9.0, 9.0, 9.0, 5.0]) == 4
    assert relative_priorities(buffer) == approx(1.0, 5.0)


def test_a_row_can_be_updated_before_it_was_ever_sampled() -> None:
    buffer = prioritized()
    add(buffer, 1.0, 1.0)
    buffer.update_priorities([1], [7.0])
    add(buffer, 2.0)
    assert relative_priorities(buffer) == approx(1.0, 7.0, 2.0)


def test_sampling_does_not_undo_updates_when_rows_are_added_in_between() -> None:
    buffer = prioritized(capacity=100)
    add(buffer, *[1.0] * 100)
    buffer.update_priorities(np.arange(100), np.arange(1.0, 101.0))
    for _ in range(50):
        add(buffer, 1.0)
        buffer.sample(10)
    expected = {**{id: id + 1.0 for id in range(50, 100)}, **{id: 1.0 for id in range(100, 150)}}
    assert relative_priorities(buffer, 50_000) == {id: pytest.approx(p, rel=1e-6) for id, p in expected.items()}


PRIORITY = st.floats(0.125, 8.0, width=32)
ADDS = st.tuples(st.just("add"), st.lists(st.none() | PRIORITY, min_size=1, max_size=9))
UPDATES = st.tuples(st.just("update"), st.lists(st.tuples(st.integers(0, 90), PRIORITY), max_size=9))
SAMPLES = st.tuples(st.just("sample"), st.just([]))


@settings(max_examples=60)
@given(st.sampled_from([1, 2, 3, 7, 63, 64, 65]), st.lists(ADDS | UPDATES | SAMPLES, max_size=30))
def test_any_history_leaves_the_priorities_of_a_plain_model(
    capacity: int, history: list[tuple[str, list[object]]]
) -> None:
    buffer = prioritized(capacity)
    model: dict[int, float] = {}
    num_added, largest = 0, 1.0
    for operation, arguments in history:
        if operation == "add":
            for priority in arguments:
                (add_default(buffer) if priority is None else add(buffer, priority))
                largest = max(largest, priority or 0.0)
                model[num_added] = largest if priority is None else priority
                model.pop(num_added - capacity, None)
                num_added += 1
        elif operation == "update":
            dropped = buffer.update_priorities([id for id, _ in arguments], [p for _, p in arguments])
            assert dropped == sum(id not in model for id, _ in arguments)
            kept = [(id, p) for id, p in arguments if id in model]
            model.update(kept)
            largest = max([largest, *(p for _, p in kept)])
        elif model:
            assert set(buffer.sample(5)["ids"].tolist()) <= set(model)
    assert buffer.max_priority == largest
    if model:
        least = min(model.values())
        # Each row's share of the total is far more than one draw.
        assert relative_priorities(buffer, 64 * 65 * 2) == {
            id: pytest.approx(p / least, rel=1e-6) for id, p in model.items()
        }


# ---- processes


def whole(batch: dict[str, NDArray[np.generic]]) -> bool:
    """No row was written by two."""
    return bool((batch["value"] == batch["value"][:, :1]).all())


def write_for_ever(buffer: ReplayBuffer, seed: int) -> None:
    rng = np.random.default_rng(seed)
    while True:
        count = rng.integers(1, 30)
        rows = np.repeat(rng.integers(0, 2**62, (count, 1)), WIDTH, axis=1)
        buffer.add(value=rows, priorities=rng.uniform(0.5, 2.0, count))


def learn(buffer: ReplayBuffer, rng: np.random.Generator) -> None:
    batch = buffer.sample(64, timeout=20.0)
    assert whole(batch)
    buffer.update_priorities(batch["ids"], rng.uniform(0.5, 2.0, 64))


def learn_for_ever(buffer: ReplayBuffer, seed: int) -> None:
    rng = np.random.default_rng(seed)
    while True:
        learn(buffer, rng)


def assert_priorities_are_in_order(buffer: ReplayBuffer) -> None:
    """Every row is drawn in proportion to its priority: stratified draws meet a row's share except at its ends."""
    rows = buffer.get_all()
    assert whole(rows)
    batch = buffer.sample(16 * buffer.capacity)
    ids, first, counts = np.unique(batch["ids"], return_index=True, return_counts=True)
    assert ids.tolist() == sorted(rows["ids"].tolist())
    priorities = 1.0 / batch["weights"][first].astype(np.float64)
    assert np.abs(counts - len(batch["ids"]) * priorities / priorities.sum()).max() < 2.01


@pytest.mark.timeout(90)
def test_writers_that_are_killed_hide_no_row_and_hold_up_nobody(fork: Start, soak: float) -> None:
    buffer = prioritized(capacity=300)
    rng = np.random.default_rng(0)
    for number in range(round(40 * soak)):
        writers = [fork(write_for_ever, buffer, 3 * number + k) for k in range(3)]
        for _ in range(100):
            learn(buffer, rng)
        for writer in writers:
            writer.kill()
            writer.join()
            learn(buffer, rng)
        assert_priorities_are_in_order(buffer)


@pytest.mark.timeout(90)
def test_readers_that_are_killed_leave_priorities_in_order_and_hold_up_nobody(fork: Start, soak: float) -> None:
    buffer = prioritized(capacity=300)
    rng = np.random.default_rng(0)
    for number in range(round(60 * soak)):
        processes = [fork(learn_for_ever, buffer, 100 * number + k) for k in range(4)]
        processes.append(fork(write_for_ever, buffer, number))
        for process in processes:
            if process is processes[0] or number % 2:  # else all at once, and nothing would restore order after them
                for _ in range(100):
                    learn(buffer, rng)
            process.kill()
        for process in processes:
            process.join()
        assert_priorities_are_in_order(buffer)


@pytest.mark.timeout(60)
def test_two_readers_share_one_set_of_priorities(fork: Start) -> None:
    buffer = prioritized()
    add(buffer, 1.0, 1.0, 1.0)
    reader = fork(set_priorities, buffer, [0, 2], [2.0, 5.0])
    reader.join()
    assert reader.exitcode == 0
    assert relative_priorities(buffer) == approx(2.0, 1.0, 5.0)
    assert buffer.max_priority == 5.0


def set_priorities(buffer: ReplayBuffer, ids: list[int], priorities: list[float]) -> None:
    assert set(buffer.sample(100)["ids"].tolist()) == {0, 1, 2}
    buffer.update_priorities(ids, priorities)


def test_a_draw_of_a_shard_has_the_masses_that_its_rows_were_drawn_by() -> None:
    buffer = prioritized(alpha=0.5, eps=1.0)
    add(buffer, 3.0, 8.0, 0.0, 15.0)
    batch, masses, total, least = buffer.draw(200)
    expected = np.array([2.0, 3.0, 1.0, 4.0])
    assert buffer.mass == total == pytest.approx(10.0) and least == pytest.approx(1.0) and masses.dtype == np.float64
    assert masses == pytest.approx(expected[batch["ids"]]) and (batch["weights"] == 1.0).all()
    assert set(batch["ids"].tolist()) == {0, 1, 2, 3}
    out = buffer.allocate(3)
    assert buffer.draw(3, out=out).batch["ids"] is out["ids"]


def test_without_priorities_each_row_has_a_mass_of_1() -> None:
    buffer = ReplayBuffer(4, {"value": Field((), "int64")}, seed=7)
    assert buffer.mass == 0.0
    with pytest.raises(NotReady, match="empty"):
        buffer.draw(1)
    buffer.add(value=np.arange(6))
    batch, masses, total, least = buffer.draw(50)
    assert least == 1.0
    assert set(batch["value"].tolist()) == {2, 3, 4, 5} and (masses == 1.0).all() and total == buffer.mass == 4.0
    with pytest.raises(TypeError, match="no priorities"):
        buffer.raise_priority(2.0)


def test_a_priority_given_elsewhere_is_the_first_of_new_rows_unless_larger_ones_were_given_here() -> None:
    buffer = prioritized()
    add_default(buffer)
    buffer.raise_priority(4.0)
    add_default(buffer)
    buffer.raise_priority(3.0)
    add_default(buffer)
    assert relative_priorities(buffer) == approx(1.0, 4.0, 4.0) and buffer.max_priority == 4.0
    for illegal in (np.nan, np.inf, -1.0):
        with pytest.raises(ValueError):
            buffer.raise_priority(illegal)
