"""Checkpoints: directories with weights, training state and a description, each complete or absent.

========================  ==============================================================================
``weights.safetensors``   parameters and buffers of the model, by name
``state.pt``              optimiser and counters (absent where only the weights were saved)
``population.json``       members of a population, their settings and scores (absent without a population)
``statistics.json``       running statistics of the environment's wrappers (absent without any)
``meta.json``             description; size and SHA-256 of the other files, and its own SHA-256
========================  ==============================================================================

Loading never executes code: safetensors and JSON hold data only, and ``state.pt`` is read with ``weights_only=True``.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import pickle
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from penstock.runs.documents import DocumentError, document_in, read_document, read_ordinary, require_shape
from penstock.runs.files import directory_replacing, json_bytes, json_values, previous_of, write_file
from penstock.runs.tensors import as_bytes, from_bytes, weights_as_bytes

if TYPE_CHECKING:
    from torch import Tensor

FORMAT = "penstock checkpoint"
FORMAT_VERSION = 1

WEIGHTS, STATE, META = "weights.safetensors", "state.pt", "meta.json"
APART = {"population": "population.json", "statistics": "statistics.json"}
"""Separate files for metadata that may be large, by metadata key."""
FILES = {WEIGHTS, STATE, *APART.values(), META}
_MOST_META_NBYTES = 1 << 26


class _Statistics(TypedDict):
    """Running statistics of a wrapper; mean and var are flat."""

    name: str
    count: float
    shape: list[int]
    mean: list[float]
    var: list[float]


_SHAPES: Mapping[str, Any] = {"population": dict[str, Any], "statistics": list[_Statistics]}


class _File(TypedDict):
    bytes: int
    sha256: str


class _Described(TypedDict):
    """Required keys of ``meta.json``."""

    files: dict[str, _File]


class _Meta(_Described, total=False):
    """Keys of ``meta.json`` that readers use."""

    algorithm: str
    env: str
    steps: int
    version: int
    updates: int
    seconds: float
    mean_return: float
    config: dict[str, Any]
    specs: dict[str, Any]


class CheckpointError(Exception):
    """A checkpoint cannot be loaded or replaced: it is not one, is refused, or has another architecture."""


class MissingCheckpointError(CheckpointError):
    """There is no checkpoint."""


class DamagedCheckpointError(CheckpointError):
    """A file of the checkpoint is missing, shortened or altered. The message names it."""


class ForeignCheckpointError(DamagedCheckpointError):
    """The description is a file of another program."""


class NewerCheckpointError(CheckpointError):
    """The checkpoint is complete, but its format is newer than this Penstock reads."""


class UnreadableCheckpointError(CheckpointError):
    """The operating system refuses to read the checkpoint: no permission, a failing disk, a lost network."""


@dataclass(frozen=True)
class Checkpoint:
    """A loaded checkpoint."""

    path: Path
    meta: dict[str, Any]
    """format_version, algorithm, env, steps, version, updates, seconds, mean_return, config, saved_at, ..."""
    weights: dict[str, Tensor]
    """Parameters and buffers by name."""
    state: dict[str, Any] | None
    """Optimiser and counters; None where only weights were saved."""


def save_checkpoint(
    path: str | os.PathLike[str], *, meta: Mapping[str, Any], weights: Mapping[str, Tensor],
    state: Mapping[str, Any] | None = None,
) -> Path:  # fmt: skip
    """Write a checkpoint at `path`, replacing an existing one atomically.

    Parameters
    ----------
    path
        The checkpoint's directory. Missing parents are created.
    meta
        JSON values of the description. ``format_version`` and ``saved_at`` are added.
    weights
        Tensors by name, of any shape, dtype and device.
    state
        Tensors and plain Python values (None, bool, int, float, str) in dicts, lists and tuples.

    Returns
    -------
    Path
        `path`.

    Raises
    ------
    OSError
        The disk is full or cannot be written. Earlier contents of `path` are intact, and nothing is left beside them.
    CheckpointError
        `path` holds something other than a checkpoint, which is left alone.
    ValueError, TypeError
        `path` has a null character, or a value of `state` could not be loaded without executing code.
    """
    target = Path(os.path.realpath(path))  # the target of a link is replaced, not the link
    _require_replaceable(target)
    files = {WEIGHTS: weights_as_bytes(weights)}
    if state is not None:
        files[STATE] = as_bytes(state)
    files |= {file: json_bytes(json_values(meta[key])) for key, file in APART.items() if meta.get(key)}
    meta = {key: value for key, value in meta.items() if key not in APART}
    description = json_values(
        {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            **meta,
            "saved_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "files": {name: {"bytes": len(data), "sha256": sha256_of(data)} for name, data in files.items()},
        }
    )
    description["sha256"] = _digest(description)
    with directory_replacing(target) as aside:
        for name, data in files.items():
            write_file(aside / name, data)
        write_file(aside / META, json_bytes(description))
    return Path(path)


def load_checkpoint(path: str | os.PathLike[str]) -> Checkpoint:
    """Read a checkpoint, with every tensor on the CPU.

    Raises
    ------
    DamagedCheckpointError
        A file is missing, shortened or altered.
    MissingCheckpointError
        There is nothing at `path`.
    NewerCheckpointError
        The checkpoint was written by a newer Penstock.
    UnreadableCheckpointError
        The operating system refuses to read it.
    CheckpointError
        `path` is not a checkpoint, or its state holds more than tensors and plain values.
    """
    import safetensors.torch

    path = Path(path)
    meta, files = _read(path)
    try:
        meta |= {
            key: document_in(files[file], os.fspath(path / file), _SHAPES[key])
            for key, file in APART.items()
            if file in files
        }
    except DocumentError as error:
        raise CheckpointError(str(error)) from None
    for each in meta.get("statistics", ()):
        sizes = len(each["mean"]), len(each["var"]), math.prod(each["shape"])
        if len(set(sizes)) > 1 or min(each["shape"], default=0) < 0 or not (each["count"] or 0.0) > 0.0:
            raise CheckpointError(
                f"{path / APART['statistics']} is refused: {each['name']} has a count of {each['count']}, and "
                f"{sizes[0]} and {sizes[1]} numbers for a shape of {sizes[2]}"
            )
    try:
        weights = safetensors.torch.load(files[WEIGHTS])
    except (safetensors.SafetensorError, ValueError, KeyError) as error:
        raise CheckpointError(f"{path / WEIGHTS} is refused: it is not a safetensors file ({error})") from None
    state = None
    if STATE in files:
        try:
            state = from_bytes(files[STATE])
        except pickle.UnpicklingError as error:
            raise CheckpointError(
                f"{path / STATE} is refused: it holds something other than tensors and plain values, which could "
                "execute code when loaded. Use a checkpoint that Penstock wrote"
            ) from error
        except Exception as error:  # a malformed archive may raise any type
            raise CheckpointError(f"{path / STATE} is refused: it cannot be read ({error})") from error
    return Checkpoint(path, meta, weights, state)


def verify_checkpoint(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the description of the checkpoint at `path` after checking every file; errors as in `load_checkpoint`."""
    return _read(Path(path))[0]


