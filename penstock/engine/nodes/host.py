"""The host: a node's part of the run, which runs the roles of a task from home in processes of this machine.

It is a Ray actor, but its code does not use Ray. Its roles are forked by a launcher, share the node's arena, and end
with the host's process.
"""

from __future__ import annotations

import importlib.metadata
import os
import pickle
import signal
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from penstock.engine.backends import launcher
from penstock.engine.backends.local import LocalBackend
from penstock.engine.backends.restarts import Restarts, RoleDied
from penstock.engine.contracts import RoleSpec
from penstock.engine.groups.follower import RankRole
from penstock.engine.messages import Failed, Note, Report
from penstock.engine.nodes.learning import HomeLost
from penstock.engine.nodes.receiver import ReceiverRole
from penstock.engine.nodes.sender import SENDER, SenderRole, keep_all_slots
from penstock.engine.nodes.shards import ShardRole
from penstock.engine.nodes.transport import SegmentTransport
from penstock.engine.roles.specs import PolicyRole, RolloutRole
from penstock.engine.watching.hangs import HangWatch
from penstock.envs.spec import EnvSpec
from penstock.experience.arena import ExperienceArena
from penstock.experience.layout import RunShape
from penstock.runs.machine import COMPARED, About, about_here
from penstock.runs.process import cpu_seconds, stat_fields
from penstock.runs.status import NodeStatus

GATHER_SECONDS, MOST_GATHER_SECONDS = 0.5, 2.5  # for which reports are gathered before an answer
ANSWERS_PER_SECOND = 200  # of all hosts of a run: with many nodes each gathers for longer
FORGOTTEN_SECONDS = 60.0  # without a request from home, before the first connection to it
SEVERED_SECONDS = 10.0  # the same after a broken connection: home has given the node up by then
HOST = "host"


class NodeLost(RuntimeError):
    """A host is gone, or does not answer."""


@dataclass(frozen=True)
class HostTask:
    """Roles of a node.

    Attributes
    ----------
    shape
        Shape of the node's arena.
    specs
        Roles.
    forgives_environments
        Whether a worker whose environment failed is replaced.
    transports
        Transport of each policy's experience, in its form for nodes; empty: the node steps no lanes.
    """

    shape: RunShape
    specs: Sequence[RoleSpec]
    forgives_environments: bool
    transports: Sequence[SegmentTransport] = ()


@dataclass(frozen=True)
class HostReports:
    """Reports of a host's roles since its last answer.

    Attributes
    ----------
    reports
        Reports, each with the name of its role.
    gauges
        Gauges by the role's name.
    failure
        Reason why the node is lost; empty: it is not.
    going
        Reason why the node must leave; empty: it stays.
    below
        Of a gateway: answers of its nodes' hosts, each with the node's number there and its incarnation.
    seen
        Of a gateway: statuses of its nodes, by their numbers there; those that have not changed come at intervals.
    """

    reports: list[tuple[str, Report]] = field(default_factory=list)
    gauges: dict[str, np.ndarray] = field(default_factory=dict)
    failure: str = ""
    going: str = ""
    below: list[tuple[int, int, HostReports]] = field(default_factory=list)
    seen: dict[int, NodeStatus] = field(default_factory=dict)


def gather_seconds(num_nodes: int) -> float:
    """Return the seconds for which each host of a run gathers reports."""
    return min(MOST_GATHER_SECONDS, max(GATHER_SECONDS, num_nodes / ANSWERS_PER_SECOND))


def packages_of(env: EnvSpec) -> list[str]:
    """Return the packages that need equal versions at home and on nodes, those of an environment's module included."""
    module = env.module.partition(".")[0]
    own = importlib.metadata.packages_distributions().get(module, ()) if module else ()
    return list(dict.fromkeys((*COMPARED, *own)))


