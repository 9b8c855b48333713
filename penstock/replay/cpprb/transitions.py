"""Files of transitions, and the directory of a buffer's data on disk."""

from __future__ import annotations

import os
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

FORMAT = "penstock-transitions-1"
DISCOUNT = "discount"  # additional entry of n-step rows

CONVERT = (
    "it was written by cpprb and holds pickled objects, which are not loaded. If you trust it, convert it once: "
    "data = numpy.load(file, allow_pickle=True)['data'].item(), then buffer.add(**data)"
)


def directory(mmap_prefix: str | None) -> str | None:
    """Return the directory of files with this prefix."""
    return None if mmap_prefix is None else os.path.dirname(mmap_prefix) or os.curdir


def save(file: str | os.PathLike[str] | IO[bytes], rows: Mapping[str, NDArray[Any]], *, is_nstep: bool) -> None:
    """Write rows as an ``.npz``: entry ``data/<field>`` for each field, ``format`` and ``Nstep``.

    A path without the suffix ``.npz`` gets it; the file is replaced only when complete.
    """
    entries: dict[str, Any] = {"format": FORMAT, "Nstep": is_nstep}
    entries |= {f"data/{name}": values for name, values in rows.items()}
    if hasattr(file, "write"):
        np.savez(file, **entries)
        return
    path = Path(file if os.fspath(file).endswith(".npz") else os.fspath(file) + ".npz")
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with aside.open("wb") as opened:
            np.savez(opened, **entries)
            opened.flush()
            os.fsync(opened.fileno())
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)


def load(
    file: str | os.PathLike[str] | IO[bytes], shapes: Mapping[str, tuple[int, ...]], *, is_nstep: bool
) -> dict[str, NDArray[Any]]:
    """Read and check the rows of a file.

    Raises
    ------
    FileNotFoundError
        The file does not exist.
    ValueError
        The file is damaged, of another kind, lacks a field or has another shape for it, or differs in ``Nstep``.
    """
    try:
        archive = np.load(file, allow_pickle=False)
        if not isinstance(archive, np.lib.npyio.NpzFile):
            raise ValueError("it is a single array")
        with archive:
            _check(archive, is_nstep)
            wanted = [*shapes, DISCOUNT] if is_nstep else [*shapes]
            if missing := [name for name in wanted if f"data/{name}" not in archive]:
                raise ValueError(f"it has no values of {missing}")
            rows = {name: archive[f"data/{name}"] for name in wanted}
    except FileNotFoundError:
        raise
    except (ValueError, OSError, EOFError, KeyError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(f"{file} cannot be loaded: {error}") from error
    for name, shape in shapes.items():
        if rows[name].shape[1:] != shape or len(rows[name]) != len(rows[wanted[0]]):
            raise ValueError(
                f"{file} cannot be loaded: field {name!r} has shape {list(rows[name].shape)}, legal is "
                f"{[len(rows[wanted[0]]), *shape]}"
            )
    return rows


def _check(archive: np.lib.npyio.NpzFile, is_nstep: bool) -> None:
    if "format" not in archive:
        raise ValueError(CONVERT if {"safe", "version", "data"} <= set(archive) else "it is not a file of transitions")
    if str(archive["format"]) != FORMAT:
        raise ValueError(f"its format is {archive['format']}, legal is {FORMAT}")
    if bool(archive["Nstep"]) != is_nstep:
        raise ValueError(f"only {'the file' if archive['Nstep'] else 'this buffer'} has n-step rows")
