"""Manifest of a saved replay buffer: the save's files, their contents, and checks of compatibility.

`manifest.json` is JSON with the format's name and version, the content, and the content's CRC-32.
"""

from __future__ import annotations

import json
import math
import os
import re
import stat
import zlib
from dataclasses import asdict, dataclass, is_dataclass
from functools import cache
from io import FileIO
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

MANIFEST = "manifest.json"
OWN_NAME = re.compile(r"(rows-\d+-\d+|priorities|manifest)-[0-9a-f]{16}\.(bin|json)")
ADVICE = "load an older copy of the directory, or start with an empty buffer in a new directory"
MOST_NBYTES = 1 << 26  # of a manifest, which names about 200,000 files of 8 MiB each
END_OF_COUNTS = 1 << 43  # ids and counters stay below it: the core packs an id into 44 bits
_FORMAT = "penstock.replay"
_VERSION = 1
_END_OF_EPISODE_STARTS = 1 << 31  # the core shifts them by 32 bits


class ReplayFileError(ValueError):
    """Saved files that cannot be loaded: missing, damaged, of another version or another buffer."""


class DamagedManifestError(ReplayFileError):
    """Manifest that cannot be read: damaged, or another program's."""


@dataclass(frozen=True)
class File:
    """File beside the manifest."""

    name: str
    nbytes: int
    crc32: int


@dataclass(frozen=True)
class Block:
    """Rows `begin` to `end` of a store, of which `readable` hold a record; `ids` is a digest of their ids."""

    begin: int
    end: int
    readable: int
    ids: str
    file: File


@dataclass(frozen=True)
class Store:
    """Store of records: counters (claimed, base, written, cleared) and blocks, ascending, without empty ones."""

    capacity: int
    record_nbytes: int
    counters: tuple[int, int, int, int]
    blocks: list[Block]


@dataclass(frozen=True)
class Priorities:
    """Largest priority so far, and the file of the leaves."""

    largest: float
    file: File


@dataclass(frozen=True)
class Manifest:
    """Contents of a save: its random number, the buffer's settings, stores (rows, then frames), the generator (hex).

    ``extras`` holds further JSON values of the buffer.
    """

    save: int
    description: dict[str, Any]
    stores: list[Store]
    priorities: Priorities | None
    episode_starts: int
    generator: str
    extras: dict[str, Any]

    def file_names(self) -> set[str]:
        """Return the names of all other files of the save."""
        names = {block.file.name for store in self.stores for block in store.blocks}
        return names | ({self.priorities.file.name} if self.priorities else set())

    def without(self, files: set[str]) -> str:
        """Return in words what a save lacks without some of its files, one at least."""
        readable = {block.file.name: block.readable for block in self.stores[0].blocks}
        rows = sum(readable.get(name, 0) for name in files)
        first, *others = sorted(files)
        names = f"{first} and {len(others)} more" if others else first
        of_all = f"{len(files)} of {len(self.file_names())} files ({names})"
        return f"it lacks {of_all}, with {rows:,} of {sum(readable.values()):,} rows"

    def shapes(self) -> list[tuple[int, int]]:
        """Return (rows, bytes of a row) of each store."""
        return [(store.capacity, store.record_nbytes) for store in self.stores]


def manifest_bytes(manifest: Manifest) -> bytes:
    """Return the manifest in the form that `read_manifest` reads."""
    content = asdict(manifest)
    whole = {"format": _FORMAT, "version": _VERSION, "crc32": _json_crc32(content), "content": content}
    return json.dumps(whole, indent=1).encode()


def read_manifest(path: Path) -> Manifest:
    """Read the manifest of the directory `path`.

    Raises
    ------
    DamagedManifestError
        The manifest is damaged, or another program's.
    ReplayFileError
        The manifest is missing, or of another version.
    OSError
        The manifest cannot be read.
    """
    file = path / MANIFEST
    try:
        with open_regular(file) as opened:
            if (nbytes := os.fstat(opened.fileno()).st_size) > MOST_NBYTES:
                raise DamagedManifestError(f"{file} has {nbytes:,} bytes; at most {MOST_NBYTES:,} are read: {ADVICE}")
            data = opened.read()
    except (FileNotFoundError, NotADirectoryError):
        raise ReplayFileError(
            f"{file} is missing, so {path} holds no completely saved replay buffer: "
            f"give the directory of another save, or start with an empty buffer"
        ) from None
    return manifest_in(data, file)


def manifest_in(data: bytes, file: Path) -> Manifest:
    """Return the manifest in the bytes of `file`; raise `ReplayFileError` as `read_manifest` does."""
    try:
        whole = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise DamagedManifestError(f"{file} is not JSON ({error}), so it is damaged: {ADVICE}") from None
    if not isinstance(whole, dict) or whole.get("format") != _FORMAT:
        raise DamagedManifestError(f"{file} is damaged or not the manifest of a replay buffer: use another directory")
    if whole.get("version") != _VERSION:
        raise ReplayFileError(
            f"{file} has version {whole.get('version')!r} of the format, but this Penstock reads version "
            f"{_VERSION}: use it with the Penstock that saved it, or use another directory"
        )
    content = whole.get("content")
    try:
        if not isinstance(content, dict) or _json_crc32(content) != whole.get("crc32"):
            raise ValueError("it does not have the CRC-32 that it names")
        manifest: Manifest = _typed(Manifest, content, "content")
        _check_values(manifest)
        return manifest
    except (ValueError, RecursionError) as error:
        raise DamagedManifestError(f"{file} is not what a save writes ({error}): {ADVICE}") from None