def require_matching(weights: Mapping[str, Tensor], module_state: Mapping[str, Tensor], what: str) -> None:
    """Raise `CheckpointError` with the first tensor of `weights` that does not fit a module, or is not finite.

    Parameters
    ----------
    weights
        Loaded tensors by name.
    module_state
        ``module.state_dict()`` of the module.
    what
        Origin of the weights for the message, such as the checkpoint's path.
    """
    problem = next(_differences(weights, module_state), None)
    if problem:
        raise CheckpointError(
            f"{what} is of another architecture: {problem}. "
            "Use the environment and the network settings it was trained with (they are in its meta.json)"
        )
    diverged = next((name for name, tensor in weights.items() if not tensor.isfinite().all()), None)
    if diverged is not None:
        raise CheckpointError(
            f"{what} cannot be used: its {diverged!r} holds NaN or infinity. Use weights from before it diverged"
        )


def _differences(weights: Mapping[str, Tensor], module_state: Mapping[str, Tensor]) -> Iterator[str]:
    for name, wanted in module_state.items():
        if name not in weights:
            yield f"{name!r} of shape {tuple(wanted.shape)} is missing"
        elif weights[name].shape != wanted.shape:
            found = tuple(weights[name].shape)
            yield f"its {name!r} has shape {found}, and this model's has {tuple(wanted.shape)}"
    for name in weights:
        if name not in module_state:
            yield f"{name!r} does not exist in this model"


