"""One buffer in many processes: they share it, race in it, and are killed and stopped in it at any instant."""

import os
import pickle
import random
import resource
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

import numpy as np
import pytest

from penstock.replay import Field, NotReady, NStep, Prioritized, RateLimiter, ReplayBuffer, Reservoir, Uniform
from penstock.replay.writer import Writer
from tests.replay.stress import (
    FIELDS,
    PICTURES,
    assert_whole,
    content,
    fill,
    sample_for_ever,
    sample_under_writers,
    while_wanted,
    write_for_ever,
)
from tests.starting import Start, starter

pytestmark = pytest.mark.timeout(60)


@pytest.fixture(params=["spawn", "fork"])
def start(request: pytest.FixtureRequest) -> Iterator[Start]:
    """Start a process in either way: with a pickled buffer, or with an inherited one."""
    yield from starter(request.param)


def kill(process: BaseProcess) -> None:
    process.kill()
    process.join()


# ---- sharing


def _answer(buffer: ReplayBuffer, connection: Connection) -> None:
    sampled = buffer.sample(16)
    connection.send((len(buffer), sampled["ids"], sampled["obs"]))
    connection.send(buffer.add(obs=np.full((2, 3), 7.0)))
    connection.send(buffer.update_priorities([0, 1, 2], [0.0, 0.0, 0.0]))


def test_a_buffer_given_to_another_process_is_the_same_buffer(start: Start) -> None:
    buffer = ReplayBuffer(8, {"obs": Field((3,))}, sampler=Prioritized(eps=0.0))
    buffer.add(obs=np.arange(9.0).reshape(3, 3))
    ours, theirs = Pipe()
    process = start(_answer, buffer, theirs)
    length, ids, obs = ours.recv()
    assert length == 3
    assert (obs == ids[:, None] * 3.0 + np.arange(3)).all()
    assert ours.recv() == 3
    assert ours.recv() == 0
    process.join()
    assert buffer.get_all()["ids"].tolist() == [0, 1, 2, 3, 4]
    batch = buffer.sample(32)
    assert set(batch["ids"].tolist()) == {3, 4}, "priorities set over there count here"
    assert (batch["obs"] == 7.0).all()


def _send_a_buffer(connection: Connection) -> None:
    buffer = ReplayBuffer(8, {"obs": Field()}, n_step=NStep(2, gamma=0.5, reward="obs"), rate_limiter=RateLimiter())
    buffer.add(obs=[1.0, 2.0, 3.0], terminated=[False, False, True])
    connection.send_bytes(pickle.dumps(buffer))
    connection.recv()


def test_a_buffer_made_elsewhere_outlives_its_maker(start: Start) -> None:
    ours, theirs = Pipe()
    maker = start(_send_a_buffer, theirs)
    buffer = pickle.loads(ours.recv_bytes())
    kill(maker)
    np.testing.assert_array_equal(buffer.get_all()["obs"], [2.0, 3.5, 3.0])
    buffer.add(obs=4.0, terminated=True)
    assert len(buffer) == 4
    assert buffer.rate_limiter.inserts == 4


def test_the_handle_of_a_process_that_is_gone_says_so(fork: Start) -> None:
    ours, theirs = Pipe()
    maker = fork(_send_a_buffer, theirs)
    handle = ours.recv_bytes()
    kill(maker)
    with pytest.raises(ConnectionError, match=rf"process {maker.pid}, .*Keep the process that pickled .* alive"):
        pickle.loads(handle)


def test_the_handle_of_a_buffer_on_disk_works_too(start: Start, tmp_path: Any) -> None:
    buffer = ReplayBuffer(8, {"obs": Field((3,))}, sampler=Prioritized(), disk=tmp_path)
    buffer.add(obs=np.arange(9.0).reshape(3, 3))
    ours, theirs = Pipe()
    start(_answer, buffer, theirs)
    assert ours.recv()[0] == 3


def _add_when_told(buffer: ReplayBuffer, connection: Connection) -> None:
    connection.recv()
    buffer.add(obs=5.0)


def test_a_reader_of_an_empty_buffer_waits_for_a_row_of_another_process(start: Start) -> None:
    buffer = ReplayBuffer(8, {"obs": Field()})
    ours, theirs = Pipe()
    start(_add_when_told, buffer, theirs)
    with pytest.raises(NotReady, match="the buffer is empty"):
        buffer.sample(4, timeout=0.01)
    ours.send(None)
    assert buffer.sample(4, timeout=None)["obs"].tolist() == [5.0] * 4


