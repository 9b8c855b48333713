"""Number of cores available to a run: those of its affinity, limited by its cgroup's quota."""

from __future__ import annotations

import os
from pathlib import Path

from penstock.ipc.cgroups import CGROUP, PROC, Cgroup, cgroups


def available_cores() -> float:
    """Cores' worth of time that this process and its children may use at once."""
    allowed, quota = float(len(os.sched_getaffinity(0))), cpu_quota()
    return allowed if quota is None else min(allowed, quota)


def whole_cores() -> int:
    """Whole cores that this process and its children may use, at least 1."""
    return max(1, int(available_cores()))


def cpu_quota(*, proc: Path = PROC, cgroup: Path = CGROUP) -> float | None:
    """Cores' worth of time that the cgroups of this process allow, the tightest of them; None: no limit.

    Parameters
    ----------
    proc, cgroup
        Where the kernel tells; other places only for tests.
    """
    quotas = [_quota(group) for group in cgroups("cpu", proc=proc, cgroup=cgroup)]
    return min((quota for quota in quotas if quota is not None), default=None)


def busy_by_core(*, proc: Path = PROC) -> dict[int, float]:
    """Seconds that each core of this process's affinity has been busy so far, with whatever program, by its number.

    Parameters
    ----------
    proc
        Where the kernel tells; another place only for tests.
    """
    cores = {f"cpu{number}": number for number in sorted(os.sched_getaffinity(0))}
    busy = dict.fromkeys(cores.values(), 0.0)
    for line in (proc / "stat").read_text().splitlines():
        name, *counts = line.split(" ")
        if name in cores:
            user, nice, system, _, _, *others = map(int, counts[:8])  # idle, and idle but for a disk
            busy[cores[name]] = (user + nice + system + sum(others)) / os.sysconf("SC_CLK_TCK")
    return busy


def _quota(group: Cgroup) -> float | None:
    files = ("cpu.max",) if group.version == 2 else ("cpu.cfs_quota_us", "cpu.cfs_period_us")
    try:
        quota, period = map(int, " ".join(map(group.read, files)).split())
    except ValueError:  # "max", or no such files
        return None
    return quota / period if quota > 0 else None
