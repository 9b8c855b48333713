"""Slots at home that mirror those of a node: what is granted, and what blocks write into them."""

import errno
import itertools
import socket
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.ipc import Arena, NodeSlots, Occupancy, SegmentMemory, SlotState, SlotTable

FREE, WRITING, FULL, READING = SlotState
NODE, LENGTH, ROWS = 1, 3, 4  # of a slot: three steps and a last observation
HOME_LANES = 4  # of which 2 and 3 are the node's
STATE_SIZE = 2


class Home:
    """Memory at home of lanes with some slots each, and those of node 1."""

    def __init__(self, turns: int = 2) -> None:
        count = HOME_LANES * turns
        self.arena = Arena.create(SlotTable.nbytes(count))
        self.table = SlotTable.create(self.arena, 0, count)
        self.columns = {
            "obs": np.zeros((count * ROWS, 5), np.float32),
            "valid": np.zeros(count * ROWS, np.bool_),
            "version": np.zeros(count * ROWS, np.int64),
            "nothing": np.zeros((count * ROWS, 0), np.float32),
        }
        self.epoch, self.number = np.zeros(count, np.int64), np.zeros(count, np.int64)
        self.memory = np.zeros((count, STATE_SIZE), np.float32)
        self.numbers = (np.arange(turns)[:, None] * HOME_LANES + [2, 3]).reshape(-1)
        self.segments = SegmentMemory(
            count, list(self.columns.values()), self.columns["valid"], self.columns["version"], self.epoch,
            self.number, self.memory, LENGTH,
        )  # fmt: skip
        self.slots = NodeSlots(self.table, self.segments, self.numbers, 2, NODE)

    def put(self, slot: int, state: SlotState, owner: int) -> None:
        self.table.claim(np.array([slot]), FREE, state, owner)

    def grant(self, backlog: float = np.inf, now: int = 0) -> list[int]:
        return self.slots.grant(Occupancy(self.table), backlog, now).tolist()

    def block(self, numbers: list[int], seed: int = 0) -> tuple[bytes, dict[str, np.ndarray], np.ndarray]:
        """Return the bytes of a block of segments, its columns ``[segments, ...]``, and its table."""
        draw = np.random.default_rng(seed)
        table = np.stack([numbers, draw.integers(0, 9, len(numbers)), draw.integers(0, 99, len(numbers))], 1)
        columns = {
            name: draw.integers(0, 2, (len(numbers), ROWS, *column.shape[1:])).astype(column.dtype)
            for name, column in self.columns.items()
        }  # fmt: skip
        memory = draw.normal(size=(len(numbers), STATE_SIZE)).astype(np.float32)
        parts = [table.astype(np.int64), memory, *columns.values()]
        return b"".join(part.tobytes() for part in parts), columns | {"memory": memory}, table

    def take(self, data: bytes, count: int, cuts: list[int] | None = None, *, is_accepted: bool = True) -> None:
        """Receive a block that comes in pieces."""
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        self.slots.begin(count, len(data), is_accepted)
        taken, places = 0, sorted({0, len(data), *(cuts or [])})
        for begin, end in itertools.pairwise(places):
            theirs.sendall(data[begin:end])
            while found := self.slots.receive(ours.fileno()):
                taken += found
            assert taken == end and self.slots.missing == len(data) - end
        ours.close()
        theirs.close()


@given(st.permutations(range(6)), st.integers(1, 6), st.lists(st.integers(1, 700), max_size=5), st.integers(0, 99))
@settings(max_examples=60)
def test_a_block_lies_in_the_slots_that_it_names_however_its_bytes_come(order, count, cuts, seed):
    home, numbers = Home(turns=3), list(order[:count])
    for number in numbers:
        home.put(home.numbers[number], WRITING, NODE)
    data, columns, table = home.block(numbers, seed)
    home.take(data, count, [cut for cut in cuts if cut < len(data)])
    slots = home.slots.arrive(5, 0)
    assert slots.tolist() == home.numbers[numbers].tolist() and not home.slots.is_doubled
    for name, column in home.columns.items():
        assert (column.reshape(12, ROWS, *column.shape[1:])[slots] == columns[name]).all(), name
    assert (home.memory[slots] == columns["memory"]).all()
    assert (home.epoch[slots] == table[:, 1]).all() and (home.number[slots] == table[:, 2]).all()
    assert home.slots.is_stale(4) == (table[:, 1] != 4).any()
    others = np.setdiff1d(np.arange(12), slots)
    assert not home.columns["obs"].reshape(12, -1)[others].any() and not home.number[others].any()
    valid, version = columns["valid"][:, :LENGTH], columns["version"][:, :LENGTH]
    assert home.slots.steps == valid.sum()
    if valid.any():
        lags = 5 - version[valid]
        assert home.slots.lag == pytest.approx(lags.mean()) and home.slots.largest_lag == lags.max()


