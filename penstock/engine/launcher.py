"""The launcher: one small process that imports what every role needs, once, and forks the roles.

It is single-threaded for as long as the engine lives, so that roles can follow its death (PR_SET_PDEATHSIG follows
the thread that forked), whatever threads the user's own process has. It watches that process in turn: when the user's
process is gone, however it went, the launcher kills the roles and ends. A role forked here starts in milliseconds,
where a fresh interpreter would import torch for a second, and shares the imported pages with the others.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
from multiprocessing.connection import Connection, wait

import setproctitle

from penstock.engine.process import run_role

MESSAGE_NBYTES = 4096
FORK_DESCRIPTORS = 2  # the arena's, and the role's end of its control connection

_prepared: Launcher | None = None


def prepare() -> None:
    """Start a launcher for the next run in the background, so that it imports while this process does."""
    global _prepared
    if _prepared is None:
        _prepared = Launcher()


def take() -> Launcher:
    """Return the launcher that was prepared, or a new one."""
    global _prepared
    launcher, _prepared = _prepared or Launcher(), None
    return launcher


class LauncherDied(RuntimeError):
    """The launcher is gone, and all roles with it."""


class Launcher:
    """The user's process's end: asks for roles, and hears of their deaths."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._deaths: list[tuple[int, int]] = []
        program = f"import sys; sys.path[:] = {sys.path!r}; from {__name__} import serve; serve({theirs.fileno()})"
        # Threads that a library starts when it is imported would not survive the fork: none may start any.
        threads = {name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}
        self._process = subprocess.Popen(
            [sys.executable, "-c", program],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is the supervisor's alone
            env={**os.environ, **threads},
        )
        theirs.close()

    def fileno(self) -> int:
        """Descriptor that becomes readable when there is a death to hear of."""
        return self._socket.fileno()

    def fork(self, name: str, arena_fd: int, control: Connection) -> int:
        """Fork a role that is told over `control` what it is; return its process id.

        Raises
        ------
        LauncherDied
            The launcher is gone.
        """
        try:
            socket.send_fds(self._socket, [json.dumps({"fork": name}).encode()], [arena_fd, control.fileno()])
        except OSError as error:
            raise self._gone() from error
        while "forked" not in (reply := self._receive()):
            self._deaths.append((reply["died"], reply["status"]))
        return reply["forked"]

    def deaths(self) -> list[tuple[int, int]]:
        """Return (process id, wait status) of the roles that ended since the last call; never waits.

        Raises
        ------
        LauncherDied
            The launcher is gone.
        """
        while wait([self._socket], 0.0):
            report = self._receive()
            self._deaths.append((report["died"], report["status"]))
        deaths, self._deaths = self._deaths, []
        return deaths

    def close(self) -> None:
        """End the launcher, and every role that is still there."""
        self._socket.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(5.0)
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def _receive(self) -> dict[str, int]:
        data = self._socket.recv(MESSAGE_NBYTES)
        if not data:
            raise self._gone()
        message: dict[str, int] = json.loads(data)
        return message

    def _gone(self) -> LauncherDied:
        return LauncherDied(f"the launcher (process {self._process.pid}) is gone, and all roles with it")


def serve(fd: int) -> None:
    """Run the launcher: the body of its process. Ends, and all roles with it, when the supervisor is gone."""
    supervisor = socket.socket(fileno=fd)
    parent = os.pidfd_open(os.getppid())
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wake_write)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    import_what_roles_need()

    selector = selectors.DefaultSelector()
    for source in (supervisor, parent, wake_read):
        selector.register(source, selectors.EVENT_READ)
    roles: set[int] = set()
    with contextlib.suppress(ConnectionError):
        while parent not in (ready := {key.fileobj for key, _ in selector.select()}):
            if wake_read in ready:
                os.read(wake_read, MESSAGE_NBYTES)
                _report_deaths(supervisor, roles)
            if supervisor in ready:
                request, fds, _, _ = socket.recv_fds(supervisor, MESSAGE_NBYTES, FORK_DESCRIPTORS)
                if not request:
                    break
                pid = _fork(json.loads(request)["fork"], *fds, launchers=(supervisor.fileno(), parent, wake_read, wake_write))
                roles.add(pid)
                supervisor.send(json.dumps({"forked": pid}).encode())
    for pid in roles:
        os.kill(pid, signal.SIGKILL)


def import_what_roles_need() -> None:
    """Import torch and the roles, and keep their pages shared."""
    import torch

    import penstock.engine.evaluator
    import penstock.engine.inference
    import penstock.engine.learner
    import penstock.engine.policy_worker  # noqa: F401

    setproctitle.setproctitle("penstock-launcher")
    torch.set_num_threads(1)
    gc.collect()
    gc.freeze()


def _report_deaths(supervisor: socket.socket, roles: set[int]) -> None:
    for pid in sorted(roles):
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            roles.remove(pid)
            supervisor.send(json.dumps({"died": pid, "status": status}).encode())


def _fork(name: str, arena_fd: int, control_fd: int, launchers: tuple[int, ...]) -> int:
    launcher = os.getpid()
    pid = os.fork()
    if pid:
        os.close(arena_fd)
        os.close(control_fd)
        return pid
    status = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for fd in launchers:
            os.close(fd)
        status = run_role(name, launcher, arena_fd, Connection(control_fd))
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
