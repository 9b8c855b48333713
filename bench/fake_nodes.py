"""Cost of many nodes at home, measured with fake nodes: connections that speak the protocol of a node.

    python bench/fake_nodes.py [--nodes 10 100 1000] [--seconds S] [--blocks | --hosts] [--write]

Home is a process with a receiver, and for ``--blocks`` a thread that frees full slots at once. All fake nodes are in
one other process, each with a connection of its own: they prove the token, send signs of life, and with ``--blocks``
fill each granted slot at once with a recorded segment. Lines, for each number of nodes:

- seconds until all nodes have joined;
- CPU of home, in per cent of a core, while nodes send nothing but signs of life;
- blocks/s and MB/s that home accepts (``--blocks``), and its CPU per block.

CPU is home's process alone: neither the fake nodes nor the supervisor of a run, which asks hosts through Ray. With
``--hosts`` that is measured instead: a process asks fake hosts by `penstock.engine.nodes.cluster.Hosted`, as often as a
run of so many nodes does. Up to 250 hosts are one actor of Ray, whose answers are reports of two rollout workers.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import json
import math
import multiprocessing
import os
import pickle
import resource
import secrets
import selectors
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import ray

from penstock.engine.nodes.cluster import Hosted, poll_answers
from penstock.engine.nodes.host import HostReports, gather_seconds
from penstock.engine.nodes.receiver import ReceiverRole
from penstock.engine.nodes.stream import ALIVE_INTERVAL, Frame, Kind, connect
from penstock.engine.nodes.transport import transport_of
from penstock.engine.paths.segment_learner import READER
from penstock.engine.paths.segments import SegmentPath
from penstock.envs.spaces import ActionSpec, ObservationSpec
from penstock.experience.arena import ExperienceArena
from penstock.experience.layout import RunShape
from penstock.ipc import SlotState
from penstock.runs.machine import describe, machine_facts

HISTORY = Path(__file__).parent / "history" / "current.jsonl"
GROUP = "Many nodes: home with fake nodes on the same two cores"
TOKEN, RUN = secrets.token_bytes(32), 1
LANES = 16  # of a node
POLL = 0.1  # seconds: longest sleep of home's role, as in a run
PATIENCE = 60.0  # seconds for all nodes to join
HOSTS_OF_ACTOR = 250
ASK_INTERVAL = 0.05  # seconds between two looks at the hosts, as a supervisor takes them between reports of its roles


def shape_of(num_nodes: int) -> RunShape:
    """Return the shape of a run of CartPole: one rollout worker of 16 lanes on each node."""
    return RunShape(
        num_workers=num_nodes, num_envs_per_worker=LANES, num_groups=1, segment_length=16, slots_per_lane=2,
        segments_per_batch=LANES, observation=ObservationSpec((4,), "float32"),
        action=ActionSpec((), "int64", num_actions=2), records=(), state_size=0, weights_nbytes=1 << 15,
    )  # fmt: skip


class Home:
    """Process of home; `ask` returns its clocks and counts."""

    def __init__(self, num_nodes: int, *, consumes: bool) -> None:
        self._pipe, end = multiprocessing.Pipe()
        arguments = (num_nodes, consumes, end)
        self._process = multiprocessing.Process(target=_home, args=arguments, daemon=True)
        self._process.start()
        self.address: tuple[str, int] = self._pipe.recv()

    def ask(self) -> dict[str, float]:
        """Return time, CPU seconds so far, connected nodes, and accepted segments."""
        self._pipe.send(None)
        found: dict[str, float] = self._pipe.recv()
        return found

    def until_joined(self, num_nodes: int) -> float:
        """Return the seconds until all nodes are connected."""
        began = time.monotonic()
        while self.ask()["there"] < num_nodes:
            if time.monotonic() - began > PATIENCE:
                raise SystemExit(f"not all of {num_nodes} nodes have joined within {PATIENCE:.0f} s")
            time.sleep(0.05)
        return time.monotonic() - began

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.join()


def _home(num_nodes: int, consumes: bool, pipe: Any) -> None:
    arena = ExperienceArena.create(shape_of(num_nodes))
    arena.weights.publish(np.zeros(arena.weights.size, np.uint8), 0)
    taken = [0]
    spec = ReceiverRole("127.0.0.1", TOKEN, RUN, num_nodes, (transport_of(SegmentPath()),), (False,))
    report: Any = pickle.dumps  # as a report of a run
    receiver: Any = spec.build(arena, report)
    if consumes:
        threading.Thread(target=_consume, args=(arena, taken), daemon=True).start()
    pipe.send(receiver.address)
    while True:
        seen = receiver.bell.value
        has_worked = receiver.poll()
        if pipe.poll():
            pipe.recv()
            there = sum(lanes.status().is_there for lanes in receiver._lanes[0])
            pipe.send({"time": time.monotonic(), "cpu": time.process_time(), "there": there, "taken": taken[0]})
        elif not has_worked:
            receiver.bell.wait(seen, POLL)


def _consume(arena: ExperienceArena, taken: list[int]) -> None:
    """Free full slots, as a learner without work."""
    while True:
        seen = arena.learner_bell.value
        slots = arena.full.pop_many(arena.full.capacity)
        slots = slots[arena.slots.claim(slots, SlotState.FULL, SlotState.READING, READER)]
        taken[0] += len(slots)
        if len(slots):
            arena.release(slots)
        else:
            arena.learner_bell.wait(seen, POLL)


class FakeNode:
    """A connection of a node."""

    def __init__(self, address: tuple[str, int], node: int, payload: np.ndarray) -> None:
        hello = Frame(Kind.HELLO, RUN, 1)
        self.stream = connect(address, TOKEN, hello, {"node": node, "policy": 0})
        self._payload = payload  # bytes of one segment's columns, [segments, bytes]
        self._number = 0

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
            block = Frame(Kind.BLOCK, RUN, 1, number=self._number, count=frame.count, nbytes=nbytes)
            self.stream.send(block, views)

    def sign(self) -> None:
        """Send a sign of life."""
        self.stream.send(Frame(Kind.ALIVE, RUN, 1))


def _nodes(address: tuple[str, int], num_nodes: int, fills: bool) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    payload = np.zeros((2 * LANES, segment_nbytes()), np.uint8)
    nodes = [FakeNode(address, node, payload) for node in range(num_nodes)]
    with selectors.DefaultSelector() as ready:
        for node in nodes:
            ready.register(node.stream, selectors.EVENT_READ, node)
        begin, sent = time.monotonic(), 0  # signs are spread over their interval, as those of machines are
        while True:
            now = time.monotonic()
            due = int((now - begin) / ALIVE_INTERVAL * num_nodes)
            while sent < due:
                nodes[sent % num_nodes].sign()
                sent += 1
            for key, _ in ready.select(0.01):
                key.data.receive(fills=fills)


def segment_nbytes() -> int:
    """Return the bytes of one segment's columns."""
    shape = shape_of(1)
    columns = ExperienceArena.create(shape).columns.values()
    return sum(column.nbytes for column in columns) // shape.num_slots


