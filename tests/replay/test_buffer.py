"""The buffer in one process: stored and drawn rows, and ownership of arrays."""

import errno
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.replay import (
    Field,
    NotReady,
    NStep,
    Prioritized,
    RateLimiter,
    ReplayBuffer,
    Reservoir,
    Reverse,
    Sequences,
    Uniform,
)

CAPACITIES = [1, 2, 7, 64, 100]


def numbered(capacity: int, rows: int = 0, **options: object) -> ReplayBuffer:
    """A buffer whose row i holds i, given one by one."""
    buffer = ReplayBuffer(capacity, {"number": Field((), "int64"), "obs": Field((3,))}, **options)
    for number in range(rows):
        buffer.add(number=number, obs=np.full(3, number))
    return buffer


def chi_square(counts: np.ndarray, expected: np.ndarray | float) -> float:
    return float(((counts - expected) ** 2 / expected).sum())


CHI_SQUARE_99 = 148.2  # exceeded with a chance of 0.001 (99 degrees of freedom)


# ---- what is kept


@pytest.mark.parametrize("capacity", CAPACITIES)
def test_the_newest_rows_are_kept_oldest_first(capacity: int) -> None:
    buffer = numbered(capacity)
    for number in range(250):
        assert buffer.add(number=number, obs=np.full(3, number)) == number
        if number % 50 in (0, 1, capacity % 50):
            rows = buffer.get_all()
            kept = list(range(max(0, number + 1 - capacity), number + 1))
            assert rows["number"].tolist() == rows["ids"].tolist() == kept
            assert (rows["obs"] == rows["number"][:, None]).all()
            assert len(buffer) == len(kept)
    assert buffer.num_added == buffer.stats().rows_added == 250
    assert buffer.capacity == capacity


@pytest.mark.parametrize("capacity", CAPACITIES)
def test_many_rows_at_once_are_the_same_as_one_by_one_even_more_than_there_is_room_for(capacity: int) -> None:
    buffer = numbered(capacity)
    for start, count in ((0, 3), (3, 1), (4, 250), (254, 2)):
        numbers = np.arange(start, start + count)
        assert buffer.add(number=numbers, obs=np.repeat(numbers, 3).reshape(-1, 3)) == start
    assert buffer.get_all()["number"].tolist() == list(range(max(0, 256 - capacity), 256))


@pytest.mark.parametrize("sampler", [Uniform(), Prioritized()])
@pytest.mark.parametrize("capacity", CAPACITIES)
def test_what_is_sampled_is_in_the_buffer(capacity: int, sampler: Uniform | Prioritized) -> None:
    buffer = numbered(capacity, sampler=sampler)
    for number in range(3 * capacity):
        buffer.add(number=number, obs=np.full(3, number))
        batch = buffer.sample(17)
        assert batch["number"].tolist() == batch["ids"].tolist()
        assert (batch["obs"] == batch["number"][:, None]).all()
        assert batch["number"].min() >= max(0, number + 1 - capacity)
        assert batch["number"].max() <= number


def test_rows_are_got_by_their_ids_in_the_order_asked_for() -> None:
    buffer = numbered(10, 25)
    assert buffer.get([24, 15, 15, 20])["number"].tolist() == [24, 15, 15, 20]
    assert buffer.get(np.array([], np.int64))["obs"].shape == (0, 3)


@pytest.mark.parametrize("gone", [14, 25, -1, 10_000])
def test_an_id_that_is_not_in_the_buffer_is_named(gone: int) -> None:
    with pytest.raises(KeyError, match=rf"row {gone} is not in the buffer"):
        numbered(10, 25).get([24, gone])


@pytest.mark.parametrize("illegal", [-1, 3, 9])
def test_a_row_that_was_never_written_cannot_be_got(illegal: int) -> None:
    with pytest.raises(KeyError, match=rf"row {illegal} is not in the buffer"):
        numbered(10, 3).get([illegal])


@pytest.mark.parametrize("sampler", [Uniform(), Prioritized(), Reverse(), Reservoir()])
def test_a_cleared_buffer_is_empty_and_ready_for_more(sampler: Uniform) -> None:
    buffer = numbered(10, 7, sampler=sampler)
    buffer.clear()
    assert len(buffer) == len(buffer.get_all()["ids"]) == 0
    assert list(buffer.episodes()) == []
    with pytest.raises(NotReady):
        buffer.sample(1)
    for number in range(25):
        buffer.add(number=number, obs=np.zeros(3))
    assert len(buffer) == 10
    assert len(buffer.get_all()["number"]) == 10
    assert buffer.num_added == 32 or isinstance(sampler, Reservoir)


