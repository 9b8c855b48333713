"""Files of Stable-Baselines3, read without running their code: saved models, and the statistics of a VecNormalize.

=====================  =============================================================================================
part of a model's zip  reading
=====================  =============================================================================================
``data``               as JSON; the pickles that it holds as text, ``:serialized:``, are not decoded
``policy.pth``         by ``torch.load(weights_only=True)``
``pytorch_variables``  the same
others                 not at all: states of optimisers, versions
=====================  =============================================================================================

The file of a VecNormalize is a pickle. `_Unpickler` makes no object of a named class: classes that such files name
become `_Kept`, which only stores arguments and state, and any other name is refused.
"""

from __future__ import annotations

import io
import math
import os
import pickle
import re
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from penstock.exchange import ExchangeError
from penstock.runs.documents import DocumentError, document_in, read_ordinary
from penstock.runs.tensors import from_bytes

_DATA, _POLICY, _VARIABLES = "data", "policy.pth", "pytorch_variables.pth"
_MOST_DATA_NBYTES, _MOST_STATISTICS_NBYTES = 1 << 26, 1 << 28

_ARRAYS = {
    "numpy": ("ndarray", "dtype"),
    "numpy.core.multiarray": ("_reconstruct", "scalar"),
    "numpy._core.multiarray": ("_reconstruct", "scalar"),
    "numpy.core.numeric": ("_frombuffer",),
    "numpy._core.numeric": ("_frombuffer",),
}
_KEPT = re.compile(r"(stable_baselines3|gymnasium|gym|numpy\.random)\b")
"""Modules whose objects a file of a VecNormalize may hold: itself, spaces, and their random generators."""
_NUMBERS = re.compile(r"[?biuf]\d{0,2}")


@dataclass(frozen=True)
class SavedModel:
    """Content of a model's zip.

    Attributes
    ----------
    data
        Attributes of the model, as JSON values; of a pickled one, its readable fields.
    tensors
        Parameters and buffers of the policy, by name.
    variables
        Further tensors, such as the logarithm of SAC's temperature.
    """

    data: Mapping[str, Any]
    tensors: Mapping[str, Tensor]
    variables: Mapping[str, Tensor]


@dataclass(frozen=True)
class Normalization:
    """Statistics of a VecNormalize.

    Attributes
    ----------
    mean, std
        Mean and standard deviation of observations, float64 ``[*shape]``. None: observations are not normalised.
    count
        Number of observations in the moments.
    clip
        Largest magnitude of a normalised observation.
    reward_scale, reward_clip
        Factor of rewards, and largest magnitude of a scaled reward; None: rewards are not normalised.
    """

    mean: np.ndarray | None
    std: np.ndarray | None
    count: float
    clip: float
    reward_scale: float | None
    reward_clip: float | None


def read_model(path: str | os.PathLike[str]) -> SavedModel:
    """Read a file that ``model.save`` of Stable-Baselines3 wrote.

    Raises
    ------
    ExchangeError
        The file cannot be read, is not a saved model, or holds other objects where only tensors belong.
    """
    name = os.fspath(path)
    data = _bytes_of(path)
    try:
        archive = zipfile.ZipFile(io.BytesIO(data))
        entries = {entry.filename: entry for entry in archive.infolist()}
        if missing := {_DATA, _POLICY} - entries.keys():
            raise ExchangeError(
                f"{name} is not a Stable-Baselines3 model: it has no {' and no '.join(sorted(missing))}, but holds "
                f"{', '.join(sorted(entries)[:8]) or 'nothing'}. Give the .zip that model.save wrote"
            )
        if (nbytes := sum(entry.file_size for entry in archive.infolist())) > len(data):
            raise ExchangeError(
                f"{name} is refused: it has {len(data):,} bytes and would unpack to {nbytes:,}. Stable-Baselines3 "
                "compresses nothing; give the file as model.save wrote it"
            )
        if entries[_DATA].file_size > _MOST_DATA_NBYTES:
            raise ExchangeError(
                f"{name} is refused: its {_DATA} has {entries[_DATA].file_size:,} bytes, but at most "
                f"{_MOST_DATA_NBYTES:,} are read"
            )
        attributes = document_in(archive.read(_DATA), f"{name}: {_DATA}")
        tensors = _tensors_in(archive.read(_POLICY), f"{name}: {_POLICY}")
        variables = _tensors_in(archive.read(_VARIABLES), f"{name}: {_VARIABLES}") if _VARIABLES in entries else {}
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError) as error:
        raise ExchangeError(f"{name} is not a readable zip file ({error}): give the file of model.save") from error
    except DocumentError as error:
        raise ExchangeError(str(error)) from None
    return SavedModel(attributes, tensors, variables)


def read_normalization(path: str | os.PathLike[str]) -> Normalization:
    """Read a file that ``VecNormalize.save`` of Stable-Baselines3 wrote.

    Raises
    ------
    ExchangeError
        The file cannot be read, is of another kind, or names a class that it has no use for. None of it is run.
    """
    name = os.fspath(path)
    data = _bytes_of(path, _MOST_STATISTICS_NBYTES)
    try:
        found = _Unpickler(io.BytesIO(data)).load()
    except ExchangeError as error:
        raise ExchangeError(f"{name} is refused: {error}") from None
    except Exception as error:  # of any type, for a malformed pickle
        raise ExchangeError(f"{name} is not a file of VecNormalize.save ({type(error).__name__}: {error})") from error
    try:
        return _normalization_in(_state_of(found))
    except (KeyError, TypeError, ValueError, ExchangeError) as error:
        problem = f"it has no {error}" if isinstance(error, KeyError) else str(error)
        raise ExchangeError(f"{name} is not a usable file of VecNormalize.save: {problem}") from None


