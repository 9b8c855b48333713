"""Ownership of a run directory: the process that trains in it holds a lock on its file ``run.lock``.

The kernel holds the lock, which ends with its process; a query does not lock. The file names the process, and is empty
after a regular end. A copy of a run has the file and no lock.

`RunLock.note` reports a file system without locks. There the process that the file names decides.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import stat
import struct
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from penstock.runs.documents import open_ordinary
from penstock.runs.process import is_alive, this_process

LOCK = "run.lock"

_FLOCK = struct.Struct("hhqqi0q")  # struct flock: type, whence, start, length, pid
_WITHOUT_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)
_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ESTALE)
_MOST_NBYTES = 1 << 14


@dataclass(frozen=True)
class Owner:
    """Process that trains in a run directory, according to its file ``run.lock``.

    Attributes
    ----------
    process
        Description by `this_process`; empty if the file has none.
    since
        Time when the training began.
    """

    process: Mapping[str, Any]
    since: str

    def __str__(self) -> str:
        if not self.process:
            return "another process"
        is_this = is_alive(self.process) and self.process["pid"] == os.getpid()
        return f"process {self.process['pid']}{' (this one)' if is_this else ''} on {self.process.get('host')}"


class HeldError(Exception):
    """A run directory has an owner.

    Attributes
    ----------
    owner
        The process.
    is_certain
        Whether the owner is known to be alive: through the kernel's lock, or as a process of this machine.
    """

    def __init__(self, owner: Owner, *, is_certain: bool = True) -> None:
        super().__init__(f"{owner} has trained there since {owner.since or 'a moment ago'}")
        self.owner = owner
        self.is_certain = is_certain


class Place(NamedTuple):
    """Path and identity of a run's file ``run.lock``, for every process that writes to the run."""

    path: str
    device: int
    inode: int

    @property
    def is_there(self) -> bool:
        """Whether the path is still this file; False if the run was removed or replaced."""
        try:
            found = os.stat(self.path, follow_symlinks=False)
        except OSError as error:
            return error.errno not in _GONE
        return (found.st_dev, found.st_ino) == (self.device, self.inode)


class RunLock:
    """Ownership of a run directory, from `take` until `release` or the end of this process.

    A forked child does not own the directory.

    Attributes
    ----------
    place
        The locked file.
    is_new
        Whether `take` has created the file.
    note
        Warning for the user; "" if the kernel holds the lock.
    """

    def __init__(self, place: Place, descriptor: int, directory: int, *, is_new: bool, note: str) -> None:
        self.place = place
        self.is_new = is_new
        self.note = note
        self._descriptors = [descriptor, directory]
        _held.add(self)

    @classmethod
    def take(cls, run_dir: Path) -> RunLock:
        """Own an existing run directory.

        Raises
        ------
        HeldError
            The directory has an owner.
        OSError
            The file cannot be created or locked.
        """
        folder = os.path.abspath(run_dir)
        path = os.path.join(folder, LOCK)
        while True:
            descriptor, is_new = _open(path)
            try:
                if not is_new and not _is_lock(descriptor):
                    raise OSError(errno.EEXIST, "The file is not a run's lock", path)
                note = _lock(descriptor, path)
                status = os.fstat(descriptor)
                place = Place(path, status.st_dev, status.st_ino)
                if not place.is_there:  # the run was removed or set aside since the file was opened
                    os.close(descriptor)
                    continue
                directory = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            except BaseException:
                os.close(descriptor)
                raise
            lock = cls(place, descriptor, directory, is_new=is_new, note=note)
            with suppress(OSError):  # full disk: the lock is held all the same
                about = {**this_process(), "since": datetime.now().astimezone().isoformat(timespec="seconds")}
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, json.dumps(about).encode() + b"\n", 0)
            return lock

    @property
    def is_held(self) -> bool:
        """Whether this process owns the directory; False after `release` and in a child."""
        return bool(self._descriptors)

    @property
    def is_same_directory(self) -> bool:
        """Whether the directory's path is still the locked directory, with or without the file in it."""
        try:
            found = os.stat(os.path.dirname(self.place.path))
        except OSError:
            return False
        return self.is_held and os.path.samestat(found, os.fstat(self._descriptors[1]))

    def release(self, *, remove: bool = False) -> None:
        """Give up ownership; it may be called again.

        Parameters
        ----------
        remove
            Remove the file if `take` has created it.
        """
        descriptors, self._descriptors = self._descriptors, []
        if descriptors:
            _held.discard(self)
            with suppress(OSError):
                if remove and self.is_new and self.place.is_there:
                    os.unlink(self.place.path)
                os.ftruncate(descriptors[0], 0)
            with suppress(OSError):  # closing is not enough if a forked child has the descriptor
                fcntl.fcntl(descriptors[0], fcntl.F_OFD_SETLK, _flock(fcntl.F_UNLCK))
            for descriptor in descriptors:
                os.close(descriptor)

    def __del__(self) -> None:
        self.release()


