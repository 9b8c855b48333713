"""Local backend: every role in a process of its own on this machine."""

from __future__ import annotations

import contextlib
import os
import select
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from penstock.engine.backends import launcher
from penstock.engine.backends.channel import Channel
from penstock.engine.backends.process import RoleSetup, describe_status, send_setup
from penstock.engine.backends.restarts import Replacement, Restarts
from penstock.engine.contracts import RoleSpec
from penstock.engine.messages import Command, Died, Failed, FromRole, Handler, Ready, Report, Stop, ToRole
from penstock.engine.roles.shared_process import LearnersRole
from penstock.engine.watching.hangs import watched
from penstock.experience.arena import ExperienceArena
from penstock.ipc.ownership import Owned, owner_only

STOP_SECONDS = 2.0  # limit for roles to end by themselves


@dataclass
class Process:
    """Process of a role, as seen by the supervisor."""

    spec: RoleSpec
    pid: int
    control: Channel
    failure: FromRole | None = None
    """First `Failed` of its roles."""


class LocalBackend(Owned):
    """Forks the roles, delivers their reports, and replaces roles that died, except vital ones.

    Parameters
    ----------
    arena, specs
        Arena and roles of the run.
    handle
        Function for reports, called with a role's name and its report: `Failed` after an exception, `Died` if the role
        is replaced.
    restarts
        Rules of replacement.
    """

    has_lanes = True

    def __init__(self, arena: ExperienceArena, specs: Sequence[RoleSpec], handle: Handler, restarts: Restarts) -> None:
        self._arena = arena
        self._specs = specs
        self._handle = handle
        self._restarts = restarts
        self._launcher = launcher.take()
        self._is_closed = False
        self._processes: dict[str, Process] = {}
        self._processes_of = {  # name of the process by name of the role, for roles that share a process
            part.name: spec.name for spec in specs if isinstance(spec, LearnersRole) for part in spec.learners
        }
        self._replacements: dict[str, Replacement] = {}

    def start(self) -> None:
        """Fork the roles; each starts when it is built."""
        for spec in self._specs:
            self._fork(spec)

    def pump(self, timeout: float) -> None:
        """Deliver the roles' reports, waiting up to `timeout` seconds for one, and replace dead roles.

        Raises
        ------
        RoleDied
            A role died that cannot be replaced, or too many died.
        LauncherDied
            The launcher is gone.
        """
        for process in self._ready(timeout):
            self._send_queued(process)
            self._deliver_reports(process)
        for pid, status in self._launcher.deaths():
            self._bury(pid, status)
        self._replace_dead_roles()

    def send(self, role: str, command: Command) -> bool:
        """Send a role a command, at once or when it is replaced; return False if it is gone for good."""
        if role in self._replacements:
            self._replacements[role].commands.append(command)
            return True
        process = self._processes.get(self._processes_of.get(role, role))
        if process is None:
            return False
        is_there = True
        try:
            process.control.post(ToRole(role, command) if role in self._processes_of else command)
        except OSError:  # the launcher reports the death
            is_there = False
        self._arena.ring_all()
        return is_there

    @property
    def pids(self) -> dict[str, int]:
        """Process ids of the roles alive and of their launcher, by name."""
        # A host's thread also reads them, while processes start and end.
        return {"launcher": self._launcher.pid} | {name: process.pid for name, process in list(self._processes.items())}

    @owner_only
    def close(self, patience: float = STOP_SECONDS) -> None:
        """Stop all roles, and kill those left after `patience` seconds; a second call does nothing."""
        if self._is_closed:
            return
        self._is_closed, is_idle = True, False
        try:
            if patience:
                is_idle = self._stop_roles(time.monotonic() + patience)
        except launcher.LauncherDied:
            pass
        finally:
            launcher.give_back(self._launcher, is_idle=is_idle)
            for process in self._processes.values():
                process.control.close()
            self._processes.clear()
            self._replacements.clear()
            self._specs = ()

    def _stop_roles(self, end: float) -> bool:
        """Stop all roles, and wait for them until `end` (monotonic seconds); return whether all have ended."""
        alive = {process.pid for process in self._processes.values()}
        for process in self._processes.values():
            with contextlib.suppress(OSError):
                process.control.post(Stop())
        self._arena.ring_all()
        connected = dict(self._processes)
        while alive and (left := end - time.monotonic()) > 0:
            for process in self._ready(left, connected):
                self._send_queued(process)
                with contextlib.suppress(OSError):
                    if process.control.drain():  # reports are discarded, to make room
                        continue
                connected.pop(process.spec.name, None)
            alive -= {pid for pid, _ in self._launcher.deaths()}
        return not alive

    def _ready(self, timeout: float, among: Mapping[str, Process] | None = None) -> Iterator[Process]:
        """Wait for reports, room for queued commands, or a death, for up to `timeout` seconds."""
        among = self._processes if among is None else among
        by_fd = {process.control.fileno(): process for process in among.values()}
        poll = select.poll()
        poll.register(self._launcher, select.POLLIN)
        for fd, process in by_fd.items():
            poll.register(fd, select.POLLIN | (select.POLLOUT if process.control.has_queued else 0))
        for fd, _ in poll.poll(timeout * 1000):
            if fd in by_fd:
                yield by_fd[fd]

    def _send_queued(self, process: Process) -> None:
        if process.control.has_queued:
            with contextlib.suppress(OSError):  # the launcher reports the death
                process.control.flush()
            self._arena.ring_all()

    def _fork(self, spec: RoleSpec) -> None:
        ours, theirs = Channel.pair()
        pid = self._launcher.fork(spec.name, self._arena.arena.fd, theirs)
        theirs.close()
        self._processes[spec.name] = Process(spec, pid, ours)
        with contextlib.suppress(OSError):  # dead already: the launcher reports it
            send_setup(ours.post, RoleSetup(spec, self._arena.shape))

    def _deliver_reports(self, process: Process) -> None:
        name = process.spec.name
        while (message := _receive(process.control)) is not None:
            message = message if isinstance(message, FromRole) else FromRole(name, message)
            if isinstance(message.report, Ready):
                self._restarts.begun(name)
            elif isinstance(message.report, Failed):
                process.failure = process.failure or message
            else:
                self._handle(message.role, message.report)

    def _bury(self, pid: int, status: int) -> None:
        """Replace the role of a process that ended, or deliver its failure: see `penstock.engine.backends.restarts`."""
        process = next((p for p in self._processes.values() if p.pid == pid), None)
        if process is None:
            return
        self._deliver_reports(process)
        process.control.close()
        spec, name = process.spec, process.spec.name
        del self._processes[name]
        if process.failure is not None:
            failed, failure = process.failure.role, process.failure.report
            assert isinstance(failure, Failed)
            story, pause = f"{name}: {failure.error}", self._restarts.after_failure(name, failure)
            if pause is None:
                self._handle(failed, failure)
                return
        else:
            story = f"{name} (process {pid}) {describe_status(status)}"
            role, is_killed = watched(spec, self._arena), os.WIFSIGNALED(status)
            is_in_env = role is not None and role.is_in_env
            pause = self._restarts.after_end(spec, story, is_killed=is_killed, is_in_env=is_in_env)
        self._replacements[name] = Replacement(spec, self._arena, pause)
        self._handle(name, Died(story))

    def _replace_dead_roles(self) -> None:
        for name, replacement in list(self._replacements.items()):
            if replacement.is_due([process.spec for process in self._processes.values()]):
                del self._replacements[name]
                self._fork(replacement.spec.successor(self._arena))
                for command in replacement.commands:
                    self.send(name, command)


def _receive(control: Channel) -> Report | None:
    """Return the next complete message, None if there is none."""
    try:
        message: Report | None = control.receive()
    except (EOFError, OSError):
        return None  # the launcher reports the death
    return message
