"""Cost of many nodes at home, measured with fake nodes: connections that speak the protocol of a node.

    python bench/fake_nodes.py [--nodes 10 100 1000] [--seconds S] [--blocks | --bytes | --faults | --hosts] [--alone]
        [--pixels] [--write]

Home is a process with a receiver, and for ``--blocks`` another that frees full slots at once, like a learner. There are
as many gateways as in a run with this number of nodes, each a process with the roles of a run; ``--alone`` leaves them
out. All fake nodes are in one other process, each with its own connection: they prove the token, send signs of life,
and with ``--blocks`` fill each granted slot at once with a recorded segment. Lines, for each number of nodes:

- seconds until all nodes have joined;
- CPU of home, in per cent of a core, while nodes send nothing but signs of life;
- copies of a version of the weights that home sends, of ten versions;
- segments/s and MB/s that home accepts (``--blocks``), and its CPU per segment;
- with ``--faults``, the longest time without a segment of the other nodes after 100 nodes (or a tenth of them, if that
  is fewer) were killed at once, and after a gateway was; and seconds until the gateway's successor has all its nodes.

With ``--bytes`` home is measured twice, in turns, without gateways: as with ``--blocks``, and as a loop that reads the
same frames into as much memory as the slots have and grants the same slots, which is the cost of the bytes and their
system calls. ``--pixels`` fills segments with stacks of four frames of 84 x 84 bytes instead of CartPole's numbers.

CPU is that of home's process, without the fake nodes and without the supervisor of a run, which asks hosts through Ray.
With ``--hosts`` this asking is measured instead: a process asks fake hosts by `penstock.engine.nodes.hosted.Asked`, as
often as a run with this number of nodes does. Up to 250 hosts are one Ray actor, which answers with reports of two
rollout workers.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import itertools
import json
import math
import mmap
import multiprocessing
import os
import pickle
import resource
import secrets
import selectors
import signal
import socket
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import ray

from penstock.config.nodes import levels_of
from penstock.engine.contracts import RoleSpec
from penstock.engine.nodes.choosing import Wanted
from penstock.engine.nodes.host import HostReports, HostTask, gather_seconds, with_paths
from penstock.engine.nodes.hosted import Asked, poll_answers
from penstock.engine.nodes.node import Node
from penstock.engine.nodes.receiver import ReceiverRole
from penstock.engine.nodes.sender import Home, keep_all_slots
from penstock.engine.nodes.tasks import relay_roles
from penstock.engine.nodes.transport import transport_of
from penstock.engine.paths.segments import SegmentPath
from penstock.envs.spaces import ActionSpec, ObservationSpec
from penstock.experience.arena import ExperienceArena
from penstock.experience.layout import RunShape
from penstock.ipc import set_parent_death_signal
from penstock.ipc.stream import ALIVE_INTERVAL, HEADER, Frame, Kind, array_views, connect, welcome
from penstock.runs.machine import describe, machine_facts
from penstock.runs.status import NodeStatus

HISTORY = Path(__file__).parent / "history" / "current.jsonl"
GROUP = "Many nodes: home with fake nodes on the same two cores"
TOKEN, RUN = secrets.token_bytes(32), 1
LANES = 16  # of a node
POLL = 0.1  # seconds: longest sleep of home's role, as in a run
PATIENCE = 60.0  # seconds for all nodes to join
JOINING = 100  # nodes that connect, or are killed, at once
VERSIONS = 10  # whose copies are counted
FAULT_SECONDS = 5.0  # in which pauses are measured after a fault
HOSTS_OF_ACTOR = 250
FLAGS = ("blocks", "bytes", "pixels", "faults", "hosts", "alone")
ASK_INTERVAL = 0.05  # seconds between two polls of the hosts, as by a supervisor between reports of its roles


OBSERVATIONS = {False: ObservationSpec((4,), "float32"), True: ObservationSpec((4, 84, 84), "uint8")}
observation = OBSERVATIONS[False]


def shape_of(num_nodes: int) -> RunShape:
    """Return the shape of a run with one rollout worker of 16 lanes on each node."""
    return RunShape(
        num_workers=num_nodes, num_envs_per_worker=LANES, num_groups=1, segment_length=16, slots_per_lane=2,
        segments_per_batch=LANES, observation=observation,
        action=ActionSpec((), "int64", num_actions=2), records=(), state_size=0, weights_nbytes=1 << 15,
    )  # fmt: skip


class End:
    """Process of home or of a gateway; `ask` returns its clocks and counts."""

    def __init__(self, target: Any, *arguments: Any) -> None:
        self._pipe, end = multiprocessing.Pipe()
        self._process = multiprocessing.Process(target=target, args=(*arguments, end), daemon=True)
        self._process.start()
        self.address: tuple[str, int] = self._pipe.recv()

    def ask(self, version: int = 0) -> dict[str, float]:
        """Return time, CPU seconds so far, connected nodes, accepted segments, and bytes of weights sent.

        Parameters
        ----------
        version
            Version of the weights that home publishes; 0: none.
        """
        self._pipe.send(version)
        found: dict[str, float] = self._pipe.recv()
        return found

    def close(self) -> None:
        """Kill the process."""
        self._process.kill()
        self._process.join()


class Tree:
    """Home, and gateways between it and a number of nodes."""

    def __init__(self, num_nodes: int, consumes: bool, *, alone: bool, home: Any = None) -> None:
        levels = [] if alone else levels_of(num_nodes, None)
        self.num_nodes = num_nodes
        self.nodes = [range(node, node + 1) for node in range(num_nodes)]
        self._parts = dict(zip(range(len(levels)), [*levels[1:], self.nodes], strict=False))
        self.tops = tops = levels[0] if levels else self.nodes
        self.home = End(home or _home, num_nodes, tops, consumes)
        self.gateways: dict[range, End] = {}
        self.leaves = levels[-1] if levels else []
        for level, gateways in enumerate(levels):
            for gateway in gateways:
                self.start(level, gateway, tops if level == 0 else levels[level - 1])

    def start(self, level: int, gateway: range, above: list[range], incarnation: int = 1) -> None:
        """Start a gateway."""
        if level == 0:
            place = self.home.address, above.index(gateway)
        else:
            parent = next(each for each in above if gateway.start in each)
            parts = [part for part in self._parts[level - 1] if part.start in parent]
            place = self.gateways[parent].address, parts.index(gateway)
        parts = [part for part in self._parts[level] if part.start in gateway]
        self.gateways[gateway] = End(_gateway, place, incarnation, gateway, parts)

    def places(self, nodes: range) -> dict[int, tuple[tuple[str, int], int]]:
        """Return the address that each node connects to, and its number there."""
        leaf_of = {node: leaf for leaf in self.leaves for node in leaf}
        return {
            node: (self.gateways[leaf_of[node]].address, node - leaf_of[node].start)
            if node in leaf_of else (self.home.address, node)
            for node in nodes
        }  # fmt: skip

    @property
    def num_there(self) -> int:
        """Nodes that are connected."""
        ends = [self.gateways[leaf] for leaf in self.leaves] or [self.home]
        return sum(int(end.ask()["there"]) for end in ends)

    def until_joined(self) -> float:
        """Return the seconds until all nodes, and all gateways, are connected."""
        began = time.monotonic()
        while self.num_there < self.num_nodes or self.home.ask()["there"] < len(self.tops):
            if time.monotonic() - began > PATIENCE:
                raise SystemExit(f"{self.num_there} of {self.num_nodes} nodes have joined within {PATIENCE:.0f} s")
            time.sleep(0.05)
        return time.monotonic() - began

    def close(self) -> None:
        """End all processes."""
        for end in (*self.gateways.values(), self.home):
            end.close()


def _home(num_nodes: int, tops: list[range], consumes: bool, pipe: Any) -> None:
    arena = ExperienceArena.create(shape_of(num_nodes))
    arena.weights.publish(np.zeros(arena.weights.size, np.uint8), 1)
    taken = np.frombuffer(mmap.mmap(-1, 8), np.int64)
    spec = ReceiverRole("127.0.0.1", TOKEN, RUN, tops, (transport_of(SegmentPath()),), (False,))
    if consumes and not os.fork():
        set_parent_death_signal(signal.SIGKILL, os.getppid())
        _consume(arena, taken)
    _serve(arena, [spec], taken, pipe)


def _home_of_bytes(num_nodes: int, tops: list[range], consumes: bool, pipe: Any) -> None:
    """Read the blocks of each node into two unused places in turn, and grant the node their slots again."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=num_nodes)
    slots = np.arange(LANES)
    grant = [
        memoryview(Frame(Kind.GRANT, RUN, 1, count=LANES, nbytes=slots.nbytes).packed()),
        *array_views(slots),
    ]
    size = LANES * (segment_nbytes() + 64)
    room = memoryview(np.zeros(2 * num_nodes * size, np.uint8))
    streams: dict[int, Any] = {}
    places: dict[int, int] = {}
    taken, there = 0, 0
    pipe.send(listener.getsockname()[:2])
    with selectors.DefaultSelector() as ready:
        ready.register(pipe, selectors.EVENT_READ)
        ready.register(listener, selectors.EVENT_READ)
        while True:
            for key, _ in ready.select(POLL):
                if key.fileobj is pipe:
                    pipe.recv()
                    now, cpu = time.monotonic(), time.process_time()
                    pipe.send({"time": now, "cpu": cpu, "there": there, "taken": taken, "weights": 0})
                elif key.fileobj is listener:
                    stream, _, _ = welcome(listener.accept()[0], TOKEN, RUN)
                    streams[stream.fileno()], places[stream.fileno()], there = stream, 2 * there, there + 1
                    ready.register(stream, selectors.EVENT_READ)
                    stream.send_raw([*grant])
                else:
                    stream = streams[key.fd]
                    try:
                        frame = stream.receive()
                        place = places[key.fd]
                        stream.receive_into([room[place * size : place * size + frame.nbytes]])
                    except OSError:
                        return
                    if frame.kind is Kind.BLOCK:
                        taken += frame.count
                        places[key.fd] = place ^ 1
                        stream.send_raw([*grant])


