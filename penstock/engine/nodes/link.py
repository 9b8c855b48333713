"""A node's seat at home: the lanes that stand for the node, and the connection by which it fills their slots."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from statistics import median_low
from typing import TYPE_CHECKING

import numpy as np

from penstock.engine.nodes.blocks import Frame, Kind, Sequence, StreamError, array_views, nbytes_of, views_of
from penstock.engine.nodes.sender import CONTROLS
from penstock.engine.nodes.stream import ALIVE_INTERVAL, Stream
from penstock.experience.arena import Control, ExperienceArena
from penstock.experience.segments import busy_backlog
from penstock.ipc import SlotState
from penstock.runs.status import NodeStatus

if TYPE_CHECKING:
    from penstock.engine.nodes.transport import SegmentTransport

SLEEP = 0.1  # seconds: the longest sleep on a bell
TIMES = 5  # of the last segments, of which the median is heeded: what holds up one of them is not their time
TABLE_COLUMNS = 3  # slot, epoch, number


class NodeLanes:
    """One policy's lanes at home that stand for a node. Its slots are owned by the number of the node.

    A slot that is granted is in state WRITING until the node has filled it: the slot table alone says what is granted.

    Parameters
    ----------
    node, num_nodes
        Number of the node, and nodes of the run.
    arena
        The policy's arena.
    transport
        Transport of its experience.
    takes_turns
        Whether each batch is one segment of every lane: then lanes of a node that is gone give empty ones.

    Attributes
    ----------
    is_waited_for
        Whether the node has yet to come for the first time, and the run waits for it.
    """

    def __init__(
        self, node: int, num_nodes: int, arena: ExperienceArena, transport: SegmentTransport, takes_turns: bool
    ) -> None:
        shape = arena.shape
        self.arena = arena
        self.node = node
        self.num_lanes = shape.num_lanes // num_nodes
        self.first_lane = node * self.num_lanes
        self.bell = arena.rollout_bells[node * shape.num_workers // num_nodes]
        self._on_arrival = transport.on_arrival(arena)
        self._takes_turns = takes_turns
        turns, lanes = np.divmod(np.arange(self.num_lanes * shape.slots_per_lane), self.num_lanes)
        # Of the home arena, in the order in which the node numbers them.
        self._slots = turns * shape.num_lanes + self.first_lane + lanes
        self._granted_at = np.full(self.num_lanes, -1, np.int64)  # -1: to a lane that did not wait for it
        self._times: deque[int] = deque(maxlen=TIMES)  # of lanes that waited for their slots
        self._took = 0  # nanoseconds from the grant of a slot until it comes full
        self._lock = threading.Lock()
        self._link: Link | None = None
        self.is_waited_for, self._is_closed = True, False
        self._steps = 0
        self._counts: Counter[str] = Counter()  # of earlier connections
        self._lag = 0.0
        self.failure: Exception | None = None
        arena.reclaim(node)  # of a receiver that has died

    # -- connections -----------------------------------------------------------------------------------------------

    def welcome(self, link: Link) -> bool:
        """Take a connection in place of the one before; False if that is of the same host, or a later one."""
        with self._lock:
            before = self._link
            if self._is_closed or (before is not None and before.incarnation >= link.incarnation):
                return False
            if before is not None:
                before.end()
                self._counts += before.counts()
            self._let_go()
            self._link, self.is_waited_for = link, False
            link.begin()
            return True

    def close(self) -> None:
        """End the connection; no other is taken."""
        with self._lock:
            self._is_closed = True
            if self._link is not None:
                self._link.end()

    @property
    def is_gone(self) -> bool:
        """Whether the node is not there, and the run goes on without it."""
        return not self.is_waited_for and not (self._link is not None and self._link.is_there)

    def fill_in(self) -> bool:
        """See to a node that is gone: its open slots are given back, or filled with nothing where a batch needs them.

        Raises
        ------
        Exception
            What a connection's thread has raised, but for the end of the connection.
        """
        if self.failure is not None:
            raise self.failure
        with self._lock:
            if self._is_closed or not self.is_gone:
                return False
            if self._link is not None:
                self._link.end()
            self._let_go()
            if not self._takes_turns:
                return False
            slots = self._claim_free(self._slots)
            if len(slots):
                self.arena.void(slots)
                self._deliver(slots)
            return bool(len(slots))

    def status(self) -> NodeStatus:
        """Counts of the node so far."""
        link = self._link
        counts = self._counts + (link.counts() if link is not None else Counter())
        return NodeStatus(
            lanes=self.num_lanes,
            is_there=link is not None and link.is_there,
            steps=self._steps,
            policy_lag=self._lag,
            nbytes=counts["nbytes"],
            weights_nbytes=counts["weights_nbytes"],
            stale=counts["stale"],
            doubled=counts["doubled"],
            missing=counts["missing"],
        )

    # -- slots -----------------------------------------------------------------------------------------------------

    def grant(self) -> np.ndarray:
        """Claim slots for the node's lanes, at most one per lane; return their numbers on the node, int64 ``[K]``.

        A granted slot is filled even if the learner is busy by then. So while waiting segments and those that lanes
        are writing reach `busy_backlog`, a lane is granted its next slot only when it has filled the one before; while
        the waiting ones alone reach it, only when none of its own waits.
        """
        arena = self.arena
        is_free = self._own(self._marked(arena.slots.in_state(SlotState.FREE)))
        if not is_free.any():
            return np.empty(0, np.int64)
        # In this order a segment that comes full meanwhile is in both.
        under_way, waiting = arena.slots.in_state(SlotState.WRITING), arena.waiting()
        backlog = busy_backlog(arena, self._took)
        either = self._marked(under_way, waiting)
        if np.count_nonzero(either) >= backlog:
            held_up = self._marked(under_way) if len(waiting) < backlog else either
            is_free &= ~self._own(held_up).any(axis=0)
        lanes = np.flatnonzero(is_free.any(axis=0))
        slots = self._slots.reshape(is_free.shape)[is_free.argmax(axis=0)[lanes], lanes]
        claimed = self._claim_free(slots)
        if not len(claimed):
            return claimed
        lanes = arena.lane_of(claimed) - self.first_lane
        open_before = np.setdiff1d(arena.slots.owned_by(self.node, SlotState.WRITING), claimed)
        idle = ~np.isin(lanes, arena.lane_of(open_before) - self.first_lane)
        self._granted_at[lanes] = np.where(idle, time.monotonic_ns(), -1)
        return self._to_node(claimed)

    def take(self, stream: Stream, frame: Frame, sequence: Sequence) -> None:
        """Receive a block: into its slots, or if it is not to be taken into nothing."""
        arena, count = self.arena, frame.count
        if not sequence.takes(frame):
            stream.receive_bytes(frame.nbytes)
            return
        table = np.empty((count, TABLE_COLUMNS), np.int64)
        memory = np.empty((count, arena.shape.state_size), np.float32)
        heads = array_views(table, memory)
        stream.receive_into(heads)
        if not count or table[:, 0].min() < 0 or table[:, 0].max() >= len(self._slots):
            raise StreamError(f"a block has slots {table[:, 0].tolist()}, where a node has {len(self._slots)}")
        slots = self._slots[table[:, 0]]
        is_granted = arena.slots.claim(slots, SlotState.WRITING, SlotState.WRITING, self.node, from_owner=self.node)
        views = views_of(arena.columns.values(), arena.shape.num_slots, slots)
        expected = nbytes_of(heads) + nbytes_of(views)
        if frame.nbytes != expected:
            raise StreamError(f"a block of {count} segments has {frame.nbytes} bytes, where {expected} are right")
        if not is_granted.all():
            sequence.doubled += 1
            stream.receive_bytes(nbytes_of(views))
            return
        stream.receive_into(views)
        arena.slot_epoch[slots], arena.slot_number[slots] = table[:, 1], table[:, 2]
        arena.slot_memory[slots] = memory
        sequence.stale += int((table[:, 1] != arena.control[Control.RUN_EPOCH]).any())
        self._measure(slots)
        self._on_arrival(slots)
        self._deliver(slots)
        self.bell.ring()  # its lanes may be granted their next slots

    def _measure(self, slots: np.ndarray) -> None:
        shape = self.arena.shape
        # Lanes that step together begin when the last of them has its slot.
        granted_at = int(self._granted_at[self.arena.lane_of(slots) - self.first_lane].max())
        if granted_at >= 0:
            self._times.append(time.monotonic_ns() - granted_at)
            self._took = median_low(self._times)
        rows = (slots[:, None] * shape.rows_per_slot + np.arange(shape.segment_length)).reshape(-1)
        valid = self.arena.columns["valid"][rows]
        steps = int(valid.sum())
        if steps:
            self._steps += steps
            self._lag = self.arena.weights.version - float(self.arena.columns["version"][rows][valid].mean())

    def _marked(self, *numbers: np.ndarray) -> np.ndarray:
        """Mark slots among all of the arena, bool: the arena is large, and sets of numbers would be sorted."""
        marks = np.zeros(self.arena.shape.num_slots, np.bool_)
        for each in numbers:
            marks[each] = True
        return marks

    def _own(self, marks: np.ndarray) -> np.ndarray:
        """The marks of the node's own slots, ``[slots of a lane, lanes]``."""
        return marks[self._slots].reshape(-1, self.num_lanes)

    def _claim_free(self, slots: np.ndarray) -> np.ndarray:
        claimed: np.ndarray = slots[self.arena.slots.claim(slots, SlotState.FREE, SlotState.WRITING, self.node)]
        return claimed

    def _to_node(self, slots: np.ndarray) -> np.ndarray:
        turns, lanes = np.divmod(slots, self.arena.shape.num_lanes)
        numbers: np.ndarray = turns * self.num_lanes + lanes - self.first_lane
        return numbers

    def _let_go(self) -> None:
        self.arena.give_up(self.node)

    def _deliver(self, slots: np.ndarray) -> None:
        arena = self.arena
        arena.slots.claim(slots, SlotState.WRITING, SlotState.FULL, self.node)
        arena.full.push_many(slots)
        arena.learner_bell.ring()


