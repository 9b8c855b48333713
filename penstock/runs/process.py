"""Which process trains a run, written down so that another one can tell whether it is still there."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from penstock.ipc import set_parent_death_signal

_PROC = Path("/proc")
# Places among the fields behind the name in /proc/PID/stat (proc(5), less 3): parent, CPU times, start.
_PARENT, _USER, _SYSTEM, _STARTED = 1, 11, 12, 19
_TICKS = os.sysconf("SC_CLK_TCK")


def this_process() -> dict[str, Any]:
    """Describe this process: pid, start (clock ticks since boot), boot and namespace (whose pids they are), host."""
    pid = os.getpid()
    return {"pid": pid, "start": _start_of(pid), **_numbering(), "host": socket.gethostname()}


def is_alive(process: Mapping[str, Any]) -> bool | None:
    """Whether the process that `this_process` described is alive; None: it is of another machine or container.

    A process id may have been given to another process since. That one has another start time.
    """
    if any(process.get(name) != mine for name, mine in _numbering().items()):
        return None
    pid = process.get("pid")
    return isinstance(pid, int) and _start_of(pid) == process.get("start") is not None


def child_setup(cores: Collection[int]) -> Callable[[], None]:
    """Return the ``preexec_fn`` of `subprocess.Popen` for a training.

    It keeps to `cores`, and gets SIGTERM when this process ends, however that ends: it saves then.
    """
    parent = os.getpid()

    def prepare() -> None:
        os.sched_setaffinity(0, cores)
        set_parent_death_signal(signal.SIGTERM, parent)

    return prepare


def stat_fields(pid: int) -> list[str]:
    """Fields behind the name in ``/proc/PID/stat``, from the state on; none if there is no such process."""
    try:
        text = (_PROC / str(pid) / "stat").read_text()
    except (OSError, ValueError):
        return []
    return text.rpartition(")")[2].split()


def cpu_seconds(pid: int) -> float:
    """Seconds of CPU time that a process and its threads have spent; 0 if it is gone."""
    fields = stat_fields(pid)
    return (int(fields[_USER]) + int(fields[_SYSTEM])) / _TICKS if fields else 0.0


def family_of(pid: int) -> list[int]:
    """A process and all that descend from it."""
    children: dict[int, list[int]] = {}
    for entry in _PROC.iterdir():
        if entry.name.isdigit() and (fields := stat_fields(int(entry.name))):
            children.setdefault(int(fields[_PARENT]), []).append(int(entry.name))
    family = [pid]
    for member in family:
        family += children.get(member, [])
    return family


def _start_of(pid: int) -> int | None:
    """Clock ticks from boot to the start of a process; None where there is none, or it has ended but for its parent."""
    fields = stat_fields(pid)
    return int(fields[_STARTED]) if fields and fields[0] not in "ZX" else None


def _numbering() -> dict[str, str]:
    """Identity of this process's pid namespace: boot and container."""
    try:
        boot = (_PROC / "sys" / "kernel" / "random" / "boot_id").read_text().strip()
        namespace = os.readlink(_PROC / "self" / "ns" / "pid")
    except OSError:
        boot, namespace = "", ""
    return {"boot": boot, "namespace": namespace}