def _gateway(
    above: tuple[tuple[str, int], int], incarnation: int, nodes: range, parts: list[range], pipe: Any
) -> None:  # fmt: skip
    arena = ExperienceArena.create(replace(shape_of(len(nodes)), first_worker=nodes.start))
    keep_all_slots(arena)
    transports = [transport_of(SegmentPath()).to_node()]
    workers = [range(part.start - nodes.start, part.stop - nodes.start) for part in parts]
    roles = relay_roles(Home(above[0], TOKEN, RUN, above[1], incarnation), "127.0.0.1", workers, transports, (False,))
    _serve(arena, with_paths(HostTask(arena.shape, roles, False, transports), arena), np.zeros(1, np.int64), pipe)


def _serve(arena: ExperienceArena, specs: Sequence[RoleSpec], taken: np.ndarray, pipe: Any) -> None:
    """Run the receiver of home or of a gateway, and its senders; answer questions."""
    report: Any = pickle.dumps  # reports are pickled, as in a run
    receiver, *senders = [spec.build(arena, report) for spec in specs]
    for sender in senders:
        threading.Thread(target=_relay, args=(sender,), daemon=True).start()
    found: Any = receiver
    pipe.send(found.address)

    def answers() -> None:
        if version := pipe.recv():
            arena.weights.publish(np.zeros(arena.weights.size, np.uint8), version)
            arena.ring_rollout_workers()
        statuses = [lanes.status() for lanes in found._lanes[0]]
        there, weights = sum(each.is_connected for each in statuses), sum(each.weights_nbytes for each in statuses)
        facts = {"time": time.monotonic(), "cpu": time.process_time(), "there": there, "taken": int(taken[0])}
        pipe.send(facts | {"weights": weights})

    _poll(receiver, lambda: pipe.poll() and answers())


