"""State of a node of a run, at home."""

from __future__ import annotations

import math
import time
from collections import deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from penstock.runs.status import NodeStatus

if TYPE_CHECKING:
    from penstock.engine.nodes.choosing import Machine, Place, Wanted
    from penstock.engine.nodes.cluster import Hosted

RECONNECT_SECONDS = 1.0  # after the loss of its connection in which a node may report the cause
RATE_SECONDS = 5.0  # last seconds, of which rates are shown
LONGEST_BACK_OFF = 10.0  # seconds before a node whose hosts never connect is tried again


@dataclass
class Node:
    """A node of the run, with its present host.

    Attributes
    ----------
    number, wanted
        Number of the node, and requirements of its machine.
    rank
        Rank of its learner; 0: the node steps lanes.
    place
        Reserved machine; it stays reserved while the node has no host, until another is.
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
        Reason why it was asked to go, empty if it was not, and deadline (monotonic seconds) of what it delivers.
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
    status: NodeStatus = field(default_factory=NodeStatus)
    seen: deque[tuple[float, int, int]] = field(default_factory=deque)

    @property
    def name(self) -> str:
        """ "node-<number>"."""
        return f"node-{self.number}"

    def take(self, host: Hosted) -> None:
        """Take a new host."""
        self.host, self.has_begun, self.going = host, False, ""
        self.status = replace(self.status, is_leaving=False, has_left=False)
        self.incarnation += 1
        self.tries += 1

    def lose(self) -> Machine:
        """Kill the host; return its machine. A node that was asked to go has no fault."""
        assert self.host is not None
        self.host.kill()
        machine, self.host = self.host.machine, None
        self.faults += not self.going
        self.not_before = time.monotonic() + min(LONGEST_BACK_OFF, 0.25 * 2.0 ** min(self.tries, 8))
        self.status = replace(self.status, is_there=False, has_left=bool(self.going), faults=self.faults)
        return machine

    def update_learner(self, *, is_there: bool) -> None:
        """Update the status of a node with a learner; a learner that its host replaces counts as there."""
        self.update(NodeStatus(is_there=is_there or self.status.is_there, learner=self.rank))

    def update(self, status: NodeStatus) -> None:
        """Update the status from the receiver's, with name, host, faults and rates."""
        now, seen = time.monotonic(), self.seen
        if status.is_there:
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
