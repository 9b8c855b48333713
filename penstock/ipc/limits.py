"""Cores and memory available to a run, within the limits of the cgroups of this process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

PROC, CGROUP = Path("/proc"), Path("/sys/fs/cgroup")
CORES = "PENSTOCK_CORES"
"""Environment variable: number of cores of a training that shares a node with others."""
_MEMORY_FILES = {  # by cgroup version: limit, use, and the entry of memory.stat for droppable file cache
    1: ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    2: ("memory.max", "memory.current", "inactive_file"),
}

# Parameters `proc` and `cgroup`, the mounts of the kernel's files, exist for tests.


class Cgroup(NamedTuple):
    """Folder of a cgroup, and its interface version."""

    folder: Path
    version: int

    def read(self, name: str) -> str:
        """Return the text of a file; "" if it is missing: the group is not visible, or has no limit."""
        try:
            return (self.folder / name).read_text().strip()
        except OSError:
            return ""


class MemoryUse(NamedTuple):
    """Memory in use and its limit, in bytes."""

    used: int
    limit: int


def cgroups(controller: str, *, proc: Path = PROC, cgroup: Path = CGROUP) -> Iterator[Cgroup]:
    """Yield every cgroup that limits this process, from its own to the root.

    Parameters
    ----------
    controller
        Limited resource: "memory" or "cpu".
    """
    try:
        lines = (proc / "self" / "cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            mount, version = cgroup, 2
        elif controller in controllers.split(","):
            mount, version = cgroup / controller, 1
        else:
            continue
        # A container often sees only its own cgroup, mounted as the root: the path is missing, the root is not.
        group = Path(path.lstrip("/"))
        for part in (group, *group.parents):
            yield Cgroup(mount / part, version)


def available_cores() -> float:
    """Return the cores' worth of time that this process and its children may use."""
    allowed, quota = float(len(os.sched_getaffinity(0))), cpu_quota()
    given = os.environ.get(CORES, "")
    return min(allowed, allowed if quota is None else quota, float(given) if given.isdecimal() else allowed)


def whole_cores() -> int:
    """Return the number of whole cores that this process and its children may use, at least 1."""
    return max(1, int(available_cores()))


def cpu_quota(*, proc: Path = PROC, cgroup: Path = CGROUP) -> float | None:
    """Return the tightest limit of this process's cgroups, in cores' worth of time; None: no limit."""
    quotas = [_quota(group) for group in cgroups("cpu", proc=proc, cgroup=cgroup)]
    return min((quota for quota in quotas if quota is not None), default=None)


def busy_by_core() -> dict[int, float]:
    """Return the busy seconds of each core of this process's affinity, over all programs, by core number."""
    cores = {f"cpu{number}": number for number in sorted(os.sched_getaffinity(0))}
    busy = dict.fromkeys(cores.values(), 0.0)
    for line in (PROC / "stat").read_text().splitlines():
        name, *counts = line.split(" ")
        if name in cores:
            user, nice, system, _, _, *others = map(int, counts[:8])  # without idle and iowait
            busy[cores[name]] = (user + nice + system + sum(others)) / os.sysconf("SC_CLK_TCK")
    return busy


def memory_use(*, proc: Path = PROC, cgroup: Path = CGROUP) -> MemoryUse:
    """Return memory use of the machine, or of this process's cgroup with the least left."""
    return min([_machine_use(proc), *_cgroup_uses(proc, cgroup)], key=lambda use: use.limit - use.used)


def available_memory(*, proc: Path = PROC, cgroup: Path = CGROUP) -> int:
    """Return the bytes this process may still use: the least of MemAvailable and the cgroups' remainders."""
    use = memory_use(proc=proc, cgroup=cgroup)
    return max(0, use.limit - use.used)


def require_memory(nbytes: int, what: str) -> None:
    """Raise MemoryError, with the arithmetic shown, unless ``nbytes`` more bytes are available.

    Shared memory has no limit of its own: taking too much ends in the kernel's OOM killer instead of an error.
    """
    available = available_memory()
    if nbytes > available:
        raise MemoryError(
            f"{what} needs {_readable(nbytes)}, but only {_readable(available)} are available "
            f"({_readable(nbytes - available)} too little; available is the least of the machine's MemAvailable and "
            f"limit - used of each cgroup of this process): ask for less, or give the machine or container more memory"
        )


def problem_of_locks() -> str | None:
    """Return the reason why processes of this machine cannot share a `multiprocessing.Lock`; None if they can.

    Such locks, of `gymnasium.vector.AsyncVectorEnv` for example, are files in /dev/shm. Penstock's own memory is not.
    """
    import multiprocessing

    try:
        multiprocessing.get_context("fork").Lock()
    except OSError as error:
        return f"no multiprocessing.Lock can be made in /dev/shm ({error.strerror})"
    return None


def _quota(group: Cgroup) -> float | None:
    files = ("cpu.max",) if group.version == 2 else ("cpu.cfs_quota_us", "cpu.cfs_period_us")
    try:
        quota, period = map(int, " ".join(map(group.read, files)).split())
    except ValueError:  # "max", or no such files
        return None
    return quota / period if quota > 0 else None


def _machine_use(proc: Path) -> MemoryUse:
    lines = (line.split() for line in (proc / "meminfo").read_text().splitlines())
    nbytes = {name: int(count) * 1024 for name, count, *_ in lines}
    if "MemAvailable:" not in nbytes:
        raise RuntimeError(f"{proc / 'meminfo'} has no MemAvailable line: Penstock needs Linux 3.14 or newer")
    return MemoryUse(nbytes["MemTotal:"] - nbytes["MemAvailable:"], nbytes["MemTotal:"])


def _cgroup_uses(proc: Path, cgroup: Path) -> list[MemoryUse]:
    """Return use and limit of every cgroup with a limit, without droppable file cache."""
    uses = []
    for group in cgroups("memory", proc=proc, cgroup=cgroup):
        limit, usage, cache = _MEMORY_FILES[group.version]
        allowed = group.read(limit)
        if allowed.isdigit():
            droppable = dict(line.split() for line in group.read("memory.stat").splitlines()).get(cache, 0)
            uses.append(MemoryUse(int(group.read(usage)) - int(droppable), int(allowed)))
    return uses


def _readable(nbytes: int) -> str:
    return f"{nbytes / 2**20:,.1f} MiB"
