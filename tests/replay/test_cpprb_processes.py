"""The drop-in's multi-process buffers with real processes, some of which are killed."""

import multiprocessing
import os
import signal
import time
from contextlib import contextmanager

import numpy as np
import pytest

from penstock.replay import cpprb

WIDTH = 64  # of a row: enough for a torn one to show
FIELDS = {"obs": {"shape": WIDTH}, "writer": {"dtype": "i4"}, "rew": {}}
KINDS = [cpprb.MPReplayBuffer, cpprb.MPPrioritizedReplayBuffer]


def add(buffer, writer, number, steps=1):
    """Rows whose values all encode the same number."""
    rows = np.arange(number, number + steps)
    buffer.add(obs=np.repeat(rows, WIDTH), writer=np.full(steps, writer), rew=rows)


def explore(buffer, writer, steps):
    for i in range(0, steps, 5):
        add(buffer, writer, i, 5)


def explore_for_ever(buffer, writer):
    number = 0
    while True:
        add(buffer, writer, number, 5)
        number = (number + 5) % 100_000


@contextmanager
def running(context, target, *arguments):
    process = context.Process(target=target, args=arguments, daemon=True)
    process.start()
    try:
        yield process
    finally:
        process.kill()
        process.join()


def await_rows_of(buffer, writer):
    deadline = time.monotonic() + 30
    while writer not in buffer.get_all_transitions()["writer"]:
        assert time.monotonic() < deadline, f"explorer {writer} added nothing"
        os.sched_yield()


def is_whole(batch):
    return np.array_equal(batch["obs"], np.repeat(batch["rew"], WIDTH, axis=1))


@pytest.mark.timeout(100)
@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.parametrize("backend", ["sharedctypes", "SharedMemory"])
def test_explorers_fill_the_learners_buffer(method, backend):
    context = multiprocessing.get_context(method)
    buffer = cpprb.MPReplayBuffer(1000, FIELDS, ctx=context, backend=backend)
    with running(context, explore, buffer, 1, 200) as one, running(context, explore, buffer, 2, 200) as two:
        for process in (one, two):
            process.join()
            assert process.exitcode == 0
    rows = buffer.get_all_transitions()
    assert is_whole(rows)
    for writer in (1, 2):
        assert rows["rew"][rows["writer"] == writer].tolist() == list(range(200))


@pytest.mark.timeout(60)
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_killed_explorers_hold_up_nobody_and_leave_no_torn_row(kind):
    context = multiprocessing.get_context("fork")
    buffer = kind(50, FIELDS)  # so small that writers lap each other and the reader
    with running(context, explore_for_ever, buffer, 0):
        for killed in range(1, 16):
            with running(context, explore_for_ever, buffer, killed) as explorer:
                await_rows_of(buffer, killed)
                for _ in range(20):
                    batch = buffer.sample(32)
                    assert is_whole(batch)
                    if kind is cpprb.MPPrioritizedReplayBuffer:
                        buffer.update_priorities(batch["indexes"], batch["rew"] % 7)
                os.kill(explorer.pid, signal.SIGKILL)
                explorer.join()
            assert is_whole(buffer.sample(32))
    add(buffer, 99, 0, 50)
    assert set(buffer.get_all_transitions()["writer"].ravel()) == {99}


@pytest.mark.timeout(60)
def test_updates_of_rows_that_an_explorer_has_overwritten_are_ignored():
    context = multiprocessing.get_context("fork")
    buffer = cpprb.MPPrioritizedReplayBuffer(50, FIELDS, alpha=1.0, eps=0.0)
    add(buffer, 0, 0, 50)
    buffer.sample(1)
    with running(context, add, buffer, 1, 0, 25) as explorer:
        explorer.join()
    buffer.update_priorities(np.arange(50), np.full(50, 0.25))
    weights = np.ones(50)
    batch = buffer.sample(2000, beta=1.0)
    weights[batch["indexes"].astype(int)] = batch["weights"]
    assert set(weights[:25]) == {0.25}
    assert set(weights[25:]) == {1.0}


def answer(buffer, connection):
    batch = buffer.sample(16)
    buffer.update_priorities(batch["indexes"], np.full(16, 5.0))
    connection.send((buffer.get_stored_size(), buffer.get_max_priority(), is_whole(batch)))


@pytest.mark.timeout(60)
@pytest.mark.parametrize("kind", [cpprb.PrioritizedReplayBuffer, cpprb.MPPrioritizedReplayBuffer])
def test_another_process_may_be_the_learner(kind):
    context = multiprocessing.get_context("spawn")
    buffer = kind(50, FIELDS)
    add(buffer, 0, 0, 20)
    ours, theirs = context.Pipe()
    with running(context, answer, buffer, theirs):
        assert ours.recv() == (20, 5.0, True)
    assert buffer.get_max_priority() == 5.0


def test_what_the_memory_is_made_of_is_checked_and_otherwise_without_effect():
    for context in (None, multiprocessing, multiprocessing.get_context("spawn")):
        assert cpprb.MPReplayBuffer(5, FIELDS, ctx=context, logger=None).get_buffer_size() == 5
    with pytest.raises(ValueError, match="backend='nonsense'"):
        cpprb.MPReplayBuffer(5, FIELDS, backend="nonsense")
    with pytest.raises(TypeError, match="spawn"):
        cpprb.MPReplayBuffer(5, FIELDS, ctx="spawn")


def test_multi_process_rows_are_single_steps():
    with pytest.warns(UserWarning, match="MPReplayBuffer ignores Nstep"):
        buffer = cpprb.MPReplayBuffer(5, FIELDS, Nstep={"size": 3, "rew": "rew"})
    assert buffer.is_Nstep() is False
    add(buffer, 0, 0)
    buffer.on_episode_end()
    assert buffer.get_stored_size() == 1
