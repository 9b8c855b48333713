"""Lanes at home that mirror those of a node: slots that are granted, and experience that arrives.

Where steps travel instead of segments, home admits them before they are taken, as it admits those of lanes at home: the
rate limiter counts granted steps. Steps that were granted to a lost node and not taken are granted to its successor
without being counted again.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from functools import cached_property
from statistics import median_low
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.engine.nodes.past import pool_of, receive_results
from penstock.engine.nodes.transport import steps_ahead
from penstock.experience.arena import Control, ExperienceArena
from penstock.experience.outbox import Outbox, RelayInbox, Rows, fields_of_call, steps_in
from penstock.experience.segments import busy_backlog
from penstock.ipc import SlotState
from penstock.ipc.stream import (
    BlockCounter,
    Frame,
    Kind,
    Stream,
    StreamError,
    array_views,
    nbytes_of,
    views_of,
)
from penstock.runs.status import NodeStatus

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.engine.nodes.link import Link
    from penstock.engine.nodes.transport import SegmentTransport

TIMES = 5  # last segments whose median time counts: one delayed segment does not change it
TABLE_COLUMNS = 3  # slot, epoch, number
NO_SLOTS = np.empty(0, np.int64)
QUIET_SECONDS = 1.0  # without steps of a dismissed node, after which all have arrived


class Occupancy:
    """Slots of an arena by state, bool ``[slots of a lane, lanes]``, read once for the grants to all nodes.

    Parameters
    ----------
    arena
        Arena of the policy at home.
    """

    def __init__(self, arena: ExperienceArena) -> None:
        self._arena = arena

    @cached_property
    def free(self) -> np.ndarray:
        """Free slots; read before the others, so that a segment that arrives meanwhile is in both of them."""
        return self._marked(self._arena.slots.in_state(SlotState.FREE))

    @cached_property
    def under_way(self) -> np.ndarray:
        """Granted slots, which are not yet full."""
        return self._marked(self._arena.slots.in_state(SlotState.WRITING))

    @cached_property
    def waiting(self) -> np.ndarray:
        """Slots whose segments the learner has not finished reading."""
        return self._marked(self._arena.waiting())

    @cached_property
    def num_waiting(self) -> int:
        """Number of waiting segments."""
        return int(np.count_nonzero(self.waiting))

    @cached_property
    def num_open(self) -> int:
        """Number of segments that are waiting or under way."""
        return int(np.count_nonzero(self.under_way | self.waiting))

    @cached_property
    def lanes_with_free(self) -> np.ndarray:
        """Lanes with a free slot, bool ``[lanes]``."""
        return np.asarray(self.free.any(axis=0))

    def grant(self, slots: np.ndarray) -> None:
        """Record that free slots were claimed, int64 ``[K]``."""
        places = np.divmod(slots, self._arena.shape.num_lanes)
        self.free[places], self.under_way[places] = False, True
        self.num_open += len(slots)

    def _marked(self, slots: np.ndarray) -> np.ndarray:
        shape = self._arena.shape
        marks = np.zeros(shape.num_slots, np.bool_)  # sets of numbers would be sorted, and the arena is large
        marks[slots] = True
        return marks.reshape(-1, shape.num_lanes)


class NodeLanes:
    """One policy's lanes at home that mirror those of a node. Their slots are owned by the number of the node.

    A granted slot is in state WRITING until the node has filled it: the slot table alone holds what is granted.

    Parameters
    ----------
    node, workers
        Number of the node, and the arena's rollout workers whose lanes are the node's.
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
        self, node: int, workers: range, arena: ExperienceArena, transport: SegmentTransport, takes_turns: bool
    ) -> None:
        shape = arena.shape
        self.arena = arena
        self.node = node
        lanes_of_worker = shape.num_lanes // shape.num_workers
        self.num_lanes = len(workers) * lanes_of_worker
        self.first_lane = workers.start * lanes_of_worker
        self.bell = arena.rollout_bells[0]
        self._on_arrival = transport.on_arrival(arena)
        self._past = pool_of(arena)
        games = 0 if self._past is None else len(self._past.playing) // shape.num_workers  # of a rollout worker
        self._games = range(workers.start * games, workers.stop * games)
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
        self._lag = self._largest_lag = 0.0
        self._is_dismissed, self._arrived_at = False, 0.0
        arena.give_up(node)  # of a receiver that has died

    # -- connections -----------------------------------------------------------------------------------------------

    def welcome(self, link: Link) -> bool:
        """Replace the connection; False if the one before is of the same host, or of a later one."""
        with self._lock:
            before = self._link
            if self._is_closed or (before is not None and before.incarnation >= link.incarnation):
                return False
            if before is not None:
                before.end()
                self._counts += Counter(before.counts())
            self._reclaim()
            self._link, self.is_waited_for, self._is_dismissed = link, False, False
            link.begin()
            return True

    def close(self) -> None:
        """End the connection; further ones are refused."""
        with self._lock:
            self._is_closed = True
            if self._link is not None:
                self._link.end()

    def dismiss(self) -> None:
        """Grant the node nothing more."""
        with self._lock:
            self._is_dismissed, self._arrived_at = True, time.monotonic()

    @property
    def has_delivered(self) -> bool:
        """Whether everything that was granted to a dismissed node has arrived."""
        return self._is_dismissed and self._is_quiet()

    @property
    def is_gone(self) -> bool:
        """Whether the node is disconnected, and the run does not wait for it.

        Raises
        ------
        Exception
            Raised while the node's frames were received, other than the end of the connection.
        """
        if self._link is not None and self._link.failure is not None:
            raise self._link.failure
        return not self.is_waited_for and not (self._link is not None and self._link.is_there)

    def fill_in(self) -> bool:
        """Free the open slots of a lost node, or deliver them empty where a batch needs them; False: none delivered."""
        with self._lock:
            if self._is_closed or not self.is_gone:
                return False
            if self._link is not None:
                self._link.end()
            self._reclaim()
            self._is_dismissed = False
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
        counts: dict[str, Any] = {} if link is None else link.counts()
        if self._counts:
            counts = self._counts + Counter(counts)
        return NodeStatus(
            lanes=self.num_lanes, is_there=link is not None and link.is_there, is_leaving=self._is_dismissed,
            has_left=self.has_delivered, steps=self._steps, policy_lag=self._lag,
            policy_lag_max=self._largest_lag, **counts,
        )  # fmt: skip

    # -- slots -----------------------------------------------------------------------------------------------------

    def grant_to(self, occupancy: Occupancy) -> tuple[Link, np.ndarray] | None:
        """Claim slots for the node; return its link with their numbers on the node, None if it takes none yet."""
        link = self._link
        if link is None or not link.is_clear:
            return None
        with self._lock:  # the slots of a connection that ends are freed by the next, or by `fill_in`
            if link is not self._link or not link.is_clear:
                return None
            return link, NO_SLOTS if self._is_dismissed else self.grant(occupancy)

    def grant(self, occupancy: Occupancy) -> np.ndarray:
        """Claim slots for the node's lanes, at most one per lane; return their numbers on the node, int64 ``[K]``.

        A granted slot is filled even if the learner is busy by then. So while waiting segments and those that lanes
        are writing reach `busy_backlog`, a lane is granted its next slot only when it has filled the one before; while
        the waiting ones alone reach it, only when none of its own waits.
        """
        own = slice(self.first_lane, self.first_lane + self.num_lanes)
        if not occupancy.lanes_with_free[own].any():
            return NO_SLOTS
        is_free, under_way = occupancy.free[:, own].copy(), occupancy.under_way[:, own]
        backlog = busy_backlog(self.arena, self._segment_time)
        if occupancy.num_open >= backlog:
            held_up = under_way if occupancy.num_waiting < backlog else under_way | occupancy.waiting[:, own]
            is_free &= ~held_up.any(axis=0)
        lanes = np.flatnonzero(is_free.any(axis=0))
        slots = self._slots.reshape(is_free.shape)[is_free.argmax(axis=0)[lanes], lanes]
        claimed = self._claim_free(slots)
        if not len(claimed):
            return NO_SLOTS
        turns, lanes = np.divmod(claimed, self.arena.shape.num_lanes)
        lanes -= self.first_lane
        idle = ~np.asarray(under_way.any(axis=0))[lanes]
        self._granted_at[lanes] = np.where(idle, time.monotonic_ns(), -1)
        occupancy.grant(claimed)
        numbers: np.ndarray = turns * self.num_lanes + lanes
        return numbers

    def receive_any(self, stream: Stream, frame: Frame, blocks: BlockCounter) -> Iterator[None]:
        """Receive results of games, or what `receive` takes; yield while bytes are missing."""
        if frame.kind is not Kind.RESULTS:
            return self.receive(stream, frame, blocks)
        if self._past is None:
            raise StreamError("results of games came, where none play against past versions")
        return receive_results(self._past, self._games, stream, frame)

    def receive(self, stream: Stream, frame: Frame, blocks: BlockCounter) -> Iterator[None]:
        """Receive a block of segments into its slots; yield while bytes are missing.

        The bytes of a block that is refused are dropped.
        """
        arena, count = self.arena, frame.count
        if not blocks.accepts(frame):
            yield from stream.arriving([memoryview(bytearray(frame.nbytes))])
            return
        table = np.empty((count, TABLE_COLUMNS), np.int64)
        memory = np.empty((count, arena.shape.state_size), np.float32)
        heads = array_views(table, memory)
        yield from stream.arriving(heads)
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
            yield from stream.arriving([memoryview(bytearray(nbytes_of(views)))])
            return
        yield from stream.arriving(views)
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
            lags = self.arena.weights.version - self.arena.columns["version"][rows][valid]
            self._lag, self._largest_lag = float(lags.mean()), float(lags.max())

    def _claim_free(self, slots: np.ndarray) -> np.ndarray:
        claimed: np.ndarray = slots[self.arena.slots.claim(slots, SlotState.FREE, SlotState.WRITING, self.node)]
        return claimed

    def _is_quiet(self) -> bool:
        return not len(self.arena.slots.owned_by(self.node, SlotState.WRITING))

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

    def __init__(self, node: int, workers: range, arena: ExperienceArena, transport: Any, takes_turns: bool) -> None:
        super().__init__(node, workers, arena, transport, takes_turns)
        self._replay = transport.path.replay
        self._transport = transport
        self._fields = fields_of_call(transport.fields(arena.shape), arena.shape.group_size)
        self._most = steps_ahead(self.num_lanes)
        self._counting = threading.Lock()  # one thread grants, another receives counts of taken steps
        self._spare = 0  # admitted steps that are granted to no node
        self._granted = self._taken = 0  # on the present connection
        self._inbox = self._make_inbox()

    def grant(self, occupancy: Occupancy) -> np.ndarray:
        """Admit K steps, as many as the rate limiter has room for and the node may have open; int64 ``[K]``."""
        with self._counting:
            room = self._most - (self._granted - self._taken)
            if not self._replay.is_wanted(int(self.arena.control[Control.GOAL])):
                room = 0
            count = self._admit(max(0, room))
            self._granted += count
        return np.zeros(count, np.int64)

    def receive(self, stream: Stream, frame: Frame, blocks: BlockCounter) -> Iterator[None]:
        """Receive steps and write them, or the number of steps that were taken; yield while bytes are missing."""
        if frame.kind is Kind.TAKEN:
            with self._counting:
                taken, self._taken = frame.count - self._taken, frame.count
                self._spend(taken)
            if self._transport.is_sharded:  # nothing else arrives
                self._measure_steps(taken, frame)
                self.arena.learner_bell.ring()
            self.bell.ring()
            return
        calls: Rows = {name: np.empty((frame.count, *field.shape), field.dtype) for name, field in self._fields.items()}
        views = array_views(*calls.values())
        if nbytes_of(views) != frame.nbytes:
            raise StreamError(f"{frame.count} steps came with {frame.nbytes} bytes, where {nbytes_of(views)} are right")
        yield from stream.arriving(views)
        if blocks.accepts(frame):
            self._arrived_at = time.monotonic()
            self._inbox.add(calls)
            self._measure_steps(steps_in(calls), frame)
            self.arena.learner_bell.ring()

    def _measure_steps(self, count: int, frame: Frame) -> None:
        self._steps += count
        self._lag = self._largest_lag = float(self.arena.weights.version - frame.version)

    def _is_quiet(self) -> bool:
        return time.monotonic() - self._arrived_at > QUIET_SECONDS

    def _reclaim(self) -> None:
        with self._counting:
            self._withdraw(max(0, self._granted - self._taken))
            self._granted = self._taken = 0
            self._inbox = self._make_inbox()  # the node's unfinished episodes are dropped

    def _make_inbox(self) -> Any:
        return self._transport.inbox(self.arena)

    def _admit(self, most: int) -> int:
        """Admit up to `most` steps; return their number."""
        count = min(self._spare, most)
        self._spare -= count
        chunk = min(self.arena.shape.group_size, self._replay.limiter.largest_insert)
        while most - count >= chunk and self._replay.admit(chunk, self.arena):
            count += chunk
        return count

    def _spend(self, count: int) -> None:
        """Record that the node has taken further granted steps."""

    def _withdraw(self, count: int) -> None:
        """Take back steps that a lost node was granted and has not taken."""
        self._spare += count


