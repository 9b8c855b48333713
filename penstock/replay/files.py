"""Replay buffers in directories: saved atomically in blocks of rows, and checked before the first row is loaded.

The manifest names all other files, with size and CRC-32. A file of rows holds the ids of rows `begin` to `end` (int64,
-1: empty), then the records of the non-empty rows; the file of priorities holds the ids of all rows (int64), then
their leaves of the sum tree (float64). All numbers are little-endian.

A save writes files under new names, replaces the manifest atomically, and then removes files that the manifest does not
name: after an interruption at any time, the manifest names complete files. Files with other names are left alone.

Of the core, a save has stores of records (0: rows; others: frames), priorities, generator and counters. Ids are int64,
-1 for unreadable records; the record of an id never changes. In shared memory the core has the number of the save that
its contents were last written to or read from, by any process; 0: none.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import secrets
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock._native import ReplayCore
from penstock.replay.disk import is_complete, locked, read_file, remove_unnamed, sync_directory, write_file
from penstock.replay.manifest import (
    ADVICE,
    END_OF_COUNTS,
    MANIFEST,
    OWN_NAME,
    Block,
    DamagedManifestError,
    Manifest,
    Priorities,
    ReplayFileError,
    Store,
    as_json,
    check_fits,
    manifest_bytes,
    read_manifest,
)

__all__ = ["ReplayFileError", "load_buffer", "save_buffer"]

_BLOCK_NBYTES = 8 << 20
_NOTHING = -1


def _warn(text: str) -> None:
    warnings.warn(text, RuntimeWarning, stacklevel=4)


class _Leaves(NamedTuple):
    leaves: NDArray[np.float64]
    ids: NDArray[np.int64]
    largest: float


def save_buffer(
    core: ReplayCore, description: dict[str, Any], path: Path, extras: dict[str, Any] | None = None,
    report: Callable[[str], None] | None = None,
) -> None:  # fmt: skip
    """Save the buffer to the directory `path`; others may write to the buffer meanwhile.

    Unchanged blocks of rows keep their files if the contents were last saved to or loaded from `path`; otherwise
    everything is written. Rows overwritten during the save may be left out.

    Parameters
    ----------
    core
        Contents.
    description
        Settings as JSON values, which must be equal in the loading buffer.
    path
        Directory, created if missing. Processes that save there take turns.
    extras
        JSON values for `load_buffer`'s `take_extras`.
    report
        Called with a message if a damaged manifest was moved aside; None: a `RuntimeWarning`.

    Raises
    ------
    OSError
        For example, the disk is full; the previous save is intact.
    ReplayFileError
        `path` has a manifest of another version or another program, which is left alone.
    """
    if not path.exists():
        path.mkdir(parents=True, exist_ok=True)
        sync_directory(path.parent)
    with locked(path, fcntl.LOCK_EX):
        before = _manifest_before(path, report or _warn)
        remove_unnamed(path, before)
        is_known = before is not None and before.save == core.last_save() and before.shapes() == _shapes(core)
        known = before if is_known else None
        save = secrets.randbits(64) | 1
        try:
            manifest = Manifest(save, as_json(description), *_write_contents(core, path, save, known), extras or {})
            aside = path / f"manifest-{save:016x}.json"
            write_file(aside, np.frombuffer(manifest_bytes(manifest), np.uint8))
            sync_directory(path)
            os.replace(aside, path / MANIFEST)
        except BaseException:
            # An interrupt may follow the replacement, so the disk decides which manifest counts.
            with suppress(OSError, ReplayFileError):
                sync_directory(path)
                remove_unnamed(path, read_manifest(path) if os.path.lexists(path / MANIFEST) else None)
            raise
        sync_directory(path)
        core.set_last_save(save)
        remove_unnamed(path, manifest)


def _manifest_before(path: Path, report: Callable[[str], None]) -> Manifest | None:
    """Return the manifest of an existing save; None without a readable one."""
    if not os.path.lexists(path / MANIFEST):
        return None
    try:
        return read_manifest(path)
    except DamagedManifestError as error:
        if not any(OWN_NAME.fullmatch(name) for name in os.listdir(path)):
            raise  # possibly another program's file
        aside = path / f"{MANIFEST}.damaged"
        os.replace(path / MANIFEST, aside)
        problem, _, _advice = str(error).rpartition(": ")
        report(f"{problem}. It was moved to {aside.name}, and the whole buffer is saved anew")
        return None


def load_buffer(
    core: ReplayCore, description: dict[str, Any], path: Path,
    take_extras: Callable[[dict[str, Any]], None] | None = None,
) -> None:  # fmt: skip
    """Replace the contents by the save in the directory `path`; the buffer must not be used meanwhile.

    Everything is read and checked before the first row of the buffer changes. One block of about 8 MiB is in memory at
    a time; priorities take about 40 bytes per row.

    Parameters
    ----------
    core
        Contents.
    description
        This buffer's settings, which must equal the saved ones.
    path
        Directory written by `save_buffer`.
    take_extras
        Called with the extras of `save_buffer` before the buffer changes. For extras that no save writes it must raise
        `ValueError` and change nothing.

    Raises
    ------
    ReplayFileError
        A file is missing or damaged, or the save is of another version or another buffer. The buffer is unchanged,
        unless files are damaged during the load: then it is empty, and the error says so.
    OSError
        A file cannot be read.
    """
    if not path.is_dir():
        raise ReplayFileError(f"{path} is not a directory: give the one that a replay buffer was saved to")
    with locked(path, fcntl.LOCK_SH):
        manifest = read_manifest(path)
        check_fits(manifest, path, description, _shapes(core), core.prioritized)
        if gone := {name for name in manifest.file_names() if not (path / name).exists()}:
            raise ReplayFileError(f"{path} is not whole, {manifest.without(gone)}: {ADVICE}")
        for store in manifest.stores:
            for block in store.blocks:
                _read_block(path, block, store.record_nbytes)
        priorities = _read_priorities(path, manifest)
        if take_extras is not None:
            try:
                take_extras(manifest.extras)
            except ValueError as error:
                raise ReplayFileError(f"{path / MANIFEST} is not what a save writes ({error}): {ADVICE}") from None
        try:
            _empty(core)
            _put_contents(core, path, manifest, priorities)
        except BaseException as error:
            _empty(core)
            error.add_note("Loading had begun: the buffer is empty now.")
            raise
        core.set_last_save(manifest.save)


# ---- contents to files and back


def _write_contents(
    core: ReplayCore, path: Path, save: int, known: Manifest | None
) -> tuple[list[Store], Priorities | None, int, str]:
    blocks = [
        # Rows before the frames they refer to, so that every row found has its frames.
        _write_store(core, path, save, store, known.stores[store].blocks if known else [])
        for store in range(core.num_stores)
    ]
    priorities = None
    if core.prioritized:
        leaves, ids, largest = core.read_priorities()
        file = write_file(path / f"priorities-{save:016x}.bin", ids.astype("<i8"), leaves.astype("<f8"))
        priorities = Priorities(largest, file)
    # After all records, so that no id in the files is reused.
    stores = [Store(*core.store_shape(store), core.counters(store), blocks[store]) for store in range(core.num_stores)]
    return stores, priorities, core.episode_starts(), core.generator_state().hex()


def _write_store(core: ReplayCore, path: Path, save: int, store: int, known: list[Block]) -> list[Block]:
    known_at = {(block.begin, block.end): block for block in known}
    blocks = []
    for begin, end in _ranges(*core.store_shape(store)):
        ids = core.ids(store, begin, end)
        block = known_at.get((begin, end))
        if block is not None and block.ids == _digest(ids) and is_complete(path, block.file):
            blocks.append(block)
        elif (ids != _NOTHING).any():
            ids, records = core.read_block(store, begin, end)
            readable = ids != _NOTHING
            file = write_file(
                path / f"rows-{store}-{begin}-{save:016x}.bin",
                ids.astype("<i8"),
                records if readable.all() else records[readable],
            )
            blocks.append(Block(begin, end, int(readable.sum()), _digest(ids), file))
    return blocks


def _put_contents(core: ReplayCore, path: Path, manifest: Manifest, priorities: _Leaves | None) -> None:
    rows, *frames = manifest.stores
    is_there = _put_store(core, path, 0, rows, priorities.ids if priorities else None)
    for number, store in enumerate(frames, start=1):
        _put_store(core, path, number, store, None)
    if priorities:
        priorities.ids[~is_there] = _NOTHING
        priorities.leaves[priorities.ids == _NOTHING] = 0.0
        core.put_priorities(priorities.leaves, priorities.ids, priorities.largest)
    core.set_episode_starts(max(core.episode_starts(), manifest.episode_starts))
    core.set_generator_state(bytes.fromhex(manifest.generator))


def _put_store(
    core: ReplayCore, path: Path, number: int, store: Store, leaf_ids: NDArray[np.int64] | None
) -> NDArray[np.bool_]:
    claimed, base, written, cleared = store.counters
    is_there = np.zeros(store.capacity, bool)
    for block in store.blocks:
        rows = slice(block.begin, block.end)
        ids, records = _read_block(path, block, store.record_nbytes)
        ids[ids < base] = _NOTHING  # cleared during the save
        is_there[rows] = ids != _NOTHING
        if leaf_ids is not None:
            # Overwritten before the priorities were read: a row without a leaf gets that of the largest priority.
            leaf_ids[rows][ids != leaf_ids[rows]] = _NOTHING
        core.put_block(number, block.begin, ids, records)
    found = int(is_there.sum())
    if min(written - cleared, store.capacity) != found:  # written during the save, or by killed writers
        written = max(written, found)
        cleared = written - found
    core.set_counters(number, (claimed, base, written, cleared))
    return is_there


def _empty(core: ReplayCore) -> None:
    core.set_last_save(0)
    for store in range(core.num_stores):
        capacity, record_nbytes = core.store_shape(store)
        for begin, end in _ranges(capacity, record_nbytes):
            size = end - begin
            core.put_block(store, begin, np.full(size, _NOTHING), np.zeros((size, record_nbytes), np.uint8))
        claimed, base, written, _ = core.counters(store)
        core.set_counters(store, (claimed, base, written, written))
    if core.prioritized:
        capacity, _ = core.store_shape(0)
        core.put_priorities(np.zeros(capacity), np.full(capacity, _NOTHING), 1.0)


def _shapes(core: ReplayCore) -> list[tuple[int, int]]:
    return [core.store_shape(store) for store in range(core.num_stores)]


def _ranges(capacity: int, record_nbytes: int) -> Iterator[tuple[int, int]]:
    step = max(1, _BLOCK_NBYTES // record_nbytes)
    for begin in range(0, capacity, step):
        yield begin, min(begin + step, capacity)


def _digest(ids: NDArray[np.int64]) -> str:
    return hashlib.blake2b(ids.astype("<i8").tobytes(), digest_size=16).hexdigest()


def _read_block(path: Path, block: Block, record_nbytes: int) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    data = read_file(path, block.file)
    size = block.end - block.begin
    ids = data[: size * 8].view("<i8").astype(np.int64)
    records = data[size * 8 :].reshape(block.readable, record_nbytes)
    readable = ids != _NOTHING
    if readable.sum() != block.readable or not _are_ids(ids):
        raise ReplayFileError(f"{path / block.file.name} does not hold the ids of {block.readable} rows: {ADVICE}")
    if block.readable < size:
        there, records = records, np.zeros((size, record_nbytes), np.uint8)
        records[readable] = there
    return ids, records


def _read_priorities(path: Path, manifest: Manifest) -> _Leaves | None:
    if manifest.priorities is None:
        return None
    name = manifest.priorities.file.name
    both = read_file(path, manifest.priorities.file).reshape(2, -1)
    ids = both[0].view("<i8").astype(np.int64, copy=False)
    leaves = both[1].view("<f8").astype(np.float64, copy=False)
    # The tree's own limit: with larger leaves the sum could be infinite.
    largest_leaf = np.finfo(np.float64).max / 2 / len(leaves)
    if not _are_ids(ids) or not ((leaves >= 0) & (leaves <= largest_leaf)).all():
        raise ReplayFileError(f"{path / name} does not hold ids and leaves of {len(ids)} rows: {ADVICE}")
    return _Leaves(leaves, ids, manifest.priorities.largest)


def _are_ids(ids: NDArray[np.int64]) -> bool:
    return bool(((ids >= _NOTHING) & (ids < END_OF_COUNTS)).all())
