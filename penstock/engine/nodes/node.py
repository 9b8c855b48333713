"""State of a node of a run, at home."""

from __future__ import annotations

import math
import time
from collections import deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from penstock.engine.nodes.choosing import Wanted
from penstock.runs.status import NodeStatus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.engine.nodes.choosing import Machine, Place
    from penstock.engine.nodes.hosted import Hosted

RECONNECT_SECONDS = 1.0  # for a node that has lost its connection to report the cause
RATE_SECONDS = 5.0  # over which rates are averaged
LONGEST_BACK_OFF = 10.0  # seconds before a node whose hosts never connect is tried again


@dataclass(eq=False)
class Node:
    """A node of the run, with its present host.

    Attributes
    ----------
    number, wanted
        Number of the node, and requirements of its machine.
    rank
        Rank of its learner; 0: the node steps lanes.
    place
        Reserved machine; while the node has no host, it stays reserved until another one is.
    host
        Present host; None: the node's lanes stand still.
    has_begun
        Whether the host has its task.
    incarnation, tries
        Number of hosts so far, and of those since the last connection.
    connected_by
        Deadline (monotonic seconds) of its connection.
    last_bytes_at
        Time (monotonic seconds) of the last bytes from the node.
    faults, not_before
        Number of losses, and time (monotonic seconds) before which no host is started.
    going, gone_by
        Reason why it was asked to leave, empty if it was not, and deadline (monotonic seconds) of its deliveries.
    gateway, number_there
        Gateway that it connects to, None for home, and its number there.
    is_missed
        Whether it was reported as lost, and not yet as back.
    is_watched, waits_for_gateway
        Whether its gateway asks its host for reports, and whether the host waits for another gateway.
    status
        Status that is shown.
    seen
        Recent times (monotonic seconds), each with steps and bytes so far, for rates.
    """

    number: int
    wanted: Wanted
    rank: int = 0
    place: Place | None = None
    host: Hosted | None = None
    has_begun: bool = False
    incarnation: int = 0
    tries: int = 0
    connected_by: float = 0.0
    last_bytes_at: float = -math.inf
    faults: int = 0
    not_before: float = 0.0
    going: str = ""
    gone_by: float = 0.0
    gateway: Gateway | None = field(default=None, repr=False)
    number_there: int = 0
    is_missed: bool = False
    is_watched: bool = False
    waits_for_gateway: bool = False
    status: NodeStatus = field(default_factory=NodeStatus)
    seen: deque[tuple[float, int, int]] = field(default_factory=deque)

    @property
    def name(self) -> str:
        """ "node-<number>"."""
        return f"node-{self.number}"

    @property
    def nodes(self) -> range:
        """Its number; of a gateway: numbers of the nodes below it."""
        return range(self.number, self.number + 1)

    @property
    def num_there(self) -> int:
        """Number of connected nodes: 1 or 0; of a gateway: those below it."""
        return int(self.status.is_connected)

    def take(self, host: Hosted) -> None:
        """Take a new host."""
        self.host, self.has_begun, self.going = host, False, ""
        self.is_watched = self.waits_for_gateway = False
        self.status = replace(self.status, is_leaving=False, has_left=False)
        self.incarnation += 1
        self.tries += 1

    def lose(self) -> Machine:
        """Kill the host; return its machine. Leaving on request does not count as a fault."""
        assert self.host is not None
        self.host.kill()
        machine, self.host = self.host.machine, None
        self.faults += not self.going
        self.not_before = time.monotonic() + min(LONGEST_BACK_OFF, 0.25 * 2.0 ** min(self.tries, 8))
        self.status = replace(self.status, is_connected=False, has_left=bool(self.going), faults=self.faults)
        return machine

    def wait_for_gateway(self) -> None:
        """Record that the host, whose gateway is lost, waits for another; undelivered experience is lost."""
        self.has_begun, self.is_watched, self.waits_for_gateway = False, False, True
        self.incarnation += 1
        self.status = replace(self.status, is_connected=False)

    def update_learner(self, *, is_connected: bool) -> None:
        """Update the status of a node with a learner; a learner that its host replaces counts as there."""
        self.update(NodeStatus(is_connected=is_connected or self.status.is_connected, learner=self.rank))

    def update(self, status: NodeStatus) -> None:
        """Update the status from the receiver's, with name, host, faults and rates."""
        now, seen = time.monotonic(), self.seen
        if status.is_connected:
            self.connected_by, self.tries = math.inf, 0
        elif self.connected_by == math.inf:
            self.connected_by = now + RECONNECT_SECONDS
        if status.nbytes != self.status.nbytes:
            self.last_bytes_at = now
        seen.append((now, status.steps, status.nbytes))
        while len(seen) > 2 and now - seen[1][0] > RATE_SECONDS:
            seen.popleft()
        began, steps, nbytes = seen[0]
        seconds = max(now - began, 1e-9)
        host = self.status.host if self.host is None else self.host.machine.host
        has_left = status.has_left and bool(self.going) if self.host is not None else self.status.has_left
        self.status = replace(
            status, name=self.name, host=host, faults=self.faults, has_left=has_left,
            steps_per_second=max(0, status.steps - steps) / seconds,
            bytes_per_second=max(0, status.nbytes - nbytes) / seconds,
        )  # fmt: skip


@dataclass(eq=False)
class Gateway(Node):
    """A gateway of the run, with its present host, on the machine of one of its nodes.

    Attributes
    ----------
    nodes
        Numbers of the nodes below it.
    below
        Nodes, or gateways, that connect to it.
    address
        Address at which it listens; None: it does not listen yet.
    """

    nodes: range = range(0)
    below: list[Node] = field(default_factory=list)
    address: tuple[str, int] | None = None

    @property
    def name(self) -> str:
        """ "gateway-<number>"."""
        return f"gateway-{self.number}"

    @property
    def is_of_gateways(self) -> bool:
        """Whether gateways connect to it."""
        return isinstance(self.below[0], Gateway)

    @property
    def num_there(self) -> int:
        """Number of connected nodes below it."""
        return sum(each.num_there for each in self.below)

    def lose(self) -> Machine:
        """Kill the host; return its machine."""
        self.address = None
        return super().lose()

    def update(self, status: NodeStatus) -> None:
        """Update the status, with the number of nodes."""
        super().update(replace(status, nodes=len(self.nodes), nodes_connected=self.num_there))


def gateways_between(levels: Sequence[Sequence[range]], nodes: Sequence[Node]) -> list[Gateway]:
    """Make the gateways of a run, those nearest to home first, between home and its nodes with lanes.

    Parameters
    ----------
    levels
        Numbers of the nodes of each gateway, by `levels_of`.
    nodes
        Nodes that step lanes; their gateways are set.
    """
    made: list[list[Gateway]] = []
    for level in levels:
        first = sum(map(len, made))
        gateways = [Gateway(first + place, Wanted(0), nodes=part) for place, part in enumerate(level)]
        for place, gateway in enumerate(gateways):
            gateway.number_there = place
            if made:
                _connect(gateway, made[-1], gateway.nodes.start)
        made.append(gateways)
    for node in nodes:
        node.number_there = node.number
        if made:
            _connect(node, made[-1], node.number)
    return [gateway for level in made for gateway in level]


def _connect(node: Node, gateways: Sequence[Gateway], number: int) -> None:
    """Connect a node, or a gateway, to the one of several gateways that has node `number`."""
    node.gateway = next(gateway for gateway in gateways if number in gateway.nodes)
    node.number_there = len(node.gateway.below)
    node.gateway.below.append(node)
