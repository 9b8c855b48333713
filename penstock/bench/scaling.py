"""Model of the steps per second of a run on nodes; `penstock bench cluster` measures its constants.

Every part of a run has a capacity, a fixed load, and a load per step. It bounds the rate by
``(capacity - fixed) / per_step``; the least bound is the prediction. docs/how-it-works/scaling.md has the equations.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from penstock.config.nodes import levels_of
from penstock.engine.nodes.host import GATHER_SECONDS, gather_seconds

READ_SHARE = 0.1  # cost of reading a host's reports in a gateway's answer, relative to the host's own answer

ROLLOUT, LANES, NODES, SENDERS = "rollout workers", "lanes", "nodes' cores", "senders"
NETWORK, RECEIVER = "network", "receiver"
LEARNERS, HOME, SUPERVISOR = "learners", "home's cores", "supervisor"
TURNS, MACHINE = "taking turns", "this machine's cores"


@dataclass(frozen=True)
class StreamCosts:
    """Costs of the stream between a node and home, in core-seconds unless stated otherwise.

    Attributes
    ----------
    send_block, send_byte
        At a node, per block, which holds a segment of every lane of a worker, and per byte of it.
    receive_block, receive_byte
        The same at home, including the slots granted again.
    tell, tell_byte
        At home, per node and version of the weights, including the slots granted with it, and per byte of the version.
    hear, hear_byte
        The same at the node.
    trip
        Seconds from a full segment on a node until its slot is granted again, without waiting.
    reduce_byte
        Seconds that learners take to average a byte of their gradients, per update.
    """

    send_block: float
    send_byte: float
    receive_block: float
    receive_byte: float
    tell: float
    tell_byte: float
    hear: float
    hear_byte: float
    trip: float
    reduce_byte: float


@dataclass(frozen=True)
class Constants(StreamCosts):
    """Costs in core-seconds, including the stream between a node and home.

    Attributes
    ----------
    lane, call
        Of a rollout worker, including choosing actions: per step of a lane, and additionally per step of all lanes of
        the worker.
    learn
        Of a learner, per step.
    host
        Of a node's host and of Ray, per second.
    supervisor, supervise
        Of the supervisor, per second, and additionally per second and node of a run with few nodes.
    """

    lane: float
    call: float
    learn: float
    host: float
    supervisor: float
    supervise: float


@dataclass(frozen=True)
class Setting:
    """Properties of a run that determine its rate.

    Attributes
    ----------
    nodes, workers, lanes
        Nodes, rollout workers of each node, lanes of each worker.
    slots, segment
        Slots of each lane, and steps of a segment.
    step_nbytes
        Bytes of all columns per step, mostly of an observation.
    weights_nbytes
        Bytes of a version: the size of the network.
    steps_per_version
        Steps learned from between two versions; a batch for algorithms without lag.
    learners
        Learners that share each batch, with a core each.
    takes_turns
        Whether stepping pauses while a batch is learned from.
    batch
        Segments of a batch; the first ones wait for the others.
    """

    nodes: int
    workers: int
    lanes: int
    slots: int
    segment: int
    step_nbytes: float
    weights_nbytes: float
    steps_per_version: float
    learners: int = 1
    takes_turns: bool = False
    batch: int = 1


@dataclass(frozen=True)
class Machines:
    """Machines of a run.

    Attributes
    ----------
    node_cores, home_cores
        Cores of each node, and of the home node.
    bandwidth
        Bytes per second that home's network carries, each way.
    shared_cores
        Cores' worth of time of the machine shared by nodes and home; None: separate machines.
    """

    node_cores: float
    home_cores: float
    bandwidth: float = math.inf
    shared_cores: float | None = None


@dataclass(frozen=True)
class Part:
    """Part of a run, with its capacity in cores, slots, or bytes per second.

    Attributes
    ----------
    name
        Name.
    capacity, fixed, per_step
        Capacity, fixed load, and load of one step per second.
    """

    name: str
    capacity: float
    fixed: float
    per_step: float

    @property
    def bound(self) -> float:
        """Largest steps per second of this part."""
        left = self.capacity - self.fixed
        if left <= 0.0:
            return 0.0
        return left / self.per_step if self.per_step > 0.0 else math.inf

    def load(self, rate: float) -> float:
        """Return the share of the capacity used at a rate; 1: this part limits."""
        return (self.fixed + rate * self.per_step) / self.capacity if self.capacity > 0.0 else math.inf


@dataclass(frozen=True)
class Prediction:
    """Predicted rate of a run.

    Attributes
    ----------
    parts
        All parts, the most limiting first.
    """

    parts: tuple[Part, ...]

    @property
    def rate(self) -> float:
        """Steps per second."""
        return self.parts[0].bound

    @property
    def limit(self) -> str:
        """Part that limits the rate."""
        return self.parts[0].name

    def part(self, name: str) -> Part:
        """Return the part with this name."""
        return next(part for part in self.parts if part.name == name)

    def load(self, name: str) -> float:
        """Return the share of a part's capacity used at the predicted rate."""
        return self.part(name).load(self.rate)


