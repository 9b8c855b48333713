"""No endless waits: readers of stopped threads and processes, and limiters of rows of several steps."""

import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

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
    Sequences,
)
from tests.ipc.sharing import wait_until_asleep

pytestmark = pytest.mark.timeout(60)


def step(value: float, **ends: bool) -> dict[str, object]:
    return {"obs": value, "reward": 1.0, "terminated": False, **ends}


# ---- a reader that stands still with the priorities in its hands

STOPPED_READER = """
import os, pickle, signal, sys, threading, time
import numpy as np
from penstock.replay import Field, Prioritized, ReplayBuffer

buffer = ReplayBuffer(4096, {"large": Field((512,)), "small": Field()}, sampler=Prioritized())
buffer.add(large=np.zeros((4096, 512)), small=np.zeros(4096))
child = os.fork()
if child == 0:
    while True:
        buffer.update_priorities(np.arange(4096), np.ones(4096))

def is_held():
    # Until a sample does not come back, the child was stopped outside of the mutex.
    done = threading.Event()
    threading.Thread(target=lambda: (buffer.sample(1), done.set()), daemon=True).start()
    return not done.wait(0.5)

while True:
    time.sleep(0.01)
    os.kill(child, signal.SIGSTOP)
    if is_held():
        break
    os.kill(child, signal.SIGCONT)
"""


def test_threads_that_wait_for_a_stopped_reader_go_on_when_it_does() -> None:
    script = (
        STOPPED_READER
        + """
print("held", flush=True)
threads = [threading.Thread(target=buffer.sample, args=(size,)) for size in (64, 1, 64, 1)]
for thread in threads:
    thread.start()
time.sleep(0.5)  # they all wait, and this thread has the GIL
os.kill(child, signal.SIGCONT)
for thread in threads:
    thread.join(20)
print("alive" if any(thread.is_alive() for thread in threads) else "all done", flush=True)
os.kill(child, signal.SIGKILL)
os.waitpid(child, 0)
os._exit(0)
"""
    )
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=50)
    assert answer.stdout.split("\n")[:2] == ["held", "all done"], answer.stderr


def test_ctrl_c_ends_the_wait_for_a_stopped_reader() -> None:
    script = (
        STOPPED_READER
        + """
try:
    print("held", flush=True)
    buffer.sample(1)
except KeyboardInterrupt:
    print("interrupted", flush=True)
os.kill(child, signal.SIGKILL)
os.waitpid(child, 0)
os._exit(0)
"""
    )
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    end = time.monotonic() + 30
    answer = ""
    while not answer and time.monotonic() < end:
        process.send_signal(signal.SIGINT)
        answer = process.stdout.readline()
    assert answer == "interrupted\n"
    assert process.wait(20) == 0


# ---- the rate limiter counts rows


def test_a_limiter_never_holds_a_writer_whose_first_row_is_not_finished() -> None:
    for rows_of in ({"n_step": NStep(3)}, {"sequences": Sequences(80, 40)}):
        limiter = RateLimiter(samples_per_insert=32, min_size=1, tolerance=32)
        buffer = ReplayBuffer(100, {"obs": Field(), "reward": Field()}, rate_limiter=limiter, **rows_of)
        writer = buffer.writer(timeout=0.0)
        for number in range(79):
            if len(buffer):
                break
            writer.add(**step(number))
        writer.add(**step(80.0)) if not len(buffer) else None
        assert limiter.inserts == len(buffer) == 1
        buffer.sample(32)


@pytest.mark.parametrize("rows_of", [{}, {"n_step": NStep(3)}, {"sequences": Sequences(4, 2)}])
@pytest.mark.parametrize("lanes", [1, 3])
def test_the_limiter_counts_the_rows_that_are_finished(rows_of: dict[str, object], lanes: int) -> None:
    random = np.random.default_rng(3)
    limiter = RateLimiter(min_size=1)
    buffer = ReplayBuffer(1000, {"obs": Field(), "reward": Field()}, rate_limiter=limiter, **rows_of)
    writer = buffer.writer(lanes)
    for _ in range(100):
        shape = (lanes,) if lanes > 1 else (int(random.integers(1, 5)),)
        writer.add(
            obs=random.random(shape),
            reward=random.random(shape),
            terminated=random.random(shape) < 0.2,
            truncated=random.random(shape) < 0.1,
            mask=random.random(shape) < 0.8,
        )
        assert limiter.inserts == buffer.num_added
    writer.end_episode()
    assert limiter.inserts == buffer.num_added


