"""The local backend: every role in a process of its own on this machine."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from multiprocessing.reduction import ForkingPickler

from penstock.engine.backends import launcher
from penstock.engine.backends.process import Told, describe_status, tell
from penstock.engine.backends.restarts import Restarts, RoleDied
from penstock.engine.contracts import RoleSpec
from penstock.engine.groups.following import RankRole
from penstock.engine.messages import Command, Died, Failed, Handler, Of, Ready, Report, Stop, To
from penstock.engine.roles.specs import LearnerRole, PolicyRole, RolloutRole
from penstock.engine.roles.together import LearnersRole, parts_of
from penstock.engine.watching.hangs import watched
from penstock.experience.arena import ExperienceArena

STOP_SECONDS = 2.0  # what roles have to end by themselves
CHUNK_NBYTES = 1 << 16
SEND_SECONDS = 0.002  # what sending takes where nobody has to be waited for, generously
HEAR_INTERVAL = 0.01  # seconds between two looks for reports while a role is waited for

_ENDED_BY_ENVIRONMENT = (
    ", in its environment, which must not end the process: mend that, or go on in spite of it with "
    "on_env_error='restart'"
)


@dataclass
class Process:
    """A role's process as the supervisor knows it."""

    spec: RoleSpec
    pid: int
    control: Connection
    failure: Of | None = None
    """The first `Failed` of its roles."""


@dataclass
class Replacement:
    """A dead rollout worker, policy worker or evaluator on its way back."""

    spec: RoleSpec
    not_before: float
    deaths: list[int]
    """Of a rollout worker, the number of its death, which its policy worker of each policy must pass before its slots
    are taken back."""
    commands: list[Command] = field(default_factory=list)
    """Commands to send after a restart."""


class Sending(threading.Thread):
    """Sends a message to a role: at once as a rule, else for as long as the role takes to read it.

    Attributes
    ----------
    is_sent
        Whether it was; False also where the role is gone.
    """

    def __init__(self, control: Connection, message: Command) -> None:
        super().__init__(daemon=True)
        self._control = control
        self._data = ForkingPickler.dumps(message)  # here, where an error is seen
        self.is_sent = False
        self.start()
        self.join(SEND_SECONDS)

    def run(self) -> None:
        """Send it."""
        with contextlib.suppress(OSError, TypeError):  # the role is gone; then the connection may be closed, too
            self._control.send_bytes(self._data)
            self.is_sent = True


