"""A disk that can be filled up, and files that can be damaged."""

from __future__ import annotations

import ctypes
import errno
import json
import os
import resource
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from penstock.runs.checkpoint import FORMAT_VERSION, _digest

CLONE_NEWNS, MS_REC, MS_PRIVATE = 0x00020000, 0x4000, 1 << 18
NBYTES, SHARED_NBYTES = 32 << 20, 1 << 30
TINY = 1024  # largest size of a file in bytes, if files are limited instead

_libc = ctypes.CDLL(None, use_errno=True)


SHARED_MEMORY = Path("/dev/shm")


class SmallDisk:
    """A disk of 32 MiB, mounted only for this process and its children, so that it ends with them.

    They also get their own /dev/shm, so that a name left in it can only be theirs.

    If mounting is not allowed, filling it up means that files of the given processes may not grow (RLIMIT_FSIZE):
    writing fails with EFBIG instead of ENOSPC. And /dev/shm is shared with all processes.
    """

    def __init__(self, place: Path) -> None:
        self.path = place
        place.mkdir()
        self.is_mounted = _leave_mounts() and _mount(place, NBYTES)
        if self.is_mounted:
            _mount(SHARED_MEMORY, SHARED_NBYTES)
        self._names_before = set(SHARED_MEMORY.iterdir())
        self._filler = place / "filler"

    def names_left(self) -> list[Path]:
        """Return leftovers in /dev/shm."""
        return sorted(set(SHARED_MEMORY.iterdir()) - self._names_before)

    def fill(self, pids: Iterable[int]) -> None:
        """Fill the disk."""
        if not self.is_mounted:
            return _limit(pids, TINY)
        descriptor = os.open(self._filler, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        size = 1 << 20
        while size >= 512:
            try:
                if os.write(descriptor, bytes(size)) < size:
                    size //= 2
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                size //= 2
        os.close(descriptor)
        return None

    def free(self, pids: Iterable[int]) -> None:
        """Free the disk."""
        if self.is_mounted:
            self._filler.unlink(missing_ok=True)
        else:
            _limit(pids, resource.RLIM_INFINITY)


def _leave_mounts() -> bool:
    """Use separate mounts from now on; return whether that is allowed."""
    flags = ctypes.c_ulong(MS_REC | MS_PRIVATE)
    return _libc.unshare(CLONE_NEWNS) == 0 and _libc.mount(b"none", b"/", None, flags, None) == 0


def _mount(place: Path, nbytes: int) -> bool:
    flags, options = ctypes.c_ulong(0), b"size=%d" % nbytes
    return _libc.mount(b"tmpfs", os.fsencode(place), b"tmpfs", flags, options) == 0


def _limit(pids: Iterable[int], nbytes: int) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (nbytes, hard))


def damage(path: Path, kind: str, dice: float) -> str:
    """Truncate a file at a random place, or flip a bit there; return a description."""
    size = path.stat().st_size
    offset = int(dice * size)
    if kind == "truncated":
        os.truncate(path, offset)
        return f"{path} truncated at byte {offset} of {size}"
    bit = int(dice * size * 8) % 8
    with path.open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)
        file.seek(offset)
        file.write(bytes([byte[0] ^ 1 << bit]))
    return f"bit {bit} of byte {offset} of {path} ({size} bytes) flipped"


def hostile(dice: float, fields: Iterable[str]) -> bytes:
    """Return JSON that is nested too deeply, is incomplete, or has fields of wrong types."""
    texts = ['{"a":' * 20_000 + "1" + "}" * 20_000, "[" * 100_000, "[]", "", '{"run": ']
    texts += [json.dumps(dict.fromkeys(fields, value)) for value in (["a"], {"a": 1}, 10**400, None)]
    return texts[int(dice * len(texts))].encode()


def resealed(meta: bytes, kind: str) -> bytes:
    """Return a checkpoint's description with the right digest, but a newer format, or wrong steps ("hostile")."""
    found = json.loads(meta)
    del found["sha256"]
    found |= {"format_version": FORMAT_VERSION + 1} if kind == "newer" else {"steps": ["a"]}
    return json.dumps({**found, "sha256": _digest(found)}).encode()