def _read(path: Path) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Read and check all files; start over if another process replaces the checkpoint meanwhile."""
    try:
        while True:
            with _held(path) as before:
                try:
                    return _read_once(before[0])
                except (CheckpointError, OSError):
                    with _held(path) as now:
                        if now == before:
                            raise
    except OSError as error:
        raise unreadable(path, error) from error


def unreadable(path: Path, error: OSError) -> UnreadableCheckpointError:
    """Return the error of a checkpoint, or directory of checkpoints, that the operating system refuses to read."""
    return UnreadableCheckpointError(
        f"{path} cannot be read: {error.strerror or error} ({error.filename or path}). That does not mean that it is "
        "damaged: check its permissions and its disk, then give the same command again"
    )


@contextmanager
def _held(path: Path) -> Iterator[tuple[Path, tuple[int, int] | None]]:
    """Yield the current path of a checkpoint, and the device and inode of its directory.

    The directory is kept open, so that its inode number is not reused when it is removed.
    """
    if not path.exists() and previous_of(path).exists():  # a save is between its two renames, or was killed there
        path = previous_of(path)
    try:
        descriptor = os.open(path, os.O_PATH)
    except FileNotFoundError:
        yield path, None
        return
    try:
        status = os.fstat(descriptor)
        yield path, (status.st_dev, status.st_ino)
    finally:
        os.close(descriptor)


def _read_once(path: Path) -> tuple[dict[str, Any], dict[str, bytes]]:
    if not path.exists():
        raise MissingCheckpointError(f"{path} does not exist: give the directory of a checkpoint or of a run")
    if not path.is_dir() or not (path / META).is_file():
        if any((path / name).exists() for name in (META, WEIGHTS, STATE)):
            raise DamagedCheckpointError(f"the checkpoint {path} is damaged: {META} is missing, or no file")
        found = ", ".join(sorted(p.name for p in path.iterdir())[:8]) or "nothing" if path.is_dir() else "a file"
        raise CheckpointError(
            f"{path} is not a checkpoint: found {found}; a checkpoint is a directory with {META} and {WEIGHTS}"
        )
    meta = _read_meta(path)
    try:
        require_shape(meta, os.fspath(path / META), _Meta)
    except DocumentError as error:
        raise CheckpointError(str(error)) from None
    files = {}
    for name, expected in meta["files"].items():
        if name not in FILES - {META}:
            raise CheckpointError(f"{path} is refused: its {META} names the file {name!r}, which no checkpoint has")
        try:
            data = read_ordinary(path / name, os.lstat(path / name).st_size)
        except DocumentError as error:
            raise CheckpointError(f"{path} is refused: {error}") from None
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError) as error:
            raise DamagedCheckpointError(
                f"the checkpoint {path} is damaged: {name} cannot be read ({error.strerror})"
            ) from error
        if len(data) != expected["bytes"]:
            raise DamagedCheckpointError(
                f"the checkpoint {path} is damaged: {name} has {len(data)} bytes instead of {expected['bytes']}"
            )
        if sha256_of(data) != expected["sha256"]:
            raise DamagedCheckpointError(f"the checkpoint {path} is damaged: the content of {name} was altered")
        files[name] = data
    return meta, files


def _read_meta(path: Path) -> dict[str, Any]:
    try:
        meta = read_document(path / META, Any, _MOST_META_NBYTES)
    except DocumentError as error:
        raise DamagedCheckpointError(f"the checkpoint {path} is damaged: {META} cannot be read ({error})") from error
    if not isinstance(meta, dict) or (meta.get("format") != FORMAT and "sha256" not in meta):
        problem = f'its {META} does not say "format": "{FORMAT}"'
        raise ForeignCheckpointError(f"{path} is not a checkpoint of Penstock: {problem}")
    if meta.pop("sha256", None) != _digest(meta):  # before the rest: format or version may be altered
        raise DamagedCheckpointError(f"the checkpoint {path} is damaged: the content of {META} was altered")
    version = meta.get("format_version")
    if isinstance(version, int) and version > FORMAT_VERSION:
        raise NewerCheckpointError(
            f"{path} was written by a newer Penstock: it has format version {version}, and this Penstock reads "
            f"up to {FORMAT_VERSION}: open it with a Penstock as new as the one that wrote it"
        )
    return meta


def holds_only_a_checkpoint(path: Path) -> bool:
    """Return whether a directory holds files of a checkpoint and no others, so that replacing it loses nothing else."""
    return META in (found := _names_in(path)) and found <= FILES


def _names_in(path: Path) -> set[str]:
    return {entry.name for entry in os.scandir(path)} if path.is_dir() and not path.is_symlink() else set()


def description_of(path: Path) -> dict[str, Any] | None:
    """Return the description of a directory that holds a readable checkpoint and nothing else; None for others.

    Only the description is checked: other files may be damaged.
    """
    try:
        return _read_meta(path) if holds_only_a_checkpoint(path) else None
    except (CheckpointError, OSError):
        return None


def _require_replaceable(path: Path) -> None:
    """Raise `CheckpointError` unless `path` is vacant or holds only a checkpoint, so that no user file is lost."""
    found = sorted(p.name for p in path.iterdir()) if path.is_dir() else [path.name] * path.exists()
    ours = not found or holds_only_a_checkpoint(path)
    if found and ours:
        try:
            _read_meta(path)
        except ForeignCheckpointError:
            ours = False
        except DamagedCheckpointError:
            ours = any(word in (path / META).read_bytes() for word in (FORMAT.encode(), b'"sha256"'))
        except NewerCheckpointError as error:
            raise NewerCheckpointError(f"{path} is not replaced: {error}") from None
    if not ours:
        raise CheckpointError(
            f"{path} is not replaced: it is not a checkpoint, or holds other files too ({', '.join(found[:5])}"
            f"{', ...' if len(found) > 5 else ''}). Give another path, or remove it yourself"
        )
    if not (previous := _names_in(previous_of(path))) <= FILES:
        others = ", ".join(sorted(previous - FILES)[:5])
        raise CheckpointError(
            f"{path} is not replaced: {previous_of(path)}, where the old checkpoint would be kept meanwhile, holds "
            f"{others}. Give another path, or remove that directory yourself"
        )


def sha256_of(data: bytes) -> str:
    """Return the checksum of a file's content."""
    return hashlib.sha256(data).hexdigest()


def _digest(meta: Mapping[str, Any]) -> str:
    return sha256_of(json.dumps(meta, sort_keys=True).encode())
