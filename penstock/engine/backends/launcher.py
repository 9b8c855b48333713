"""Launcher: a process that imports the modules of all roles once, and forks the roles.

This module is the launcher as seen by the user's process; `forking` is its main loop. A forked role starts in
milliseconds, while a fresh interpreter would take a second to import torch, and it shares the imported pages with the
others. A command starts its launcher before it imports anything large, so this module imports little.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from penstock.ipc.ownership import Owned, owner_only
from penstock.runs.process import ENDING

if TYPE_CHECKING:
    from penstock.engine.backends.channel import Channel

MESSAGE_NBYTES = 4096
# Memory that malloc returns to the kernel after a large batch is faulted in again page by page: convolutions of a few
# hundred images take half as long when malloc keeps it. (It refuses a threshold above 32 MiB.)
KEEP_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(2**25), "MALLOC_TRIM_THRESHOLD_": str(2**30)}
END_SECONDS = 5.0  # limit for the launcher to end the roles and itself

_prepared: Launcher | None = None
_is_kept = False


def module_path() -> list[str]:
    """Return the entries of ``sys.path`` that Python uses: text, not `pathlib.Path`."""
    return [entry for entry in sys.path if isinstance(entry, str)]


def prepare() -> None:
    """Start a launcher for the next run in the background; it imports while this process does."""
    global _prepared
    if _prepared is not None and not _prepared.is_alive:
        _prepared.close()
        _prepared = None
    if _prepared is None:
        _prepared = Launcher()


def take() -> Launcher:
    """Return the prepared launcher if it is alive, or a new one."""
    global _prepared
    launcher, _prepared = _prepared, None
    if launcher is not None and not launcher.is_alive:
        launcher.close()
        launcher = None
    return launcher or Launcher()


def discard() -> None:
    """End the prepared launcher, unless it is kept: the next run needs none."""
    global _prepared
    if _is_kept:
        return
    launcher, _prepared = _prepared, None
    if launcher is not None:
        launcher.close()


@contextlib.contextmanager
def lent() -> Iterator[Launcher | None]:
    """Lend the prepared launcher to the block; None if there is none."""
    global _prepared
    launcher, _prepared = _prepared, None
    try:
        yield launcher
    finally:
        if launcher is not None:
            if _prepared is None:
                _prepared = launcher
            else:  # another thread has prepared one meanwhile
                launcher.close()


@contextlib.contextmanager
def kept() -> Iterator[None]:
    """Within the block, keep the launcher of a finished run for the next run, so that nothing is imported again."""
    global _is_kept
    was_kept, _is_kept = _is_kept, True
    try:
        yield
    finally:
        _is_kept = was_kept
        discard()


def give_back(launcher: Launcher, *, is_idle: bool) -> None:
    """End the launcher of a finished run, or keep it, within `kept`, if it has no roles left (`is_idle`)."""
    global _prepared
    if _is_kept and is_idle and _prepared is None:
        _prepared = launcher
    else:
        launcher.close()


class LauncherDied(RuntimeError):
    """The launcher is gone, and all roles with it."""


class Launcher(Owned):
    """Launcher as seen by the user's process: forks roles, and reports their deaths."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._deaths: list[tuple[int, int]] = []
        # A pidfd shows the end of this process even while a child of it holds its other descriptors.
        me = os.pidfd_open(os.getpid())
        serving = f"from penstock.engine.backends.forking import serve; serve({theirs.fileno()}, {me})"
        # Threads that libraries start at import would not survive the fork.
        threads = {name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)  # inherited by the launcher from its start
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-c", f"import sys; sys.path[:] = {module_path()!r}; {serving}"],
                pass_fds=[theirs.fileno(), me],
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C reaches only the supervisor
                env={**os.environ, **threads, **KEEP_MEMORY},
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        theirs.close()
        os.close(me)

    @property
    def pid(self) -> int:
        """Process id of the launcher."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether the launcher runs, and belongs to this process."""
        return not self.is_foreign and self._process.poll() is None

    def fileno(self) -> int:
        """Return the descriptor that is readable when a death is reported."""
        return self._socket.fileno()

    def fork(self, name: str, arena_fd: int | None, control: Channel) -> int:
        """Fork a process for a role, whose setup follows over `control`; return its process id.

        Parameters
        ----------
        name
            Name of the role.
        arena_fd
            Descriptor of the arena; None: a process that answers one call, see `penstock.engine.backends.apart`.
        control
            The role's end of the control connection.

        Raises
        ------
        LauncherDied
            The launcher is gone.
        """
        fds = [control.fileno()] if arena_fd is None else [control.fileno(), arena_fd]
        try:
            socket.send_fds(self._socket, [json.dumps({"fork": name}).encode()], fds)
        except OSError as error:
            raise self._gone() from error
        while "forked" not in (reply := self._receive()):
            self._deaths.append((reply["died"], reply["status"]))
        return reply["forked"]

    def deaths(self) -> list[tuple[int, int]]:
        """Return (process id, wait status) of the roles that ended since the last call, without waiting.

        Raises
        ------
        LauncherDied
            The launcher is gone.
        """
        reports = select.poll()
        reports.register(self._socket, select.POLLIN)
        while reports.poll(0):
            report = self._receive()
            self._deaths.append((report["died"], report["status"]))
        deaths, self._deaths = self._deaths, []
        return deaths

    @owner_only
    def close(self) -> None:
        """End the launcher and all remaining roles; a second call does nothing."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # effective even if a child of this process holds a copy
        self._socket.close()
        try:
            self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _receive(self) -> dict[str, int]:
        try:
            data = self._socket.recv(MESSAGE_NBYTES)
        except ConnectionError as error:
            raise self._gone() from error
        if not data:
            raise self._gone()
        message: dict[str, int] = json.loads(data)
        return message

    def _gone(self) -> LauncherDied:
        return LauncherDied(f"the launcher (process {self.pid}) is gone, and all roles with it")