class NodeHost:
    """Runner of a node's roles; calls come one at a time."""

    def __init__(self) -> None:
        launcher.prepare()  # imports while home is still starting
        self._backend: LocalBackend | None = None
        self._reports: list[tuple[str, Report]] = []
        self._failure = self._going = ""
        self._has_failed = False  # whether the reports include the failure of a role
        signal.signal(signal.SIGTERM, self._be_ended)  # after the start of the launcher, which only home ends
        self._tied: set[str] = set()
        self._patience = FORGOTTEN_SECONDS
        self._asked_at = time.monotonic()
        threading.Thread(target=self._end_when_forgotten, name="forgotten", daemon=True).start()

    def about(self, packages: Sequence[str]) -> About:
        """Return software and place of the host, with the versions of packages."""
        return about_here(packages)

    def begin(self, task: bytes) -> None:
        """Start the roles of a pickled `HostTask`."""
        found: HostTask = pickle.loads(task)
        self._arena = ExperienceArena.create(found.shape)
        keep_all_slots(self._arena)
        try:
            specs = with_paths(found, self._arena)
        except MemoryError as error:  # of a shard: another host there would fail, too
            specs, self._has_failed = [], True
            self._reports.append((HOST, Failed.of(error)))
        self._names = [spec.name for spec in specs if not isinstance(spec, SenderRole | ReceiverRole | ShardRole)]
        self._tied = {spec.name for spec in specs if isinstance(spec, SenderRole | RankRole)}
        self._hangs = HangWatch(specs, self._arena)
        restarts = Restarts(found.forgives_environments)
        self._backend = LocalBackend(self._arena, specs, self._take, restarts)
        self._backend.start()

    def gather(self, seconds: float) -> HostReports:
        """Run the roles for some seconds, or until one fails, and return their reports."""
        self._asked_at = time.monotonic()
        end = time.monotonic() + seconds
        try:
            while not self._failure and not self._has_failed and (left := end - time.monotonic()) > 0:
                self._pump(left)
        except (RoleDied, launcher.LauncherDied) as error:
            self._failure = str(error)
        reports, self._reports, self._has_failed = self._reports, [], False
        reports += [("hang watch", Note(warning)) for warning in self._hangs.look(time.monotonic())]
        gauges = {name: self._arena.gauges_of(name).copy() for name in self._names}
        return HostReports(reports, gauges, self._failure, self._going)

    def wait_for_gateway(self, seconds: float) -> None:
        """Stop all roles, and wait some seconds for another task."""
        self._asked_at, self._patience = time.monotonic(), FORGOTTEN_SECONDS
        if self._backend is not None:
            self._backend.close()
            self._backend, self._failure = None, ""
        time.sleep(seconds)

    def send(self, role: str, command: bytes) -> None:
        """Send a pickled command to a role."""
        if self._backend is not None:
            self._backend.send(role, pickle.loads(command))

    def pids(self) -> dict[str, int]:
        """Return process ids of the roles, by name."""
        backend = self._backend  # read once: another thread may replace it
        return backend.pids if backend is not None else {}

    def cpu(self) -> tuple[float, dict[str, float]]:
        """Return the time (monotonic seconds of this machine), and CPU seconds so far of each role and of "host"."""
        pids = {HOST: os.getpid(), **self.pids()}
        return time.monotonic(), {name: cpu_seconds(pid) for name, pid in pids.items()}

    def stop(self, patience: float) -> None:
        """Stop all roles: by a signal, and after `patience` seconds by force."""
        if self._backend is not None:
            self._backend.close(patience)

    def _be_ended(self, signum: int, frame: object) -> None:
        """Ask home to let the node leave; a second signal ends the host."""
        if self._going:
            os._exit(1)
        self._going = f"its host got {signal.Signals(signum).name}"

    def _end_when_forgotten(self) -> None:
        """End this process, and all roles with it, when home is gone, or cannot be reached.

        Between two trainings home sends no requests, but its receiver and the senders are connected.
        """
        while (is_connected := self._is_connected()) or time.monotonic() - self._asked_at < self._patience:
            if is_connected:
                self._patience = SEVERED_SECONDS
            time.sleep(1.0)
        os._exit(1)

    def _is_connected(self) -> bool:
        """Whether all roles with a connection to home are alive: they end with their connection."""
        pids = [pid for name, pid in self.pids().items() if name in self._tied]
        # Ended roles remain as zombies ("Z") until the next request from home.
        return bool(pids) and all(stat_fields(pid)[:1] not in ([], ["Z"]) for pid in pids)

    def _pump(self, seconds: float) -> None:
        """Run the roles for up to some seconds."""
        assert self._backend is not None
        self._backend.pump(seconds)

    def _take(self, role: str, report: Report) -> None:
        if isinstance(report, Failed) and (role.startswith(SENDER) or isinstance(report.error, HomeLost)):
            self._failure = str(report.error or report.text)
        else:
            self._reports.append((role, report))
            self._has_failed |= isinstance(report, Failed)


def with_paths(task: HostTask, arena: ExperienceArena) -> list[RoleSpec]:
    """Return the roles of a task with the data paths that they share on this node."""
    relays = any(isinstance(spec, ReceiverRole) for spec in task.specs)
    paths = tuple(
        transport.path_on_node(arena.policies[number], relays) for number, transport in enumerate(task.transports)
    )
    shards = {spec.policy: spec.make_buffer() for spec in task.specs if isinstance(spec, ShardRole)}
    there: list[RoleSpec] = []
    for spec in task.specs:
        if isinstance(spec, RolloutRole):
            there.append(replace(spec, rollout=replace(spec.rollout, paths=paths)))
        elif isinstance(spec, PolicyRole | SenderRole):
            there.append(replace(spec, path=paths[spec.policy]))
        elif isinstance(spec, ReceiverRole):
            relayed = (each.relaying(paths[n], shards.get(n)) for n, each in enumerate(task.transports))
            there.append(replace(spec, transports=tuple(relayed)))
        elif isinstance(spec, ShardRole):
            there.append(replace(spec, buffer=shards[spec.policy]))
        else:
            there.append(spec)
    return there