def test_a_clear_voids_what_writers_have_not_finished() -> None:
    buffer = ReplayBuffer(10, {"reward": Field()}, n_step=NStep(3, gamma=1.0))
    writers = [buffer, buffer.writer()]
    for writer in writers:
        writer.add(reward=[1.0, 1.0], terminated=[False, False])
    buffer.clear()
    for writer in writers:
        writer.add(reward=5.0, terminated=True)
    assert buffer.get_all()["reward"].tolist() == [5.0, 5.0]


@pytest.mark.parametrize("priorities", [2.0, None, np.full(200, 2.0)])
def test_more_rows_than_the_rate_limiter_lets_in_at_once_go_in_part_by_part(priorities: Any) -> None:
    limiter = RateLimiter(samples_per_insert=1.0, min_size=1000, tolerance=64)
    buffer = numbered(1000, sampler=Prioritized(), rate_limiter=limiter)
    assert buffer.add(number=np.arange(200), obs=np.zeros((200, 3)), priorities=priorities) == 0
    assert buffer.get_all()["number"].tolist() == list(range(200))
    assert limiter.inserts == 200


@pytest.mark.parametrize("before", range(1, 60))
def test_after_a_clear_no_new_row_refers_to_frames_that_are_gone(before: int) -> None:
    buffer = ReplayBuffer(20, {"obs": Field((15,), "uint8", shared=True)})
    writer = buffer.writer()
    picture = np.full(15, 9, np.uint8)
    for _ in range(before):
        writer.add(obs=picture)
    buffer.clear()
    for _ in range(5):
        writer.add(obs=picture)
    assert (buffer.get_all()["obs"] == np.stack([picture] * 5)).all()


def test_rows_on_disk_behave_as_rows_in_memory(tmp_path: Path) -> None:
    buffers = [numbered(10, 25, sampler=Prioritized(), seed=3, disk=disk) for disk in (None, tmp_path)]
    assert list(tmp_path.iterdir()) == [], "the file has no name"
    in_memory, on_disk = ([buffer.get_all(), *(buffer.sample(8) for _ in range(3))] for buffer in buffers)
    for batches in zip(in_memory, on_disk, strict=True):
        for name in batches[0]:
            np.testing.assert_array_equal(batches[0][name], batches[1][name])


def test_more_rows_than_the_disk_has_room_for_are_refused_and_nothing_is_taken(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=f"{2**50}.* bytes") as raised:  # a PiB
        ReplayBuffer(2**20, {"obs": Field((2**30 - 16,), "uint8")}, disk=tmp_path)
    assert raised.value.errno == errno.ENOSPC


def test_a_directory_that_is_not_there_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=str(tmp_path / "nowhere")):
        numbered(10, disk=tmp_path / "nowhere")


# ---- what is drawn


def test_uniform_sampling_draws_every_row_equally_often() -> None:
    buffer = numbered(100, 130, seed=5)
    counts = sum(np.bincount(buffer.sample(1000)["number"] - 30, minlength=100) for _ in range(100))
    assert chi_square(counts, 1000.0) < CHI_SQUARE_99


@pytest.mark.parametrize("rows", [1, 37, 100])
def test_a_buffer_that_is_not_full_draws_from_what_it_has(rows: int) -> None:
    assert set(numbered(100, rows, seed=5).sample(5000)["number"].tolist()) == set(range(rows))


@pytest.mark.parametrize("sampler", [Uniform(), Prioritized(), Reverse(), Reservoir()])
def test_the_same_seed_draws_the_same_batches(sampler: Uniform) -> None:
    first, again, other = (numbered(100, 100, sampler=sampler, seed=seed) for seed in (3, 3, 4))
    differ = False
    for _ in range(5):
        ids = first.sample(32)["ids"].tolist()
        assert again.sample(32)["ids"].tolist() == ids
        differ |= other.sample(32)["ids"].tolist() != ids
    assert differ != isinstance(sampler, Reverse)


def test_a_reservoir_keeps_every_row_ever_added_with_equal_probability() -> None:
    counts = np.zeros(100)
    for _ in range(400):
        buffer = numbered(20, sampler=Reservoir())
        for start in (0, 10, 60):  # in uneven parts
            numbers = np.arange(start, {0: 10, 10: 60, 60: 100}[start])
            buffer.add(number=numbers, obs=np.zeros((len(numbers), 3)))
        kept = buffer.get_all()["number"]
        assert len(set(kept.tolist())) == len(buffer) == 20
        counts[kept] += 1
    # Each is kept with chance 1/5; the sum of 100 such squared deviations, over 0.8 of their mean, has 99 degrees.
    assert chi_square(counts, 80.0) / 0.8 < CHI_SQUARE_99


