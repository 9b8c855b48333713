"""Tensors and plain values as bytes, and back without executing code."""

from __future__ import annotations

import io
import zipfile
from collections import OrderedDict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from penstock.runs.documents import DocumentError

if TYPE_CHECKING:
    from torch import Tensor


def weights_as_bytes(weights: Mapping[str, Tensor]) -> bytes:
    """Return tensors by name, of any shape, dtype and device, in the format of safetensors."""
    import safetensors.torch

    # Cloned: names may share memory (tied layers, views of one flat vector), which safetensors refuses.
    tensors = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in weights.items()}
    return safetensors.torch.save(tensors)


def as_bytes(state: Mapping[str, Any]) -> bytes:
    """Return tensors and plain values in torch's format.

    Parameters
    ----------
    state
        Tensors and plain Python values (None, bool, int, float, str) in dicts, lists and tuples.

    Raises
    ------
    TypeError
        A value could not be loaded without executing code.
    """
    import torch

    # In memory: torch's own file writer turns a full disk into a RuntimeError.
    buffer = io.BytesIO()
    torch.save(_plain(dict(state), "state"), buffer)
    return buffer.getvalue()


def from_bytes(data: bytes) -> dict[str, Any]:
    """Return the state that `as_bytes` has packed, with every tensor on the CPU.

    Raises
    ------
    DocumentError
        The archive would unpack to more bytes than it has (`torch.save` does not compress), or has far larger tensors.
    """
    import torch

    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        nbytes = sum(entry.file_size for entry in archive.infolist())
    if nbytes > len(data):
        raise DocumentError(f"it has {len(data):,} bytes and would unpack to {nbytes:,}")
    found: dict[str, Any] = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    left, sizes = list[Any]([found]), dict[int, int]()
    for value in left:  # grows meanwhile; each object counts once
        if id(value) not in sizes:
            sizes[id(value)] = value.nbytes if isinstance(value, torch.Tensor) else 0
            left += value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    if (nbytes := sum(sizes.values())) > 4 * len(data):  # a few names may share a tensor, as in Stable-Baselines3
        raise DocumentError(f"it has {len(data):,} bytes and tensors of {nbytes:,}")
    return found


def _plain(value: Any, where: str) -> Any:
    """Return a copy of a value that can be loaded again; raise `TypeError` for others.

    Tensors are cloned: torch refuses to save tensors of several dtypes that share memory.
    """
    import torch

    if type(value) in (dict, OrderedDict):
        return type(value)((_plain(k, f"{where} key"), _plain(item, f"{where}[{k!r}]")) for k, item in value.items())
    if type(value) in (list, tuple):
        return type(value)(_plain(item, f"{where}[{index}]") for index, item in enumerate(value))
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if value is None or type(value) in (bool, int, float, str):
        return value
    raise TypeError(
        f"{where} is a {type(value).__module__}.{type(value).__qualname__}, which a checkpoint cannot hold: "
        "legal are tensors, None, bool, int, float and str, in dicts, lists and tuples"
    )
