"""The sender: on a node it stands where the learner would be, and sends full segments home.

The slots of a node's arena mirror those of its lanes at home. A slot is free on the node once it was granted, which
means that the same slot at home is kept for it. So nothing is ever sent that there is no place for, and a node's lanes
wait for the learner by the same rules as lanes at home.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from penstock.engine.contracts import LeavesNothing, Role
from penstock.engine.messages import Command, Tell, unknown
from penstock.engine.nodes.blocks import Frame, Kind, StreamError, Views, array_views, nbytes_of, views_of
from penstock.engine.nodes.stream import ALIVE_INTERVAL, connect
from penstock.experience.arena import Control, ExperienceArena
from penstock.ipc import SlotState

if TYPE_CHECKING:
    from penstock.engine.paths import DataPath

SENDER = "sender"
READER = 0xFFFF  # owner of slots in state READING
CONTROLS = (Control.RUN_EPOCH, Control.GOAL)
"""The words that home tells a node."""


@dataclass(frozen=True)
class Home:
    """Address of home, and identity of a node's senders.

    Attributes
    ----------
    address
        Of the receiver.
    token, run
        What proves that they belong to the run, and its number.
    node, incarnation
        Number of the node, and how many hosts have stood for it before.
    """

    address: tuple[str, int]
    token: bytes
    run: int
    node: int
    incarnation: int


def keep_all_slots(arena: ExperienceArena) -> None:
    """Let no lane of a fresh arena begin before home has granted it a slot."""
    for of_policy in arena.policies:
        slots = np.arange(of_policy.shape.num_slots)
        of_policy.slots.claim(slots, SlotState.FREE, SlotState.READING, READER)


class Sender:
    """Sends what the lanes of one policy have filled; a thread hears what home has to say.

    Parameters
    ----------
    arena
        The policy's arena on the node.
    home
        Where it goes.
    path
        The way of its experience, as it is on the node.
    """

    def __init__(self, arena: ExperienceArena, home: Home, path: DataPath) -> None:
        self.bell = arena.learner_bell
        self._arena = arena
        self._home = home
        self._number = 0
        self._next_sign = 0.0
        self._failure: BaseException | None = None
        who = {"node": home.node, "policy": arena.policy}
        self._stream = connect(home.address, home.token, self._frame(Kind.HELLO), who)
        self._thread = threading.Thread(target=self._listen, name="listening", daemon=True)
        self._thread.start()

    def poll(self) -> bool:
        """Send all segments that are full; False if none was.

        Raises
        ------
        OSError
            Home is gone.
        """
        if self._failure is not None:
            raise ConnectionError(f"the connection to the home node is lost: {self._failure}") from self._failure
        has_sent = self._send_what_is_there()
        now = time.monotonic()
        if has_sent or now >= self._next_sign:
            self._next_sign = now + ALIVE_INTERVAL
            if not has_sent:
                self._stream.send(self._frame(Kind.ALIVE))
        return has_sent

    def handle(self, command: Command) -> None:
        """Take a command of the host; a sender knows none."""
        raise unknown(SENDER, command)

    def close(self) -> None:
        """End the connection."""
        self._stream.close()
        self._thread.join()

    def _send_what_is_there(self) -> bool:
        hints = self._arena.full.pop_many(self._arena.shape.num_slots)
        slots = hints[self._arena.slots.claim(hints, SlotState.FULL, SlotState.READING, READER)]
        if len(slots):
            self._send(np.sort(slots))
        return bool(len(slots))

    def _send(self, slots: np.ndarray) -> None:
        arena = self._arena
        table = np.stack([slots, arena.slot_epoch[slots], arena.slot_number[slots]], axis=1)
        views = array_views(table, arena.slot_memory[slots])
        views += views_of(arena.columns.values(), arena.shape.num_slots, slots)
        self._send_block(len(slots), views)

    def _send_block(self, count: int, views: Views) -> None:
        self._number += 1
        self._stream.send(self._frame(Kind.BLOCK, number=self._number, count=count, nbytes=nbytes_of(views)), views)

    def _frame(self, kind: Kind, **facts: Any) -> Frame:
        arena = self._arena
        epoch, version = int(arena.control[Control.RUN_EPOCH]), arena.weights.version
        return Frame(kind, self._home.run, self._home.incarnation, epoch, version, **facts)

    # -- what home says, in a thread of its own --------------------------------------------------------------------

    def _listen(self) -> None:
        try:
            weights = np.empty(self._arena.weights.size, np.uint8)
            while True:
                self._hear(self._stream.receive(), weights)
        except BaseException as error:
            self._failure = error
            self.bell.ring()

    def _hear(self, frame: Frame, weights: np.ndarray) -> None:
        arena = self._arena
        if frame.kind is Kind.WEIGHTS:
            if frame.nbytes != weights.nbytes:
                raise StreamError(f"weights of {frame.nbytes} bytes came, where the network has {weights.nbytes}")
            self._stream.receive_into([weights.data])
            arena.weights.publish(weights, frame.version)
        elif frame.kind is Kind.CONTROL:
            words = np.frombuffer(self._stream.receive_bytes(frame.nbytes), np.int64)
            arena.control[list(CONTROLS)] = words
            arena.ring_rollout_workers()
        elif frame.kind is Kind.GRANT:
            self._take_grant(np.frombuffer(self._stream.receive_bytes(frame.nbytes), np.int64))
            arena.ring_rollout_workers()
        elif frame.kind is not Kind.ALIVE:
            raise StreamError(f"home has sent a frame {frame.kind.name}, which it never does")

    def _take_grant(self, numbers: np.ndarray) -> None:
        self._arena.release(numbers)


@dataclass(frozen=True)
class SenderRole(LeavesNothing):
    """The sender of one policy.

    Attributes
    ----------
    home, path
        Arguments of the sender.
    make
        Class of the sender.
    policy
        Number of the policy.
    """

    home: Home
    path: DataPath
    make: type[Sender]
    policy: int = 0
    num_threads: int = 1
    is_vital: ClassVar[bool] = True

    @property
    def name(self) -> str:
        """ "sender-<number>"."""
        return f"{SENDER}-{self.policy}"

    def build(self, arena: ExperienceArena, report: Tell) -> Role:
        """Connect home."""
        return self.make(arena.policies[self.policy], self.home, self.path)