def _bytes_of(path: str | os.PathLike[str], most_nbytes: int | None = None) -> bytes:
    real = Path(os.path.realpath(path))  # the user may name a link, such as one in the Hub's cache
    try:
        return read_ordinary(real, real.stat().st_size if most_nbytes is None else most_nbytes)
    except OSError as error:
        raise ExchangeError(f"{os.fspath(path)} cannot be read: {error.strerror}") from None
    except DocumentError as error:
        raise ExchangeError(str(error)) from None


def _tensors_in(data: bytes, name: str) -> dict[str, Tensor]:
    try:
        found = from_bytes(data)
    except pickle.UnpicklingError as error:
        raise ExchangeError(
            f"{name} is refused: it holds something other than tensors, which could execute code when loaded"
        ) from error
    except Exception as error:  # of any type, for a malformed archive
        raise ExchangeError(f"{name} cannot be read ({type(error).__name__}: {error})") from error
    if not isinstance(found, dict):
        raise ExchangeError(f"{name} is refused: it holds a {type(found).__name__} instead of tensors by name")
    for key, tensor in found.items():
        is_plain = isinstance(key, str) and isinstance(tensor, Tensor) and tensor.layout == torch.strided
        if not is_plain or not tensor.dtype.is_floating_point or tensor.nbytes > len(data):
            raise ExchangeError(f"{name} is refused: its {key!r} is not a plain tensor of floating-point numbers")
    return found


class _Kept:
    """Stand-in for an object of a class that is not imported: it keeps arguments and state, and does nothing."""

    arguments: tuple[Any, ...]
    state: Any

    def __new__(cls, *arguments: Any, **keywords: Any) -> _Kept:
        kept = object.__new__(cls)
        kept.arguments, kept.state = arguments, None
        return kept

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _Kind(_Kept):
    """A NumPy dtype: its text, and the order of bytes in its state."""


class _Array(_Kept):
    """An array: (version, shape, dtype, is_fortran, bytes) in its state."""


class _Scalar(_Kept):
    """A NumPy number: (dtype, bytes) in its arguments."""


class _Buffer(_Kept):
    """An array pickled by protocol 5: (bytes, dtype, shape, order) in its arguments."""


_STAND_INS = {"dtype": _Kind, "ndarray": _Array, "_reconstruct": _Array, "scalar": _Scalar, "_frombuffer": _Buffer}


class _Unpickler(pickle._Unpickler):  # in Python: the one in C allocates memory for any index of its memo
    """Unpickler that imports nothing: inert stand-ins replace the classes that a pickle names."""

    def find_class(self, module: str, name: str) -> Any:
        if name in _ARRAYS.get(module, ()):
            return _STAND_INS[name]
        if _KEPT.match(module):
            return _Kept
        raise ExchangeError(f"it names {module}.{name}, which could run code. A VecNormalize has no use for it")


def _state_of(kept: Any) -> Mapping[str, Any]:
    if not isinstance(kept, _Kept) or not isinstance(kept.state, dict):
        raise ValueError(f"it holds a {type(kept).__name__.removeprefix('_')} without named parts")
    return kept.state


def _normalization_in(state: Mapping[str, Any]) -> Normalization:
    mean = std = None
    count, epsilon = 0.0, float(_plain(state["epsilon"]))
    if state["norm_obs"]:
        if isinstance(state["obs_rms"], dict):
            raise ValueError("it normalises the parts of Dict observations, but models with these cannot be imported")
        moments = _state_of(state["obs_rms"])
        mean, std = _plain(moments["mean"]), np.sqrt(_plain(moments["var"]) + epsilon)
        count = float(_plain(moments["count"]))
        if mean.shape != std.shape or not np.isfinite(mean).all() or not np.isfinite(std).all() or (std <= 0.0).any():
            raise ValueError("its moments of observations are not finite, or of different shapes")
    scale = clip = None
    if state["norm_reward"]:
        scale = 1.0 / math.sqrt(float(_plain(_state_of(state["ret_rms"])["var"])) + epsilon)
        clip = float(_plain(state["clip_reward"]))
    return Normalization(mean, std, count, float(_plain(state["clip_obs"])), scale, clip)


def _plain(value: Any) -> np.ndarray:
    """Return a pickled array or number as float64."""
    match value:
        case int() | float():
            return np.float64(value)  # type: ignore[return-value]
        case _Scalar(arguments=(kind, raw)):
            return _numbers(raw, kind, (), "C")
        case _Buffer(arguments=(raw, kind, shape, order)):
            return _numbers(raw, kind, shape, order)
        case _Array(state=(_, shape, kind, is_fortran, raw)):
            return _numbers(raw, kind, shape, "F" if is_fortran else "C")
    raise ValueError(f"a {type(value).__name__.removeprefix('_')} is in the place of numbers")


def _numbers(raw: Any, kind: Any, shape: Any, order: Any) -> np.ndarray:
    text = kind.arguments[0] if isinstance(kind, _Kind) and kind.arguments else None
    if not isinstance(text, str) or not _NUMBERS.fullmatch(text) or not isinstance(raw, bytes | bytearray):
        raise ValueError("an array has something other than numbers")
    dtype = np.dtype(text)
    if isinstance(kind.state, tuple) and kind.state[1:2] == (">",):
        dtype = dtype.newbyteorder(">")
    is_shape = isinstance(shape, tuple) and all(type(size) is int and size >= 0 for size in shape)
    if not is_shape or math.prod(shape) * dtype.itemsize != len(raw) or order not in ("C", "F"):
        raise ValueError(f"an array of shape {shape} has {len(raw)} bytes")
    return np.frombuffer(raw, dtype).reshape(shape, order=order).astype(np.float64)