def measure(num_nodes: int, seconds: float, *, blocks: bool) -> dict[str, float]:
    """Return the measured figures of a number of nodes."""
    home = Home(num_nodes, consumes=blocks)
    nodes = multiprocessing.Process(target=_nodes, args=(home.address, num_nodes, blocks), daemon=True)
    try:
        nodes.start()
        joined = home.until_joined(num_nodes)
        time.sleep(1.0)
        before = home.ask()
        time.sleep(seconds)
        after = home.ask()
        if after["there"] < num_nodes:
            raise SystemExit(f"home has lost nodes: {after['there']:.0f} of {num_nodes} are left")
    finally:
        nodes.kill()
        nodes.join()
        home.close()
    took, cpu = after["time"] - before["time"], after["cpu"] - before["cpu"]
    found = {"nodes": num_nodes, "joined_seconds": joined, "cpu_percent": 100 * cpu / took}
    if blocks:
        taken = after["taken"] - before["taken"]
        found |= {"segments_per_second": taken / took, "megabytes_per_second": taken * segment_nbytes() / took / 1e6}
        found["cpu_microseconds_per_segment"] = 1e6 * cpu / max(taken, 1)
    return found


class FakeHost(Hosted):
    """A host that an actor plays together with others."""

    def __init__(self, actor: Any, gathers: float) -> None:
        self._actor, self._gathers, self._has_begun = actor, gathers, True
        self._await(actor.gather.remote(gathers))


