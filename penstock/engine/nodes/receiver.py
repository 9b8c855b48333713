"""The receiver: at home it puts what nodes send into the slots of the lanes that stand for them, and sends weights.

From the slots on nobody knows where a segment comes from. Each node has a connection for each policy, with two threads:
one takes what the node sends, one tells it of weights and of slots.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from penstock.engine.contracts import Role
from penstock.engine.messages import Command, GoOnWithout, NodeSeen, Note, Tell, unknown
from penstock.engine.nodes.link import Link, NodeLanes
from penstock.engine.nodes.steps import StepNodeLanes
from penstock.engine.nodes.stream import SILENCE, welcome
from penstock.experience.arena import ExperienceArena
from penstock.runs.status import NodeStatus

if TYPE_CHECKING:
    from penstock.engine.nodes.transport import SegmentTransport

RECEIVER = "receiver"
REPORT_INTERVAL = 0.5  # seconds
MOST_UNPROVEN = 64  # connections at a time that have not yet proven to know the token


@dataclass(frozen=True)
class ReceiverRole:
    """The receiver of a run.

    Attributes
    ----------
    address
        Where it listens.
    token, run
        What nodes prove that they belong to the run by, and its number.
    num_nodes
        Nodes of the run.
    transports
        Transport of each policy's experience.
    takes_turns
        Whether each batch is one segment of every lane.
    missing
        Nodes that are not there yet when the run begins, and may be long in coming.
    """

    address: tuple[str, int]
    token: bytes
    run: int
    num_nodes: int
    transports: tuple[SegmentTransport, ...]
    takes_turns: tuple[bool, ...]
    missing: Collection[int] = ()
    name: str = RECEIVER
    num_threads: int = 1
    is_vital: ClassVar[bool] = False

    def build(self, arena: ExperienceArena, report: Tell) -> Role:
        """Listen."""
        return Receiver(self, arena, report)

    def successor(self, arena: ExperienceArena) -> ReceiverRole:
        """Return one that waits for no node: it fills in for those that do not come again."""
        return replace(self, missing=range(self.num_nodes))


class Receiver:
    """Lets nodes in, and watches their connections.

    Parameters
    ----------
    spec
        What it is told.
    arena
        The arena of the run's first policy.
    report
        Called with `NodeSeen` for each node now and then.
    """

    def __init__(self, spec: ReceiverRole, arena: ExperienceArena, report: Tell) -> None:
        self._arena = arena
        # Rung for commands alone; while a node is gone, another, which the learner rings when it gives slots back.
        self.bell = arena.policy_bells[0]
        self._spec = spec
        self._report = report
        kinds: dict[str, type[NodeLanes]] = {"segments": NodeLanes, "steps": StepNodeLanes}
        self._seats = [
            [kinds[each.unit](node, spec.num_nodes, of_policy, each, turns) for node in range(spec.num_nodes)]
            for of_policy, each, turns in zip(arena.policies, spec.transports, spec.takes_turns, strict=True)
        ]
        for node in spec.missing:
            self._go_on_without(node)
        self._refusals: deque[str] = deque()  # the connection to the supervisor is this thread's alone
        self._unproven: dict[socket.socket, float] = {}  # until when each has to know the token
        self._next_report = 0.0
        self._is_over = False
        self._listener = socket.create_server(spec.address, reuse_port=False)
        self._thread = threading.Thread(target=self._accept, name="accepting", daemon=True)
        self._thread.start()

    def poll(self) -> bool:
        """Fill in for nodes that are gone, and report; False if there was nothing to do."""
        has_filled = any([seat.fill_in() for seats in self._seats for seat in seats])
        has_to_fill_in = any(seat.is_gone for seats in self._seats for seat in seats)
        self.bell = self._arena.rollout_bells[0] if has_to_fill_in else self._arena.policy_bells[0]
        for connection, end in list(self._unproven.items()):
            if time.monotonic() > end:  # it may say a byte now and then
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
        while self._refusals:
            self._report(Note(f"warning: a connection to the receiver was refused: {self._refusals.popleft()}"))
        now = time.monotonic()
        if now >= self._next_report:
            self._next_report = now + REPORT_INTERVAL
            for node, seats in enumerate(zip(*self._seats, strict=True)):
                self._report(NodeSeen(node, _together(seats)))
        return has_filled

    def handle(self, command: Command) -> None:
        """Take a command of the backend."""
        if not isinstance(command, GoOnWithout):
            raise unknown(RECEIVER, command, GoOnWithout)
        self._go_on_without(command.node)

    def close(self) -> None:
        """End all connections."""
        self._is_over = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        self._listener.close()
        for seats in self._seats:
            for seat in seats:
                seat.close()

    def _go_on_without(self, node: int) -> None:
        for seats in self._seats:
            seats[node].is_waited_for = False

    def _refuse(self, why: str) -> None:
        if not self._is_over and len(self._refusals) < MOST_UNPROVEN:  # a stranger does not fill the log
            self._refusals.append(why)

    def _accept(self) -> None:
        while not self._is_over:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            if len(self._unproven) < MOST_UNPROVEN:
                self._unproven[connection] = time.monotonic() + SILENCE
                threading.Thread(target=self._let_in, args=(connection,), daemon=True).start()
            else:
                connection.close()
                self._refuse(f"{MOST_UNPROVEN} others have not yet proven to know the run's token")

    def _let_in(self, connection: socket.socket) -> None:
        try:
            stream, hello, who = welcome(connection, self._spec.token, self._spec.run)
            seat = self._seats[who["policy"]][who["node"]]
        except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
            connection.close()
            self._refuse(str(error))
            return
        finally:
            del self._unproven[connection]
        if not seat.welcome(Link(stream, seat, hello.run, hello.incarnation)):
            stream.close()


def _together(seats: Sequence[NodeLanes]) -> NodeStatus:
    """Sum over the seats of one node, one per policy."""
    first, *others = [seat.status() for seat in seats]
    for other in others:
        first = replace(
            first,
            is_there=first.is_there and other.is_there,
            steps=first.steps + other.steps,
            nbytes=first.nbytes + other.nbytes,
            weights_nbytes=first.weights_nbytes + other.weights_nbytes,
            stale=first.stale + other.stale,
            doubled=first.doubled + other.doubled,
            missing=first.missing + other.missing,
            policy_lag=max(first.policy_lag, other.policy_lag),
        )
    return first