def _relay(sender: Any) -> None:
    """Poll a gateway's sender, which ends the gateway with its connection."""
    try:
        _poll(sender)
    finally:
        os._exit(1)


def _poll(role: Any, between: Callable[[], object] = lambda: None) -> None:
    """Poll a role without end, as its process in a run does."""
    while True:
        seen = role.bell.value
        has_worked = role.poll()
        between()
        if not has_worked:
            role.bell.wait(seen, POLL)


def _consume(arena: ExperienceArena, taken: np.ndarray) -> None:
    """Free full slots, like a learner without work."""
    while True:
        seen = arena.learner_bell.value
        slots = arena.take_full()
        taken[0] += len(slots)
        if len(slots):
            arena.release(slots)
        else:
            arena.learner_bell.wait(seen, POLL)


class FakeNode:
    """A connection of a node."""

    def __init__(self, place: tuple[tuple[str, int], int], incarnation: int, payload: np.ndarray) -> None:
        hello = Frame(Kind.HELLO, RUN, incarnation)
        self.stream = connect(place[0], TOKEN, hello, {"node": place[1], "policy": 0})
        self._payload = payload  # bytes of one segment's columns, [segments, bytes]
        self._incarnation, self._number = incarnation, 0

    def receive(self, *, fills: bool) -> None:
        """Receive one frame; fill granted slots."""
        frame = self.stream.receive()
        data = self.stream.receive_bytes(frame.nbytes)
        if frame.kind is Kind.GRANT and fills:
            table = np.zeros((frame.count, 3), np.int64)
            table[:, 0] = np.frombuffer(data, np.int64)
            views = [table.reshape(-1).view(np.uint8).data, self._payload[: frame.count].reshape(-1).data]
            self._number += 1
            nbytes = sum(view.nbytes for view in views)
            block = Frame(
                Kind.BLOCK, RUN, self._incarnation, number=self._number, count=frame.count, nbytes=nbytes
            )  # fmt: skip
            self.stream.send(block, views)

    def sign(self) -> None:
        """Send a sign of life."""
        self.stream.send(Frame(Kind.ALIVE, RUN, self._incarnation))


