"""Steps instead of segments: a node's sender takes them out of its outbox, and a seat at home writes them.

Home lets a node's steps in before they are taken, as it does those of lanes at home: the rate limiter counts what is
granted. What a node that is lost had not taken is granted to the next one without being counted again.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from penstock.engine.nodes.blocks import Frame, Kind, Sequence, StreamError, array_views, nbytes_of
from penstock.engine.nodes.link import NodeLanes
from penstock.engine.nodes.sender import Home, Sender
from penstock.engine.nodes.stream import Stream
from penstock.engine.nodes.transport import steps_ahead
from penstock.experience.arena import Control, ExperienceArena
from penstock.experience.outbox import OutboxReader, Rows, fields_of_call, steps_in


class StepSender(Sender):
    """Sends the steps of one policy's lanes.

    Parameters
    ----------
    arena, home
        As for `Sender`.
    path
        The way of its experience, as it is on the node.
    """

    def __init__(self, arena: ExperienceArena, home: Home, path: Any) -> None:
        self._outbox = OutboxReader(path.replay.buffer)
        self._granted = self._told_taken = 0
        super().__init__(arena, home, path)

    def _send_what_is_there(self) -> bool:
        calls, taken = self._outbox.take(), self._granted - len(self._arena.full)
        if taken > self._told_taken:
            self._told_taken = taken
            self._stream.send(self._frame(Kind.TAKEN, count=taken))
        if calls is not None:
            self._send_block(len(calls["writer"]), array_views(*calls.values()))
        return calls is not None

    def _take_grant(self, numbers: np.ndarray) -> None:
        arena = self._arena
        self._granted += len(numbers)
        arena.full.push_many(numbers)
        arena.release(np.arange(arena.shape.num_slots))  # at first


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
        self._counting = threading.Lock()  # one thread grants, another hears what is taken
        self._spare = 0  # steps that were let in, and are granted to nobody
        self._granted = self._taken = 0  # on the present connection
        self._inbox = transport.inbox(arena)

    def grant(self) -> np.ndarray:
        """Let steps in, as many as the rate limiter has room for and the node may have open; int64 ``[K]`` for K."""
        replay, count = self._replay, 0
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

    def take(self, stream: Stream, frame: Frame, sequence: Sequence) -> None:
        """Receive steps, and write them; or hear how many were taken."""
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
        if sequence.takes(frame):
            self._inbox.add(calls)
            self._steps += steps_in(calls)
            self._lag = float(self.arena.weights.version - frame.version)
            self.arena.learner_bell.ring()

    def _let_go(self) -> None:
        with self._counting:
            self._spare += max(0, self._granted - self._taken)
            self._granted = self._taken = 0
            self._inbox = self._transport.inbox(self.arena)  # what the node had not finished is never finished
