"""Lanes at home that mirror those of a node: slots that are granted, and experience that arrives.

Where steps are sent instead of segments, home admits them before they are taken, like those of lanes at home: the rate
limiter counts granted steps. Steps that were granted to a lost node and not taken are granted to its successor without
being counted again.
"""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.engine.nodes.past import pool_of, receive_results
from penstock.engine.nodes.transport import steps_ahead
from penstock.experience.arena import Control, ExperienceArena
from penstock.experience.outbox import Outbox, RelayInbox, Rows, fields_of_call, steps_in
from penstock.experience.segments import busy_backlog
from penstock.ipc import NodeSlots, Occupancy, SlotState
from penstock.ipc.stream import BlockCounter, Frame, Kind, Stream, StreamError, array_views
from penstock.runs.status import NodeStatus

if TYPE_CHECKING:
    from collections.abc import Generator

    from penstock.engine.nodes.link import Link
    from penstock.engine.nodes.poller import Rung
    from penstock.engine.nodes.transport import SegmentTransport

NO_SLOTS = np.empty(0, np.int64)
QUIET_SECONDS = 1.0  # without steps of a dismissed node, after which it counts as having sent all


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
        self._numbers = turns * shape.num_lanes + self.first_lane + lanes
        self._slots = NodeSlots(arena.slots, arena.segment_memory(), self._numbers, self.num_lanes, node)
        self._lock = threading.Lock()
        self._link: Link | None = None
        self.is_waited_for, self._is_closed = True, False
        self._counts: Counter[str] = Counter()  # of earlier connections
        self._is_dismissed, self._arrived_at = False, 0.0
        arena.give_up(node)  # slots that a dead receiver has granted

    # -- connections -----------------------------------------------------------------------------------------------

    def welcome(self, link: Link) -> bool:
        """Replace the connection; False if the present one is from the same host, or from a later one."""
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
    def is_gone(self) -> bool:
        """Whether the node is disconnected, and the run does not wait for it.

        Raises
        ------
        Exception
            Raised while the node's frames were received, other than the end of the connection.
        """
        if self._link is not None and self._link.failure is not None:
            raise self._link.failure
        return not self.is_waited_for and not (self._link is not None and self._link.is_connected)

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
            numbers = self._numbers
            slots = numbers[self.arena.slots.claim(numbers, SlotState.FREE, SlotState.WRITING, self.node)]
            if len(slots):
                self.arena.void(slots)
                self.arena.deliver(slots, self.node)
                self.arena.learner_bell.ring()
            return bool(len(slots))

    def status(self) -> NodeStatus:
        """Return the status of the node, with its counts so far."""
        link = self._link
        counts: dict[str, Any] = self._counts + Counter({} if link is None else link.counts())
        return NodeStatus(
            lanes=self.num_lanes, is_connected=link is not None and link.is_connected, is_leaving=self._is_dismissed,
            has_left=self._is_dismissed and self._is_quiet(), **self.seen(), **counts,
        )  # fmt: skip

    def seen(self) -> dict[str, Any]:
        """Return steps that have arrived, and policy lags of the latest of them, by the names of `NodeStatus`."""
        slots = self._slots
        return {"steps": slots.steps, "policy_lag": slots.lag, "policy_lag_max": slots.largest_lag}

    # -- slots -----------------------------------------------------------------------------------------------------

    def grant_to(self, occupancy: Occupancy) -> tuple[Link, np.ndarray] | None:
        """Claim slots for the node; return its link with their numbers on the node, None if its link is not clear."""
        link = self._link
        if link is None or not link.is_clear:
            return None
        with self._lock:  # the slots of a connection that ends are freed by the next, or by `fill_in`
            if link is not self._link or not link.is_clear:
                return None
            return link, NO_SLOTS if self._is_dismissed else self.grant(occupancy)

    def grant(self, occupancy: Occupancy) -> np.ndarray:
        """Claim slots for the node's lanes, at most one per lane; return their numbers on the node, int64 ``[K]``.

        A granted slot is filled even if the learner has become busy. So once the segments that wait or are being
        written reach `busy_backlog`, a lane is granted its next slot only after it has filled the previous one; once
        the waiting segments alone reach it, only if none of its own waits.
        """
        if not occupancy.num_free:
            return NO_SLOTS
        return self._slots.grant(occupancy, busy_backlog(self.arena, self._slots.segment_time), time.monotonic_ns())

    def receive_any(self, stream: Stream, frame: Frame, blocks: BlockCounter) -> Generator[None, None, Rung]:
        """Receive results of games, or a frame for `receive`; yields and returns as `receive`."""
        if frame.kind is not Kind.RESULTS:
            return self.receive(stream, frame, blocks)
        if self._past is None:
            raise StreamError("results of games came, but no games play against past versions")
        return receive_results(self._past, self._games, stream, frame)

    def receive(self, stream: Stream, frame: Frame, blocks: BlockCounter) -> Generator[None, None, Rung]:
        """Receive a block of segments into its slots; the bytes of one that is refused are dropped.

        Yields while bytes are missing, and returns the bells to ring.
        """
        arena, slots, fd = self.arena, self._slots, stream.fileno()
        slots.begin(frame.count, frame.nbytes, blocks.accepts(frame))
        while True:
            stream.received += slots.receive(fd)
            if not slots.missing:
                break
            yield
        blocks.duplicates += slots.is_doubled
        arrived = slots.arrive(arena.weights.version, time.monotonic_ns())
        if len(arrived):
            blocks.stale += slots.is_stale(arena.control[Control.RUN_EPOCH])
            self._on_arrival(arrived)
            arena.deliver(arrived, self.node)
            return arena.learner_bell, self.bell  # the lanes may be granted their next slots
        return None

    def _is_quiet(self) -> bool:
        """Whether everything that was granted has arrived."""
        return not len(self.arena.slots.owned_by(self.node, SlotState.WRITING))

    def _reclaim(self) -> None:
        """Free the slots that the node has not filled."""
        self.arena.give_up(self.node)