@given(
    st.lists(st.sampled_from([*SlotState]), min_size=12, max_size=12), st.sampled_from([1.0, 2.0, 4.0, 7.0, np.inf])
)
def test_grants_are_those_of_the_rule(states, backlog):
    home = Home(turns=3)
    for slot, state in enumerate(states):
        home.put(slot, state, 0)
    found = np.array(states).reshape(3, HOME_LANES)
    waiting, under_way = np.isin(found, [FULL, READING]), found == WRITING
    expected = []
    for lane in (2, 3):
        held = (waiting | under_way).sum() >= backlog and (
            under_way[:, lane].any() or (waiting.sum() >= backlog and waiting[:, lane].any())
        )
        free = np.flatnonzero(found[:, lane] == FREE)
        if len(free) and not held:
            expected.append(2 * int(free[0]) + lane - 2)
    assert home.grant(backlog) == expected
    slots = home.numbers[expected]
    assert [(home.table.state(slot), home.table.owner(slot)) for slot in slots] == [(WRITING, NODE)] * len(slots)


@pytest.mark.parametrize(
    ("under_way", "waiting", "granted"),
    [
        ([], [], [0, 1]),
        ([2], [], [2, 1]),  # one segment is less than the backlog
        ([0, 1], [], [0, 1]),  # the backlog is under way
        ([0, 2], [], [1]),  # so nothing for a lane that has a slot already
        ([0], [2], [2, 1]),  # a segment that waits holds its lane up only where those that wait reach the backlog
        ([], [2, 0], [1]),
        ([2, 3], [], []),
    ],
)
def test_a_lane_is_granted_slots_ahead_only_while_the_learner_would_run_short(under_way, waiting, granted):
    home = Home()
    for slot in under_way:
        home.put(slot, WRITING, slot // 2)
    for slot in waiting:
        home.put(slot, FULL, 1)
    assert home.grant(backlog=1.5) == granted


def test_lanes_that_step_together_are_timed_from_the_grant_of_the_last():
    home = Home(turns=1)
    home.put(3, FULL, NODE)
    assert home.grant(now=1_000) == [0]
    home.table.claim(np.array([3]), FULL, FREE, 0)
    assert home.grant(now=5_000) == [1]
    home.take(home.block([0, 1])[0], 2)
    home.slots.arrive(0, 9_000)
    assert home.slots.segment_time == 4_000


def test_one_segment_that_is_late_by_chance_is_not_taken_for_the_time_of_a_segment():
    home, took = Home(turns=1), []
    for seconds in (2, 2, 900, 2, 2, 7, 7, 7):
        assert home.grant(now=0) == [0, 1]
        home.take(home.block([0, 1])[0], 2)
        slots = home.slots.arrive(0, seconds)
        took.append(home.slots.segment_time)
        home.table.claim(slots, WRITING, FREE, 0)
    assert took == [2, 2, 2, 2, 2, 2, 7, 7]


def test_a_lane_with_a_slot_of_its_own_is_not_timed():
    home = Home()
    assert home.grant(now=1) == [0, 1] and home.grant(now=2) == [2, 3]
    home.take(home.block([2, 3])[0], 2)
    home.slots.arrive(0, 9)
    assert home.slots.segment_time == 0


@pytest.mark.parametrize("is_accepted", [True, False])
def test_a_block_that_is_not_wanted_is_read_into_nothing(is_accepted):
    home = Home()
    home.put(home.numbers[0], WRITING, NODE)
    home.put(home.numbers[1], WRITING, NODE + 1)
    data = home.block([0, 1])[0]
    home.take(data, 2, [7, 90], is_accepted=is_accepted)
    assert home.slots.is_doubled == is_accepted  # a slot was not granted
    assert not len(home.slots.arrive(0, 0)) and not home.columns["obs"].any() and home.slots.steps == 0
    home.put(home.numbers[2], WRITING, NODE)
    home.take(home.block([2])[0], 1)
    assert home.slots.arrive(0, 0).tolist() == [home.numbers[2]] and not home.slots.is_doubled


@pytest.mark.parametrize(
    ("count", "numbers", "more", "message"),
    [
        (1, [4], 0, "a block has slot 4, where a node has 4"),
        (1, [-1], 0, "a block has slot -1, where a node has 4"),
        (1, [0], 1, "a block of 1 segments has .* bytes, where each has"),
        (2, [0], 0, "a block of 2 segments has"),
        (0, [0], 0, "a block of 0 segments has"),
        (1 << 30, [0], 0, "a block of 1073741824 segments has"),
    ],
)
def test_bytes_that_are_no_block_of_this_node_are_refused(count, numbers, more, message):
    home = Home()
    for slot in home.numbers:
        home.put(slot, WRITING, NODE)
    with pytest.raises(OSError, match=message) as caught:
        home.take(home.block(numbers)[0] + b"\0" * more, count)
    assert caught.value.errno == errno.EBADMSG and not home.columns["obs"].any()


def test_an_end_that_is_closed_in_the_midst_of_a_block_is_gone():
    home = Home()
    home.put(home.numbers[0], WRITING, NODE)
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    data = home.block([0])[0]
    home.slots.begin(1, len(data), True)
    theirs.sendall(data[:-1])
    theirs.close()
    assert home.slots.receive(ours.fileno()) == len(data) - 1
    with pytest.raises(ConnectionResetError):
        home.slots.receive(ours.fileno())
    ours.close()


@given(st.permutations(range(12)), st.integers(1, 12), st.integers(0, 99))
@settings(max_examples=30)
def test_a_block_is_sent_as_the_other_end_takes_it(order, count, seed):
    draw, there, home = np.random.default_rng(seed), Home(turns=3), Home(turns=6)
    for column in (*there.columns.values(), there.epoch, there.number, there.memory):
        column[...] = draw.integers(0, 2, column.shape)
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    slots = np.array(order[:count])
    sent = there.segments.send(theirs.fileno(), b"header", slots, 1.0)
    assert sent == len(b"header") + count * there.segments.nbytes and ours.recv(6) == b"header"
    for slot in home.numbers:
        home.put(slot, WRITING, NODE)
    home.slots.begin(count, sent - 6, True)
    assert home.slots.receive(ours.fileno()) == sent - 6
    arrived = home.slots.arrive(0, 0)
    assert arrived.tolist() == home.numbers[slots].tolist()
    for name, column in there.columns.items():
        assert (column.reshape(12, -1)[slots] == home.columns[name].reshape(24, -1)[arrived]).all(), name
    for theirs_of, ours_of in ((there.epoch, home.epoch), (there.number, home.number), (there.memory, home.memory)):
        assert (theirs_of[slots] == ours_of[arrived]).all()
    ours.close()
    theirs.close()


def test_a_block_waits_for_the_other_end_and_not_for_ever():
    home = Home()
    ours, theirs = socket.socketpair()
    for end in (ours, theirs):
        end.setblocking(False)
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_096)
    slots, header, taken = np.arange(8), b"h" * 100_000, []
    reader = threading.Thread(target=lambda: taken.append(_read(ours, 100_000 + 8 * home.segments.nbytes)))
    reader.start()
    assert home.segments.send(theirs.fileno(), header, slots, 5.0) == 100_000 + 8 * home.segments.nbytes
    reader.join()
    assert taken[0][:100_000] == header
    with pytest.raises(TimeoutError):
        home.segments.send(theirs.fileno(), header, slots, 0.05)  # nobody reads
    ours.close()
    with pytest.raises(OSError):
        home.segments.send(theirs.fileno(), header, slots, 5.0)
    theirs.close()