class FakeNodes:
    """Process of all fake nodes; `change` kills some, and `join` connects some."""

    def __init__(self, fills: bool) -> None:
        self._pipe, end = multiprocessing.Pipe()
        self._process = multiprocessing.Process(target=_nodes, args=(fills, end), daemon=True)
        self._process.start()

    def join(self, places: dict[int, tuple[tuple[str, int], int]], incarnation: int = 1) -> None:
        """Connect nodes to the given addresses and numbers."""
        self._pipe.send([(number, place, incarnation) for number, place in places.items()])

    def kill(self, nodes: Sequence[int]) -> None:
        """End the connections of nodes at once."""
        self._pipe.send([(number, None, 0) for number in nodes])

    def close(self) -> None:
        """Kill the process."""
        self._process.kill()
        self._process.join()


def _nodes(fills: bool, pipe: Any) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    payload = np.zeros((2 * LANES, segment_nbytes()), np.uint8)
    nodes: dict[int, FakeNode] = {}
    waiting: list[Any] = []  # to be connected, or killed
    with selectors.DefaultSelector() as ready:
        ready.register(pipe, selectors.EVENT_READ)

        def drop(number: int) -> None:
            if (node := nodes.pop(number, None)) is not None:
                ready.unregister(node.stream)
                node.stream.close()

        signs = 0.0  # spread over their interval, as with real machines
        before = time.monotonic()
        while True:
            now = time.monotonic()
            signs, before = signs + (now - before) / ALIVE_INTERVAL * len(nodes), now
            for number in list(nodes)[: int(signs)]:
                signs -= 1
                try:
                    nodes[number].sign()
                    nodes[number] = nodes.pop(number)  # to the end of the queue
                except OSError:
                    drop(number)
            for number, place, incarnation in waiting[:JOINING]:
                drop(number)
                if incarnation:
                    nodes[number] = FakeNode(place, incarnation, payload)
                    ready.register(nodes[number].stream, selectors.EVENT_READ, number)
            del waiting[:JOINING]
            for key, _ in ready.select(0.0 if waiting else 0.01):
                if key.data is None:
                    waiting += pipe.recv()
                elif key.data in nodes:
                    try:
                        nodes[key.data].receive(fills=fills)
                    except OSError:  # a gateway is gone
                        drop(key.data)


