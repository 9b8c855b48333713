"""Load of a run's hardware: cores, memory, each kind of role, GPUs."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping

from penstock.ipc import busy_by_core, memory_use
from penstock.runs.machine import Gpus
from penstock.runs.process import cpu_seconds

_PAGE = os.sysconf("SC_PAGE_SIZE")


class Hardware:
    """Looks at /proc, the cgroups, and NVML.

    Parameters
    ----------
    pids
        Tells the process ids of the roles by their names ("rollout-0"), as far as they have processes of their own.
    has_gpu
        Whether the run computes on a GPU: then GPUs are looked at.
    """

    def __init__(self, pids: Callable[[], Mapping[str, int]], *, has_gpu: bool) -> None:
        self._pids = pids
        self._gpus = Gpus() if has_gpu else None
        self._looked = 0.0
        self._busy: dict[int, float] = {}
        self._spent: dict[int, float] = {}

    def sample(self) -> dict[str, float | None]:
        """Load since the last call, by name; empty at the first call, which starts the clock.

        Returns
        -------
        dict
            ``cpu/0`` and so on: share of each core's time that was busy, with whatever program. ``cpu/run``: cores'
            worth of time of this run. ``memory/used``, ``memory/limit``: bytes, of the machine or of the container
            that leaves less. ``role/KIND/cpu`` and ``role/KIND/memory``: cores' worth of time, and bytes that are not
            shared, over all processes of a kind; the supervisor's are those of this process. ``gpu/...``: as
            `Gpus.sample` says.
        """
        now, busy = time.monotonic(), busy_by_core()
        processes = [("supervisor", os.getpid())]
        processes += [(name.partition("-")[0], pid) for name, pid in self._pids().items()]
        spent = {pid: cpu_seconds(pid) for _, pid in processes}
        seconds, before, before_spent = now - self._looked, self._busy, self._spent
        self._looked, self._busy, self._spent = now, busy, spent
        if not before or seconds <= 0.0:
            return {}
        found: dict[str, float | None] = {
            f"cpu/{core}": min(1.0, (busy[core] - before.get(core, busy[core])) / seconds) for core in busy
        }
        cpu, memory = dict.fromkeys(dict(processes), 0.0), dict.fromkeys(dict(processes), 0)
        for kind, pid in processes:
            cpu[kind] += (spent[pid] - before_spent.get(pid, spent[pid])) / seconds
            memory[kind] += _own_memory(pid)
        used, limit = memory_use()
        found |= {"cpu/run": sum(cpu.values()), "memory/used": used, "memory/limit": limit}
        for kind in cpu:
            found |= {f"role/{kind}/cpu": max(0.0, cpu[kind]), f"role/{kind}/memory": memory[kind]}
        return found | (self._gpus.sample() if self._gpus is not None else {})


def _own_memory(pid: int) -> int:
    """Bytes of a process that are no file's and in no shared memory, such as the arena; 0 if it is gone."""
    try:
        with open(f"/proc/{pid}/statm") as file:
            _, resident, shared, *_ = map(int, file.read().split())
    except (OSError, ValueError):
        return 0
    return max(0, resident - shared) * _PAGE
