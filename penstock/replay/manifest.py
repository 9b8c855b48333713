"""The manifest of a saved replay buffer: which files belong to it, what each holds, and whether a buffer can load it.

`manifest.json` is JSON with the format's name and version, the content, and the content's CRC-32.
"""

from __future__ import annotations

import json
import re
import zlib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

MANIFEST = "manifest.json"
OWN_NAME = re.compile(r"(rows-\d+-\d+|priorities|manifest)-[0-9a-f]{16}\.(bin|json)")
ADVICE = "load an older copy of the directory, or start with an empty buffer in a new directory"
_FORMAT = "penstock.replay"
_VERSION = 1


class ReplayFileError(ValueError):
    """Saved files that cannot be loaded: missing, damaged, of another version or of another buffer."""


class DamagedManifestError(ReplayFileError):
    """A manifest that cannot be read: it is damaged, or another program's."""


@dataclass(frozen=True)
class File:
    """A file beside the manifest."""

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
    """A store of records: counters (claimed, base, written, cleared) and blocks, ascending, without empty ones."""

    capacity: int
    record_nbytes: int
    counters: tuple[int, int, int, int]
    blocks: list[Block]


@dataclass(frozen=True)
class Priorities:
    """The largest priority ever given, and the file of the leaves."""

    largest: float
    file: File


@dataclass(frozen=True)
class Manifest:
    """All of a save: its random number, the buffer's settings, stores (rows, then frames), the generator (hex).

    ``extras`` is what else the buffer wants back, as JSON.
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


def manifest_bytes(manifest: Manifest) -> bytes:
    """Return what `read_manifest` reads."""
    content = asdict(manifest)
    whole = {"format": _FORMAT, "version": _VERSION, "crc32": _json_crc32(content), "content": content}
    return json.dumps(whole, indent=1).encode()


def read_manifest(path: Path) -> Manifest:
    """Read the manifest of the directory `path`.

    Raises
    ------
    DamagedManifestError
        It is damaged, or another program's.
    ReplayFileError
        It is missing, or of another version.
    """
    file = path / MANIFEST
    try:
        whole = json.loads(file.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        raise ReplayFileError(
            f"{file} is missing, so {path} holds no replay buffer that was saved to the end: "
            f"give the directory of another save, or start with an empty buffer"
        ) from None
    except (ValueError, RecursionError) as error:
        raise DamagedManifestError(f"{file} is not JSON ({error}), so it is damaged: {ADVICE}") from None
    if not isinstance(whole, dict) or whole.get("format") != _FORMAT:
        raise DamagedManifestError(f"{file} is damaged or not the manifest of a replay buffer: use another directory")
    if whole.get("version") != _VERSION:
        raise ReplayFileError(
            f"{file} is of version {whole.get('version')!r} of the format, and this Penstock reads version "
            f"{_VERSION}: use it with the Penstock that saved it, or use another directory"
        )
    content = whole.get("content")
    if not isinstance(content, dict) or _json_crc32(content) != whole.get("crc32"):
        raise DamagedManifestError(f"{file} does not have the CRC-32 that it names, so it is damaged: {ADVICE}")
    try:
        manifest = _manifest_from(content)
        _check_shapes(manifest)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DamagedManifestError(f"{file} is not as a save writes it ({error}): {ADVICE}") from None
    return manifest


def check_fits(
    manifest: Manifest, path: Path, description: dict[str, Any], shapes: list[tuple[int, int]], prioritized: bool
) -> None:
    """Raise `ReplayFileError` unless the save in `path` is of a buffer with these settings and stores."""
    difference = _first_difference(manifest.description, as_json(description))
    if difference:
        raise ReplayFileError(
            f"{path} was saved by a buffer with other settings: {difference}. Load it into a buffer with the same ones"
        )
    saved = [(store.capacity, store.record_nbytes) for store in manifest.stores]
    if saved != shapes or (manifest.priorities is not None) != prioritized:
        raise ReplayFileError(
            f"{path} holds stores of (rows, bytes of a row) {saved}, and this buffer has {shapes}: "
            f"load it with the Penstock that saved it"
        )


def as_json(value: Any) -> Any:
    """Return `value` as it comes back from JSON; raise `TypeError` if JSON cannot hold it."""
    return json.loads(json.dumps(value))


def _json_crc32(value: Any) -> int:
    return zlib.crc32(json.dumps(value, sort_keys=True).encode())


def _manifest_from(content: dict[str, Any]) -> Manifest:
    def with_file(kind: type[Any], entry: dict[str, Any]) -> Any:
        return kind(**{**entry, "file": File(**entry["file"])})

    stores = [
        Store(
            **{
                **store,
                "counters": tuple(store["counters"]),
                "blocks": [with_file(Block, block) for block in store["blocks"]],
            }
        )
        for store in content["stores"]
    ]
    priorities = content["priorities"] and with_file(Priorities, content["priorities"])
    return Manifest(**{**content, "stores": stores, "priorities": priorities})


def _check_shapes(manifest: Manifest) -> None:
    for name in manifest.file_names():
        if not OWN_NAME.fullmatch(name):
            raise ValueError(f"file name {name!r}")
    for store in manifest.stores:
        row = 0
        for block in store.blocks:
            nbytes = (block.end - block.begin) * 8 + block.readable * store.record_nbytes
            if not row <= block.begin < block.end <= store.capacity or block.file.nbytes != nbytes:
                raise ValueError(str(block))
            row = block.end
        if len(store.counters) != 4:
            raise ValueError(f"counters {store.counters}")
    if manifest.priorities and manifest.priorities.file.nbytes != manifest.stores[0].capacity * 16:
        raise ValueError(str(manifest.priorities))


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