def _read(connection: socket.socket, count: int) -> bytes:
    connection.setblocking(True)
    data = b""
    while len(data) < count:
        data += connection.recv(count - len(data))
    return data


def test_slots_and_memory_that_do_not_agree_are_refused():
    home, columns = Home(), Home().columns

    def memory(num_slots=8, columns_of=None, length=LENGTH):
        return SegmentMemory(
            num_slots, columns_of or list(columns.values()), columns["valid"], columns["version"], home.epoch,
            home.number, home.memory, length,
        )  # fmt: skip

    with pytest.raises(ValueError, match="must have rows of each of 8 slots"):
        memory(columns_of=[np.zeros(7, np.uint8)])
    with pytest.raises(ValueError, match="segment_length must be no more than the rows of a slot"):
        memory(length=5)
    with pytest.raises(IndexError, match="slot 8 is outside the memory of 8 slots"):
        NodeSlots(home.table, memory(), np.array([0, 8]), 2, NODE)
    with pytest.raises(ValueError, match="slots must be as many for each lane"):
        NodeSlots(home.table, memory(), np.array([0, 1, 2]), 2, NODE)
    with pytest.raises(ValueError, match="the table and the memory must have the same slots"):
        NodeSlots(home.table, memory(num_slots=4), np.array([0, 1]), 2, NODE)
    with pytest.raises(IndexError, match="slot -1"):
        memory().send(0, b"", np.array([-1]), 1.0)
