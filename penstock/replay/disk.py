"""Files of a saved replay buffer: written to the disk with their CRC-32, checked when they are read."""

from __future__ import annotations

import fcntl
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.replay.manifest import ADVICE, MANIFEST, OWN_NAME, File, Manifest, ReplayFileError, open_regular


def write_file(path: Path, *arrays: NDArray[Any]) -> File:
    """Write the bytes of arrays to a new file, and sync the file to the disk."""
    nbytes = crc32 = 0
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        for array in arrays:
            view = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
            nbytes += len(view)
            crc32 = zlib.crc32(view, crc32)
            while view:
                view = view[os.write(descriptor, view) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return File(path.name, nbytes, crc32)


def read_file(path: Path, file: File) -> NDArray[np.uint8]:
    """Return the bytes of a file in the directory `path`; raise `ReplayFileError` if it is damaged."""
    whole = path / file.name
    with open_regular(whole) as opened:
        found = os.fstat(opened.fileno()).st_size
        if found != file.nbytes:
            raise ReplayFileError(f"{whole} has {found} bytes instead of {file.nbytes}, so it is damaged: {ADVICE}")
        data = np.fromfile(opened, np.uint8)
    if zlib.crc32(data.data) != file.crc32:
        raise ReplayFileError(f"{whole} does not have the CRC-32 that {MANIFEST} names, so it is damaged: {ADVICE}")
    return data


def is_complete(path: Path, file: File) -> bool:
    """Return whether the directory `path` has a file with this name and size."""
    try:
        return (path / file.name).stat().st_size == file.nbytes
    except FileNotFoundError:
        return False


def remove_unnamed(path: Path, manifest: Manifest | None) -> None:
    """Remove files of saves that the manifest does not name; without a manifest, all of them."""
    named = manifest.file_names() if manifest else set()
    for name in os.listdir(path):
        if OWN_NAME.fullmatch(name) and name not in named:
            with suppress(OSError):  # the next save tries again
                os.unlink(path / name)


@contextmanager
def locked(path: Path, kind: int) -> Iterator[None]:
    """Hold the lock of a directory, `fcntl.LOCK_EX` or `fcntl.LOCK_SH`."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with suppress(OSError):  # file system without locks: processes must not save at the same time
            fcntl.flock(descriptor, kind)
        yield
    finally:
        with suppress(OSError):  # a forked child may hold the descriptor: closing is not enough
            fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)


def sync_directory(path: Path) -> None:
    """Sync the names in a directory to the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