def segment_nbytes() -> int:
    """Return the bytes of one segment's columns."""
    shape = shape_of(1)
    columns = ExperienceArena.create(shape).columns.values()
    return sum(column.nbytes for column in columns) // shape.num_slots


def beside_bytes(num_nodes: int, options: argparse.Namespace) -> dict[str, float]:
    """Return medians of the cost of a segment at home, and of the cost of its bytes alone, measured in turns."""
    turns = [
        (measure(num_nodes, options), measure(num_nodes, options, home=_home_of_bytes)) for _ in range(options.rounds)
    ]

    def median(name: str, place: int) -> float:
        return statistics.median(turn[place][name] for turn in turns)

    cpu, rate = "cpu_microseconds_per_segment", "segments_per_second"
    return {
        "nodes": num_nodes, rate: median(rate, 0), "of_bytes_per_second": median(rate, 1), cpu: median(cpu, 0),
        "of_bytes_microseconds": median(cpu, 1), "rate_over_bytes": median(rate, 0) / median(rate, 1),
        "cpu_over_bytes": median(cpu, 0) / median(cpu, 1),
    }  # fmt: skip


def measure(num_nodes: int, options: argparse.Namespace, home: Any = None) -> dict[str, float]:
    """Return the measured figures of a number of nodes; `home` replaces the process of home."""
    fills = options.blocks or options.faults or options.bytes
    tree, nodes = Tree(num_nodes, fills, alone=options.alone, home=home), FakeNodes(fills)
    try:
        nodes.join(tree.places(range(num_nodes)))
        joined = tree.until_joined()
        time.sleep(1.0)
        found = {"nodes": num_nodes, "gateways": len(tree.gateways), "joined_seconds": joined}
        if options.faults:
            return found | _faults(tree, nodes)
        before = tree.home.ask()
        time.sleep(options.seconds)
        after = tree.home.ask()
        took, cpu = after["time"] - before["time"], after["cpu"] - before["cpu"]
        found["cpu_percent"] = 100 * cpu / took
        if options.blocks or options.bytes:
            taken = after["taken"] - before["taken"]
            found |= {
                "segments_per_second": taken / took, "megabytes_per_second": taken * segment_nbytes() / took / 1e6,
                "cpu_microseconds_per_segment": 1e6 * cpu / max(taken, 1),
            }  # fmt: skip
        else:
            found["copies"] = _copies(tree)
        if (there := tree.num_there) < num_nodes:
            raise SystemExit(f"home has lost nodes: {there} of {num_nodes} are left")
        return found
    finally:
        nodes.close()
        tree.close()


def _copies(tree: Tree) -> float:
    """Return the mean number of copies of a version that home sends."""
    before = tree.home.ask()["weights"]
    for version in range(2, 2 + VERSIONS):
        tree.home.ask(version)
        time.sleep(0.5)
    return (tree.home.ask()["weights"] - before) / VERSIONS / (shape_of(1).weights_nbytes + HEADER.size)


