"""Atomic files: appended records, written files, replaced directories."""

from __future__ import annotations

import ctypes
import errno
import glob
import json
import math
import numbers
import os
import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

_ASIDE = ".aside"
_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
_EXCHANGE_NOT_SUPPORTED = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP)


class AppendFile:
    """File that grows by whole records: a record that does not fit on the disk is not written in part.

    An unfinished last line, left by a killed process, is ended, so that the next record starts a new line.
    """

    def __init__(self, path: Path, *, text: bool = True) -> None:
        self._file = open(path, "ab+", buffering=0)  # noqa: SIM115 - open as long as this object
        end = self._file.seek(0, os.SEEK_END)
        if text and end:
            self._file.seek(end - 1)
            if self._file.read(1) != b"\n":
                self._file.write(b"\n")

    def append(self, record: bytes) -> None:
        """Write `record` at the end, or raise `OSError` and leave the file unchanged."""
        start = self._file.seek(0, os.SEEK_END)
        try:
            written = 0
            while written < len(record):  # a nearly full disk accepts a part, and fails at the next write
                written += self._file.write(record[written:])
        except OSError:
            self._file.truncate(start)
            raise

    def close(self) -> None:
        """Close the file; it may be called again."""
        self._file.close()


class LinesLog:
    """File of one JSON object per line; a full disk does not stop the run.

    Parameters
    ----------
    path
        The file, created with the first line; None: nothing is written.
    warn
        Called once with a warning when the disk is full or fails; lines that cannot be written are dropped.
    may_write
        Called before lines are written: False drops them.
    """

    def __init__(
        self, path: Path | None, warn: Callable[[str], None], may_write: Callable[[], bool] = lambda: True
    ) -> None:
        self.path = path
        self._warn = warn
        self._may_write = may_write
        self._warned = False
        self._file: AppendFile | None = None

    def write(self, records: Iterable[Mapping[str, Any]]) -> bool:
        """Append records: all of them, or none if the disk is full; return whether they were written."""
        if self.path is None or not self._may_write():
            return False
        lines = "".join(f"{json.dumps(json_values(record))}\n" for record in records)
        try:
            if self._file is None:
                self._file = AppendFile(self.path)
            self._file.append(lines.encode())
        except OSError as error:
            if not self._warned:
                self._warn(f"warning: {self.path} cannot be written ({error.strerror}); training continues without it")
            self._warned = True
            return False
        return True

    def close(self) -> None:
        """Close the file; it may be called again, and the next line opens the file anew."""
        if self._file is not None:
            self._file.close()
            self._file = None


def why_unwritable(path: str | os.PathLike[str]) -> str:
    """Return the reason why nothing can be created at a path, whose parents may be missing; "" if there is none."""
    place = next(parent for parent in Path(path).absolute().parents if os.path.lexists(parent))
    try:
        with _name_aside(place / "penstock") as aside:
            aside.mkdir()
    except OSError as error:
        return f"{error.strerror} ({place})"
    return ""


def why_no_new_file(path: str | os.PathLike[str]) -> str:
    """Return the reason why no new file can be created at a path, with the remedy; "" if there is none."""
    if os.path.lexists(path):
        return "it exists; give another name, or remove it first"
    if not (parent := Path(path).absolute().parent).is_dir():
        return f"there is no directory {parent}"
    return why_unwritable(path)


def shown_path(path: str | os.PathLike[str]) -> str:
    """Return a path inside the working directory relative to it, and other paths unchanged."""
    with suppress(ValueError, FileNotFoundError):
        return str(Path(path).absolute().relative_to(Path.cwd()))
    return os.fspath(path)


def json_values(value: Any) -> Any:
    """Convert `value` to JSON values: NaN and infinities to null, other objects to text."""
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): json_values(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [json_values(item) for item in value]
    return repr(value)


def json_bytes(value: Any) -> bytes:
    """Return `value` as readable JSON."""
    return (json.dumps(json_values(value), indent=2) + "\n").encode()


def write_file(path: Path, data: bytes) -> None:
    """Write a new file and sync it to the disk."""
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def write_file_atomically(path: Path, data: bytes) -> None:
    """Replace a file atomically and sync it: readers of `path` find the old content or the new."""
    with _name_aside(path) as aside:
        write_file(aside, data)
        os.replace(aside, path)
    _sync_directory(path.parent)


@contextmanager
def directory_replacing(path: Path) -> Iterator[Path]:
    """Yield an empty directory to fill; at the end of the block it replaces the directory `path`.

    With `RENAME_EXCHANGE`, `path` is the old directory or the new one at every instant, even if the process is killed
    or the power fails. File systems that cannot exchange (NFS, some FUSE) get two renames instead; after a kill between
    them, the old directory is at `previous_of(path)`, where readers look for it. If the block fails, the new directory
    is removed and `path` is unchanged.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    remove_leftovers(path.parent, path.name)
    with _name_aside(path) as aside:
        aside.mkdir()
        yield aside
        _sync_directory(aside)
        previous = previous_of(path)
        try:
            os.rename(aside, path)  # nothing there, or an empty directory
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            if not _exchange(aside, path):
                shutil.rmtree(previous, ignore_errors=True)
                os.rename(path, previous)
                os.rename(aside, path)
        _sync_directory(path.parent)
        shutil.rmtree(previous, ignore_errors=True)


def previous_of(path: Path) -> Path:
    """Return the path of the old directory between the two renames of `directory_replacing`."""
    return path.with_name(f".{path.name}.previous")


def remove_directory(path: Path) -> None:
    """Remove a directory after renaming it, so that a kill leaves no part of it at `path`; errors are ignored."""
    with suppress(OSError), _name_aside(path) as aside:
        os.rename(path, aside)


def set_aside(path: Path) -> Path:
    """Rename `path` to the first unused ``<name>.set-aside-<n>`` beside it, and return that path."""
    number = 1
    while True:
        aside = path.with_name(f"{path.name}.set-aside-{number}")
        if not os.path.lexists(aside):
            try:
                os.rename(path, aside)
                return aside
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
        number += 1


def remove_leftovers(directory: Path, name: str = "") -> None:
    """Remove temporary files of dead processes in `directory`, for `name` or for all names."""
    for leftover in directory.glob(f".{glob.escape(name) or '*'}.*{_ASIDE}"):
        pid = leftover.name.removesuffix(_ASIDE).rpartition(".")[2].partition("-")[0]
        if pid.isdigit() and not Path(f"/proc/{pid}").exists():
            _remove(leftover)


@contextmanager
def _name_aside(path: Path) -> Iterator[Path]:
    """Yield an unused hidden name beside `path`; anything of this name is removed at the end."""
    aside = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}{_ASIDE}")
    try:
        yield aside
    finally:
        _remove(aside)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _exchange(a: Path, b: Path) -> bool:
    """Exchange two names atomically; return False if the file system cannot."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.renameat2(_AT_FDCWD, os.fsencode(a), _AT_FDCWD, os.fsencode(b), _RENAME_EXCHANGE) == 0:
        return True
    code = ctypes.get_errno()
    if code in _EXCHANGE_NOT_SUPPORTED:
        return False
    raise OSError(code, os.strerror(code), os.fspath(b))


def replace_file(path: Path, data: bytes) -> None:
    """Replace a file without waiting for the disk: readers find the old content or the new.

    After a power failure it may be empty. Use `write_file_atomically` for content that must not be lost.
    """
    with _name_aside(path) as aside:
        aside.write_bytes(data)
        os.replace(aside, path)


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
