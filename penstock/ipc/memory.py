"""Memory available to a run, checked before allocation."""

from pathlib import Path
from typing import NamedTuple

from penstock.ipc.cgroups import CGROUP, PROC, Cgroup, cgroups

_FILES = {  # of a cgroup, by its version: limit, use, and what memory.stat calls file cache
    1: ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    2: ("memory.max", "memory.current", "inactive_file"),
}


class MemoryUse(NamedTuple):
    """Bytes in use, and how many may be."""

    used: int
    limit: int


def memory_use(*, proc: Path = PROC, cgroup: Path = CGROUP) -> MemoryUse:
    """Memory of the machine, or of the cgroup of this process that leaves less, with all programs in it.

    Parameters
    ----------
    proc, cgroup : Path
        Where the kernel tells; other places only for tests.
    """
    return min([_machine_use(proc), *_cgroup_uses(proc, cgroup)], key=lambda use: use.limit - use.used)


def available_memory(*, proc: Path = PROC, cgroup: Path = CGROUP) -> int:
    """Bytes this process may still use: the machine's MemAvailable or what its cgroups leave, whichever is less.

    Parameters
    ----------
    proc, cgroup : Path
        Where the kernel tells; other places only for tests.
    """
    use = memory_use(proc=proc, cgroup=cgroup)
    return max(0, use.limit - use.used)


def require_memory(nbytes: int, what: str) -> None:
    """Raise MemoryError, with the arithmetic shown, unless ``nbytes`` more bytes are available.

    Shared memory has no limit of its own: taking too much is not refused but ends in the kernel's OOM killer.
    """
    available = available_memory()
    if nbytes > available:
        raise MemoryError(
            f"{what} needs {_readable(nbytes)}, but only {_readable(available)} are available "
            f"({_readable(nbytes - available)} too little; available is the least of the machine's MemAvailable and "
            f"limit - used of each cgroup of this process): ask for less, or give the machine or container more memory"
        )


def _machine_use(proc: Path) -> MemoryUse:
    lines = (line.split() for line in (proc / "meminfo").read_text().splitlines())
    nbytes = {name: int(count) * 1024 for name, count, *_ in lines}
    if "MemAvailable:" not in nbytes:
        raise RuntimeError(f"{proc / 'meminfo'} has no MemAvailable line: Penstock needs Linux 3.14 or newer")
    return MemoryUse(nbytes["MemTotal:"] - nbytes["MemAvailable:"], nbytes["MemTotal:"])


def _cgroup_uses(proc: Path, cgroup: Path) -> list[MemoryUse]:
    """Use and limit of every cgroup that this process is in and that has a limit."""
    uses = []
    for group in cgroups("memory", proc=proc, cgroup=cgroup):
        limit, usage, cache = _FILES[group.version]
        allowed = group.read(limit)
        if allowed.isdigit():
            uses.append(MemoryUse(int(group.read(usage)) - _droppable(group, cache), int(allowed)))
    return uses


def _droppable(group: Cgroup, entry: str) -> int:
    """File cache that the kernel gives up before it kills anybody, yet counts as used."""
    values = dict(line.split() for line in group.read("memory.stat").splitlines())
    return int(values.get(entry, 0))


def _readable(nbytes: int) -> str:
    return f"{nbytes / 2**20:,.1f} MiB"
