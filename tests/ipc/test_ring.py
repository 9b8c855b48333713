"""The ring within one process: order, room, closing, and errors."""

import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from penstock.ipc import Arena, Doorbell, Ring, RingClosed
from tests.ipc.sharing import wait_until_asleep

INT64 = st.integers(-(2**63), 2**63 - 1)


@pytest.fixture
def ring(arena: Arena) -> Ring:
    return Ring.create(arena, 64, capacity=4)


def numbers(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int64)


def test_values_come_out_in_the_order_they_went_in(ring: Ring) -> None:
    assert ring.push(-5)
    assert ring.push_many(numbers(2**63 - 1, 7)) == 2
    assert len(ring) == 3
    assert [ring.pop(), ring.pop(), ring.pop(), ring.pop()] == [-5, 2**63 - 1, 7, None]


def test_a_full_ring_takes_nothing_more(ring: Ring) -> None:
    assert ring.push_many(numbers(1, 2, 3, 4, 5, 6)) == 4
    assert not ring.push(9)
    assert not ring.push(9, timeout=0.002)
    assert ring.push_many(numbers(9)) == 0
    assert ring.pop_many(10).tolist() == [1, 2, 3, 4]


def test_pop_many_takes_nothing_while_fewer_than_the_least_are_there(ring: Ring) -> None:
    ring.push_many(np.array([1, 2]))
    assert ring.pop_many(4, least=3).tolist() == [] and len(ring) == 2
    ring.push(3)
    assert ring.pop_many(4, least=3).tolist() == [1, 2, 3]
    with pytest.raises(ValueError, match="least must be from 1 to max_items"):
        ring.pop_many(2, least=3)


def test_pop_many_takes_no_more_than_asked_and_may_be_empty(ring: Ring) -> None:
    ring.push_many(numbers(1, 2, 3))
    assert ring.pop_many(2).tolist() == [1, 2]
    assert ring.pop_many(2).tolist() == [3]
    empty = ring.pop_many(2, timeout=0.002)
    assert empty.dtype == np.int64 and empty.shape == (0,)


def test_two_attachments_are_one_ring(arena: Arena, ring: Ring) -> None:
    other = Ring.attach(arena, 64)
    other.push(3)
    assert other.capacity == ring.capacity == 4
    assert ring.pop() == 3
    assert other.pop() is None


def test_clear_makes_room(ring: Ring) -> None:
    ring.push_many(numbers(1, 2, 3, 4))
    ring.clear()
    assert len(ring) == 0 and ring.pop() is None
    assert ring.push_many(numbers(5, 6, 7, 8)) == 4
    assert ring.pop() == 5


def test_a_closed_ring_gives_what_it_has_and_takes_nothing(ring: Ring) -> None:
    ring.push_many(numbers(1, 2))
    assert not ring.closed
    ring.close()
    assert ring.closed
    with pytest.raises(RingClosed):
        ring.push(3)
    with pytest.raises(RingClosed):
        ring.push_many(numbers(3))
    assert ring.pop(timeout=None) == 1
    assert ring.pop_many(5).tolist() == [2]
    with pytest.raises(RingClosed):
        ring.pop(timeout=None)
    with pytest.raises(RingClosed):
        ring.pop_many(5)


def _in_thread(call: Callable[[], object]) -> tuple[threading.Thread, list]:
    """Start call() in a thread and return once it sleeps; its result or exception will be in the list."""
    outcome: list = []

    def run() -> None:
        try:
            outcome.append(call())
        except RingClosed as closed:
            outcome.append(closed)

    thread = threading.Thread(target=run)
    thread.start()
    wait_until_asleep(Path(f"/proc/self/task/{thread.native_id}"))
    return thread, outcome


def test_a_waiting_pop_is_woken_by_a_push(ring: Ring) -> None:
    thread, outcome = _in_thread(lambda: ring.pop(timeout=None))
    ring.push(11)
    thread.join()
    assert outcome == [11]


def test_a_waiting_push_is_woken_by_a_pop(ring: Ring) -> None:
    ring.push_many(numbers(1, 2, 3, 4))
    thread, outcome = _in_thread(lambda: ring.push(5, timeout=None))
    assert ring.pop() == 1
    thread.join()
    assert outcome == [True]
    assert ring.pop_many(9).tolist() == [2, 3, 4, 5]


def test_a_long_push_many_goes_on_as_room_is_made(ring: Ring) -> None:
    thread, outcome = _in_thread(lambda: ring.push_many(np.arange(1000), timeout=None))
    received: list[int] = []
    while len(received) < 1000:
        received += ring.pop_many(3, timeout=None).tolist()
    thread.join()
    assert outcome == [1000]
    assert received == list(range(1000))


def test_close_wakes_those_who_wait_for_values(ring: Ring) -> None:
    thread, outcome = _in_thread(lambda: ring.pop(timeout=None))
    ring.close()
    thread.join()
    assert isinstance(outcome[0], RingClosed)


