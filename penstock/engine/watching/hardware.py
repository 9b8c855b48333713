"""Load of a run's hardware: cores, memory, network, each kind of role, GPUs."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from penstock.ipc import busy_by_core, memory_use
from penstock.runs.machine import Gpus
from penstock.runs.process import cpu_seconds

_PAGE = os.sysconf("SC_PAGE_SIZE")
_INTERFACES = Path("/proc/net/dev")


class Hardware:
    """Load of the machine and of the run's processes, from /proc, cgroups and NVML.

    Parameters
    ----------
    pids
        Function that returns process ids by name of the role ("rollout-0"), for roles with a process of their own.
    has_gpu
        Whether the run computes on a GPU, so that GPUs are sampled.
    """

    def __init__(self, pids: Callable[[], Mapping[str, int]], *, has_gpu: bool) -> None:
        self._pids = pids
        self._gpus = Gpus() if has_gpu else None
        self._looked = 0.0
        self._busy: dict[int, float] = {}
        self._spent: dict[int, float] = {}
        self._carried: dict[str, int] = {}

    def sample(self) -> dict[str, float | None]:
        """Return the load since the last call, by name; empty at the first call, which starts the measurement.

        Returns
        -------
        dict
            ``cpu/0`` and so on: busy share of each core's time, for all programs. ``cpu/run``: CPU seconds of this run
            per second. ``memory/used``, ``memory/limit``: bytes, of the machine or of the container that leaves less.
            ``network/received``, ``network/sent``: bytes per second, of all programs. ``role/KIND/cpu`` and
            ``role/KIND/memory``: CPU seconds per second, and unshared bytes, over all processes of a kind; the
            supervisor is this process. ``gpu/...``: see `Gpus.sample`.
        """
        now, busy = time.monotonic(), busy_by_core()
        processes = [("supervisor", os.getpid())]
        processes += [(name.partition("-")[0], pid) for name, pid in self._pids().items()]
        spent = {pid: cpu_seconds(pid) for _, pid in processes}
        seconds, before, before_spent = now - self._looked, self._busy, self._spent
        carried, before_carried = network_nbytes(), self._carried
        self._looked, self._busy, self._spent, self._carried = now, busy, spent, carried
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
        found |= {f"network/{way}": max(0, carried[way] - before_carried.get(way, 0)) / seconds for way in carried}
        for kind in cpu:
            found |= {f"role/{kind}/cpu": max(0.0, cpu[kind]), f"role/{kind}/memory": memory[kind]}
        return found | (self._gpus.sample() if self._gpus is not None else {})


def network_nbytes() -> dict[str, int]:
    """Return the bytes received and sent by all interfaces except loopback; empty without the kernel's table."""
    try:
        lines = _INTERFACES.read_text().splitlines()[2:]
    except OSError:
        return {}
    counts = [line.split(":")[1].split() for line in lines if line.split(":")[0].strip() != "lo"]
    return {way: sum(int(each[place]) for each in counts) for way, place in (("received", 0), ("sent", 8))}


def _own_memory(pid: int) -> int:
    """Return the bytes of a process outside files and shared memory such as the arena; 0 if it is gone."""
    try:
        with open(f"/proc/{pid}/statm") as file:
            _, resident, shared, *_ = map(int, file.read().split())
    except (OSError, ValueError):
        return 0
    return max(0, resident - shared) * _PAGE