def test_samples_that_do_not_come_are_not_counted() -> None:
    limiter = RateLimiter(samples_per_insert=1, min_size=1, tolerance=64)
    buffer = ReplayBuffer(10, {"value": Field()}, sampler=Prioritized(eps=0.0), rate_limiter=limiter)
    buffer.add(value=1.0, priorities=0.0)
    with pytest.raises(NotReady):
        buffer.sample(10)
    buffer.add(value=1.0, priorities=1.0)
    for wrong in ({"beta": np.nan}, {"beta": -1.0}, {"out": {}}):
        with pytest.raises((ValueError, KeyError)):
            buffer.sample(10, **wrong)  # type: ignore[arg-type]
    assert limiter.samples == 0
    buffer.sample(10)
    assert limiter.samples == 10


def test_a_reader_that_the_limiter_held_draws_from_what_has_been_added_since() -> None:
    limiter = RateLimiter(samples_per_insert=4, min_size=2, tolerance=100)
    buffer = ReplayBuffer(1, {"value": Field()}, rate_limiter=limiter)
    buffer.add(value=0.0)
    drawn: list[float] = []
    reader = threading.Thread(target=lambda: drawn.extend(buffer.sample(4, timeout=None)["value"]), daemon=True)
    reader.start()
    wait_until_asleep(Path(f"/proc/self/task/{reader.native_id}"))
    buffer.add(value=1.0)
    reader.join()
    assert drawn == [1.0] * 4


def test_an_add_that_is_held_half_way_says_how_far_it_came() -> None:
    limiter = RateLimiter(samples_per_insert=8, min_size=1, tolerance=1024)
    buffer = ReplayBuffer(10_000, {"value": Field()}, rate_limiter=limiter)
    writer = buffer.writer(timeout=0.05)
    with pytest.raises(NotReady) as held:
        writer.add(value=np.arange(1000.0))
    assert 0 < held.value.written == len(buffer) < 1000
    limiter.restore({"inserts": 1, "samples": 0})
    buffer.rate_limiter = None
    buffer.add(value=np.arange(1000.0)[held.value.written :])
    np.testing.assert_array_equal(buffer.get_all()["value"], np.arange(1000.0))


# ---- threads that gather


def test_where_no_thread_can_be_started_the_batch_is_gathered_all_the_same() -> None:
    script = """
import resource
import numpy as np
from penstock.replay import Field, ReplayBuffer
buffer = ReplayBuffer(64, {"value": Field((65536,), "uint8")}, num_threads=4)
buffer.add(value=np.arange(64)[:, None].repeat(65536, 1))
# Address space for no further stack; what is there already stays.
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (5 << 20), used + (5 << 20)))
out = None
for _ in range(3):
    batch = buffer.sample(32)
    assert (batch["value"] == batch["value"][:, :1]).all()
print("done")
"""
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=50)
    assert answer.stdout == "done\n", answer.stderr


# ---- seeds


def test_a_seeded_reservoir_keeps_and_draws_the_same_rows() -> None:
    def run() -> tuple[list[int], list[int]]:
        buffer = ReplayBuffer(10, {"value": Field((), "int64")}, sampler=Reservoir(), seed=1)
        for value in range(200):
            buffer.add(value=value)
        return buffer.get_all()["value"].tolist(), buffer.sample(50)["value"].tolist()

    assert run() == run()


# ---- weights over a wide range


def test_weights_are_right_where_priorities_differ_by_forty_powers_of_ten() -> None:
    buffer = ReplayBuffer(2, {"value": Field()}, sampler=Prioritized(alpha=1.0, eps=0.0), seed=0)
    buffer.add(value=[0.0, 1.0], priorities=[1.0, 1e40])
    np.testing.assert_allclose(buffer.sample(8, beta=0.4)["weights"], 1e-16, rtol=1e-5)