def test_a_reservoir_keeps_the_first_rows_as_they_come_and_samples_them_uniformly() -> None:
    buffer = numbered(100, 100, sampler=Reservoir(), seed=5)
    assert buffer.get_all()["number"].tolist() == list(range(100))
    counts = np.bincount(buffer.sample(100_000)["number"], minlength=100)
    assert chi_square(counts, 1000.0) < CHI_SQUARE_99


def test_reverse_sampling_walks_back_from_the_newest_row() -> None:
    buffer = numbered(100, 30, sampler=Reverse(stride=10))
    assert [buffer.sample(3)["number"].tolist() for _ in range(3)] == [[29, 19, 9], [28, 18, 8], [27, 17, 7]]
    for _ in range(17):
        buffer.sample(3)
    assert buffer.sample(3)["number"].tolist() == [29, 19, 9], "after 2 * stride batches it starts again"


def test_reverse_sampling_goes_on_where_rows_have_lost_their_frames() -> None:
    """Episodes of one step store two frames a row, so that most rows have none any more when the buffer is full."""
    buffer = ReplayBuffer(
        2000, {"obs": Field((4, 2), "uint8", stack=-1), "number": Field((), "int64")}, sampler=Reverse(stride=300)
    )
    random = np.random.default_rng(0)
    for number in range(4000):
        buffer.add(obs=random.integers(1, 256, (4, 2), np.uint8), number=number, terminated=True)
    readable = buffer.get_all()["number"].tolist()
    assert len(readable) < 1500 and readable == list(range(readable[0], 4000))
    assert len(buffer) == 2000
    for newest in [3999, 3998]:
        walk = [readable[0] + (newest - readable[0] - 300 * i) % len(readable) for i in range(16)]
        assert buffer.sample(16)["number"].tolist() == walk
    buffer.clear()
    with pytest.raises(NotReady):
        buffer.sample(16)
    buffer.add(obs=np.ones((4, 2), np.uint8), number=7, terminated=True)
    assert buffer.sample(2)["number"].tolist() == [7, 7]


def test_uniform_draws_from_a_prioritized_buffer_leave_priorities_aside() -> None:
    buffer = numbered(100, 100, sampler=Prioritized(), seed=5)
    buffer.update_priorities(np.arange(100), np.arange(100))
    counts = sum(np.bincount(buffer.sample_uniform(1000)["number"], minlength=100) for _ in range(100))
    assert chi_square(counts, 1000.0) < CHI_SQUARE_99
    assert "weights" not in buffer.sample_uniform(4)


# ---- ownership


@pytest.mark.parametrize("sampler", [Uniform(), Prioritized(), Reverse()])
def test_a_batch_is_the_callers_own_whatever_is_sampled_or_written_later(sampler: Uniform) -> None:
    buffer = numbered(10, 10, sampler=sampler)
    batch = buffer.sample(64)
    before = {name: array.copy() for name, array in batch.items()}
    for number in range(100, 130):
        buffer.add(number=number, obs=np.full(3, number))
    others = [buffer.sample(64), buffer.get_all(), buffer.sample(64)]
    for name, array in batch.items():
        np.testing.assert_array_equal(array, before[name])
        assert array.flags.writeable and array.flags.c_contiguous
        assert not any(np.shares_memory(array, other[name]) for other in others if name in other)


def test_the_buffer_keeps_a_copy_of_what_it_is_given() -> None:
    buffer = numbered(10)
    obs = np.full(3, 1.0, np.float32)
    buffer.add(number=0, obs=obs)
    obs[:] = 9.0
    assert (buffer.get([0])["obs"] == 1.0).all()


@pytest.mark.parametrize("sampler", [Uniform(), Prioritized(), Reverse()])
def test_given_arrays_are_filled_and_returned(sampler: Uniform) -> None:
    buffer, twin = (numbered(10, 10, sampler=sampler, seed=3) for _ in range(2))
    out = buffer.allocate(16)
    for _ in range(3):
        batch, expected = buffer.sample(16, out=out), twin.sample(16)
        assert list(batch) == list(expected) and set(batch) == set(out)
        for name, array in batch.items():
            assert array is out[name]
            np.testing.assert_array_equal(array, expected[name])


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("obs", np.zeros((15, 3), np.float32)),
        ("obs", np.zeros((16, 3), np.float64)),
        ("obs", np.zeros((16, 6), np.float32)[:, ::2]),
        ("ids", np.zeros(16, np.int32)),
        ("ids", memoryview(np.zeros(16, np.int64))),
        ("weights", np.zeros((16, 1), np.float32)),
    ],
)
def test_a_given_array_that_does_not_fit_is_named(name: str, wrong: np.ndarray | memoryview) -> None:
    buffer = numbered(10, 10, sampler=Prioritized())
    with pytest.raises((TypeError, ValueError), match=rf"out\[{name}\] must be"):
        buffer.sample(16, out={**buffer.allocate(16), name: wrong})


