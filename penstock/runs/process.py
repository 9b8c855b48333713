"""Training processes: their identity, whether they live, their CPU time, and signals that end them.

SIGHUP is sent when the terminal is closed, SIGUSR1 by batch systems before a time limit. SIGQUIT has no handler and
ends the process at once, without a checkpoint.
"""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

from penstock.ipc import set_parent_death_signal

_PROC = Path("/proc")
# Indices of fields after the name in /proc/PID/stat (numbers in proc(5), less 3): parent, CPU times, start.
_PARENT, _USER, _SYSTEM, _STARTED = 1, 11, 12, 19
_TICKS = os.sysconf("SC_CLK_TCK")

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)
"""Signals that end a training cleanly."""
Handler = Callable[[int, FrameType | None], None]


class Installed:
    """A handler of all signals in `ENDING`, in place of the earlier handlers.

    Ignored signals stay ignored, such as SIGHUP under ``nohup`` and SIGINT of a shell's background processes. A handler
    of SIGUSR1 that the program has installed is kept.

    Parameters
    ----------
    handler
        Called with the signal's number and the frame.

    Attributes
    ----------
    before : dict
        Earlier handlers of the signals that are handled now.
    """

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self.before: dict[signal.Signals, Any] = {}
        for signum in ENDING:
            found = signal.getsignal(signum)
            if found is signal.SIG_IGN or (signum == signal.SIGUSR1 and found is not signal.SIG_DFL):
                continue
            self.before[signum] = signal.signal(signum, handler)

    def remove(self) -> None:
        """Restore the earlier handlers, unless another one has been installed meanwhile."""
        for signum, before in self.before.items():
            if signal.getsignal(signum) is self._handler:
                # None: a handler that was not installed from Python, and cannot be restored from it.
                signal.signal(signum, signal.SIG_DFL if before is None else before)


def this_process() -> dict[str, Any]:
    """Describe this process: pid, start (clock ticks since boot), boot and namespace of the pid, host."""
    pid = os.getpid()
    return {"pid": pid, "start": _start_of(pid), **_numbering(), "host": socket.gethostname()}


def is_alive(process: Mapping[str, Any]) -> bool | None:
    """Return whether a process described by `this_process` is alive; None if it is on another machine or container.

    A later process with the same pid has another start time.
    """
    if any(process.get(name) != mine for name, mine in _numbering().items()):
        return None
    pid = process.get("pid")
    return isinstance(pid, int) and _start_of(pid) == process.get("start") is not None


def child_setup(cores: Collection[int]) -> Callable[[], None]:
    """Return the ``preexec_fn`` of `subprocess.Popen` for a training.

    The child runs on `cores`. When this process ends for any reason, the child receives SIGTERM, at which it saves.
    """
    parent = os.getpid()

    def prepare() -> None:
        os.sched_setaffinity(0, cores)
        set_parent_death_signal(signal.SIGTERM, parent)

    return prepare


def stat_fields(pid: int) -> list[str]:
    """Return the fields after the name in ``/proc/PID/stat``; empty if there is no such process."""
    try:
        text = (_PROC / str(pid) / "stat").read_text()
    except (OSError, ValueError):
        return []
    return text.rpartition(")")[2].split()


def cpu_seconds(pid: int) -> float:
    """Return the CPU seconds of a process and its threads; 0 if it is gone."""
    fields = stat_fields(pid)
    return (int(fields[_USER]) + int(fields[_SYSTEM])) / _TICKS if fields else 0.0


def family_of(pid: int) -> list[int]:
    """Return a process and all its descendants."""
    children: dict[int, list[int]] = {}
    for entry in _PROC.iterdir():
        if entry.name.isdigit() and (fields := stat_fields(int(entry.name))):
            children.setdefault(int(fields[_PARENT]), []).append(int(entry.name))
    family = [pid]
    for member in family:
        family += children.get(member, [])
    return family


def _start_of(pid: int) -> int | None:
    """Return the clock ticks from boot to the start of a process; None if it is gone or a zombie."""
    fields = stat_fields(pid)
    return int(fields[_STARTED]) if fields and fields[0] not in "ZX" else None


def _numbering() -> dict[str, str]:
    """Return the identity of this process's pid namespace: boot and container."""
    try:
        boot = (_PROC / "sys" / "kernel" / "random" / "boot_id").read_text().strip()
        namespace = os.readlink(_PROC / "self" / "ns" / "pid")
    except OSError:
        boot, namespace = "", ""
    return {"boot": boot, "namespace": namespace}