class FakeHosts:
    """Actor that answers for many hosts."""

    async def gather(self, seconds: float) -> HostReports:
        """Return reports after some seconds."""
        await asyncio.sleep(seconds)
        return HostReports(gauges={f"rollout-{number}": np.zeros(16) for number in range(2)})


def measure_hosts(num_nodes: int, seconds: float) -> dict[str, float]:
    """Return the CPU time in which home asks a number of hosts."""
    make: Any = ray.remote(num_cpus=0, max_concurrency=HOSTS_OF_ACTOR)(FakeHosts)
    actors = [make.remote() for _ in range(-(-num_nodes // HOSTS_OF_ACTOR))]
    ray.get([actor.gather.remote(0.0) for actor in actors])
    hosts = [FakeHost(actors[number % len(actors)], gather_seconds(num_nodes)) for number in range(num_nodes)]

    def ask(seconds: float) -> int:
        answers, end = 0, time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(ASK_INTERVAL)
            poll_answers(hosts)
            answers += sum(host.answer(is_connected=True, delay=0.0) is not None for host in hosts)
        return answers

    ask(2 * gather_seconds(num_nodes))
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
    if options.hosts:
        asking = found["asking_percent"]
        rows = [("asking", asking, "% of a core", "CPU of home that asks hosts through Ray", None, math.inf)]
    elif options.blocks:
        rate = found["segments_per_second"]
        rows = [("segments", rate, "segments/s", "accepted segments of CartPole", None, math.inf)]
    else:
        rows = [
            ("idle", found["cpu_percent"], "% of a core", "CPU of home's receiver, nodes idle", "<= 10", 10),
            ("join", found["joined_seconds"], "s", "seconds until all have joined", "<= 30", 30),
        ]
    return [
        {
            "group": GROUP, "mark": f"fake-nodes-{num_nodes}-{name}", "what": f"{num_nodes:,} nodes: {what}",
            "value": float(f"{value:.2g}"), "unit": unit, "spread": {"lowest": None, "highest": None}, "against": None,
            "target": target, "met": None if target is None else value <= limit,
            "machine": f"{facts['cpu']}, {facts['cores']:g} cores",
            "commit": (facts["commit"] or "").removesuffix("-dirty"),
            "rounds": None, "seeds": None, "date": datetime.date.today().isoformat(),
            "command": f"python bench/fake_nodes.py --nodes {num_nodes} --seconds {options.seconds:g}"
            + (" --blocks" if options.blocks else " --hosts" if options.hosts else ""),
        }
        for name, value, unit, what, target, limit in rows
    ]  # fmt: skip


def main() -> None:
    """Measure, and print a line for each number of nodes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, nargs="+", default=[10, 100, 1000])
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--blocks", action="store_true")
    parser.add_argument("--hosts", action="store_true")
    parser.add_argument("--write", action="store_true", help="store the figures in bench/history/current.jsonl")
    options = parser.parse_args()
    print(describe(machine_facts()))
    rows = []
    if options.hosts:
        os.environ.setdefault("RAY_worker_niceness", "0")
        ray.init(num_cpus=1, include_dashboard=False, logging_level="ERROR", object_store_memory=100 * 2**20)
    for num_nodes in options.nodes:
        if options.hosts:
            found = measure_hosts(num_nodes, options.seconds)
        else:
            found = measure(num_nodes, options.seconds, blocks=options.blocks)
        print("  ".join(f"{name} {value:.4g}" for name, value in found.items()), flush=True)
        rows += records(found, options)
    if options.write:
        marks = {row["mark"] for row in rows}
        kept = [line for line in HISTORY.read_text().splitlines() if json.loads(line)["mark"] not in marks]
        HISTORY.write_text("".join(f"{line}\n" for line in [*kept, *map(json.dumps, rows)]))


if __name__ == "__main__":
    main()