def test_a_given_array_that_is_missing_is_named() -> None:
    buffer = numbered(10, 10)
    out = buffer.allocate(16)
    del out["obs"]
    with pytest.raises(KeyError, match="out has no obs: make it with allocate"):
        buffer.sample(16, out=out)


# ---- threads


def in_threads(count: int, work: Callable[[int], None]) -> None:
    errors: list[BaseException] = []

    def run(number: int) -> None:
        try:
            work(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


@pytest.mark.parametrize("each_its_own", [True, False])
@pytest.mark.parametrize("row", [3, 30_000])  # the latter large enough that the GIL is given up
def test_threads_write_and_sample_at_once(each_its_own: bool, row: int) -> None:
    buffer = ReplayBuffer(50, {"number": Field((), "int64"), "obs": Field((row,), "uint8")}, sampler=Prioritized())
    shared = buffer.writer()

    def write_and_sample(thread: int) -> None:
        writer = buffer.writer() if each_its_own else shared
        for number in range(100):
            writer.add(number=number, obs=np.full(row, number, np.uint8))
            batch = buffer.sample(4)
            assert (batch["obs"] == batch["number"][:, None]).all()
            buffer.update_priorities(batch["ids"], batch["number"])

    in_threads(4, write_and_sample)
    assert buffer.num_added == 400
    assert len(buffer.get_all()["ids"]) == 50


def test_each_of_several_threads_draws_rows_with_their_own_masses() -> None:
    numbers = np.arange(5000)
    buffer = ReplayBuffer(5000, {"number": Field((64,), "int64")}, sampler=Prioritized(alpha=1.0, eps=0.0))
    buffer.add(number=np.repeat(numbers, 64).reshape(-1, 64), priorities=numbers + 1.0)

    def draw(thread: int) -> None:
        for _ in range(2000):
            batch, masses, total, _ = buffer.draw(100 + thread)
            np.testing.assert_array_equal(masses, batch["ids"] + 1.0)
            assert total == buffer.mass

    in_threads(3, draw)


def test_a_thread_reads_the_state_of_the_generator_between_batches_of_others() -> None:
    alone, shared = (ReplayBuffer(10, {"number": Field()}, seed=1) for _ in range(2))
    for buffer in (alone, shared):
        buffer.add(number=np.arange(10))
    known = {alone._core.generator_state()}
    for _ in range(200):
        alone.sample(50_000)
        known.add(alone._core.generator_state())
    left = [0] * 200

    def sample_or_look(thread: int) -> None:
        while left:
            if thread == 0:
                shared.sample(50_000)
                left.pop()
            else:
                assert shared._core.generator_state() in known

    in_threads(2, sample_or_look)


def test_threads_gather_what_one_would() -> None:
    shape = (64, 64)
    buffers = [
        ReplayBuffer(40, {"obs": Field(shape), "mean": Field()}, sequences=Sequences(4, 2), num_threads=threads, seed=1)
        for threads in (1, 3)
    ]
    for buffer in buffers:
        obs = np.random.default_rng(0).random((100, *shape), np.float32)
        buffer.add(obs=obs, mean=obs.mean((1, 2)), terminated=np.arange(100) % 9 == 8)
    for _ in range(5):
        one, many = (buffer.sample(33) for buffer in buffers)
        for name, array in one.items():
            np.testing.assert_array_equal(array, many[name])


def test_an_empty_buffer_is_an_error_at_once_or_after_a_bounded_wait() -> None:
    buffer = numbered(10)
    with pytest.raises(NotReady, match="the buffer is empty: add rows first, or give sample"):
        buffer.sample(4)
    with pytest.raises(NotReady, match="the buffer is empty"):
        buffer.sample(4, timeout=0.05)
    assert issubclass(NotReady, TimeoutError)


def test_a_reader_that_waits_is_woken_by_a_row_of_another_thread() -> None:
    buffer = numbered(10)
    batches = []

    def read_or_write(thread: int) -> None:
        if thread == 0:
            batches.append(buffer.sample(4, timeout=None))
        else:
            buffer.add(number=3, obs=np.zeros(3))

    in_threads(2, read_or_write)
    assert batches[0]["number"].tolist() == [3] * 4