class Holding(NamedTuple):
    """State of a run directory's lock.

    Attributes
    ----------
    is_held
        Whether a process owns the directory; None if unknown, for example without the file.
    owner
        Process that the file names.
    """

    is_held: bool | None
    owner: Owner


def holding_of(run_dir: Path) -> Holding:
    """Query whether a run directory has an owner, without taking the lock."""
    descriptor = open_ordinary(run_dir / LOCK)
    if descriptor is None:
        return Holding(None, Owner({}, ""))
    try:
        answer = fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, _flock(fcntl.F_WRLCK))
        return Holding(_FLOCK.unpack(answer)[0] != fcntl.F_UNLCK, _owner_in(descriptor))
    except OSError:
        return Holding(None, _owner_in(descriptor))
    finally:
        os.close(descriptor)


def is_lock(path: Path) -> bool:
    """Return whether a file is a run's lock, held or not: it is empty or names a process."""
    descriptor = open_ordinary(path)
    if descriptor is None:
        return False
    try:
        return _is_lock(descriptor)
    finally:
        os.close(descriptor)


def holds(pid: int, run_dir: Path) -> bool:
    """Return whether a process of this machine holds the kernel's lock of a run directory."""
    proc = Path("/proc") / str(pid)
    try:
        file = os.stat(run_dir / LOCK, follow_symlinks=False)
        descriptors = os.listdir(proc / "fd")
    except OSError:
        return False
    for descriptor in descriptors:
        with suppress(OSError):  # closed meanwhile
            is_file = os.path.samestat(os.stat(proc / "fd" / descriptor), file)
            if is_file and "OFDLCK" in (proc / "fdinfo" / descriptor).read_text():
                return True
    return False


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Make, hold and, if empty, remove a folder of some runs; raise `BlockingIOError` if another process holds it."""
    made = [place for place in (folder, *folder.parents) if not place.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        with suppress(OSError):
            for place in made:
                place.rmdir()
        os.close(descriptor)


_held: weakref.WeakSet[RunLock] = weakref.WeakSet()


def _leave_to_the_parent() -> None:
    """Close the parent's locks in a forked child."""
    for lock in list(_held):
        descriptors, lock._descriptors = lock._descriptors, []
        for descriptor in descriptors:
            with suppress(OSError):
                os.close(descriptor)
    _held.clear()


os.register_at_fork(after_in_child=_leave_to_the_parent)


def _open(path: str) -> tuple[int, bool]:
    """Open the file of a lock; return the descriptor and whether the file was made."""
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    while True:
        try:
            return os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o666), True
        except FileExistsError:
            with suppress(FileNotFoundError):
                descriptor = os.open(path, flags)
                if stat.S_ISREG(os.fstat(descriptor).st_mode):
                    return descriptor, False
                os.close(descriptor)
                raise OSError(errno.EINVAL, "Not an ordinary file", path) from None


def _lock(descriptor: int, path: str) -> str:
    """Lock a file, or raise `HeldError`; return a warning if the file system has no locks."""
    try:
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _flock(fcntl.F_WRLCK))
        return ""
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            raise HeldError(_owner_in(descriptor)) from None
        if error.errno not in _WITHOUT_LOCKS:
            raise
        why = error.strerror
    owner = _owner_in(descriptor)
    is_there = is_alive(owner.process) if owner.process else False
    if is_there is not False:
        raise HeldError(owner, is_certain=bool(is_there))
    return (
        f"warning: the file system of {path} has no locks ({why}): a second training of this run is only noticed on "
        "this machine"
    )


def _is_lock(descriptor: int) -> bool:
    return not os.fstat(descriptor).st_size or bool(_owner_in(descriptor).process)


def _owner_in(descriptor: int) -> Owner:
    """Return the process that a lock's file names."""
    try:
        found = json.loads(os.pread(descriptor, _MOST_NBYTES, 0))
    except (OSError, ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or type(found.get("pid")) is not int:
        return Owner({}, "")
    since = found.pop("since", "")
    return Owner(found, since if isinstance(since, str) else "")


def _flock(kind: int) -> bytes:
    """Return the kernel's structure for the lock of a whole file."""
    return _FLOCK.pack(kind, os.SEEK_SET, 0, 0, 0)
