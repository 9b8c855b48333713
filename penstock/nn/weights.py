"""A network as flat bytes: parameters and buffers in the order and places of a byte table.

This is what the weights block carries from the learner to everyone who acts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

ALIGNMENT = 64


class WeightsMismatchError(ValueError):
    """Two networks do not have the same tensors; the message names the first that differs."""


@dataclass(frozen=True)
class WeightsEntry:
    """Where one tensor lies.

    Attributes
    ----------
    name : str
        Its name in the module, such as ``"policy_head.weight"``.
    dtype : torch.dtype
        Type of its elements.
    shape : tuple of int
        Its shape.
    offset : int
        First byte, a multiple of 64.
    """

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    offset: int

    @property
    def nbytes(self) -> int:
        """Number of bytes."""
        return math.prod(self.shape) * self.dtype.itemsize

    def __str__(self) -> str:
        return f"{self.name} ({str(self.dtype).removeprefix('torch.')} {list(self.shape)})"


class WeightsLayout:
    """Byte table of a module's parameters and buffers.

    Picklable and free of the module, so it can describe a block to other processes. Tensors shared between
    places of a module are listed once.

    Parameters
    ----------
    module : nn.Module
        The network to describe.

    Attributes
    ----------
    entries : tuple of WeightsEntry
        The table, in the order of the bytes.
    nbytes : int
        Size of the whole, a multiple of 64.
    """

    def __init__(self, module: nn.Module) -> None:
        entries, offset = [], 0
        for name, tensor in _named_tensors(module):
            entry = WeightsEntry(name, tensor.dtype, tuple(tensor.shape), offset)
            entries.append(entry)
            offset += -(-entry.nbytes // ALIGNMENT) * ALIGNMENT
        self.entries = tuple(entries)
        self.nbytes = offset

    def __eq__(self, other: object) -> bool:
        return isinstance(other, WeightsLayout) and self.entries == other.entries

    def __hash__(self) -> int:
        return hash(self.entries)

    def require_same(self, other: WeightsLayout) -> None:
        """Raise :class:`WeightsMismatchError` unless ``other`` is the same table."""
        for mine, theirs in zip(self.entries, other.entries, strict=False):
            if mine != theirs:
                raise WeightsMismatchError(f"weights differ: expected {mine}, found {theirs}")
        if len(self.entries) != len(other.entries):
            common = min(len(self.entries), len(other.entries))
            longer, what = (self, "is missing") if len(self.entries) > common else (other, "is not expected")
            raise WeightsMismatchError(f"weights differ: {longer.entries[common]} {what}")

    @torch.no_grad()
    def pack(self, module: nn.Module, out: Tensor | npt.NDArray[np.uint8]) -> None:
        """Copy a module's weights into bytes.

        Parameters
        ----------
        module : nn.Module
            A module with this layout, on any device.
        out : Tensor or ndarray
            Where to, uint8 ``[nbytes]``, contiguous.

        Raises
        ------
        WeightsMismatchError
            The module has another layout.
        ValueError
            ``out`` is not such a row of bytes.
        """
        for tensor, place in self._pairs(module, out):
            place.copy_(tensor)

    @torch.no_grad()
    def unpack(self, data: Tensor | npt.NDArray[np.uint8], module: nn.Module) -> None:
        """Copy bytes into a module's existing tensors, in place; arguments and errors as for :meth:`pack`."""
        for tensor, place in self._pairs(module, data):
            tensor.copy_(place)

    def _pairs(self, module: nn.Module, data: Tensor | npt.NDArray[np.uint8]) -> Iterator[tuple[Tensor, Tensor]]:
        """Pair what the module holds with its place in ``data``, neighbours in memory together."""
        data = _checked_bytes(data, self.nbytes)
        tensors = [tensor for _, tensor in _named_tensors(module)]
        if [(e.dtype, e.shape) for e in self.entries] != [(t.dtype, t.shape) for t in tensors]:
            self.require_same(WeightsLayout(module))
        start = 0
        while start < len(tensors):
            stop = start + 1
            while stop < len(tensors) and self._are_neighbours(tensors, start, stop):
                stop += 1
            first, last = self.entries[start], self.entries[stop - 1]
            place = data[first.offset : last.offset + last.nbytes]
            if stop - start == 1:
                yield tensors[start], place.view(first.dtype).view(first.shape)
            else:
                yield _raw_bytes(tensors[start], place.shape[0]), place
            start = stop

    def _are_neighbours(self, tensors: list[Tensor], i: int, j: int) -> bool:
        """Whether tensor ``j`` lies as far behind tensor ``i`` in one storage as the table wants it."""
        distance = self.entries[j].offset - self.entries[i].offset
        return (
            tensors[j].data_ptr() - tensors[i].data_ptr() == distance
            and tensors[j].untyped_storage().data_ptr() == tensors[i].untyped_storage().data_ptr()
            and tensors[i].is_contiguous()
            and tensors[j].is_contiguous()
        )


def flatten_(module: nn.Module) -> Tensor:
    """Move a module's parameters and buffers into one row of bytes, so that packing it is one copy.

    The tensors stay the same objects, with the same values; only their memory moves. Moving the module to
    another device afterwards undoes it (packing still works, tensor by tensor).

    Parameters
    ----------
    module : nn.Module
        The network, all of it on one device.

    Returns
    -------
    Tensor
        The memory, laid out as ``WeightsLayout(module)``: uint8 ``[nbytes]``, on the module's device.
    """
    layout = WeightsLayout(module)
    tensors = [tensor for _, tensor in _named_tensors(module)]
    flat = torch.zeros(layout.nbytes, dtype=torch.uint8, device=tensors[0].device)
    for entry, tensor in zip(layout.entries, tensors, strict=True):
        place = flat[entry.offset : entry.offset + entry.nbytes].view(entry.dtype).view(entry.shape)
        place.copy_(tensor.detach())
        tensor.data = place
    return flat


def _named_tensors(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    yield from module.named_parameters()
    yield from module.named_buffers()


def _raw_bytes(tensor: Tensor, nbytes: int) -> Tensor:
    """``nbytes`` bytes of the memory that ``tensor`` lies in, from its first element on."""
    offset = tensor.storage_offset() * tensor.element_size()
    raw = torch.empty(0, dtype=torch.uint8, device=tensor.device)
    return raw.set_(tensor.untyped_storage(), offset, (nbytes,), (1,))


def _checked_bytes(data: Tensor | npt.NDArray[np.uint8], nbytes: int) -> Tensor:
    tensor = torch.from_numpy(data) if isinstance(data, np.ndarray) else data
    if tensor.dtype != torch.uint8 or tensor.shape != (nbytes,) or not tensor.is_contiguous():
        raise ValueError(
            f"weights are packed as contiguous uint8 [{nbytes}]; found {str(tensor.dtype).removeprefix('torch.')} "
            f"{list(tensor.shape)}"
        )
    return tensor
