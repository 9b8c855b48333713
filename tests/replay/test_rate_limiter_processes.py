"""The rate limiter between processes: they keep in step, wake each other, and none is held up by a dead one."""

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest

from penstock.replay.limiter import NotReady, RateLimiter
from tests.ipc.sharing import wait_until_asleep

Start = Callable[..., tuple[BaseProcess, Connection]]


@pytest.fixture(params=["spawn", "fork"])
def start(request: pytest.FixtureRequest) -> Iterator[Start]:
    """``start(function, limiter)``: a process running ``function(limiter, connection)``, and the other end of that."""
    context: Any = multiprocessing.get_context(request.param)
    started: list[BaseProcess] = []

    def start(target: Callable[..., None], limiter: RateLimiter) -> tuple[BaseProcess, Connection]:
        ours, theirs = context.Pipe()
        process = context.Process(target=target, args=(limiter, theirs), daemon=True)
        process.start()
        theirs.close()
        started.append(process)
        return process, ours

    yield start
    for process in started:
        process.kill()
        process.join()


def insert_all(limiter: RateLimiter, connection: Connection) -> None:
    for _ in range(connection.recv()):
        limiter.insert(5)
    connection.send(limiter.inserts)


@pytest.mark.timeout(60)
def test_a_producer_and_a_consumer_in_two_processes_keep_in_step(start: Start) -> None:
    limiter = RateLimiter(samples_per_insert=2, min_size=50, tolerance=40)
    _, producer = start(insert_all, limiter)
    producer.send(1010)
    for _ in range(312):  # 312 * 32 = 9984 of the 10000 samples that 5000 rows beyond min_size are worth
        limiter.sample(32)
        assert in_band_at_any_moment(limiter)
    assert producer.recv() == 5050
    assert limiter.samples == 312 * 32
    assert abs(limiter.native.surplus) <= limiter.tolerance


def insert_and_sample(limiter: RateLimiter, connection: Connection) -> None:
    connection.send(None)
    connection.recv()
    for _ in range(300_000):
        limiter.try_insert(1)
        limiter.try_sample(2)
    connection.send(None)


@pytest.mark.timeout(60)
def test_nothing_that_processes_do_at_once_is_miscounted(start: Start) -> None:
    limiter = RateLimiter()
    connections = [start(insert_and_sample, limiter)[1] for _ in range(3)]
    for connection in connections:
        connection.recv()
    for connection in connections:
        connection.send(None)
    for connection in connections:
        connection.recv()
    assert limiter.state() == {"inserts": 900_000, "samples": 1_800_000}


@pytest.mark.timeout(20)
def test_a_side_that_sleeps_is_woken_and_need_not_look_again_by_itself(start: Start) -> None:
    # The sides take turns. Were one of them not woken, each of its waits would last 0.1 s: minutes together.
    limiter = RateLimiter(samples_per_insert=1, min_size=1, tolerance=1)
    _, connection = start(sample_for_ever, limiter)
    connection.recv()
    for _ in range(3000):
        limiter.insert(1)


def in_band_at_any_moment(limiter: RateLimiter) -> bool:
    """Whether the surplus is not too large: samples, ours alone, stand still; inserts may go on."""
    return limiter.native.surplus <= limiter.tolerance


def sample_for_ever(limiter: RateLimiter, connection: Connection) -> None:
    connection.send(None)
    while True:
        limiter.sample(1)


@pytest.mark.timeout(60)
def test_a_killed_consumer_leaves_a_producer_that_times_out_cleanly_and_goes_on_with_the_next(start: Start) -> None:
    limiter = RateLimiter(samples_per_insert=1, min_size=1, tolerance=64)
    consumer, connection = start(sample_for_ever, limiter)
    connection.recv()
    for _ in range(2000):
        limiter.insert(1)
    consumer.kill()
    consumer.join()
    with pytest.raises(NotReady, match="inserting is ahead"):
        for _ in range(1000):
            limiter.insert(1, timeout=0.05)
    assert abs(limiter.native.surplus) <= limiter.tolerance
    limiter.sample(64)
    limiter.insert(64, timeout=0)


@pytest.mark.timeout(60)
def test_consumers_killed_asleep_do_not_keep_the_next_one_from_waking(start: Start) -> None:
    limiter = RateLimiter(samples_per_insert=1, min_size=1, tolerance=1)
    for _ in range(3):
        asleep, connection = start(sample_for_ever, limiter)
        connection.recv()
        wait_until_asleep(Path(f"/proc/{asleep.pid}"))
        asleep.kill()
        asleep.join()
    _, connection = start(sample_for_ever, limiter)
    connection.recv()
    for _ in range(50):
        limiter.insert(1)


@pytest.mark.timeout(60)
def test_ctrl_c_ends_a_wait(start: Start) -> None:
    limiter = RateLimiter(min_size=10)
    process, connection = start(wait_for_ctrl_c, limiter)
    connection.recv()
    wait_until_asleep(Path(f"/proc/{process.pid}"))
    os.kill(process.pid or 0, signal.SIGINT)
    assert connection.recv() == "interrupted"


def wait_for_ctrl_c(limiter: RateLimiter, connection: Connection) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    connection.send(None)
    try:
        limiter.sample(1)
    except KeyboardInterrupt:
        connection.send("interrupted")