class LocalBackend:
    """Forks the roles, hears them, and replaces rollout workers, policy workers and evaluators that die.

    Parameters
    ----------
    arena
        The run's arena.
    specs
        The roles.
    handle
        Called with a role's name and whatever it reports: `Failed` when it raised, `Died` when it is replaced.
    restarts
        Says whether it is.
    """

    def __init__(self, arena: ExperienceArena, specs: Sequence[RoleSpec], handle: Handler, restarts: Restarts) -> None:
        self._arena = arena
        self._specs = specs
        self._handle = handle
        self._restarts = restarts
        self._launcher = launcher.take()
        self._is_closed = False
        self._processes: dict[str, Process] = {}
        self._processes_of = {  # names by those of the roles in them, where there are several
            part.name: spec.name for spec in specs if isinstance(spec, LearnersRole) for part in spec.learners
        }
        self._replacements: dict[str, Replacement] = {}

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
        by_fd = {process.control.fileno(): process for process in self._processes.values()}
        for fd in wait([*by_fd, self._launcher.fileno()], timeout):
            if fd in by_fd:
                self._hear(by_fd[fd])
        for pid, status in self._launcher.deaths():
            self._bury(pid, status)
        self._replace_the_dead()

    def send(self, role: str, command: Command) -> bool:
        """Give a role a command, at once or when its replacement is there; False if it is gone for good."""
        if role in self._replacements:
            self._replacements[role].commands.append(command)
            return True
        process = self._processes.get(self._processes_of.get(role, role))
        if process is None:
            return False
        sending = Sending(process.control, To(role, command) if role in self._processes_of else command)
        while sending.is_alive():
            # A role whose own reports fill the pipe reads nothing until they are heard.
            self._hear(process)
            self._arena.ring_all()
            sending.join(HEAR_INTERVAL)
        self._arena.ring_all()
        return sending.is_sent

    @property
    def pids(self) -> dict[str, int]:
        """Process ids of the roles alive and of their launcher, by name."""
        return {"launcher": self._launcher.pid} | {name: process.pid for name, process in self._processes.items()}

    def close(self, patience: float = STOP_SECONDS) -> None:
        """Stop all roles: at first by asking them, after `patience` seconds for certain. A second call does nothing."""
        if self._is_closed:
            return
        self._is_closed, is_idle = True, False
        try:
            if patience:
                is_idle = self._ask_to_stop(time.monotonic() + patience)
        except launcher.LauncherDied:
            pass
        finally:
            launcher.give_back(self._launcher, is_idle=is_idle)
            for process in self._processes.values():
                process.control.close()
            self._processes.clear()
            self._replacements.clear()
            self._specs = ()

    def _ask_to_stop(self, end: float) -> bool:
        """Ask all roles, and wait for them; True if none is left at the `end` (monotonic seconds)."""
        for process in self._processes.values():
            Sending(process.control, Stop())
        self._arena.ring_all()
        alive = {process.pid: process.control.fileno() for process in self._processes.values()}
        listened_to = set(alive.values())
        while alive and (left := end - time.monotonic()) > 0:
            for fd in wait([*listened_to, self._launcher.fileno()], left):
                # Not heard, only made room for: after an interrupt a message may have been read by half.
                if fd in listened_to and not _drain(fd):
                    listened_to.remove(fd)
            for pid, _ in self._launcher.deaths():
                listened_to.discard(alive.pop(pid, -1))
        return not alive

    def _fork(self, spec: RoleSpec) -> None:
        ours, theirs = Pipe()
        pid = self._launcher.fork(spec.name, self._arena.arena.fd, theirs)
        theirs.close()
        self._processes[spec.name] = Process(spec, pid, ours)
        with contextlib.suppress(OSError):  # dead already: the launcher reports it
            tell(ours, Told(spec, self._arena.shape))

    def _hear(self, process: Process) -> None:
        name = process.spec.name
        while (message := _receive(process.control)) is not None:
            report = message if isinstance(message, Of) else Of(name, message)
            if isinstance(report.said, Ready):
                self._restarts.begun(name)
            elif isinstance(report.said, Failed):
                process.failure = process.failure or report
            else:
                self._handle(report.role, report.said)

    def _bury(self, pid: int, status: int) -> None:
        process = next((p for p in self._processes.values() if p.pid == pid), None)
        if process is None:
            return
        self._hear(process)
        process.control.close()
        name = process.spec.name
        del self._processes[name]
        if process.failure is not None:
            failed, failure = process.failure.role, process.failure.said
            assert isinstance(failure, Failed)
            if not self._restarts.forgives(name, failure):
                self._handle(failed, failure)
                return
            story, back_off = f"{name}: {failure.error}", self._restarts.after_failure(name)
        else:
            story = f"{name} (process {pid}) {describe_status(status)}"
            role = watched(process.spec, self._arena)
            is_in_env = role is not None and role.is_in_env
            if is_in_env and self._restarts.forgives(name, None):
                back_off = self._restarts.after_failure(name)
            elif process.spec.is_vital or not os.WIFSIGNALED(status):
                raise RoleDied(story + (_ENDED_BY_ENVIRONMENT if is_in_env else ""))
            else:
                is_learner = any(isinstance(part, LearnerRole | RankRole) for part in parts_of([process.spec]))
                count = self._restarts.after_learner_killed if is_learner else self._restarts.after_kill
                back_off = count(story)
        spec = process.spec
        deaths = (
            [arena.requests.withdraw(spec.rollout.worker) for arena in self._arena.policies]
            if isinstance(spec, RolloutRole)
            else []
        )
        self._replacements[name] = Replacement(spec, time.monotonic() + back_off, deaths)
        self._handle(name, Died(story))

    def _replace_the_dead(self) -> None:
        for name, replacement in list(self._replacements.items()):
            if time.monotonic() >= replacement.not_before and self._has_passed(replacement):
                del self._replacements[name]
                self._fork(replacement.spec.successor(self._arena))
                for command in replacement.commands:
                    self.send(name, command)

    def _has_passed(self, replacement: Replacement) -> bool:
        """Whether no policy worker can still be answering a request from before the death."""
        if not isinstance(replacement.spec, RolloutRole):
            return True
        worker = replacement.spec.rollout.worker
        alive = parts_of([process.spec for process in self._processes.values()])
        acting = {(spec.policy, spec.number) for spec in alive if isinstance(spec, PolicyRole)}
        return all(
            (arena.policy, arena.requests.policy_worker_of(worker)) not in acting
            or arena.requests.has_passed(death, worker)
            for arena, death in zip(self._arena.policies, replacement.deaths, strict=True)
        )


def _receive(control: Connection) -> Report | None:
    """Return the next message that is there, None if none is; one that its sender died in the middle of is none."""
    try:
        message: Report | None = control.recv() if control.poll() else None
    except (EOFError, OSError):
        return None  # the launcher reports the death
    return message


def _drain(fd: int) -> bool:
    """Read what is there and forget it; False at the end."""
    try:
        return bool(os.read(fd, CHUNK_NBYTES))
    except OSError:
        return False
