"""How much memory a run may take, asked before it is taken."""

from pathlib import Path

from penstock.ipc.cgroups import CGROUP, PROC, Cgroup, cgroups

_FILES = {  # of a cgroup, by its version: limit, use, and what memory.stat calls file cache
    1: ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    2: ("memory.max", "memory.current", "inactive_file"),
}


def available_memory(*, proc: Path = PROC, cgroup: Path = CGROUP) -> int:
    """Bytes this process may still use: the machine's MemAvailable or what its cgroups leave, whichever is less.

    Parameters
    ----------
    proc, cgroup : Path
        Where the kernel tells; other places only for tests.
    """
    return min([_machine_available(proc), *_cgroup_headrooms(proc, cgroup)])


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


def _machine_available(proc: Path) -> int:
    for line in (proc / "meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"{proc / 'meminfo'} has no MemAvailable line: Penstock needs Linux 3.14 or newer")


def _cgroup_headrooms(proc: Path, cgroup: Path) -> list[int]:
    """Limit less use of every cgroup that this process is in."""
    headrooms = []
    for group in cgroups("memory", proc=proc, cgroup=cgroup):
        limit, usage, cache = _FILES[group.version]
        allowed = group.read(limit)
        if allowed.isdigit():
            used = int(group.read(usage)) - _droppable(group, cache)
            headrooms.append(max(0, int(allowed) - used))
    return headrooms


def _droppable(group: Cgroup, entry: str) -> int:
    """File cache that the kernel gives up before it kills anybody, yet counts as used."""
    values = dict(line.split() for line in group.read("memory.stat").splitlines())
    return int(values.get(entry, 0))


def _readable(nbytes: int) -> str:
    return f"{nbytes / 2**20:,.1f} MiB"
