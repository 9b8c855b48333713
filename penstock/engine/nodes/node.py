"""A node of a run, as home knows it."""

from __future__ import annotations

import math
import time
from collections import deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from penstock.runs.status import NodeStatus

if TYPE_CHECKING:
    from penstock.engine.nodes.choosing import Wanted
    from penstock.engine.nodes.cluster import Hosted

RECONNECT_SECONDS = 1.0  # for which a node whose connection is lost may say itself what has happened
RATE_SECONDS = 5.0  # rates are of the last seconds


@dataclass
class Node:
    """A node of the run: what stands for it now, and what came of it.

    Attributes
    ----------
    number, wanted
        Its number, and what its machine must have.
    rank
        The learner that it has; 0: it steps lanes.
    host
        What stands for it; None: nothing, its lanes stand still.
    has_begun
        Whether that has been told its roles.
    incarnation, tries
        Hosts that have stood for it, and those of them since it was connected last.
    connected_by
        Until when (monotonic seconds) it is to be connected.
    heard_at
        When (monotonic seconds) bytes were last seen to come from it.
    faults, not_before
        How often it was lost, and before when (monotonic seconds) it is not tried again.
    status
        What is shown.
    """

    number: int
    wanted: Wanted
    rank: int = 0
    host: Hosted | None = None
    has_begun: bool = False
    incarnation: int = 0
    tries: int = 0
    connected_by: float = 0.0
    heard_at: float = -math.inf
    faults: int = 0
    not_before: float = 0.0
    status: NodeStatus = field(default_factory=NodeStatus)
    seen: deque[tuple[float, int, int]] = field(default_factory=deque)

    @property
    def name(self) -> str:
        """ "node-<number>"."""
        return f"node-{self.number}"

    def learner_seen(self, *, is_there: bool) -> None:
        """Take whether its learner is there. One that is replaced by its host is."""
        self.complete(NodeStatus(is_there=is_there or self.status.is_there, learner=self.rank))

    def complete(self, status: NodeStatus) -> None:
        """Take what the receiver says of it, and add what is known here."""
        now, seen = time.monotonic(), self.seen
        if status.is_there:
            self.connected_by, self.tries = math.inf, 0
        elif self.connected_by == math.inf:
            self.connected_by = now + RECONNECT_SECONDS
        if status.nbytes != self.status.nbytes:
            self.heard_at = now
        seen.append((now, status.steps, status.nbytes))
        while len(seen) > 2 and now - seen[1][0] > RATE_SECONDS:
            seen.popleft()
        began, steps, nbytes = seen[0]
        seconds = max(now - began, 1e-9)
        host = self.status.host if self.host is None else self.host.machine.host
        self.status = replace(
            status, name=self.name, host=host, faults=self.faults,
            steps_per_second=max(0, status.steps - steps) / seconds,
            bytes_per_second=max(0, status.nbytes - nbytes) / seconds,
        )  # fmt: skip
