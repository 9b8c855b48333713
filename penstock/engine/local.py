"""The local backend: every role in a process of its own on this machine."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from typing import Any

import numpy as np

from penstock.engine import launcher
from penstock.engine.process import Told, describe_status, tell
from penstock.engine.roles import RoleSpec, RolloutRole
from penstock.engine.serial import Handler
from penstock.experience.arena import Control, ExperienceArena

MAX_RESTARTS = 5
RESTART_WINDOW = 600.0  # seconds in which MAX_RESTARTS may happen
STOP_SECONDS = 2.0  # what roles have to end by themselves


class RoleDied(RuntimeError):
    """A role's process ended that cannot be replaced, or too many did."""


@dataclass
class Process:
    """A role's process as the supervisor knows it."""

    spec: RoleSpec
    pid: int
    control: Connection
    failed: bool = False


@dataclass
class Replacement:
    """A dead rollout or policy worker on its way back."""

    spec: RoleSpec
    not_before: float
    deaths: int = field(default=0)
    """Value of Control.DEATHS that the policy worker must have passed before the worker's slots are taken back."""


class LocalBackend:
    """Forks the roles, hears them, and replaces rollout, policy workers and evaluators that die.

    Parameters
    ----------
    arena
        The run's arena.
    specs
        The roles.
    handle
        Called with (role, kind, payload) for whatever a role reports, and with (role, "died", text) when it is replaced.
    """

    def __init__(self, arena: ExperienceArena, specs: Sequence[RoleSpec], handle: Handler) -> None:
        self._arena = arena
        self._specs = specs
        self._handle = handle
        self._launcher = launcher.take()
        self._processes: dict[str, Process] = {}
        self._replacements: dict[str, Replacement] = {}
        self._restarts: deque[float] = deque()

    def start(self) -> None:
        """Fork the roles; each begins as soon as it is built."""
        for spec in self._specs:
            self._fork(spec)

    def pump(self, timeout: float) -> None:
        """Deliver what the roles report, waiting up to `timeout` seconds for something; see to the dead.

        Raises
        ------
        RoleDied
            A role died that cannot be replaced, or too often.
        LauncherDied
            The launcher is gone.
        """
        by_control = {process.control: process for process in self._processes.values()}
        ready = wait([*by_control, self._launcher], timeout)
        for source in ready:
            if isinstance(source, Connection):
                self._hear(by_control[source])
        for pid, status in self._launcher.deaths():
            self._bury(pid, status)
        self._replace_the_dead()

    def send(self, role: str, command: str, payload: Any) -> None:
        """Give a role a command; lost if it is dead or being replaced."""
        process = self._processes.get(role)
        if process is not None:
            try:
                process.control.send((command, payload))
            except OSError:
                return
            self._arena.ring_all()

    @property
    def pids(self) -> dict[str, int]:
        """Process ids of the roles alive, by name."""
        return {name: process.pid for name, process in self._processes.items()}

    def close(self) -> None:
        """Stop all roles: first as a request, after STOP_SECONDS for certain."""
        for name in list(self._processes):
            self.send(name, "stop", None)
        end = time.monotonic() + STOP_SECONDS
        try:
            while self._processes and (left := end - time.monotonic()) > 0:
                wait([*(p.control for p in self._processes.values()), self._launcher], left)
                for process in self._processes.values():
                    self._hear(process)
                for pid, _ in self._launcher.deaths():
                    self._processes = {name: p for name, p in self._processes.items() if p.pid != pid}
        except launcher.LauncherDied:
            pass
        finally:
            self._launcher.close()
            for process in self._processes.values():
                process.control.close()
            self._processes.clear()

    def _fork(self, spec: RoleSpec) -> None:
        ours, theirs = Pipe()
        pid = self._launcher.fork(spec.name, self._arena.arena.fd, theirs)
        theirs.close()
        self._processes[spec.name] = Process(spec, pid, ours)
        tell(ours, Told(spec, self._arena.shape))

    def _hear(self, process: Process) -> None:
        try:
            while process.control.poll():
                kind, payload = process.control.recv()
                process.failed |= kind == "failed"
                self._handle(process.spec.name, kind, payload)
        except (EOFError, ConnectionError):
            pass  # its death is reported by the launcher

    def _bury(self, pid: int, status: int) -> None:
        process = next((p for p in self._processes.values() if p.pid == pid), None)
        if process is None:
            return
        self._hear(process)
        process.control.close()
        spec = process.spec
        del self._processes[spec.name]
        story = f"{spec.name} (process {pid}) {describe_status(status)}"
        if spec.name == "learner" or (not process.failed and not os.WIFSIGNALED(status)):
            raise RoleDied(story)
        now = time.monotonic()
        self._restarts.append(now)
        while now - self._restarts[0] > RESTART_WINDOW:
            self._restarts.popleft()
        if len(self._restarts) > MAX_RESTARTS:
            raise RoleDied(f"{story}; {MAX_RESTARTS} workers have been replaced within {RESTART_WINDOW / 60:.0f} minutes")
        back_off = 0.0 if len(self._restarts) == 1 else 0.1 * 2.0 ** len(self._restarts)
        self._replacements[spec.name] = Replacement(spec, now + back_off, self._fence_off(spec))
        self._handle(spec.name, "died", story)

    def _fence_off(self, spec: RoleSpec) -> int:
        """Withdraw a dead rollout worker's requests; return the number of the death."""
        arena, deaths = self._arena, int(self._arena.control[Control.DEATHS])
        if isinstance(spec, RolloutRole):
            arena.asked[self._groups_of(spec)] = -1
            deaths += 1
            arena.control[Control.DEATHS] = deaths
            arena.policy_bell.ring()
        return deaths

    def _replace_the_dead(self) -> None:
        for name, replacement in list(self._replacements.items()):
            if time.monotonic() < replacement.not_before or not self._has_passed(replacement):
                continue
            del self._replacements[name]
            spec = replacement.spec
            if isinstance(spec, RolloutRole):
                groups = self._groups_of(spec)
                self._arena.asked[groups] = 0
                self._arena.answered[groups] = 0
                self._arena.reclaim(spec.rollout.worker)
                spec = replace(spec, rollout=replace(spec.rollout, incarnation=spec.rollout.incarnation + 1))
            self._fork(spec)

    def _has_passed(self, replacement: Replacement) -> bool:
        """Whether no policy worker can still be answering a request from before the death."""
        has_policy_worker = "policy-0" in self._processes
        return not has_policy_worker or self._arena.control[Control.POLICY_PASSED] >= replacement.deaths

    def _groups_of(self, spec: RolloutRole) -> np.ndarray:
        count = self._arena.shape.num_groups
        return np.arange(spec.rollout.worker * count, (spec.rollout.worker + 1) * count)
