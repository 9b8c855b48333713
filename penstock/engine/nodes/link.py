"""Home's end of a node's connection: lanes at home that mirror the node's, and the threads that fill their slots.

Where steps travel instead of segments, home admits them before they are taken, as it admits those of lanes at home: the
rate limiter counts granted steps. Steps that were granted to a lost node and not taken are granted to its successor
without being counted again.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from statistics import median_low
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.engine.nodes.sender import CONTROLS
from penstock.engine.nodes.stream import (
    ALIVE_INTERVAL,
    BlockCounter,
    Frame,
    Kind,
    Stream,
    StreamError,
    array_views,
    nbytes_of,
    views_of,
)
from penstock.engine.nodes.transport import steps_ahead
from penstock.experience.arena import Control, ExperienceArena
from penstock.experience.outbox import Rows, fields_of_call, steps_in
from penstock.experience.segments import busy_backlog
from penstock.ipc import SlotState
from penstock.runs.status import NodeStatus

if TYPE_CHECKING:
    from penstock.engine.nodes.transport import SegmentTransport

SLEEP = 0.1  # seconds: the longest sleep on a bell
TIMES = 5  # last segments whose median time counts: one delayed segment does not change it
TABLE_COLUMNS = 3  # slot, epoch, number


class NodeLanes:
    """One policy's lanes at home that mirror those of a node. Their slots are owned by the number of the node.

    A granted slot is in state WRITING until the node has filled it: the slot table alone holds what is granted.

    Parameters
    ----------
    node, num_nodes
        Number of the node, and nodes of the run.
    arena
        The policy's arena.
    transport
        Transport of its experience.
    takes_turns
        Whether each batch is one segment of every lane: then lanes of a lost node deliver empty ones.

    Attributes
    ----------
    is_waited_for
        Whether the run waits for the node's first connection.
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
        # Slots of the home arena, in the order of the node's numbers.
        self._slots = turns * shape.num_lanes + self.first_lane + lanes
        self._granted_at = np.full(self.num_lanes, -1, np.int64)  # -1: to a lane that did not wait for it
        self._times: deque[int] = deque(maxlen=TIMES)  # of lanes that waited for their slots
        self._segment_time = 0  # nanoseconds from the grant of a slot until it arrives full
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
        """Replace the connection; False if the one before is of the same host, or of a later one."""
        with self._lock:
            before = self._link
            if self._is_closed or (before is not None and before.incarnation >= link.incarnation):
                return False
            if before is not None:
                before.end()
                self._counts += before.counts()
            self._reclaim()
            self._link, self.is_waited_for = link, False
            link.begin()
            return True

    def close(self) -> None:
        """End the connection; further ones are refused."""
        with self._lock:
            self._is_closed = True
            if self._link is not None:
                self._link.end()

    @property
    def is_gone(self) -> bool:
        """Whether the node is disconnected, and the run does not wait for it."""
        return not self.is_waited_for and not (self._link is not None and self._link.is_there)

    def fill_in(self) -> bool:
        """Free the open slots of a lost node, or deliver them empty where a batch needs them; False: none delivered.

        Raises
        ------
        Exception
            Raised by a thread of the connection, other than the end of the connection.
        """
        if self.failure is not None:
            raise self.failure
        with self._lock:
            if self._is_closed or not self.is_gone:
                return False
            if self._link is not None:
                self._link.end()
            self._reclaim()
            if not self._takes_turns:
                return False
            slots = self._claim_free(self._slots)
            if len(slots):
                self.arena.void(slots)
                self._deliver(slots)
            return bool(len(slots))

    def status(self) -> NodeStatus:
        """Return the status of the node, with its counts so far."""
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
        # In this order a segment that arrives meanwhile is in both.
        under_way, waiting = arena.slots.in_state(SlotState.WRITING), arena.waiting()
        backlog = busy_backlog(arena, self._segment_time)
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
        turns, lanes = np.divmod(claimed, arena.shape.num_lanes)
        numbers: np.ndarray = turns * self.num_lanes + lanes - self.first_lane
        return numbers

    def receive(self, stream: Stream, frame: Frame, blocks: BlockCounter) -> None:
        """Receive a block of segments into its slots; the bytes of one that is refused are dropped."""
        arena, count = self.arena, frame.count
        if not blocks.accepts(frame):
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
            blocks.doubled += 1
            stream.receive_bytes(nbytes_of(views))
            return
        stream.receive_into(views)
        arena.slot_epoch[slots], arena.slot_number[slots] = table[:, 1], table[:, 2]
        arena.slot_memory[slots] = memory
        blocks.stale += int((table[:, 1] != arena.control[Control.RUN_EPOCH]).any())
        self._measure(slots)
        self._on_arrival(slots)
        self._deliver(slots)
        self.bell.ring()  # its lanes may be granted their next slots

    def _measure(self, slots: np.ndarray) -> None:
        """Measure the time, the steps and the policy lag of segments that arrived."""
        shape = self.arena.shape
        # Lanes that step together begin when the last of them has its slot.
        granted_at = int(self._granted_at[self.arena.lane_of(slots) - self.first_lane].max())
        if granted_at >= 0:
            self._times.append(time.monotonic_ns() - granted_at)
            self._segment_time = median_low(self._times)
        rows = (slots[:, None] * shape.rows_per_slot + np.arange(shape.segment_length)).reshape(-1)
        valid = self.arena.columns["valid"][rows]
        steps = int(valid.sum())
        if steps:
            self._steps += steps
            self._lag = self.arena.weights.version - float(self.arena.columns["version"][rows][valid].mean())

    def _marked(self, *numbers: np.ndarray) -> np.ndarray:
        """Mark slots among all of the arena, bool: sets of numbers would be sorted, and the arena is large."""
        marks = np.zeros(self.arena.shape.num_slots, np.bool_)
        for each in numbers:
            marks[each] = True
        return marks

    def _own(self, marks: np.ndarray) -> np.ndarray:
        """Return the marks of the node's own slots, ``[slots of a lane, lanes]``."""
        return marks[self._slots].reshape(-1, self.num_lanes)

    def _claim_free(self, slots: np.ndarray) -> np.ndarray:
        claimed: np.ndarray = slots[self.arena.slots.claim(slots, SlotState.FREE, SlotState.WRITING, self.node)]
        return claimed

    def _reclaim(self) -> None:
        """Free the slots that the node has not filled."""
        self.arena.give_up(self.node)

    def _deliver(self, slots: np.ndarray) -> None:
        arena = self.arena
        arena.slots.claim(slots, SlotState.WRITING, SlotState.FULL, self.node)
        arena.full.push_many(slots)
        arena.learner_bell.ring()