def _send_samples(buffer: ReplayBuffer, connection: Connection) -> None:
    connection.send(buffer.sample(64)["ids"])


def test_every_process_samples_in_an_order_of_its_own(fork: Start) -> None:
    buffer = ReplayBuffer(1000, {"obs": Field()}, seed=3)
    buffer.add(obs=np.arange(1000.0))
    connections = []
    for _ in range(3):
        ours, theirs = Pipe()
        fork(_send_samples, buffer, theirs)
        connections.append(ours)
    sampled = [tuple(buffer.sample(64)["ids"]), *(tuple(each.recv()) for each in connections)]
    assert len(set(sampled)) == 4


def _finish_an_episode(buffer: ReplayBuffer) -> None:
    buffer.add(reward=[10.0, 10.0], terminated=[False, True])


def test_a_fork_in_the_middle_of_an_episode_starts_one_of_its_own(fork: Start) -> None:
    buffer = ReplayBuffer(16, {"reward": Field()}, n_step=NStep(3, gamma=1.0))
    buffer.add(reward=[1.0, 1.0], terminated=[False, False])
    fork(_finish_an_episode, buffer).join()
    buffer.add(reward=1.0, terminated=True)
    assert [episode["reward"].tolist() for episode in buffer.episodes()] == [[20.0, 10.0], [3.0, 2.0, 1.0]]


def _read_and_write(buffer: ReplayBuffer, writer: Writer) -> None:
    assert_whole(buffer.sample(8))
    assert_whole(buffer.sample(4096))  # by several threads
    first = writer.add(**content(buffer, np.arange(3)))
    assert writer.written.tolist()[0] == first and writer.episode_length() == 3
    buffer.add(**content(buffer, np.arange(3)))


@pytest.mark.parametrize("busy_with", ["sampling", "adding"])
def test_a_fork_while_a_thread_is_at_the_buffer_leaves_the_child_free_to_use_it(fork: Start, busy_with: str) -> None:
    buffer = ReplayBuffer(100_000, FIELDS, num_threads=2)
    buffer.add(**content(buffer, np.arange(50_000)))
    writer, many, is_over = buffer.writer(), content(buffer, np.arange(20_000)), threading.Event()

    def keep_busy() -> None:  # nearly all of its time it is in the core, without the interpreter's lock
        while not is_over.is_set():
            buffer.sample(20_000) if busy_with == "sampling" else writer.add(**many)

    thread = threading.Thread(target=keep_busy)
    thread.start()
    try:
        children = [fork(_read_and_write, buffer, writer) for _ in range(8)]
        end = time.monotonic() + 30.0
        for child in children:
            child.join(max(0.0, end - time.monotonic()))
        assert [child.exitcode for child in children] == [0] * 8
    finally:
        is_over.set()
        thread.join()
    _read_and_write(buffer, buffer.writer())


# ---- races


SAMPLES = 500_000  # ten million and more have been drawn like this: see sample_under_writers


