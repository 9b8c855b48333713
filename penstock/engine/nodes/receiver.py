"""The receiver: a role at home, instead of rollout workers, that accepts and watches the connections of nodes.

Each node has a connection per policy (`Link`). A thread (`Poller`) writes received experience where lanes at home would
write it, so that a learner reads both in the same way. One more thread for each policy sends (`Dispatcher`).
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar

from penstock.engine.contracts import Role
from penstock.engine.messages import Command, Dismiss, GoOnWithout, Listening, NodesSeen, Note, Tell, unknown
from penstock.engine.nodes.dispatcher import Dispatcher
from penstock.engine.nodes.lanes import NodeLanes, StepNodeLanes, StepPool
from penstock.engine.nodes.link import Link
from penstock.engine.nodes.listening import Listener
from penstock.engine.nodes.poller import Poller
from penstock.experience.arena import ExperienceArena
from penstock.runs.status import NodeStatus

if TYPE_CHECKING:
    from penstock.engine.nodes.transport import SegmentTransport
    from penstock.ipc.stream import Frame, Stream

RECEIVER = "receiver"
REPORT_INTERVAL = 0.5  # seconds
SUMMED = ("steps", "nbytes", "weights_nbytes", "stale", "duplicates", "missing")  # over policies, in a node's status


@dataclass(frozen=True)
class ReceiverRole:
    """The receiver of a run.

    Attributes
    ----------
    ip
        Address of this machine to listen at, with a free port.
    token, run
        Token by which nodes prove that they belong to the run, and random number of the run.
    workers
        For each node, or gateway, that connects: the arena's rollout workers whose lanes it has.
    transports
        Transport of each policy's experience.
    takes_turns
        Whether each batch is one segment of every lane.
    missing
        Numbers of nodes that have no machine when the run begins: the run does not wait for them.
    relays
        Whether this is the receiver of a gateway.
    """

    ip: str
    token: bytes
    run: int
    workers: Sequence[range]
    transports: tuple[SegmentTransport, ...]
    takes_turns: tuple[bool, ...]
    missing: Collection[int] = ()
    relays: bool = False
    name: str = RECEIVER
    num_threads: int = 1
    is_vital: ClassVar[bool] = False

    def build(self, arena: ExperienceArena, report: Tell) -> Role:
        """Listen, with as many open files as the system allows: each node has a connection for each policy."""
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        return Receiver(self, arena, report)

    def successor(self, arena: ExperienceArena) -> ReceiverRole:
        """Return a role that waits for no node: it fills in for nodes that do not connect again."""
        return replace(self, missing=range(len(self.workers)))


class Receiver:
    """Accepts nodes, and watches their connections.

    Parameters
    ----------
    spec
        Description of the role.
    arena
        Arena of the run's first policy.
    report
        Called with `Listening`, and with `NodesSeen` at intervals.

    Attributes
    ----------
    address
        Address at which nodes connect.
    """

    def __init__(self, spec: ReceiverRole, arena: ExperienceArena, report: Tell) -> None:
        self._arena = arena
        # Rung only by commands; while a node is lost, a bell that the learner rings when it releases slots.
        self.bell = arena.policy_bells[0]
        self._spec = spec
        self._report = report
        # Arenas of lanes that are not learned from follow the policies' own; their experience is not sent.
        by_policy = zip(arena.policies, spec.transports, spec.takes_turns, strict=False)
        self._lanes = [self._lanes_of(*each) for each in by_policy]  # by policy and node
        for node in spec.missing:
            self._go_on_without(node)
        for of_policy in arena.policies:
            of_policy.announce_anew()  # full slots that an earlier receiver has not announced
        self._poller = Poller()
        dispatchers = [Dispatcher(*each) for each in zip(arena.policies, self._lanes, spec.takes_turns, strict=False)]
        self._serving: list[Poller | Dispatcher] = [*dispatchers, self._poller]
        self._next_report = 0.0
        self._listener = Listener(spec.ip, spec.token, spec.run, self._admit)
        self.address = self._listener.address
        report(Listening(self.address))
        for thread in self._serving:
            thread.start()

    def poll(self) -> bool:
        """Fill in for nodes that are gone, and report; False if there was nothing to do."""
        for thread in self._serving:
            if thread.failure is not None:
                raise thread.failure
        gone = [lanes for lanes in chain(*self._lanes) if lanes.is_gone]
        has_filled = any([lanes.fill_in() for lanes in gone])
        self.bell = self._arena.rollout_bells[0] if gone else self._arena.policy_bells[0]
        for why in self._listener.refusals():
            self._report(Note(f"warning: a connection to the receiver was refused: {why}"))
        now = time.monotonic()
        if now >= self._next_report:
            self._next_report = now + REPORT_INTERVAL
            self._report(NodesSeen(dict(enumerate(map(_status_of, zip(*self._lanes, strict=True))))))
        return has_filled

    def handle(self, command: Command) -> None:
        """Execute a command of the backend: `GoOnWithout` or `Dismiss`."""
        match command:
            case GoOnWithout(node):
                self._go_on_without(node)
            case Dismiss(node):
                for of_policy in self._lanes:
                    of_policy[node].dismiss()
            case _:
                raise unknown(RECEIVER, command, GoOnWithout, Dismiss)

    def close(self) -> None:
        """End all connections."""
        self._listener.close()
        for lanes in chain(*self._lanes):
            lanes.close()
        for thread in self._serving:
            thread.end()

    def _lanes_of(self, arena: ExperienceArena, transport: SegmentTransport, takes_turns: bool) -> list[NodeLanes]:
        """Make the lanes of all nodes for one policy."""
        make: Callable[..., NodeLanes] = NodeLanes
        if transport.unit == "steps":
            make = partial(StepNodeLanes, pool=StepPool(arena) if self._spec.relays else None)
        return [make(node, workers, arena, transport, takes_turns) for node, workers in enumerate(self._spec.workers)]

    def _go_on_without(self, node: int) -> None:
        for of_policy in self._lanes:
            of_policy[node].is_waited_for = False

    def _admit(self, stream: Stream, hello: Frame, identity: dict[str, Any]) -> None:
        lanes = self._lanes[identity["policy"]][identity["node"]]
        if not lanes.welcome(Link(stream, self._poller, lanes.receive_any, lanes.bell, hello.run, hello.incarnation)):
            stream.close()


def _status_of(lanes: Sequence[NodeLanes]) -> NodeStatus:
    """Return the status of a node: sums over policies, and the largest policy lags."""
    found = [each.status() for each in lanes]
    if len(found) == 1:
        return found[0]
    sums: dict[str, Any] = {name: sum(getattr(each, name) for each in found) for name in SUMMED}
    sums |= {name: all(getattr(each, name) for each in found) for name in ("is_connected", "has_left")}
    lags = {name: max(getattr(each, name) for each in found) for name in ("policy_lag", "policy_lag_max")}
    return replace(found[0], **lags, **sums)
