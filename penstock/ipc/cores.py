"""How many cores a run may use: those of its affinity, and no more than its cgroup grants the time of."""

from __future__ import annotations

import os
from pathlib import Path


def available_cores() -> float:
    """Cores' worth of time that this process and its children may use at once."""
    allowed, quota = float(len(os.sched_getaffinity(0))), cpu_quota()
    return allowed if quota is None else min(allowed, quota)


def whole_cores() -> int:
    """Whole cores that this process and its children may use, at least 1."""
    return max(1, int(available_cores()))


def cpu_quota(cgroup: Path = Path("/sys/fs/cgroup")) -> float | None:
    """Cores' worth of time that the cgroup allows; None: no limit."""
    try:
        quota, period = (cgroup / "cpu.max").read_text().split()
        return None if quota == "max" else int(quota) / int(period)
    except (OSError, ValueError):
        pass
    try:
        cpu = cgroup / "cpu"
        limit = int((cpu / "cpu.cfs_quota_us").read_text())
        return limit / int((cpu / "cpu.cfs_period_us").read_text()) if limit > 0 else None
    except (OSError, ValueError):
        return None