@pytest.mark.parametrize("capacity", [64, 1])
@pytest.mark.parametrize("sampler", [Uniform(), Prioritized(), Reservoir()], ids=lambda sampler: type(sampler).__name__)
def test_no_sampled_row_is_torn_by_the_writers_that_overwrite_it(
    fork: Start, sampler: Uniform | Prioritized | Reservoir, capacity: int
) -> None:
    buffer = ReplayBuffer(capacity, FIELDS, sampler=sampler)
    sample_under_writers(fork, buffer, writers=3, samples=SAMPLES // (1 if capacity > 1 else 50))


@pytest.mark.parametrize("frame_capacity", [None, 40])  # with 40, frames are overwritten before the rows that show them
def test_no_sampled_row_is_torn_by_the_writers_that_overwrite_its_frames(
    fork: Start, frame_capacity: int | None
) -> None:
    buffer = ReplayBuffer(64, PICTURES, frame_capacity=frame_capacity)
    sample_under_writers(fork, buffer, writers=3, samples=SAMPLES)


def _write_numbers(buffer: ReplayBuffer, first: int, count: int) -> None:
    for number in range(first, first + count):
        buffer.add(**content(buffer, number), priorities=1.0 + number % 7)


def test_concurrent_writers_lose_no_row(fork: Start) -> None:
    buffer = ReplayBuffer(4096, FIELDS, sampler=Prioritized(alpha=1.0, eps=0.0))
    processes = [fork(_write_numbers, buffer, first, 1024) for first in range(0, 4096, 1024)]
    while len(buffer) < 4096:
        assert_whole(buffer.sample(64, timeout=None))
    for process in processes:
        process.join()
    rows = buffer.get_all()
    assert rows["ids"].tolist() == list(range(4096))
    assert sorted(rows["number"].tolist()) == list(range(4096))
    assert_whole(rows)
    assert buffer.stats().rows_skipped == 0
    batch = buffer.sample(4096, beta=1.0)
    np.testing.assert_allclose(1.0 / batch["weights"], 1.0 + batch["number"] % 7, rtol=1e-6)


# ---- deaths


def assert_in_order(buffer: ReplayBuffer) -> None:
    """After any death the buffer fills up, every row is whole, and priorities decide the draws."""
    fill(buffer)
    rows = buffer.get_all()
    assert len(rows["ids"]) == len(buffer) == buffer.capacity
    assert_whole(rows)
    if "weights" not in buffer.allocate(1):
        return
    chosen = rows["ids"][::3]
    assert buffer.update_priorities(rows["ids"], np.zeros(buffer.capacity)) == 0
    assert buffer.update_priorities(chosen, np.ones(len(chosen))) == 0
    batch = buffer.sample(8 * len(chosen), beta=1.0)
    assert set(batch["ids"].tolist()) == set(chosen.tolist())
    assert (batch["weights"] == 1.0).all()


def survive(fork: Start, buffer: ReplayBuffer, kills: int, readers: int) -> None:
    """Kill processes at random instants, and sample in between: were one held up by a death, this would hang."""
    chance = random.Random(7)
    writers = [fork(write_for_ever, buffer, number, 3) for number in range(2)]
    samplers = [fork(sample_for_ever, buffer, 64) for _ in range(readers)]
    for _ in range(kills):
        goal = buffer.num_added + chance.randrange(1, 2000)
        while buffer.num_added < goal:
            assert_whole(buffer.sample(64, timeout=None))
        processes = samplers if samplers and chance.random() < 0.6 else writers
        victim = processes.pop(0)
        kill(victim)
        assert victim.exitcode == -signal.SIGKILL, "it ended by itself: see its error above"
        if processes is writers:
            writers.append(fork(write_for_ever, buffer, chance.randrange(4096), 3))
        else:
            samplers.append(fork(sample_for_ever, buffer, 64))
    for process in (*writers, *samplers):
        assert process.is_alive()
        kill(process)
    assert_in_order(buffer)


def test_writers_killed_at_any_instant_hold_up_nobody_and_leave_no_half_row(fork: Start, soak: float) -> None:
    survive(fork, ReplayBuffer(100, FIELDS), kills=round(100 * soak), readers=0)


def test_writers_of_frames_killed_at_any_instant_leave_no_half_frame(fork: Start, soak: float) -> None:
    survive(fork, ReplayBuffer(100, PICTURES, sampler=Prioritized(eps=0.0)), kills=round(100 * soak), readers=0)


@pytest.mark.long
def test_samplers_killed_with_the_priorities_in_their_hands_hold_up_nobody(fork: Start, soak: float) -> None:
    survive(fork, ReplayBuffer(1000, FIELDS, sampler=Prioritized(eps=0.0)), kills=round(200 * soak), readers=2)


def test_writers_and_samplers_killed_among_evictions_hold_up_nobody(fork: Start, soak: float) -> None:
    # With so small an eps a row of priority 0 is never drawn, but the first to go.
    sampler = Prioritized(eps=1e-300, normalize="batch", eviction_alpha=-0.4)
    survive(fork, ReplayBuffer(100, FIELDS, sampler=sampler), kills=round(200 * soak), readers=2)


HUGE = {"value": Field((1 << 20,), "uint8")}  # most of a writer's time is spent inside a row


def _write_huge(buffer: ReplayBuffer) -> None:
    values = [np.full(1 << 20, value, np.uint8) for value in range(100)]
    for _ in while_wanted():
        for value in values:
            buffer.add(value=value)


def rows_in_hand(buffer: ReplayBuffer) -> int:
    return buffer.capacity - len(buffer.get_all()["ids"])


def assert_all_whole(batch: dict[str, np.ndarray]) -> None:
    assert (batch["value"] == batch["value"][:, :1]).all()


def write_laps(buffer: ReplayBuffer, laps: int) -> None:
    for number in range(laps * buffer.capacity):
        assert buffer.add(value=np.full(1 << 20, number % 100, np.uint8)) is not None


def test_a_row_whose_writer_was_killed_inside_it_is_never_seen_and_used_again(fork: Start) -> None:
    buffer = ReplayBuffer(4, HUGE)
    write_laps(buffer, 1)
    while rows_in_hand(buffer) == 0:
        process, before = fork(_write_huge, buffer), buffer.num_added
        while buffer.num_added < before + 3:
            pass
        kill(process)
    assert rows_in_hand(buffer) == 1
    for _ in range(20):
        assert_all_whole(buffer.sample(8))
    write_laps(buffer, 1)
    assert rows_in_hand(buffer) == 0


def stopped_inside_a_row(fork: Start, buffer: ReplayBuffer, write: Callable[[ReplayBuffer], None]) -> int:
    """Fill the buffer, and start a process that writes and stops in the middle of a row; return its number."""
    write_laps(buffer, 1)
    process, before = fork(write, buffer), buffer.num_added
    assert process.pid is not None
    while buffer.num_added == before:
        pass
    while True:
        os.kill(process.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED)
        if rows_in_hand(buffer) == 1:
            return process.pid
        os.kill(process.pid, signal.SIGCONT)


def test_a_writer_that_is_stopped_inside_a_row_holds_up_nobody(fork: Start) -> None:
    buffer = ReplayBuffer(4, HUGE)
    pid = stopped_inside_a_row(fork, buffer, _write_huge)
    write_laps(buffer, 3)
    assert rows_in_hand(buffer) == 1, "it may go on at any time: its row is its own"
    for _ in range(20):
        assert_all_whole(buffer.sample(8))
    before = buffer.num_added
    os.kill(pid, signal.SIGCONT)
    while buffer.num_added < before + 3:
        assert_all_whole(buffer.sample(8))


@contextmanager
def no_free_descriptor() -> Iterator[None]:
    """Have this process open nothing."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def _write_huge_without_descriptors(buffer: ReplayBuffer) -> None:
    with no_free_descriptor():
        _write_huge(buffer)


@pytest.mark.parametrize("who", ["the stopped one", "the others"])
def test_a_stopped_writer_keeps_its_row_where_processes_can_open_no_file(fork: Start, who: str) -> None:
    buffer = ReplayBuffer(4, HUGE)
    if who == "the others":
        stopped_inside_a_row(fork, buffer, _write_huge)
        with no_free_descriptor():
            write_laps(buffer, 3)
    else:
        stopped_inside_a_row(fork, buffer, _write_huge_without_descriptors)
        write_laps(buffer, 3)
    assert rows_in_hand(buffer) == 1


def test_a_writer_whose_row_was_taken_counts_it_as_skipped_and_leaves_it(fork: Start) -> None:
    buffer = ReplayBuffer(4, HUGE)
    pid, core = stopped_inside_a_row(fork, buffer, _write_huge), buffer._core
    row = core.ids(0, 0, 4).tolist().index(-1)
    later = np.array([row + 4 * 10**9])
    core.put_block(0, row, later, np.zeros((1, core.store_shape(0)[1]), np.uint8))
    before = buffer.num_added
    os.kill(pid, signal.SIGCONT)
    while buffer.num_added < before + 8:
        pass
    assert core.ids(0, row, row + 1) == later
    assert buffer.stats().rows_skipped == 1


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_reader_that_dies_or_stops_in_a_uniform_buffer_holds_up_nobody(fork: Start, how: signal.Signals) -> None:
    buffer = ReplayBuffer(100, FIELDS)
    fill(buffer)
    process = fork(sample_for_ever, buffer, 256)
    fork(write_for_ever, buffer, 0, 3)
    for _ in range(50):
        assert_whole(buffer.sample(256))
    os.kill(process.pid, how)
    before = buffer.num_added
    while buffer.num_added < before + 1000:
        assert_whole(buffer.sample(256))
    fill(buffer)


def test_more_writers_than_there_are_places_may_come_and_go(fork: Start) -> None:
    buffer = ReplayBuffer(10, {"obs": Field()})
    fork(_open_writers, buffer, 16_000).join()
    writers = [buffer.writer() for _ in range(16_384)]
    with pytest.raises(RuntimeError, match=r"all 16384 places for writers .* train with fewer nodes, num_workers or"):
        buffer.writer()
    del writers
    assert buffer.writer().add(obs=1.0) is not None


def _open_writers(buffer: ReplayBuffer, count: int) -> None:
    writers = [buffer.writer() for _ in range(count)]
    assert len(writers) == count
    os._exit(0)
