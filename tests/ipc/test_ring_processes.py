"""The ring between processes that race, and that are killed at any instant."""

import random
from multiprocessing.process import BaseProcess
from pathlib import Path

import numpy as np
import pytest

from penstock.ipc import Arena, Ring, RingClosed
from tests.ipc.sharing import Sent, Start, finished, wait_until_asleep

RING, TABLES = 0, 1 << 16
PRODUCERS, CONSUMERS, ITEMS = 3, 2, 20_000


def _counts(arena: Arena) -> np.ndarray:
    return arena.array(TABLES, (CONSUMERS, PRODUCERS, ITEMS), np.uint8)


def _produce_all(sent: Sent, producer: int) -> None:
    ring = Ring.attach(sent.arena, RING)
    items = producer * ITEMS + np.arange(ITEMS)
    batches = np.random.default_rng(producer).integers(1, 40, ITEMS)
    start = 0
    for batch in batches:
        if start == ITEMS:
            return
        start += ring.push_many(items[start : start + batch], timeout=None)


def _consume_all(sent: Sent, consumer: int) -> None:
    ring, counts = Ring.attach(sent.arena, RING), _counts(sent.arena)[consumer]
    newest = np.full(PRODUCERS, -1)
    try:
        while True:
            for item in ring.pop_many(25, timeout=None):
                producer, number = divmod(item, ITEMS)
                assert number > newest[producer], "items of one producer came out of order"
                newest[producer] = number
                counts[producer, number] += 1
    except RingClosed:
        pass


@pytest.mark.timeout(60)
def test_racing_processes_get_every_item_once_and_in_order(spawn: Start) -> None:
    arena = Arena.create(TABLES + CONSUMERS * PRODUCERS * ITEMS)
    ring = Ring.create(arena, RING, capacity=64)
    consumers = [spawn(_consume_all, Sent(arena), number) for number in range(CONSUMERS)]
    producers = [spawn(_produce_all, Sent(arena), number) for number in range(PRODUCERS)]
    assert all(finished(process) for process in producers)
    ring.close()
    assert all(finished(process) for process in consumers)
    assert (_counts(arena).sum(axis=0) == 1).all()


@pytest.mark.timeout(60)
def test_close_wakes_a_process_that_waits(spawn: Start, arena: Arena) -> None:
    ring = Ring.create(arena, RING, capacity=4)
    process = spawn(_pop_for_ever, Sent(arena))
    assert ring.push(1, timeout=None)
    wait_until_empty(ring)
    wait_until_asleep(Path(f"/proc/{process.pid}"))
    ring.close()
    assert finished(process)


def _pop_for_ever(sent: Sent) -> None:
    ring = Ring.attach(sent.arena, RING)
    try:
        while True:
            ring.pop(timeout=None)
    except RingClosed:
        pass


def wait_until_empty(ring: Ring) -> None:
    while len(ring) != 0:
        pass


@pytest.mark.timeout(60)
def test_consumers_killed_in_their_sleep_take_nothing_with_them(fork: Start, arena: Arena) -> None:
    ring = Ring.create(arena, RING, capacity=4)
    for _ in range(5):
        process = fork(_pop_for_ever, Sent(arena))
        wait_until_asleep(Path(f"/proc/{process.pid}"))
        process.kill()
        process.join()
    assert ring.push(1) and ring.push(2)
    assert ring.pop_many(4, timeout=None).tolist() == [1, 2]


HUGE = 1 << 22  # items of a copy that takes milliseconds, all of them under the mutex


def _push_huge(arena: Arena) -> None:
    Ring.attach(arena, RING).push_many(np.full(HUGE, -1))


def _pop_huge(arena: Arena) -> None:
    Ring.attach(arena, RING).pop_many(HUGE)


def kill_inside(process: BaseProcess, arena: Arena) -> None:
    """Kill the process as soon as the first word of the ring's mutex says that it is the holder."""
    holder = arena.array(RING + 16, 1, np.uint32)
    while int(holder[0]) & 0x3FFFFFFF != process.pid:
        pass
    process.kill()
    process.join()


@pytest.mark.timeout(60)
def test_a_producer_killed_inside_a_push_has_pushed_nothing_and_blocks_nobody(fork: Start) -> None:
    arena = Arena.create(Ring.nbytes(HUGE))
    ring = Ring.create(arena, RING, HUGE)
    ring.push(1)
    for _ in range(5):
        kill_inside(fork(_push_huge, arena), arena)
        assert len(ring) == 1
    assert ring.push(2)
    assert ring.pop_many(3).tolist() == [1, 2]