class StepNodeLanes(NodeLanes):
    """Lanes of a node whose steps go into the replay buffer at home; parameters are those of `NodeLanes`."""

    def __init__(self, node: int, num_nodes: int, arena: ExperienceArena, transport: Any, takes_turns: bool) -> None:
        super().__init__(node, num_nodes, arena, transport, takes_turns)
        shape = arena.shape
        self._replay = transport.path.replay
        self._transport = transport
        self._fields = fields_of_call(transport.fields(shape), shape.group_size)
        self._chunk = min(shape.group_size, self._replay.limiter.largest_insert)
        self._most = steps_ahead(shape) // num_nodes
        self._counting = threading.Lock()  # one thread grants, another receives counts of taken steps
        self._spare = 0  # admitted steps that are granted to no node
        self._granted = self._taken = 0  # on the present connection
        self._inbox = transport.inbox(arena)

    def grant(self) -> np.ndarray:
        """Admit K steps, as many as the rate limiter has room for and the node may have open; int64 ``[K]``."""
        replay = self._replay
        with self._counting:
            room = self._most - (self._granted - self._taken)
            if not replay.is_wanted(int(self.arena.control[Control.GOAL])):
                room = 0
            count = min(self._spare, max(0, room))
            self._spare -= count
            while room - count >= self._chunk and replay.admit(self._chunk, self.arena):
                count += self._chunk
            self._granted += count
        return np.zeros(count, np.int64)

    def receive(self, stream: Stream, frame: Frame, blocks: BlockCounter) -> None:
        """Receive steps and write them, or receive the number of steps that were taken."""
        if frame.kind is Kind.TAKEN:
            with self._counting:
                self._taken = frame.count
            self.bell.ring()
            return
        calls: Rows = {name: np.empty((frame.count, *field.shape), field.dtype) for name, field in self._fields.items()}
        views = array_views(*calls.values())
        if nbytes_of(views) != frame.nbytes:
            raise StreamError(f"{frame.count} steps came with {frame.nbytes} bytes, where {nbytes_of(views)} are right")
        stream.receive_into(views)
        if blocks.accepts(frame):
            self._inbox.add(calls)
            self._steps += steps_in(calls)
            self._lag = float(self.arena.weights.version - frame.version)
            self.arena.learner_bell.ring()

    def _reclaim(self) -> None:
        with self._counting:
            self._spare += max(0, self._granted - self._taken)
            self._granted = self._taken = 0
            self._inbox = self._transport.inbox(self.arena)  # the node's unfinished episodes are dropped