def _faults(tree: Tree, nodes: FakeNodes) -> dict[str, float]:
    """Kill nodes, then a gateway; return the longest times without a segment, and seconds until all are back."""
    killed = range(min(100, tree.num_nodes // 10))
    nodes.kill(killed)
    found = {"killed": len(killed), "pause_seconds": _longest_pause(tree)}
    nodes.join(tree.places(killed), 2)
    tree.until_joined()
    if tree.leaves:
        leaf = tree.leaves[-1]
        tree.gateways[leaf].close()
        found["gateway_pause_seconds"] = _longest_pause(tree)
        level = 0 if leaf in tree.tops else 1
        tree.start(level, leaf, tree.tops, incarnation=2)
        nodes.join(tree.places(leaf), 2)
        found["back_seconds"] = tree.until_joined()
    return found


def _longest_pause(tree: Tree) -> float:
    """Return the longest time in some seconds without an accepted segment."""
    longest, taken, since = 0.0, -1.0, time.monotonic()
    end = since + FAULT_SECONDS
    while (now := time.monotonic()) < end:
        longest = max(longest, now - since)
        if (seen := tree.home.ask()["taken"]) != taken:
            taken, since = seen, now
        time.sleep(0.005)
    return longest


class FakeHosts:
    """Actor that answers for many hosts, or gateways."""

    async def gather(self, seconds: float) -> HostReports:
        """Return reports of a host after some seconds."""
        await asyncio.sleep(seconds)
        return HostReports(gauges={f"rollout-{number}": np.zeros(16) for number in range(2)})

    async def gather_below(self, seconds: float, num_nodes: int, hosts_gather: float) -> HostReports:
        """Return reports of a gateway after some seconds: those of the hosts that have answered, and statuses."""
        await asyncio.sleep(seconds)
        share = range(round(num_nodes * seconds / hosts_gather))
        below = [(number, 1, await self.gather(0.0)) for number in share]
        return HostReports(below=below, seen={number: NodeStatus(lanes=32, is_connected=True) for number in share})


class FakeGateway(Asked):
    """A gateway of some nodes, played by an actor."""

    def __init__(self, actor: Any, gathers: float, num_nodes: int, hosts_gather: float) -> None:
        self._of_nodes = num_nodes, hosts_gather
        super().__init__(actor, gathers)
        self.nodes = [Node(number, Wanted(1)) for number in range(num_nodes)]

    def _ask(self) -> Any:
        return self._actor.gather_below.remote(self._gathers, *self._of_nodes)


def measure_hosts(num_nodes: int, seconds: float, *, alone: bool) -> dict[str, float]:
    """Return the CPU time in which home asks a number of hosts, or their gateways."""
    make: Any = ray.remote(num_cpus=0, max_concurrency=HOSTS_OF_ACTOR)(FakeHosts)
    actors = [make.remote() for _ in range(-(-num_nodes // HOSTS_OF_ACTOR))]
    ray.get([actor.gather.remote(0.0) for actor in actors])
    gathers, levels = gather_seconds(num_nodes), [] if alone else levels_of(num_nodes, None)
    hosts: list[Any] = [Asked(actors[number % len(actors)], gathers) for number in range(0 if levels else num_nodes)]
    for part in itertools.chain(*levels):
        below = len(part) if part in levels[-1] else 0
        hosts.append(FakeGateway(actors[part.start % len(actors)], gather_seconds(len(levels)), below, gathers))

    def ask(seconds: float) -> int:
        answers, end = 0, time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(ASK_INTERVAL)
            poll_answers(hosts)
            for host in hosts:
                if (answer := host.answer(is_connected=True, delay=0.0)) is not None:
                    answers += 1
                    for number, status in answer.seen.items():
                        host.nodes[number].update(status)
        return answers

    ask(2 * gathers)
    began, cpu = time.monotonic(), time.process_time()
    answers = ask(seconds)
    took, cpu = time.monotonic() - began, time.process_time() - cpu
    for actor in actors:
        ray.kill(actor)
    return {"nodes": num_nodes, "answers_per_second": answers / took, "asking_percent": 100 * cpu / took}


def records(found: dict[str, float], options: argparse.Namespace) -> list[dict[str, Any]]:
    """Return rows of the history."""
    facts, num_nodes = machine_facts(), int(found["nodes"])
    rows: list[tuple[str, float, str, str, str | None, float]]
    mark, nodes = f"fake-nodes-{num_nodes}", f"{num_nodes:,} nodes"
    if options.alone:
        mark, nodes = f"{mark}-alone", f"{nodes} without gateways"
    if options.hosts:
        asking = found["asking_percent"]
        rows = [("asking", asking, "% of a core", "CPU of home that asks hosts through Ray", None, math.inf)]
    elif options.faults:
        rows = [("pause", found["pause_seconds"], "s", "longest pause after a tenth or 100 were killed", "<= 2", 2)]
        if "back_seconds" in found:
            rows += [
                (
                    "gateway-pause",
                    found["gateway_pause_seconds"],
                    "s",
                    "longest pause after a gateway was killed",
                    "<= 2",
                    2,
                ),
                ("gateway-back", found["back_seconds"], "s", "seconds until another has its nodes", None, math.inf),
            ]
    elif options.bytes:
        what = "pixels" if options.pixels else "vectors"
        ratio = found["rate_over_bytes"]
        home, alone = found["cpu_microseconds_per_segment"], found["of_bytes_microseconds"]
        rows = [
            (f"{what}-over-bytes", ratio, "", f"accepted segments of {what}, over bytes alone", ">= 0.8", -0.8),
            (f"{what}-cpu", home, "us", f"CPU of home for each segment of {what}", None, math.inf),
            (f"{what}-bytes-cpu", alone, "us", f"CPU for the bytes alone of a segment of {what}", None, math.inf),
        ]
    elif options.blocks:
        rate, cpu = found["segments_per_second"], found["cpu_microseconds_per_segment"]
        rows = [
            ("segments", rate, "segments/s", "accepted segments of CartPole", None, math.inf),
            ("segment-cpu", cpu, "us", "CPU of home for each", None, math.inf),
        ]
    else:
        most: tuple[str | None, float] = (None, math.inf) if options.alone else ("<= 8", 8)  # alone, each has its own
        rows = [
            ("idle", found["cpu_percent"], "% of a core", "CPU of home's receiver, nodes idle", "<= 10", 10),
            ("join", found["joined_seconds"], "s", "seconds until all have joined", "<= 30", 30),
            ("copies", found["copies"], "", "copies of a version of the weights that home sends", *most),
        ]
    return [
        {
            "group": GROUP, "mark": f"{mark}-{name}", "what": f"{nodes}: {what}",
            "value": float(f"{value:.2g}"), "unit": unit, "spread": {"lowest": None, "highest": None}, "against": None,
            "target": target, "met": None if target is None else value <= limit if limit > 0 else value >= -limit,
            "machine": f"{facts['cpu']}, {facts['cores']:g} cores",
            "commit": (facts["commit"] or "").removesuffix("-dirty"),
            "rounds": None, "seeds": None, "date": datetime.date.today().isoformat(),
            "command": f"python bench/fake_nodes.py --nodes {num_nodes} --seconds {options.seconds:g}"
            + "".join(f" --{flag}" for flag in FLAGS if getattr(options, flag)),
        }
        for name, value, unit, what, target, limit in rows
    ]  # fmt: skip


def main() -> None:
    """Measure, and print a line for each number of nodes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, nargs="+", default=[10, 100, 1000])
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--blocks", action="store_true")
    parser.add_argument("--bytes", action="store_true")
    parser.add_argument("--rounds", type=int, default=3, help="turns with --bytes")
    parser.add_argument("--pixels", action="store_true")
    parser.add_argument("--faults", action="store_true")
    parser.add_argument("--hosts", action="store_true")
    parser.add_argument("--alone", action="store_true", help="without gateways")
    parser.add_argument("--write", action="store_true", help="store the figures in bench/history/current.jsonl")
    options = parser.parse_args()
    options.alone |= options.bytes
    globals()["observation"] = OBSERVATIONS[options.pixels]  # processes are forked
    print(describe(machine_facts()))
    rows = []
    if options.hosts:
        os.environ.setdefault("RAY_worker_niceness", "0")
        ray.init(num_cpus=1, include_dashboard=False, logging_level="ERROR", object_store_memory=100 * 2**20)
    for num_nodes in options.nodes:
        if options.hosts:
            found = measure_hosts(num_nodes, options.seconds, alone=options.alone)
        else:
            found = (beside_bytes if options.bytes else measure)(num_nodes, options)
        print("  ".join(f"{name} {value:.4g}" for name, value in found.items()), flush=True)
        rows += records(found, options)
    if options.write:
        marks = {row["mark"] for row in rows}
        kept = [line for line in HISTORY.read_text().splitlines() if json.loads(line)["mark"] not in marks]
        HISTORY.write_text("".join(f"{line}\n" for line in [*kept, *map(json.dumps, rows)]))


if __name__ == "__main__":
    main()
