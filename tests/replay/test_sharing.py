"""Handles: shared memory found again by another process of the machine, or a clear word why not."""

import copy
import os
import pickle
from collections.abc import Callable

import numpy as np
import pytest

from penstock.ipc import Arena
from penstock.replay.limiter import RateLimiter
from penstock.replay.sharing import ArenaHandle, arena_handle, attach


@pytest.mark.parametrize("share", [copy.copy, copy.deepcopy, lambda limiter: pickle.loads(pickle.dumps(limiter))])
def test_a_copy_or_an_unpickled_limiter_is_the_same_limiter(share: Callable[[RateLimiter], RateLimiter]) -> None:
    limiter = RateLimiter(samples_per_insert=4, min_size=100, tolerance=64)
    other = share(limiter)
    other.insert(100)
    assert limiter.inserts == 100
    assert (other.samples_per_insert, other.min_size, other.tolerance) == (4, 100, 64)
    del limiter
    assert other.try_sample(64) and not other.try_sample(1)


def test_a_handle_is_plain_numbers_and_finds_the_very_same_memory() -> None:
    arena = Arena.create(4096)
    handle = arena_handle(arena)
    assert pickle.loads(pickle.dumps(handle)) == handle
    attached = attach(handle)
    arena.array(0, 10, np.uint8)[:] = 7
    del arena
    assert attached.nbytes == 4096
    assert attached.array(0, 10, np.uint8).tolist() == [7] * 10
    assert not os.get_inheritable(attached.fd)


def test_a_handle_of_a_process_that_is_gone_says_so() -> None:
    limiter = RateLimiter()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, pickle.dumps(limiter))
        os._exit(0)
    os.waitpid(child, 0)
    pickled = os.read(reading, 4096)
    os.close(reading)
    os.close(writing)
    with pytest.raises(ConnectionError, match=f"of process {child}, .* there is no such process.* Keep the process"):
        pickle.loads(pickled)


def test_a_handle_of_an_arena_that_is_closed_says_so() -> None:
    arena = Arena.create(4096)
    handle = arena_handle(arena)
    del arena
    with pytest.raises(ConnectionError, match="it has closed that descriptor"):
        attach(handle)


def test_another_file_under_the_same_descriptor_is_not_mistaken_for_the_arena() -> None:
    arena = Arena.create(4096)
    handle = arena_handle(arena)
    other = ArenaHandle(handle.pid, handle.fd, handle.device, handle.inode + 1)
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(ConnectionError, match="another file by now"):
        attach(other)
    assert len(os.listdir("/proc/self/fd")) == before