@pytest.mark.timeout(60)
def test_a_consumer_killed_inside_a_pop_has_taken_nothing_and_blocks_nobody(fork: Start) -> None:
    arena = Arena.create(Ring.nbytes(HUGE))
    ring = Ring.create(arena, RING, HUGE)
    items = np.arange(HUGE)
    assert ring.push_many(items) == HUGE
    for _ in range(5):
        kill_inside(fork(_pop_huge, arena), arena)
        assert len(ring) == HUGE
    assert (ring.pop_many(HUGE) == items).all()
    assert ring.push(3)


KILLS, MOST_ITEMS, BATCH = 150, 1 << 20, 5


def _produce_until_killed(arena: Arena, incarnation: int) -> None:
    """Push items numbered within this incarnation; ``acknowledged`` trails by one batch at most."""
    ring, acknowledged = Ring.attach(arena, RING), _acknowledged(arena)
    base, number = incarnation * MOST_ITEMS, 0
    while True:
        number += ring.push_many(base + np.arange(number, number + BATCH), timeout=None)
        acknowledged[incarnation] = number


def _consume_until_closed(arena: Arena, incarnation: int) -> None:
    """Pop BATCH items at most, then write them to this incarnation's own log: the batch, then the new length."""
    ring, (lengths, log) = Ring.attach(arena, RING), _logs(arena)
    try:
        while True:
            items = ring.pop_many(BATCH, timeout=None)
            length = int(lengths[incarnation])
            log[incarnation, length : length + len(items)] = items
            lengths[incarnation] = length + len(items)
    except RingClosed:
        pass


PLACES = KILLS + 2
LOG_LENGTH = 40_000


def _acknowledged(arena: Arena) -> np.ndarray:
    return arena.array(TABLES, PLACES, np.int64)


def _logs(arena: Arena) -> tuple[np.ndarray, np.ndarray]:
    lengths = arena.array(TABLES + 8 * PLACES, PLACES, np.int64)
    return lengths, arena.array(TABLES + 16 * PLACES, (PLACES, LOG_LENGTH), np.int64)


@pytest.mark.timeout(100)
def test_killing_producers_and_consumers_neither_blocks_nor_doubles_nor_loses_more_than_they_held(fork: Start) -> None:
    arena = Arena.create(TABLES + 16 * PLACES + 8 * PLACES * LOG_LENGTH)
    ring = Ring.create(arena, RING, capacity=16)
    acknowledged, (lengths, log) = _acknowledged(arena), _logs(arena)
    chance = random.Random(7)

    producers = {number: fork(_produce_until_killed, arena, number) for number in range(2)}
    consumers = {number: fork(_consume_until_closed, arena, number) for number in range(2)}
    producers_killed = consumers_killed = 0
    for _ in range(KILLS):
        # Let the survivors get on by a random number of items: were one of them blocked by the last death, this hangs.
        goal = lengths.sum() + chance.randrange(1, 600)
        while lengths.sum() < goal:
            pass
        if chance.random() < 0.5:
            victim, target, started = producers, _produce_until_killed, producers_killed + 2
            producers_killed += 1
        else:
            victim, target, started = consumers, _consume_until_closed, consumers_killed + 2
            consumers_killed += 1
        process = victim.pop(chance.choice(list(victim)))
        process.kill()
        process.join()
        victim[started] = fork(target, arena, started)

    for process in producers.values():
        process.kill()
        process.join()
    ring.close()
    assert all(finished(process) for process in consumers.values())

    received = np.concatenate([log[place, : lengths[place]] for place in range(PLACES)])
    assert len(np.unique(received)) == len(received), "an item came out twice"
    incarnation, number = np.divmod(received, MOST_ITEMS)
    # A push happened wholly or not at all, so at most the one batch under way is there without being acknowledged.
    assert (number < acknowledged[incarnation] + BATCH).all()
    # A killed consumer takes along the batch it had popped and not yet written down, at most.
    pushed = [max(int(acknowledged[i]), int(number[incarnation == i].max(initial=-1)) + 1) for i in range(PLACES)]
    assert sum(pushed) - len(received) <= consumers_killed * BATCH
    # What is left is in order: within one consumer's log the items of one producer only rise.
    for place in range(PLACES):
        items = log[place, : lengths[place]]
        for producer in np.unique(items // MOST_ITEMS):
            assert (np.diff(items[items // MOST_ITEMS == producer]) > 0).all()