class Link:
    """One connection of a node for one policy, with a thread for each direction.

    Parameters
    ----------
    stream
        The connection.
    seat
        Whose it is.
    run, incarnation
        As the node has said.
    """

    def __init__(self, stream: Stream, seat: NodeLanes, run: int, incarnation: int) -> None:
        self.incarnation = incarnation
        self._stream = stream
        self._seat = seat
        self._sequence = Sequence(run, incarnation)
        self._is_over = False
        self._weights_nbytes = 0
        self._threads = [
            threading.Thread(target=self._until_over, args=(work,), name=name, daemon=True)
            for name, work in (("taking", self._take), ("telling", self._tell))
        ]

    @property
    def is_there(self) -> bool:
        """Whether the node is connected."""
        return not self._is_over

    def begin(self) -> None:
        """Let the node know of weights and slots, and take what it sends."""
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        """End the connection, and wait until its slots are touched no more."""
        self._is_over = True
        self._stream.close()
        self._seat.bell.ring()
        for thread in self._threads:
            if thread.ident is not None and thread is not threading.current_thread():
                thread.join()

    def counts(self) -> Counter[str]:
        """Traffic counts, by the names of `NodeStatus`."""
        sequence = self._sequence
        return Counter(
            nbytes=self._stream.received, weights_nbytes=self._weights_nbytes,
            stale=sequence.stale, doubled=sequence.doubled, missing=sequence.missing,
        )  # fmt: skip

    def _until_over(self, work: object) -> None:
        try:
            work()  # type: ignore[operator]
        except OSError:
            pass  # the node is gone
        except Exception as error:
            if not self._is_over:
                self._seat.failure = error
        self._is_over = True
        self._stream.close()  # the other thread ends, too
        self._seat.bell.ring()

    def _take(self) -> None:
        while not self._is_over:
            frame = self._stream.receive()
            if frame.kind in (Kind.BLOCK, Kind.TAKEN):
                self._seat.take(self._stream, frame, self._sequence)
            elif frame.kind is not Kind.ALIVE:
                raise StreamError(f"a node has sent a frame {frame.kind.name}, which it never does")

    def _tell(self) -> None:
        """Say what is new, the newest weights before slots: what is written into these is acted with those."""
        seat, arena = self._seat, self._seat.arena
        weights, version = np.empty(arena.weights.size, np.uint8), -1
        control = np.full(len(CONTROLS), -1, np.int64)
        next_sign = 0.0
        while not self._is_over:
            seen = seat.bell.value
            granted = seat.grant()  # before the weights are looked at: whoever gives slots back has published
            if arena.weights.version != version:
                version = arena.weights.read_into(weights)
                self._stream.send(self._frame(Kind.WEIGHTS, version, nbytes=weights.nbytes), array_views(weights))
                self._weights_nbytes += weights.nbytes + Frame.NBYTES
            words = arena.control[list(CONTROLS)]
            if (words != control).any():
                control = words
                self._send_numbers(Kind.CONTROL, version, control)
            if len(granted):
                self._send_numbers(Kind.GRANT, version, granted)
            elif time.monotonic() >= next_sign:
                self._stream.send(self._frame(Kind.ALIVE, version))
            else:
                seat.bell.wait(seen, SLEEP)
                continue
            next_sign = time.monotonic() + ALIVE_INTERVAL

    def _send_numbers(self, kind: Kind, version: int, numbers: np.ndarray) -> None:
        frame = self._frame(kind, version, count=len(numbers), nbytes=numbers.nbytes)
        self._stream.send(frame, array_views(numbers))

    def _frame(self, kind: Kind, version: int, **facts: int) -> Frame:
        epoch = int(self._seat.arena.control[Control.RUN_EPOCH])
        return Frame(kind, self._sequence.run, self.incarnation, epoch, version, **facts)
