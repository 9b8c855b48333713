"""Sending an arena to a spawned process, and watching what a process does."""

import platform
import time
from multiprocessing.process import BaseProcess
from multiprocessing.reduction import DupFd
from pathlib import Path
from typing import Any

from penstock.ipc import Arena

FUTEX_CALL = {"x86_64": "202", "aarch64": "98"}[platform.machine()]  # its number, as the kernel's tables have it


class Sent:
    """Wraps an arena given to ``Process(args=...)``: the child finds its own attachment in ``arena``."""

    def __init__(self, arena: Arena) -> None:
        self.arena = arena

    def __getstate__(self) -> Any:
        return DupFd(self.arena.fd)

    def __setstate__(self, descriptor: Any) -> None:
        self.arena = Arena.attach(descriptor.detach())


def wait_until_asleep(task: Path) -> None:
    """Return when the process or thread at this /proc path sleeps in a futex call."""
    while (task / "syscall").read_text().split()[0] != FUTEX_CALL:
        time.sleep(0.001)


def finished(process: BaseProcess) -> bool:
    """Wait for the process to end; whether it ended well."""
    process.join()
    return process.exitcode == 0
