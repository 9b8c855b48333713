"""Random faults of two isolated nodes: detection, recovery and exact counting of steps.

    python bench/node_failures.py [--faults 30] [--minutes M] [--seed 1] [--pause 4] [--patience 300]

APPO learns CartPole with numbered steps. Each node has its own network, process numbers and shared memory (root and
Linux namespaces are needed). Each fault kills the host, another process or the raylet of a node, or cuts its link;
raylet and link are restored up to 20 s after the fault was noticed. The next fault follows when the node's lanes step
again.

Noticed: the live view shows the fault. Back: more steps have arrived from the node than can have been in transit.
Counted exactly: the learner records each step that it learns from; the run's count is the number of records, no step is
recorded twice, and none is missing before a later step of its environment. The exit code is 3 if a mark is missed.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # for tests.engine.isolated_nodes

from torturing import ledger
from torturing.counted import CountedAPPO

from penstock.engine.trainer import Trainer
from penstock.runs.machine import describe
from penstock.runs.status import NodeStatus
from tests.engine.isolated_nodes import IsolatedCluster, IsolatedNode

BENCH = Path(__file__).parent
NAMES = ("left", "right")
KINDS = ("host", "other process", "raylet", "link")
LIFE = "0"
NOTICED_SECONDS = 5.0
TARGET = 475.0
LANES = 8
SECONDS = 0.0003  # that a step sleeps: the cores are few, and hosts start meanwhile
OUTAGE = 20.0  # longest time in seconds that a link or a raylet stays away after its loss was noticed
LOOK = 0.02  # seconds between two looks
GRACE = 20.0  # seconds after the run's end until which processes on nodes may end


@dataclass(frozen=True)
class Fault:
    """Fault of a node, and its consequences.

    Attributes
    ----------
    kind, node
        One of `KINDS`, and the node's name; `what` is the killed process.
    noticed, back
        Seconds after the fault.
    mended
        Seconds after the fault until the link or the raylet was restored; 0 if neither had failed.
    lost
        Whether the node was lost; otherwise it recovered by itself.
    """

    kind: str
    node: str
    what: str
    noticed: float
    mended: float
    back: float
    lost: bool


class Hang(Exception):
    """Timeout; the message names the expected event."""


class Misfortune:
    """Causes the faults of a run's nodes, from its own thread.

    Parameters
    ----------
    cluster, trainer
        The nodes, and the run that uses them.
    asked
        The command's arguments.
    """

    def __init__(self, cluster: IsolatedCluster, trainer: Trainer, asked: argparse.Namespace) -> None:
        self.faults: list[Fault] = []
        self.hang = ""
        self._cluster, self._asked = cluster, asked
        self._progress = trainer._supervisor.progress
        shape = trainer._policies[0].arena.shape
        self._on_the_way = shape.num_slots * shape.segment_length // len(NAMES)
        self._random = random.Random(asked.seed)
        self._end = time.monotonic() + 60.0 * asked.minutes
        self._thread = threading.Thread(target=self._strike_until_done)
        self._thread.start()

    @property
    def goes_on(self) -> bool:
        """Whether there are more faults to come."""
        return self._thread.is_alive()

    def join(self) -> None:
        """Wait for the end."""
        self._thread.join()

    def _strike_until_done(self) -> None:
        try:
            self._until(lambda: len(self._progress.nodes) == len(NAMES), "nodes are shown")
            while len(self.faults) < self._asked.faults and time.monotonic() < self._end:
                for number in self._progress.nodes:
                    self._until_it_steps(number)
                time.sleep(self._asked.pause * (0.5 + self._random.random()))
                fault = self._strike()
                self.faults.append(fault)
                print(
                    f"{len(self.faults):>3}  {fault.kind:<13} of {fault.node:<5}  noticed {fault.noticed:4.1f} s  "
                    f"mended {fault.mended:4.1f} s  back {fault.back:5.1f} s  "
                    f"{'lost' if fault.lost else 'recovered by itself'}  {fault.what}", flush=True,
                )  # fmt: skip
        except Hang as hang:
            self.hang = str(hang)

    def _strike(self) -> Fault:
        number = self._random.randrange(len(NAMES))
        kind = self._random.choice(KINDS)
        before, restarts = self._node(number), self._progress.restarts
        node = self._cluster.nodes[before.host]
        began, what = time.monotonic(), ""
        if kind == "link":
            node.cut()
        elif kind == "raylet":
            node.kill_raylet()
        else:
            victims = node.processes("NodeHost") if kind == "host" else node.processes("penstock-")
            victim = self._random.choice(sorted(victims, key=lambda process: process.pid))
            what = victim.cmdline()[0]
            victim.kill()

        def is_lost() -> bool:
            return not self._node(number).is_connected or self._node(number).faults > before.faults

        self._until(lambda: is_lost() or self._progress.restarts > restarts, f"{kind} of {node.name} is noticed")
        noticed, lost = time.monotonic() - began, is_lost()
        if kind in ("link", "raylet"):
            time.sleep(OUTAGE * self._random.random())
            self._mend(node)
        mended = time.monotonic() - began if kind in ("link", "raylet") else 0.0
        self._until_it_steps(number, node)
        return Fault(kind, node.name, what, noticed, mended, time.monotonic() - began, lost)

    def _until_it_steps(self, number: int, node: IsolatedNode | None = None) -> None:
        steps = self._node(number).steps
        enough = lambda: self._node(number).is_connected and self._node(number).steps > steps + self._on_the_way  # noqa: E731
        self._until(enough, f"lanes of node-{number} step", node)

    def _mend(self, node: IsolatedNode) -> None:
        if node.is_cut:
            node.mend()
        node.keep_ray(self._cluster.address)  # Ray was killed, or ended because the head took the node for dead

    def _node(self, number: int) -> NodeStatus:
        return self._progress.nodes[number]

    def _until(self, condition: Callable[[], object], what: str, node: IsolatedNode | None = None) -> None:
        end = time.monotonic() + self._asked.patience
        while not condition():
            if node is not None:
                self._mend(node)
            if time.monotonic() > end:
                raise Hang(f"waited {self._asked.patience:.0f} s in vain until {what}")
            time.sleep(LOOK)


def environment(number: int) -> dict[str, str]:
    """Variables of the processes on a node, with a ledger folder that numbers environments."""
    return {"PYTHONPATH": str(BENCH), ledger.FOLDER: "/tmp/ledger", ledger.LIFE: f"node-{number}"}


def table(faults: Sequence[Fault]) -> str:
    """Return the consequences of faults, by kind."""
    rows = [f"{'fault':<14} {'times':>5} {'lost':>5}  {'noticed: median, worst':>22}  {'back: median, worst':>20}"]
    for kind in (*KINDS, "all"):
        of_kind = [fault for fault in faults if kind in (fault.kind, "all")]
        if of_kind:
            noticed, back = [fault.noticed for fault in of_kind], [fault.back for fault in of_kind]
            rows.append(
                f"{kind:<14} {len(of_kind):>5} {sum(fault.lost for fault in of_kind):>5}  "
                f"{statistics.median(noticed):>13.1f} {max(noticed):>5.1f} s  "
                f"{statistics.median(back):>11.1f} {max(back):>5.1f} s"
            )
    return "\n".join(rows)


def main() -> int:
    """Run, strike, and count."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", type=int, default=30)
    parser.add_argument("--minutes", type=float, default=math.inf, help="time after which there are no more faults")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pause", type=float, default=4.0, help="mean seconds between faults")
    parser.add_argument("--patience", type=float, default=300.0, help="seconds of waiting that count as a hang")
    asked = parser.parse_args()
    print(describe())
    print(f"seed {asked.seed}", flush=True)
    place = Path(tempfile.mkdtemp(prefix="node-failures-"))
    (place / "ledger").mkdir()
    os.environ[ledger.FOLDER], os.environ[ledger.LIFE] = str(place / "ledger"), LIFE
    there = {name: environment(number) for number, name in enumerate(NAMES)}
    with IsolatedCluster(*NAMES, environment=there) as cluster:
        for number, node in enumerate(cluster.nodes.values()):
            node.do("mkdir", "/tmp/ledger")
            node.do("truncate", "-s", str(number + 1 << 20), "/tmp/ledger/environments")
        cluster.start()
        nodes = cluster.nodes.values()
        before = [node.shared_nbytes() for node in nodes]
        with Trainer(
            CountedAPPO, "torturing.cartpole:NumberedCartPole", env_kwargs={"seconds": SECONDS},
            encoder="torturing.cartpole:Cart", normalize_observations=False, max_policy_lag=10**6,
            num_workers=1, num_envs_per_worker=LANES, total_steps=10**9, eval_interval=50_000, seed=asked.seed,
            backend="ray", address=cluster.address, nodes=len(NAMES), run_dir=str(place / "run"),
        ) as trainer:  # fmt: skip
            misfortune = Misfortune(cluster, trainer, asked)
            result = trainer.train(on_update=lambda _: misfortune.goes_on, quiet=True)
            misfortune.join()
            status = trainer.status
            final = trainer.evaluate(50)
        end = time.monotonic() + GRACE
        while any(node.of_a_run() for node in nodes) and time.monotonic() < end:
            time.sleep(LOOK)
        left = [process.cmdline()[0] for node in nodes for process in node.of_a_run()]
        grown = [now - was for now, was in zip([node.shared_nbytes() for node in nodes], before, strict=True)]
    account = ledger.read(place / "ledger", LIFE)
    faults = misfortune.faults
    slowest = max((fault.noticed for fault in faults), default=0.0)
    marks = {
        f"noticed within {NOTICED_SECONDS:g} s: at most {slowest:.1f} s": slowest <= NOTICED_SECONDS,
        f"hangs: {misfortune.hang or 0}": not misfortune.hang,
        f"steps: counted {result.steps:,}, learned from {account.steps:,}, twice {account.twice}, "
        f"lost {account.lost}, torn {account.torn}":
            result.steps == account.steps and not (account.twice or account.lost or account.torn),
        f"return: best {status.best_return}, final {final.mean_return:.1f} over 50 episodes (target {TARGET:g})":
            (status.best_return or 0.0) >= TARGET,
        f"processes left on nodes: {len(left)} {left}": not left,
        f"bytes of shared memory left on nodes: {grown}": not any(grown),
        f"nodes lost: {sum(fault.lost for fault in faults)}, shown {sum(node.faults for node in status.nodes)}":
            sum(node.faults for node in status.nodes) >= sum(fault.lost for fault in faults),
    }  # fmt: skip
    print(f"\n{table(faults)}\n\n{status.restarts} workers replaced on nodes, {result.seconds / 60:.0f} minutes")
    for words, is_met in marks.items():
        print(f"{'yes' if is_met else 'NO':<4} {words}")
    print(f"the run is in {place / 'run'}")
    return 0 if all(marks.values()) else 3


if __name__ == "__main__":
    sys.exit(main())
