"""The ring between processes that race, and that are killed at any instant."""

import random
import signal
from multiprocessing.process import BaseProcess
from pathlib import Path

import numpy as np
import pytest

from penstock.ipc import Arena, Ring, RingClosed
from tests.ipc.sharing import Sent, finished, wait_until_asleep
from tests.starting import Start

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


def killed_inside(process: BaseProcess, arena: Arena) -> bool:
    """Kill the process as soon as it holds the ring's mutex; whether it died before letting go."""
    mutex_word = arena.array(RING + 16, 1, np.uint32)  # the holder's process id, or 0
    while process.is_alive() and int(mutex_word[0]) != process.pid:
        pass
    process.kill()
    process.join()
    return int(mutex_word[0]) != 0


@pytest.mark.timeout(60)
def test_a_producer_killed_inside_a_push_has_pushed_nothing_and_blocks_no_other(fork: Start) -> None:
    arena = Arena.create(Ring.nbytes(HUGE))
    ring = Ring.create(arena, RING, HUGE)
    for _ in range(5):
        while not killed_inside(fork(_push_huge, arena), arena):
            ring.clear()
        assert len(ring) == 0
    assert ring.push_many(np.array([1, 2])) == 2
    assert ring.pop_many(3).tolist() == [1, 2]


@pytest.mark.timeout(60)
def test_a_consumer_killed_inside_a_pop_has_taken_nothing_and_blocks_nobody(fork: Start) -> None:
    arena = Arena.create(Ring.nbytes(HUGE))
    ring = Ring.create(arena, RING, HUGE)
    items = np.arange(HUGE)
    assert ring.push_many(items) == HUGE
    for _ in range(5):
        while not killed_inside(fork(_pop_huge, arena), arena):
            assert ring.push_many(items) == HUGE
        assert len(ring) == HUGE
    assert (ring.pop_many(HUGE) == items).all()
    assert ring.push(3)


KILLS, NUMBERS, BATCH = 150, 1 << 16, 5
PLACES = KILLS + 2  # each process that takes part, killed or not, has a place of its own in these tables


def _acknowledged(arena: Arena) -> np.ndarray:
    """How many items each producer knows to have pushed."""
    return arena.array(TABLES, PLACES, np.int64)


def _consumed(arena: Arena) -> np.ndarray:
    """How many items each consumer has written down."""
    return arena.array(TABLES + 8 * PLACES, PLACES, np.int64)


def _times_received(arena: Arena) -> np.ndarray:
    """How often item ``number`` of producer ``place``, the value ``place * NUMBERS + number``, came out."""
    return arena.array(TABLES + 16 * PLACES, PLACES * NUMBERS, np.uint8)


def _produce_until_killed(arena: Arena, place: int) -> None:
    ring, acknowledged = Ring.attach(arena, RING), _acknowledged(arena)
    items = place * NUMBERS + np.arange(NUMBERS)
    while (pushed := acknowledged[place]) < NUMBERS:
        acknowledged[place] += ring.push_many(items[pushed : pushed + BATCH], timeout=None)
    signal.pause()


def _consume_until_closed(arena: Arena, place: int) -> None:
    ring, consumed, times_received = Ring.attach(arena, RING), _consumed(arena), _times_received(arena)
    try:
        while True:
            items = ring.pop_many(BATCH, timeout=None)
            np.add.at(times_received, items, 1)
            consumed[place] += len(items)
    except RingClosed:
        pass


@pytest.mark.timeout(100)
def test_killing_producers_and_consumers_neither_blocks_nor_doubles_nor_loses_more_than_they_held(
    fork: Start, soak: float
) -> None:
    arena = Arena.create(TABLES + PLACES * (16 + NUMBERS))
    ring = Ring.create(arena, RING, capacity=16)
    acknowledged, consumed = _acknowledged(arena), _consumed(arena)
    chance = random.Random(7)

    producers = {place: fork(_produce_until_killed, arena, place) for place in range(2)}
    consumers = {place: fork(_consume_until_closed, arena, place) for place in range(2)}
    kills = {"producers": 0, "consumers": 0}
    for _ in range(round(KILLS * soak)):
        # Let the survivors get on by a random number of items: were one of them blocked by the last death, this hangs.
        goal = consumed.sum() + chance.randrange(1, 600)
        while consumed.sum() < goal and acknowledged[list(producers)].min() < NUMBERS:
            pass
        if chance.random() < 0.5:
            role, processes, target = "producers", producers, _produce_until_killed
        else:
            role, processes, target = "consumers", consumers, _consume_until_closed
        victim = processes.pop(chance.choice(list(processes)))
        victim.kill()
        victim.join()
        place = 2 + kills[role]
        kills[role] += 1
        processes[place] = fork(target, arena, place)

    for process in producers.values():
        process.kill()
        process.join()
    ring.close()
    assert all(finished(process) for process in consumers.values())

    times_received = _times_received(arena).reshape(PLACES, NUMBERS)
    assert times_received.max() == 1, "an item came out twice"
    lost = 0
    for place in range(PLACES):
        # A push happens wholly or not at all: at most the one batch under way came out without being acknowledged.
        assert not times_received[place, acknowledged[place] + BATCH :].any()
        lost += int(np.count_nonzero(times_received[place, : acknowledged[place]] == 0))
    # A killed consumer takes along the one batch that it had popped and not yet written down.
    assert lost <= kills["consumers"] * BATCH
