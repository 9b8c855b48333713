"""Handles of shared memory for other processes of this machine: plain numbers, without a name in the file system."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from penstock.ipc import Arena


@dataclass(frozen=True)
class ArenaHandle:
    """Handle of an arena: a file descriptor in a process that has it open.

    Attributes
    ----------
    pid
        Process that made the handle. It must live, with the arena open, until the handle has been attached.
    fd
        Descriptor of the arena in that process.
    device, inode
        Identity of the file behind the descriptor, in case the numbers are reused.
    """

    pid: int
    fd: int
    device: int
    inode: int


def arena_handle(arena: Arena) -> ArenaHandle:
    """Return the handle of an arena for processes of the same user and machine; it may be pickled."""
    status = os.fstat(arena.fd)
    return ArenaHandle(pid=os.getpid(), fd=arena.fd, device=status.st_dev, inode=status.st_ino)


def attach(handle: ArenaHandle) -> Arena:
    """Map the arena behind a handle into this process.

    The process that made the handle may end afterwards.

    Raises
    ------
    ConnectionError
        The process is gone, has closed the arena, or is not visible from here: another machine, container or user.
    """
    path = Path(f"/proc/{handle.pid}/fd/{handle.fd}")
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOCTTY)
    except OSError as error:
        raise ConnectionError(_cannot_attach(handle, _reason(handle.pid, error))) from None
    status = os.fstat(fd)
    if (status.st_dev, status.st_ino) != (handle.device, handle.inode):
        os.close(fd)
        raise ConnectionError(_cannot_attach(handle, "that descriptor refers to another file by now"))
    return Arena.attach(fd)


def _reason(pid: int, error: OSError) -> str:
    if not Path(f"/proc/{pid}").exists():
        return "there is no such process, or it cannot be seen from here"
    if isinstance(error, FileNotFoundError):
        return "it has closed that descriptor, or is another process with the same number"
    return f"{error.strerror} (it must run as the same user, in the same container)"


def _cannot_attach(handle: ArenaHandle, reason: str) -> str:
    return (
        f"cannot attach to the shared memory of process {handle.pid}, descriptor {handle.fd}: {reason}. Keep the "
        "process that pickled the object alive, and the object in it open, until it has been unpickled, on the same "
        "machine and in the same container"
    )