def predict(c: Constants, s: Setting, m: Machines) -> Prediction:
    """Predict steps per second.

    Parameters
    ----------
    c
        Measured constants.
    s
        The run.
    m
        Its machines.
    """
    parts = parts_of(c, s, m)
    return Prediction(tuple(sorted(parts, key=lambda part: part.bound)))


def parts_of(c: Constants, s: Setting, m: Machines) -> list[Part]:
    """Return the parts of a run; docs/how-it-works/scaling.md has an equation for each."""
    bounds = [part.bound for part in _parts(c, s, m, versions=0.0)]
    fastest = min((bound for bound in bounds if bound), default=0.0)  # of parts with a bound
    return _parts(c, s, m, versions_sent(c, s, m, fastest))


def _parts(c: Constants, s: Setting, m: Machines, versions: float) -> list[Part]:
    """Return the parts of a run whose nodes receive a share of the versions, if the receiver has time for it."""
    step = c.lane + c.call / s.lanes
    send = c.send_block / (s.lanes * s.segment) + c.send_byte * s.step_nbytes
    receive = c.receive_block / (s.lanes * s.segment) + c.receive_byte * s.step_nbytes
    tell, hear = c.tell + c.tell_byte * s.weights_nbytes, c.hear + c.hear_byte * s.weights_nbytes
    tree = _tree(s.nodes)
    tell_all = tree.nearest * tell / s.steps_per_version
    # A busy receiver sends only the newest version, which takes no more time than receiving.
    least = min(tell_all, receive)
    told = max(versions * tell_all, least)
    heard = told / tree.nearest * s.nodes * hear / tell if tell else 0.0
    reduce = s.learners * c.reduce_byte * s.weights_nbytes / s.steps_per_version if s.learners > 1 else 0.0
    learn = c.learn + reduce  # over all learners: all wait while gradients are averaged
    asked = GATHER_SECONDS / gather_seconds(s.nodes)  # how often, relative to a run with few nodes
    hosts = s.nodes * c.host
    supervise = c.supervisor + (tree.gateways + s.nodes * asked * (READ_SHARE if tree.gateways else 1.0)) * c.supervise
    workers = s.nodes * min(s.workers, m.node_cores)
    slots = s.nodes * s.workers * s.lanes * s.slots
    waiting = 0.0 if s.takes_turns else (s.batch - 1) / 2  # mean wait for a complete batch, in segments
    # Seconds from a slot's first step until it is granted again; its block queues behind those of all nodes.
    turn = s.segment * s.lanes * step + c.trip * (1 + tree.depth) + (tree.nearest + tree.widest) * tell

    stepping = [
        Part(ROLLOUT, workers, 0.0, step),
        Part(LANES, slots, waiting, turn / s.segment),
        Part(NODES, s.nodes * m.node_cores, hosts, step + send + heard),
        Part(SENDERS, s.nodes, 0.0, send + heard),
        Part(NETWORK, m.bandwidth, 0.0, s.step_nbytes),
        Part(RECEIVER, 1.0, 0.0, receive + least),
    ]
    learners = Part(LEARNERS, s.learners, 0.0, learn)
    parts = [
        *stepping,
        learners,
        Part(HOME, m.home_cores, supervise, receive + told + learn),
        Part(SUPERVISOR, 1.0, supervise, 0.0),
    ]
    if s.takes_turns:
        slowest = min(part.bound for part in stepping)
        both = (1.0 / slowest if slowest else math.inf) + 1.0 / learners.bound + c.trip / s.steps_per_version
        parts.append(Part(TURNS, 1.0, 0.0, both))
    if m.shared_cores is not None:
        of_all = step + send + heard + receive + told + learn
        parts.append(Part(MACHINE, m.shared_cores, supervise + hosts, of_all))
    return parts


def versions_sent(c: Constants, s: Setting, m: Machines, rate: float) -> float:
    """Return the share of the versions that each node receives at a rate.

    It is limited by the receivers of home and of the gateways, and by their network.
    """
    if rate <= 0.0:
        return 1.0
    receive = c.receive_block / (s.lanes * s.segment) + c.receive_byte * s.step_nbytes
    tree, shares = _tree(s.nodes), [1.0]
    for ends, received in ((tree.nearest, rate), (tree.widest, rate * tree.widest / s.nodes)):
        if ends:
            versions = ends * rate / s.steps_per_version  # to all of them, per second
            shares.append(max(0.0, 1.0 - received * receive) / (versions * (c.tell + c.tell_byte * s.weights_nbytes)))
            shares.append(m.bandwidth / (versions * s.weights_nbytes))
    return min(shares)


@dataclass(frozen=True)
class _Tree:
    """Ends that home sends to, gateways and levels of them, and the largest number of nodes of a gateway."""

    nearest: int
    gateways: int = 0
    depth: int = 0
    widest: int = 0


def _tree(num_nodes: int) -> _Tree:
    levels = levels_of(num_nodes, None)
    if not levels:
        return _Tree(num_nodes)
    return _Tree(len(levels[0]), sum(map(len, levels)), len(levels), max(map(len, levels[-1])))
