"""Replay in shards: each gateway has a part of the replay buffer, which its receiver fills with its nodes' steps.

The learner draws its batches from all shards: see `penstock.experience.shards`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from penstock.engine.contracts import LeavesNothing, Role
from penstock.engine.messages import Command, Listening, Note, Tell, unknown
from penstock.engine.nodes.listening import Listener
from penstock.experience.shards import columns_that_travel
from penstock.ipc.stream import MOST_DELAY, Frame, Kind, Stream, StreamError, Views, array_views, nbytes_of
from penstock.replay import NotReady, ReplayBuffer

if TYPE_CHECKING:
    from penstock.experience.arena import ExperienceArena

SHARD = "shard"


@dataclass(frozen=True)
class ShardRole(LeavesNothing):
    """Role of a gateway that serves a policy's shard. Other roles hold the rows, too, for its successor.

    Attributes
    ----------
    ip
        Address of this machine to listen at, with a free port.
    token, run
        Token of the run, and its random number.
    make_buffer
        Constructor of the empty shard.
    policy
        Number of the policy.
    buffer
        The shard, once the gateway's host has made it.
    """

    ip: str
    token: bytes
    run: int
    make_buffer: Callable[[], ReplayBuffer]
    policy: int = 0
    buffer: ReplayBuffer | None = None
    num_threads: int = 1
    is_vital: ClassVar[bool] = False

    @property
    def name(self) -> str:
        """ "shard-<policy>"."""
        return f"{SHARD}-{self.policy}"

    def build(self, arena: ExperienceArena, report: Tell) -> Role:
        """Listen for the learner."""
        return Shard(self, arena, report)


class Shard:
    """Answers the requests of the learner for rows, in a thread for each connection.

    Parameters
    ----------
    spec
        Description of the role.
    arena
        Arena of the gateway's first policy.
    report
        Called with `Listening`.
    """

    def __init__(self, spec: ShardRole, arena: ExperienceArena, report: Tell) -> None:
        assert spec.buffer is not None
        self.bell = arena.policy_bells[0]
        self._buffer, self._report = spec.buffer, report
        self._failure: BaseException | None = None
        self._streams: set[Stream] = set()
        self._listener = Listener(spec.ip, spec.token, spec.run, self._serve)
        report(Listening(self._listener.address))

    def poll(self) -> bool:
        """Report refused connections, and raise the error that has ended one; return False."""
        for why in self._listener.refusals():
            self._report(Note(f"warning: a connection to a shard was refused: {why}"))
        if self._failure is not None:
            raise self._failure
        return False

    def handle(self, command: Command) -> None:
        """Refuse a command: a shard has none."""
        raise unknown(SHARD, command)

    def close(self) -> None:
        """End all connections."""
        self._listener.close()
        for stream in list(self._streams):
            stream.close()

    def _serve(self, stream: Stream, hello: Frame, identity: dict[str, Any]) -> None:
        """Answer requests until the connection ends."""
        stream.allow(MOST_DELAY)  # a learner may be busy with other shards, or stand still
        self._streams.add(stream)
        room: dict[str, np.ndarray] = {}
        try:
            while True:
                room = self._answer(stream, stream.receive(), room)
        except StreamError:
            raise
        except OSError:  # the learner is gone
            stream.close()
        except BaseException as error:
            self._failure = error
            self.bell.ring()
            stream.close()
        finally:
            self._streams.discard(stream)

    def _answer(self, stream: Stream, frame: Frame, room: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Set priorities, and send rows with their masses; no rows while there is nothing to draw.

        Rows are gathered in the arrays of `room`, or in larger ones that are returned in their place. A frame that is
        no request of this replay ends the connection; the learner makes another.
        """
        if frame.kind is not Kind.DRAW:
            raise StreamError(f"home has sent an unexpected frame: {frame.kind.name}")
        if frame.nbytes != (expected := 8 + 16 * frame.number):
            found = f"one with {frame.number} new priorities is {expected} bytes long, found {frame.nbytes}"
            raise StreamError(f"home has sent a damaged request: {found}")
        largest, ids, priorities = np.empty(1), np.empty(frame.number, np.int64), np.empty(frame.number)
        stream.receive_into(array_views(largest, ids, priorities))
        buffer = self._buffer
        try:
            if is_prioritized := largest[0] != 0.0:
                buffer.update_priorities(ids, priorities)
                buffer.raise_priority(largest[0])
            if len(room.get("ids", ())) < frame.count:
                room = buffer.allocate(frame.count)
        except (ValueError, TypeError, MemoryError) as error:
            raise StreamError(f"home has sent a damaged request, for {frame.count} rows: {error}") from error
        views: Views = []
        count, total, least = 0, buffer.mass, 0.0
        with contextlib.suppress(NotReady):
            if frame.count:
                part = {name: array[: frame.count] for name, array in room.items()}
                batch, masses, total, least = buffer.draw(frame.count, part)
                count, views = frame.count, array_views(masses, *columns_that_travel(batch))
        largest_here = buffer.max_priority if is_prioritized else 0.0
        views = [*array_views(np.array([len(buffer), total, least, largest_here])), *views]
        stream.send(Frame(Kind.ROWS, frame.run, frame.incarnation, count=count, nbytes=nbytes_of(views)), views)
        return room