class StepPool:
    """Steps that a gateway was granted and that no node has taken: entries in the ring of its arena.

    Parameters
    ----------
    arena
        The policy's arena at the gateway.
    """

    def __init__(self, arena: ExperienceArena) -> None:
        self._arena = arena
        self._lock = threading.Lock()
        self._lent = 0  # to nodes

    def lend(self, most: int) -> int:
        """Lend a node up to `most` steps; return their number."""
        with self._lock:
            count = max(0, min(most, len(self._arena.full) - self._lent))
            self._lent += count
            return count

    def spend(self, count: int) -> None:
        """Remove lent steps that a node has taken; the sender reports them."""
        with self._lock:
            self._lent -= count
            self._arena.full.pop_many(count)
        self._arena.learner_bell.ring()

    def take_back(self, count: int) -> None:
        """Record that lent steps are not taken by the node."""
        with self._lock:
            self._lent -= count


class RelayedStepLanes(StepNodeLanes):
    """Lanes of a node whose steps a gateway sends on, or keeps; the pool is shared by all nodes of the gateway."""

    def __init__(self, pool: StepPool, *arguments: Any) -> None:
        self._pool = pool
        super().__init__(*arguments)

    def _make_inbox(self) -> Any:
        buffer = self._replay.buffer  # an outbox, or the gateway's shard
        return RelayInbox(buffer) if isinstance(buffer, Outbox) else super()._make_inbox()

    def _admit(self, most: int) -> int:
        return self._pool.lend(most)

    def _spend(self, count: int) -> None:
        self._pool.spend(count)

    def _withdraw(self, count: int) -> None:
        self._pool.take_back(count)
