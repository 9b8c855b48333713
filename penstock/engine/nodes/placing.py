"""Placement of the nodes of a run: machines are reserved, hosts are started there, machines are given back."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from penstock.engine.messages import Note
from penstock.engine.nodes.choosing import Place, bundles_of, choose, in_words, missing
from penstock.engine.nodes.node import Node

if TYPE_CHECKING:
    from penstock.config import Config
    from penstock.engine.nodes.cluster import Cluster

PLACE_INTERVAL = 1.0  # seconds between two searches for machines for nodes without one
LATE_INTERVAL = 15.0  # seconds between two searches for machines that joined late
START_SECONDS = 10.0  # for the nodes that a run needs to get machines when it begins
LEAVE_SECONDS = 15.0  # for a node that is asked to go to deliver what it was granted
DRAIN_MARGIN = 2.0  # seconds before the end of a machine by which its node must have left


class Placement:
    """Finds a machine for each node of a run, and another where one is lost.

    If their number may change, each node has a reservation of its own, which is given back when it leaves.

    Parameters
    ----------
    connection
        Connection to the cluster.
    make_host
        Starts a host of a node at a place.
    nodes
        Nodes of the run; those with a learner have a rank.
    config
        Settings of the run.
    run
        Random number of the run.
    tell
        Called with events for the user.

    Attributes
    ----------
    requested
        Nodes that were requested of a cluster that grows, in words.
    """

    def __init__(
        self, connection: Cluster, make_host: Callable[[Node, Place], Any], nodes: Sequence[Node], config: Config,
        run: int, tell: Callable[[str, Note], None],
    ) -> None:  # fmt: skip
        self.requested = ""
        self._nodes, self._config = nodes, config
        self._connection, self._make_host, self._run, self._tell = connection, make_host, run, tell
        self._grows = connection.grows
        self._is_elastic = config.least_nodes < config.num_nodes
        self._reserved: list[Place] = []
        self._left: set[str] = set()  # machines that no node returns to
        self._has_begun = False
        self._next_look = self._next_drain_look = self._next_look_for_late = 0.0
        self._seen: set[str] = set()

    def begin(self) -> None:
        """Start the first hosts; where another run has just reserved what seemed free, try again for some seconds."""
        end = time.monotonic() + START_SECONDS
        self.place()
        while time.monotonic() < end and not all(node.host or self.may_be_missing(node) for node in self._nodes):
            time.sleep(PLACE_INTERVAL)
            self.place()
        self._has_begun = True
        self._seen |= {machine.id for machine in self._connection.machines()}
        self._next_look_for_late = time.monotonic() + LATE_INTERVAL

    def may_be_missing(self, node: Node) -> bool:
        """Whether a run can begin without a node."""
        return self._grows or (self._is_elastic and not node.rank and self._num_missing <= 0)

    @property
    def _num_missing(self) -> int:
        """Number of nodes with lanes that are missing from the least number; below 0 if there are more."""
        return self._config.least_nodes - sum(node.host is not None for node in self._nodes if not node.rank)

    def place(self) -> None:
        """Start a host for each node without one: on its machine if that answers, or on another that is free."""
        now = time.monotonic()
        empty = [node for node in self._nodes if node.host is None and node.not_before <= now]
        if not empty or now < self._next_look:
            return
        self._next_look = now + PLACE_INTERVAL
        machines = [machine for machine in self._connection.machines() if machine.id not in self._left]
        there = {machine.id for machine in machines}
        for node in empty:
            place = node.place
            if place is not None and place.machine.id in there and self._connection.reaches(place.machine):
                self._host(node, place)
        empty = [node for node in empty if node.host is None]
        waiting = sum(node.host is None and not node.rank and node.not_before > now for node in self._nodes)
        required = max(0, self._num_missing - waiting) if self._is_elastic else len(empty)
        wanted = []
        for node in empty:
            wanted.append(replace(node.wanted, is_optional=not node.rank and required <= 0))
            required -= not node.rank
        taken = [node.place.machine.id for node in self._nodes if node.place is not None]
        while True:
            found = choose(machines, wanted, taken)
            unreachable = [machine.id for machine in found.values() if not self._connection.reaches(machine)]
            if not unreachable:
                break
            taken += unreachable
        chosen = [(empty[number], machine) for number, machine in found.items()]
        for together in [[each] for each in chosen] if self._is_elastic else [chosen]:
            if together:
                pairs = [(node.wanted, machine) for node, machine in together]
                places = self._connection.reserve(pairs, f"nodes of run {self._run:x}")
                self._reserved += places
                for (node, _), place in zip(together, places, strict=False):  # empty: another run was faster
                    self._host(node, place)
        self._request_missing()

    def _host(self, node: Node, place: Place) -> None:
        node.place = place
        if self._is_elastic and self._has_begun:
            self._tell(node.name, Note(f"{node.name} starts on {place.machine}"))
        node.take(self._make_host(node, place))

    def _request_missing(self) -> None:
        """Request machines for nodes without one, if the cluster grows."""
        there = {node.number: node.host.machine for node in self._nodes if node.host is not None}
        if self._grows and (len(there) < len(self._nodes) or self.requested):
            bundles = bundles_of([node.wanted for node in self._nodes], there)
            self._connection.want(bundles)
            self.requested = in_words(missing(bundles, there))

    def look_for_late(self) -> None:
        """Report machines that have joined the cluster since the run began, and serve no node of it."""
        if (now := time.monotonic()) < self._next_look_for_late:
            return
        self._next_look_for_late = now + LATE_INTERVAL
        machines = {machine.id: machine for machine in self._connection.machines()}
        late = machines.keys() - self._seen - {place.machine.id for place in self._reserved}
        self._seen |= machines.keys()
        for machine in (machines[number] for number in sorted(late)):
            if any(node.wanted.fits(machine) for node in self._nodes):
                self._tell("cluster", Note(f"{machine} has joined after the run began: it is used if a node is lost"))

    def draining(self) -> Iterator[tuple[Node, float]]:
        """Yield each node with a host on a machine that Ray drains, with the seconds that are left to deliver."""
        now = time.monotonic()
        if now < self._next_drain_look or not any(node.host is not None for node in self._nodes):
            return
        self._next_drain_look = now + PLACE_INTERVAL
        seconds = self._connection.draining()
        self._left |= seconds.keys()
        for node in self._nodes:
            if node.host is not None and not node.going and node.host.machine.id in seconds:
                yield node, min(LEAVE_SECONDS, max(0.0, seconds[node.host.machine.id] - DRAIN_MARGIN))

    def avoid(self, node: Node) -> None:
        """Start no further host on the present machine of a node."""
        assert node.host is not None
        self._left.add(node.host.machine.id)

    def without(self, node: Node) -> str:
        """Give back the machine of a node without host, unless it returns there; return the consequence in words."""
        left = node.place is not None and node.place.machine.id in self._left
        is_spare = self._is_elastic and not node.rank and self._num_missing <= 0
        if self._is_elastic and not node.rank and (left or is_spare) and node.place is not None:
            self._connection.release([node.place])
            self._reserved.remove(node.place)
            node.place = None
        if node.rank:
            return f"rank-{node.rank} is left out until it is back"
        if not is_spare:
            return "its lanes stand still until it is back"
        num_there = sum(each.host is not None for each in self._nodes)
        return f"the run goes on with {num_there} of {self._config.nodes_requested} nodes"

    def release(self) -> None:
        """Give back all machines, and withdraw the request for more."""
        self._connection.release(self._reserved)
        self._connection.want([])