class Link:
    """One connection of a node for one policy, with a thread for each direction.

    Parameters
    ----------
    stream
        The connection.
    lanes
        Lanes at home of the node and policy.
    run, incarnation
        As in the node's hello.
    """

    def __init__(self, stream: Stream, lanes: NodeLanes, run: int, incarnation: int) -> None:
        self.incarnation = incarnation
        self._stream = stream
        self._lanes = lanes
        self._blocks = BlockCounter(run, incarnation)
        self._is_over = False
        self._weights_nbytes = 0
        self._threads = [
            threading.Thread(target=self._until_over, args=(work,), name=name, daemon=True)
            for name, work in (("home-receiving", self._receive), ("home-sending", self._send))
        ]

    @property
    def is_there(self) -> bool:
        """Whether the node is connected."""
        return not self._is_over

    def begin(self) -> None:
        """Start both threads."""
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        """End the connection, and wait for its threads, which write into slots."""
        self._is_over = True
        self._stream.close()
        self._lanes.bell.ring()
        for thread in self._threads:
            if thread.ident is not None and thread is not threading.current_thread():
                thread.join()

    def counts(self) -> Counter[str]:
        """Traffic counts, by the names of `NodeStatus`."""
        blocks = self._blocks
        return Counter(
            nbytes=self._stream.received, weights_nbytes=self._weights_nbytes,
            stale=blocks.stale, doubled=blocks.doubled, missing=blocks.missing,
        )  # fmt: skip

    def _until_over(self, work: Callable[[], None]) -> None:
        """Main loop of a thread: the end of one ends the connection and the other."""
        try:
            work()
        except OSError:
            pass  # the node is gone
        except Exception as error:
            if not self._is_over:
                self._lanes.failure = error
        self._is_over = True
        self._stream.close()
        self._lanes.bell.ring()

    def _receive(self) -> None:
        while not self._is_over:
            frame = self._stream.receive()
            if frame.kind in (Kind.BLOCK, Kind.TAKEN):
                self._lanes.receive(self._stream, frame, self._blocks)
            elif frame.kind is not Kind.ALIVE:
                raise StreamError(f"a node has sent a frame {frame.kind.name}, which it never does")

    def _send(self) -> None:
        """Send new weights, control words and slots; weights before slots, which are filled by acting with them."""
        lanes, arena = self._lanes, self._lanes.arena
        weights, version = np.empty(arena.weights.size, np.uint8), -1
        control = np.full(len(CONTROLS), -1, np.int64)
        next_sign = 0.0
        while not self._is_over:
            seen = lanes.bell.value
            granted = lanes.grant()  # before weights are read: a learner publishes before it releases slots
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
                lanes.bell.wait(seen, SLEEP)
                continue
            next_sign = time.monotonic() + ALIVE_INTERVAL

    def _send_numbers(self, kind: Kind, version: int, numbers: np.ndarray) -> None:
        frame = self._frame(kind, version, count=len(numbers), nbytes=numbers.nbytes)
        self._stream.send(frame, array_views(numbers))

    def _frame(self, kind: Kind, version: int, **facts: int) -> Frame:
        epoch = int(self._lanes.arena.control[Control.RUN_EPOCH])
        return Frame(kind, self._blocks.run, self.incarnation, epoch, version, **facts)
