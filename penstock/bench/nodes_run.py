"""Training on nodes for measurement: its rate, and the cost of each part."""

from __future__ import annotations

import dataclasses
import os
import time
from collections import defaultdict
from dataclasses import dataclass

from penstock.algorithms.bases.algorithm import Algorithm
from penstock.bench import BenchError
from penstock.config import Config
from penstock.engine.nodes.backend import NodesBackend
from penstock.engine.trainer import Trainer
from penstock.engine.watching.time_spent import busy_seconds
from penstock.ipc import available_cores
from penstock.runs.process import cpu_seconds, family_of
from penstock.runs.status import Status

PATIENCE = 120.0  # seconds for a training to end


@dataclass(frozen=True)
class NodesRun:
    """Observations of a training during a time window.

    Attributes
    ----------
    nodes, lanes, slots, segment, batch
        Nodes, lanes of each rollout worker, slots of each lane, steps of a segment, segments of a batch.
    rate
        Steps per second learned from.
    steps_per_version
        Steps between two versions of the weights.
    step_nbytes
        Bytes of all columns per step.
    weights_nbytes
        Bytes per version.
    sent
        Bytes received from nodes, per step.
    versions_sent
        Share of the versions sent to each node.
    policy_lag
        Policy lag of the last batches.
    cpu
        Cores' worth of time of each kind of process, over all nodes: rollout, sender, host, receiver, learner,
        supervisor; and ray, all other descendants of this process.
    cores
        Cores' worth of time that other programs left on this machine.
    """

    nodes: int
    lanes: int
    slots: int
    segment: int
    batch: int
    rate: float
    steps_per_version: float
    step_nbytes: float
    weights_nbytes: int
    sent: float
    versions_sent: float
    policy_lag: float
    cpu: dict[str, float]
    cores: float

    def cost(self, kind: str) -> float:
        """Return the core-seconds per step of a kind of process."""
        return self.cpu.get(kind, 0.0) / self.rate


def run_on_nodes(algorithm: type[Algorithm], config: Config, *, seconds: float, warmup: float = 2.0) -> NodesRun:
    """Train on nodes for a while and observe the run. Nothing is evaluated or written.

    Parameters
    ----------
    algorithm, config
        The run, with ``backend="ray"``.
    seconds
        Length of the window.
    warmup
        Seconds before the window, counted from the arrival of all nodes.

    Raises
    ------
    BenchError
        The training ended before the window.
    TrainingFailed, EnvironmentFailure, ConfigError
        As in any training.
    """
    config = dataclasses.replace(
        config, run_dir=None, eval_interval=0, target_return=None, max_seconds=PATIENCE + seconds, total_steps=10**12,
        checkpoint_interval=0,
    )  # fmt: skip
    with Trainer(algorithm, config) as trainer:
        window = _Window(trainer, seconds, warmup)
        trainer.train(on_update=window.look, quiet=True)
        return window.seen()


@dataclass(frozen=True)
class _Moment:
    """State of a training at one time."""

    time: float  # of the learner's last report
    steps: int
    at: float
    version: int
    nbytes: int
    weights_nbytes: int
    busy: float
    family: dict[int, float]
    home: dict[str, float]
    hosts: list[tuple[float, dict[str, float]]]


class _Window:
    """Observes a training at intervals, and ends it."""

    def __init__(self, trainer: Trainer, seconds: float, warmup: float) -> None:
        supervisor = trainer._supervisor
        assert isinstance(supervisor.backend, NodesBackend)
        self._backend = supervisor.backend
        self._progress = supervisor.progress
        self._arena = trainer._policies[0].arena
        self._seconds, self._warmup = seconds, warmup
        self._opens: float | None = None
        self._first: _Moment | None = None
        self._last: _Moment | None = None
        self._lag = 0.0

    def look(self, status: Status) -> bool:
        """Observe the training; return False at the end of the window."""
        now = time.monotonic()
        if self._opens is None:
            are_there = [node.is_connected and node.steps > 0 for node in status.nodes]
            if status.updates and all(are_there) and len(are_there) == self._backend.num_nodes:
                self._opens = now + self._warmup
        elif self._first is None:
            if now >= self._opens:
                self._first = self._moment(status)
        elif now >= self._first.time + self._seconds:
            self._last, self._lag = self._moment(status), status.policy_lag_mean
            return False
        return True

    def _moment(self, status: Status) -> _Moment:
        report = self._progress.last_report
        assert report is not None
        pids = {"supervisor": os.getpid(), **self._backend.pids}
        return _Moment(
            report.time, report.steps, time.monotonic(), status.version,
            sum(node.nbytes for node in status.nodes), sum(node.weights_nbytes for node in status.nodes),
            busy_seconds(), {pid: cpu_seconds(pid) for pid in family_of(os.getpid())},
            {name: cpu_seconds(pid) for name, pid in pids.items()}, self._backend.hosts_cpu(),
        )  # fmt: skip

    def seen(self) -> NodesRun:
        first, last, shape = self._first, self._last, self._arena.shape
        if first is None or last is None or last.steps <= first.steps or last.version <= first.version:
            raise BenchError(f"the training ended, or stood still for {PATIENCE:.0f} s, before it could be measured")
        seconds, steps, versions = last.time - first.time, last.steps - first.steps, last.version - first.version
        cpu: defaultdict[str, float] = defaultdict(float)
        looks = zip([(first.at, first.home), *first.hosts], [(last.at, last.home), *last.hosts], strict=True)
        for (began, before), (ended, after) in looks:
            for name, spent in after.items():
                cpu[name.partition("-")[0]] += (spent - before.get(name, spent)) / (ended - began)
        own = sum(spent - first.family.get(pid, spent) for pid, spent in last.family.items())
        others = max(0.0, last.busy - first.busy - own) / (last.at - first.at)
        cpu["ray"] = max(0.0, own / (last.at - first.at) - sum(cpu.values()))
        columns = sum(column.nbytes for column in self._arena.columns.values())
        nodes, weights = self._backend.num_nodes, self._arena.weights.size
        return NodesRun(
            nodes, shape.lanes_per_worker, shape.slots_per_lane, shape.segment_length, shape.segments_per_batch,
            steps / seconds, steps / versions, columns / shape.num_slots / shape.segment_length, weights,
            (last.nbytes - first.nbytes) / steps,
            (last.weights_nbytes - first.weights_nbytes) / weights / versions / nodes, self._lag, dict(cpu),
            max(0.1, available_cores() - others),
        )  # fmt: skip
