"""Replay in shards: each gateway has a part of the replay buffer, which its receiver fills with its nodes' steps.

The learner draws its batches from all shards: see `penstock.experience.shards`.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from penstock.engine.contracts import LeavesNothing, Role
from penstock.engine.messages import Command, Listening, Tell, unknown
from penstock.experience.shards import columns_that_travel
from penstock.ipc.stream import Frame, Kind, Stream, StreamError, Views, array_views, nbytes_of, welcome
from penstock.replay import NotReady, ReplayBuffer

if TYPE_CHECKING:
    from penstock.experience.arena import ExperienceArena

SHARD = "shard"
ACCEPT_PAUSE = 0.1  # seconds after a connection could not be accepted


@dataclass(frozen=True)
class ShardRole(LeavesNothing):
    """Role of a gateway that serves a policy's shard. Its successor serves the same rows, which other roles hold, too.

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
        self._spec, self._buffer = spec, spec.buffer
        self._failure: BaseException | None = None
        self._is_over = False
        self._streams: set[Stream] = set()
        self._listener = socket.create_server((spec.ip, 0))
        self._thread = threading.Thread(target=self._accept, name="shard-accepting", daemon=True)
        self._thread.start()
        report(Listening(self._listener.getsockname()[:2]))

    def poll(self) -> bool:
        """Return False; raise what has ended a thread."""
        if self._failure is not None:
            raise self._failure
        return False

    def handle(self, command: Command) -> None:
        """Refuse a command: a shard has none."""
        raise unknown(SHARD, command)

    def close(self) -> None:
        """End all connections."""
        self._is_over = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()
        for stream in list(self._streams):
            stream.close()

    def _accept(self) -> None:
        while not self._is_over:
            try:
                connection, _ = self._listener.accept()
            except OSError:  # over, or too many open files
                time.sleep(ACCEPT_PAUSE)
                continue
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        """Answer requests until the connection ends; one without a proof of the token is closed."""
        try:
            with contextlib.closing(connection):
                stream, _, _ = welcome(connection, self._spec.token, self._spec.run)
                self._streams.add(stream)
                room: dict[str, np.ndarray] = {}
                try:
                    while True:
                        room = self._answer(stream, stream.receive(), room)
                finally:
                    self._streams.discard(stream)
        except (OSError, ValueError, RecursionError):  # the learner is gone, or a stranger was there
            return
        except BaseException as error:
            self._failure = error
            self.bell.ring()

    def _answer(self, stream: Stream, frame: Frame, room: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Set priorities, and send rows with their masses: none while there is nothing to draw.

        Rows are gathered in the arrays of `room`, or in larger ones that are returned in their place.
        """
        if frame.kind is not Kind.DRAW:
            raise StreamError(f"home has sent a frame {frame.kind.name}, which it never does")
        largest, ids, priorities = np.empty(1), np.empty(frame.number, np.int64), np.empty(frame.number)
        stream.receive_into(array_views(largest, ids, priorities))
        buffer = self._buffer
        if largest[0] > 0.0:
            buffer.update_priorities(ids, priorities)
            buffer.raise_priority(largest[0])
        views: Views = []
        count, total = 0, buffer.mass
        with contextlib.suppress(NotReady):
            if frame.count:
                if len(room.get("ids", ())) < frame.count:
                    room = buffer.allocate(frame.count)
                part = {name: array[: frame.count] for name, array in room.items()}
                batch, masses, total = buffer.draw(frame.count, part)
                count, views = frame.count, array_views(masses, *columns_that_travel(batch))
        views = [*array_views(np.array([len(buffer), total])), *views]
        stream.send(Frame(Kind.ROWS, frame.run, frame.incarnation, count=count, nbytes=nbytes_of(views)), views)
        return room