def open_regular(path: Path) -> FileIO:
    """Open a regular file for reading, without waiting on other kinds, such as a pipe.

    Raises
    ------
    ReplayFileError
        `path` is not a regular file.
    OSError
        The file cannot be opened.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ReplayFileError(f"{path} is not a regular file, so it is damaged: {ADVICE}")
    return open(descriptor, "rb", buffering=0)


def check_fits(
    manifest: Manifest, path: Path, description: dict[str, Any], shapes: list[tuple[int, int]], prioritized: bool
) -> None:
    """Raise `ReplayFileError` unless the save in `path` is from a buffer with these settings and stores."""
    difference = _first_difference(manifest.description, as_json(description))
    if difference:
        raise ReplayFileError(
            f"{path} was saved by a buffer with other settings: {difference}. Load it into a buffer with the same ones"
        )
    held, own = (manifest.shapes(), manifest.priorities is not None), (shapes, prioritized)
    if held != own:
        raise ReplayFileError(
            f"{path} holds stores of (rows, bytes of a row), and whether it has priorities, {held}; this buffer has "
            f"{own}: load it with the Penstock that saved it"
        )


def as_json(value: Any) -> Any:
    """Return `value` after a round trip through JSON; raise `TypeError` if JSON cannot hold it."""
    return json.loads(json.dumps(value))


def _json_crc32(value: Any) -> int:
    return zlib.crc32(json.dumps(value, sort_keys=True).encode())


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


def _typed(kind: Any, value: Any, name: str) -> Any:
    """Return a JSON `value` as `kind`; raise `ValueError` that names a value of another type."""
    origin = get_origin(kind) or kind
    if is_dataclass(origin) and isinstance(value, dict) and value.keys() == _hints(kind).keys():
        return kind(**{key: _typed(hint, value[key], f"{name}.{key}") for key, hint in _hints(kind).items()})
    if origin is list and isinstance(value, list):
        (inner,) = get_args(kind)
        return [_typed(inner, each, f"{name}[{i}]") for i, each in enumerate(value)]
    if origin is tuple and isinstance(value, list) and len(value) == len(get_args(kind)):
        return tuple(_typed(get_args(kind)[i], each, f"{name}[{i}]") for i, each in enumerate(value))
    if NoneType in get_args(kind):
        (inner,) = set(get_args(kind)) - {NoneType}
        return None if value is None else _typed(inner, value, name)
    if type(value) is origin or (origin is float and type(value) is int):
        return value
    raise ValueError(f"{name} is {_shortened(value)}")


def _check_values(manifest: Manifest) -> None:
    """Raise `ValueError` for the first value that a save never writes."""

    def require(condition: bool, name: str, value: Any) -> None:
        if not condition:
            raise ValueError(f"{name} is {_shortened(value)}")

    def check_file(file: File, nbytes: int) -> None:
        require(OWN_NAME.fullmatch(file.name) is not None, "a file's name", file.name)
        require(file.nbytes == nbytes, f"the size of {file.name}", file.nbytes)

    require(0 < manifest.save < 1 << 64, "save", manifest.save)
    require(bool(manifest.stores), "stores", manifest.stores)
    require(0 <= manifest.episode_starts < _END_OF_EPISODE_STARTS, "episode_starts", manifest.episode_starts)
    require(re.fullmatch("[0-9a-f]{64}", manifest.generator) is not None, "generator", manifest.generator)
    for store in manifest.stores:
        claimed, base, written, cleared = store.counters
        are_ordered = 0 <= base <= claimed < END_OF_COUNTS and 0 <= cleared <= written < END_OF_COUNTS
        require(are_ordered, "counters", store.counters)
        require(store.record_nbytes > 0, "record_nbytes", store.record_nbytes)
        row = 0
        for block in store.blocks:
            is_ascending = row <= block.begin < block.end <= store.capacity
            require(is_ascending and 0 <= block.readable <= block.end - block.begin, "a block", block)
            check_file(block.file, (block.end - block.begin) * 8 + block.readable * store.record_nbytes)
            row = block.end
    if manifest.priorities:
        largest = manifest.priorities.largest
        require(math.isfinite(largest) and largest >= 0, "the largest priority", largest)
        check_file(manifest.priorities.file, manifest.stores[0].capacity * 16)


def _shortened(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _first_difference(saved: Any, here: Any, name: str = "") -> str | None:
    if not isinstance(saved, dict) or not isinstance(here, dict):
        return None if saved == here else f"{name} was {saved!r} when saved, and is {here!r} here"
    for key in [*here, *(key for key in saved if key not in here)]:
        inner = f"{name}.{key}" if name else key
        if key not in saved:
            return f"{inner} is {here[key]!r} here, and there was none when saved"
        if key not in here:
            return f"{inner} was {saved[key]!r} when saved, and there is none here"
        difference = _first_difference(saved[key], here[key], inner)
        if difference:
            return difference
    return None
