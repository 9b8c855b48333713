"""The sender: a role on a node, instead of a learner, that sends full segments, or steps from an outbox, to home.

The slots of a node's arena mirror those of its lanes at home. A slot becomes free on the node when it is granted, that
is, when the same slot at home is reserved. So every segment that is sent has a place, and a node's lanes wait for the
learner by the same rules as lanes at home.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from penstock.engine.contracts import LeavesNothing, Role
from penstock.engine.messages import Command, Tell, unknown
from penstock.engine.nodes.past import HeldVersions, pool_of
from penstock.experience.arena import READER, Control, ExperienceArena
from penstock.experience.outbox import OutboxReader
from penstock.ipc import SlotState
from penstock.ipc.stream import (
    ALIVE_INTERVAL,
    Frame,
    Kind,
    StreamError,
    Views,
    array_views,
    connect,
    nbytes_of,
    widened,
)
from penstock.self_play.arenas import NOBODY, pool_in

if TYPE_CHECKING:
    from penstock.engine.paths import DataPath

SENDER = "sender"
CONTROLS = (Control.RUN_EPOCH, Control.GOAL)
"""Control words that home sends to a node."""


@dataclass(frozen=True)
class Home:
    """Address of home, and identity of a node's senders.

    Attributes
    ----------
    address
        Address of the receiver.
    token, run
        Token of the run, by which senders prove that they belong to it, and random number of the run.
    node, incarnation
        Number of the node, and of its host, counted from 1.
    """

    address: tuple[str, int]
    token: bytes
    run: int
    node: int
    incarnation: int


def keep_all_slots(arena: ExperienceArena) -> None:
    """Reserve all slots of a fresh arena, so that each lane waits for a grant from home; no game has begun."""
    for of_policy in arena.policies:
        slots = np.arange(of_policy.shape.num_slots)
        of_policy.slots.claim(slots, SlotState.FREE, SlotState.READING, READER)
        if (pool := pool_in(of_policy)) is not None:
            pool.playing[:] = NOBODY


class Sender:
    """Sends the full segments of one policy's lanes; a thread receives weights, control words and grants.

    Parameters
    ----------
    arena
        The policy's arena on the node.
    home
        Address of home, and identity of the sender.
    path
        Data path of the policy on the node.
    relays
        Whether the lanes are those of a gateway's nodes; then new weights wake the gateway's dispatcher.
    """

    def __init__(self, arena: ExperienceArena, home: Home, path: DataPath, relays: bool = False) -> None:
        self.bell = arena.learner_bell
        self._relays = relays
        self._arena, self._segments = arena, arena.segment_memory()
        self._home = home
        self._number = 0
        self._next_sign = 0.0
        self._failure: BaseException | None = None
        pool = pool_of(arena)
        self._past = None if pool is None else HeldVersions(pool, arena.shape.rounded_nbytes, self._send_results)
        identity = {"node": home.node, "policy": arena.policy}
        self._stream = connect(home.address, home.token, self._frame(Kind.HELLO), identity)
        self._thread = threading.Thread(target=self._listen, name="node-receiving", daemon=True)
        self._thread.start()

    def poll(self) -> bool:
        """Send all full segments; False if there were none.

        Raises
        ------
        OSError
            Home cannot be reached.
        """
        if self._failure is not None:
            raise ConnectionError(f"the connection to the home node is lost: {self._failure}") from self._failure
        has_sent = self._send_new()
        if self._past is not None and self._past.update() and self._relays:
            self._arena.rollout_bells[0].ring()
        now = time.monotonic()
        if has_sent or now >= self._next_sign:
            self._next_sign = now + ALIVE_INTERVAL
            if not has_sent:
                self._stream.send(self._frame(Kind.ALIVE))
        return has_sent

    def handle(self, command: Command) -> None:
        """Refuse a command of the host: a sender has none."""
        raise unknown(SENDER, command)

    def close(self) -> None:
        """End the connection."""
        self._stream.close()
        self._thread.join()

    def _send_new(self) -> bool:
        slots = self._arena.take_full()
        if len(slots):
            self._send(np.sort(slots))
        return bool(len(slots))

    def _send(self, slots: np.ndarray) -> None:
        self._stream.send_segments(self._block(len(slots), len(slots) * self._segments.nbytes), self._segments, slots)

    def _block(self, count: int, nbytes: int) -> Frame:
        self._number += 1
        return self._frame(Kind.BLOCK, number=self._number, count=count, nbytes=nbytes)

    def _send_results(self, count: int, views: Views) -> None:
        self._stream.send(self._frame(Kind.RESULTS, count=count, nbytes=nbytes_of(views)), views)

    def _frame(self, kind: Kind, **facts: Any) -> Frame:
        arena = self._arena
        epoch, version = int(arena.control[Control.RUN_EPOCH]), arena.weights.version
        return Frame(kind, self._home.run, self._home.incarnation, epoch, version, **facts)

    # -- weights, control words and grants, received in a thread of their own ---------------------------------------

    def _listen(self) -> None:
        try:
            weights = np.empty(self._arena.weights.size - self._arena.shape.rounded_nbytes // 2, np.uint8)
            while True:
                self._receive(self._stream.receive(), weights)
        except BaseException as error:
            self._failure = error
            self.bell.ring()

    def _receive(self, frame: Frame, weights: np.ndarray) -> None:
        arena = self._arena
        if frame.kind is Kind.WEIGHTS:
            if frame.nbytes != weights.nbytes:
                raise StreamError(f"weights came with {frame.nbytes} bytes, expected {weights.nbytes}")
            self._stream.receive_into([weights.data])
            arena.weights.publish(widened(weights, arena.shape.rounded_nbytes), frame.version)
            if self._relays:
                arena.rollout_bells[0].ring()
        elif frame.kind is Kind.CONTROL:
            words = np.frombuffer(self._stream.receive_bytes(frame.nbytes), np.int64)
            arena.control[list(CONTROLS)] = words
            arena.ring_rollout_workers()
        elif frame.kind is Kind.GRANT:
            self._apply_grant(np.frombuffer(self._stream.receive_bytes(frame.nbytes), np.int64))
            arena.ring_rollout_workers()
        elif frame.kind in (Kind.VERSION, Kind.ODDS) and self._past is not None:
            self._past.receive(frame, self._stream)
            self.bell.ring()
        elif frame.kind is Kind.ALIVE:
            self._stream.allow(frame.number / 1_000)
        else:
            raise StreamError(f"home has sent an unexpected frame: {frame.kind.name}")

    def _apply_grant(self, numbers: np.ndarray) -> None:
        self._arena.release(numbers)


class StepSender(Sender):
    """Sends the steps of one policy's lanes from their outbox; parameters are those of `Sender`."""

    def __init__(self, arena: ExperienceArena, home: Home, path: Any, relays: bool = False) -> None:
        self._outbox = OutboxReader(path.replay.buffer)
        self._granted = self._reported_taken = 0
        super().__init__(arena, home, path, relays)

    def _send_new(self) -> bool:
        taken = self._granted - len(self._arena.full)  # before calls are read: never more than there is room for
        calls = self._outbox.take()
        if taken > self._reported_taken:
            self._reported_taken = taken
            self._stream.send(self._frame(Kind.TAKEN, number=taken))
        if calls is not None:
            views = array_views(*calls.values())
            self._stream.send(self._block(len(calls["writer"]), nbytes_of(views)), views)
        return calls is not None

    def _apply_grant(self, numbers: np.ndarray) -> None:
        arena = self._arena
        arena.full.push_many(numbers)
        self._granted += len(numbers)  # after the push, so that no step counts as taken too early
        arena.release(np.arange(arena.shape.num_slots))  # the first time


@dataclass(frozen=True)
class SenderRole(LeavesNothing):
    """The sender of one policy.

    Attributes
    ----------
    home, path
        Arguments of the sender.
    unit
        Unit of the data path's transport.
    policy
        Number of the policy.
    relays
        Whether it is a gateway's.
    """

    home: Home
    path: DataPath
    unit: Literal["segments", "steps"] = "segments"
    policy: int = 0
    relays: bool = False
    num_threads: int = 1
    is_vital: ClassVar[bool] = True

    @property
    def name(self) -> str:
        """ "sender-<number>"."""
        return f"{SENDER}-{self.policy}"

    def build(self, arena: ExperienceArena, report: Tell) -> Role:
        """Connect to home."""
        make = StepSender if self.unit == "steps" else Sender
        return make(arena.policies[self.policy], self.home, self.path, self.relays)