class AdmittedSteps:
    """Steps that the rate limiter at home admits for a node, whose lanes are those of some rollout workers."""

    def __init__(self, arena: ExperienceArena, replay: Any, workers: range) -> None:
        self._arena, self._replay = arena, replay
        self._open = arena.open_steps[workers.start : workers.start + 1]
        self._spare = int(self._open[0])  # admitted, but granted to no node; at first those of a dead receiver

    def lend(self, most: int) -> int:
        """Admit up to `most` steps; return their number."""
        count = min(self._spare, most)
        self._spare -= count
        chunk = min(self._arena.shape.group_size, self._replay.limiter.largest_insert)
        while most - count >= chunk and self._replay.admit(chunk, self._arena):
            count += chunk
            self._open += chunk
        return count

    def spend(self, count: int) -> None:
        """Record that the node has taken further granted steps."""
        self._open -= count

    def take_back(self, count: int) -> None:
        """Take back steps that a lost node was granted and has not taken."""
        self._spare += count


class StepPool:
    """Steps that a gateway was granted and that no node has taken: entries in the ring of its arena."""

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
        """Record that the node will not take lent steps."""
        with self._lock:
            self._lent -= count


class StepNodeLanes(NodeLanes):
    """Lanes of a node whose steps are written into a replay buffer, or are forwarded by a gateway.

    Parameters are those of `NodeLanes`, and the pool of a gateway; None: home, which admits steps for each node.
    """

    def __init__(
        self, node: int, workers: range, arena: ExperienceArena, transport: Any, takes_turns: bool,
        pool: StepPool | None = None,
    ) -> None:  # fmt: skip
        super().__init__(node, workers, arena, transport, takes_turns)
        self._replay = transport.path.replay
        self._transport = transport
        self._fields = fields_of_call(transport.fields(arena.shape), arena.shape.group_size)
        self._most = steps_ahead(self.num_lanes)
        self._counting = threading.Lock()  # one thread grants, another receives counts of taken steps
        self._pool = pool or AdmittedSteps(arena, self._replay, workers)
        self._granted = self._taken = 0  # on the present connection
        self._steps, self._lag = 0, 0.0
        self._inbox = self._make_inbox()

    def grant(self, occupancy: Occupancy) -> np.ndarray:
        """Admit K steps, as many as the rate limiter has room for and the node may have open; int64 ``[K]``."""
        with self._counting:
            room = self._most - (self._granted - self._taken)
            if not self._replay.is_wanted(int(self.arena.control[Control.GOAL])):
                room = 0
            count = self._pool.lend(max(0, room))
            self._granted += count
        return np.zeros(count, np.int64)

    def receive(self, stream: Stream, frame: Frame, blocks: BlockCounter) -> Generator[None, None, Rung]:
        """Receive and write steps, or receive the number of taken steps; yields and returns as in `NodeLanes`."""
        if frame.kind is Kind.TAKEN:
            with self._counting:
                taken, self._taken = frame.number - self._taken, frame.number
                self._pool.spend(taken)
            if self._transport.is_sharded:  # nothing else arrives
                self._measure_steps(taken, frame)
                return self.arena.learner_bell, self.bell
            return (self.bell,)
        of_each = sum(math.prod(field.shape) * np.dtype(field.dtype).itemsize for field in self._fields.values())
        if frame.nbytes != (right := frame.count * of_each):
            raise StreamError(f"{frame.count} steps came with {frame.nbytes} bytes, expected {right}")
        calls: Rows = {name: np.empty((frame.count, *field.shape), field.dtype) for name, field in self._fields.items()}
        yield from stream.arriving(array_views(*calls.values()))
        if blocks.accepts(frame):
            self._arrived_at = time.monotonic()
            self._inbox.add(calls)
            self._measure_steps(steps_in(calls), frame)
            return (self.arena.learner_bell,)
        return None

    def _measure_steps(self, count: int, frame: Frame) -> None:
        self._steps += count
        self._lag = float(self.arena.weights.version - frame.version)

    def seen(self) -> dict[str, Any]:
        """Return the number of steps that have arrived, and the policy lag of the last of them."""
        return {"steps": self._steps, "policy_lag": self._lag, "policy_lag_max": self._lag}

    def _is_quiet(self) -> bool:
        return time.monotonic() - self._arrived_at > QUIET_SECONDS

    def _reclaim(self) -> None:
        with self._counting:
            self._pool.take_back(max(0, self._granted - self._taken))
            self._granted = self._taken = 0
            self._inbox = self._make_inbox()  # the node's unfinished episodes are dropped

    def _make_inbox(self) -> Any:
        buffer = self._replay.buffer  # of home, a gateway's shard, or the outbox of a gateway that forwards
        return RelayInbox(buffer) if isinstance(buffer, Outbox) else self._transport.inbox(self.arena)