def test_close_wakes_those_who_wait_for_room(ring: Ring) -> None:
    ring.push_many(numbers(1, 2, 3, 4))
    thread, outcome = _in_thread(lambda: ring.push(5, timeout=None))
    ring.close()
    thread.join()
    assert isinstance(outcome[0], RingClosed)


def test_a_push_many_cut_short_by_close_tells_how_far_it_came(ring: Ring) -> None:
    thread, outcome = _in_thread(lambda: ring.push_many(np.arange(6), timeout=None))
    ring.close()
    thread.join()
    assert outcome == [4]
    assert ring.pop_many(9).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (np.zeros(3, np.float64), r"values must be an int64 array, found float64\[3\]"),
        (np.zeros(3, np.int32), r"values must be an int64 array, found int32\[3\]"),
        (np.zeros(6, np.int64)[::2], r"values must be a C-contiguous array of plain numbers, found int64\[3\]"),
    ],
)
def test_values_that_are_not_plain_int64_are_refused(ring: Ring, values: np.ndarray, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ring.push_many(values)


def test_values_that_are_no_array_are_refused(ring: Ring) -> None:
    with pytest.raises(TypeError, match="values must be a NumPy array, found list"):
        ring.push_many([1, 2])  # type: ignore[arg-type]


def test_asking_for_no_items_is_refused(ring: Ring) -> None:
    with pytest.raises(ValueError, match="max_items must be at least 1"):
        ring.pop_many(0)


@pytest.mark.parametrize("capacity", [0, 1 << 41])
def test_a_capacity_out_of_range_is_refused(arena: Arena, capacity: int) -> None:
    with pytest.raises(ValueError, match="capacity must be from 1 to"):
        Ring.create(arena, 0, capacity)


def test_a_ring_must_fit_into_its_arena_and_lie_on_a_line() -> None:
    arena = Arena.create(Ring.nbytes(10) + 64)
    Ring.create(arena, 64, 10)
    with pytest.raises(ValueError, match="the arena ends at"):
        Ring.create(arena, 128, 10)
    with pytest.raises(ValueError, match="offset 8 is not a multiple of 64"):
        Ring.create(arena, 8, 1)


def test_attaching_to_something_else_says_what_was_found(arena: Arena) -> None:
    Doorbell.create(arena, 0)
    with pytest.raises(ValueError, match=r"there is no Ring at offset 0: found magic word 0x[0-9a-f]{16}, expected"):
        Ring.attach(arena, 0)


class RingBehavesLikeADeque(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        arena = Arena.create(4096)
        self.sides = [Ring.create(arena, 0, capacity=7), Ring.attach(arena, 0)]
        self.model: deque[int] = deque()
        self.closed = False

    side = st.integers(0, 1)

    @precondition(lambda self: not self.closed)
    @rule(side=side, values=st.lists(INT64, max_size=10))
    def push_many(self, side: int, values: list[int]) -> None:
        room = 7 - len(self.model)
        assert self.sides[side].push_many(numbers(*values)) == min(room, len(values))
        self.model.extend(values[:room])

    @precondition(lambda self: not self.closed)
    @rule(side=side, value=INT64)
    def push(self, side: int, value: int) -> None:
        fits = len(self.model) < 7
        assert self.sides[side].push(value) is fits
        if fits:
            self.model.append(value)

    @precondition(lambda self: self.model or not self.closed)
    @rule(side=side)
    def pop(self, side: int) -> None:
        assert self.sides[side].pop() == (self.model.popleft() if self.model else None)

    @precondition(lambda self: self.model or not self.closed)
    @rule(side=side, limit=st.integers(1, 10))
    def pop_many(self, side: int, limit: int) -> None:
        expected = [self.model.popleft() for _ in range(min(limit, len(self.model)))]
        assert self.sides[side].pop_many(limit).tolist() == expected

    @rule(side=side)
    def clear(self, side: int) -> None:
        self.sides[side].clear()
        self.model.clear()

    @precondition(lambda self: len(self.model) > 4)
    @rule(side=side)
    def close(self, side: int) -> None:
        self.sides[side].close()
        self.closed = True

    @precondition(lambda self: self.closed)
    @rule(side=side)
    def a_closed_ring_refuses(self, side: int) -> None:
        with pytest.raises(RingClosed):
            self.sides[side].push(1)
        if not self.model:
            with pytest.raises(RingClosed):
                self.sides[side].pop()

    @invariant()
    def both_sides_agree_on_the_length(self) -> None:
        assert [len(side) for side in self.sides] == [len(self.model)] * 2


TestRingBehavesLikeADeque = RingBehavesLikeADeque.TestCase
TestRingBehavesLikeADeque.settings = settings(max_examples=60, stateful_step_count=40)
