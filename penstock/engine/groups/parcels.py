"""Parcels: batches and states as bytes, sent between the learners of a group."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from enum import IntEnum
from typing import Any

import numpy as np
import torch
from torch import Tensor

from penstock.nn import Group
from penstock.runs.tensors import as_bytes, from_bytes

ALIGNMENT = 64


class Kind(IntEnum):
    """Kinds of parcels."""

    STATE = 0
    BATCH = 1


@dataclass(frozen=True)
class Place:
    """Position of a tensor in the bytes of a batch.

    `key` is the tensor's name in a dict of tensors, else empty; `field` is empty for the dict of data about the batch.
    """

    field: str
    key: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    begin: int

    @property
    def nbytes(self) -> int:
        """Size of the tensor."""
        return math.prod(self.shape) * self.dtype.itemsize

    def to_json(self) -> list[Any]:
        """Return the position as JSON values."""
        return [self.field, self.key, str(self.dtype).removeprefix("torch."), list(self.shape), self.begin]

    @classmethod
    def from_json(cls, values: list[Any]) -> Place:
        """Make the position from the values that `to_json` returns."""
        field, key, dtype, shape, begin = values
        return cls(field, key, getattr(torch, dtype), tuple(shape), begin)

    def of(self, memory: Tensor) -> Tensor:
        """Return the tensor as a view of memory, uint8."""
        return memory[self.begin : self.begin + self.nbytes].view(self.dtype).view(self.shape)


class ParcelChannel:
    """One learner's end of the exchange of parcels, which all use the same memory.

    Parameters
    ----------
    group
        Group of the learners.
    """

    def __init__(self, group: Group) -> None:
        self.group = group
        self._memory = torch.empty(0, dtype=torch.uint8)

    def send_state(self, state: dict[str, Any]) -> None:
        """Send all learners a state: tensors and plain values."""
        self._send(Kind.STATE, torch.frombuffer(bytearray(as_bytes(state)), dtype=torch.uint8))

    def send_batch(self, batch: Any, about: dict[str, Any]) -> None:
        """Send all learners a batch, a dataclass of tensors, and data about it: tensors and plain values."""
        parts = [*_parts(batch), *(("", key, value) for key, value in about.items())]
        plain, plain_about = dict[str, Any](), dict[str, Any]()
        found, end = list[tuple[Place, Tensor]](), 0
        for name, key, value in parts:
            if isinstance(value, Tensor):
                place = Place(name, key, value.dtype, tuple(value.shape), end)
                found.append((place, value))
                end += aligned(place.nbytes)
            elif name:
                plain[name] = value
            else:
                plain_about[key] = value
        places = [place.to_json() for place, _ in found]
        kind = f"{type(batch).__module__}:{type(batch).__qualname__}"
        head = json.dumps([kind, plain, places, plain_about], default=_number).encode()
        begin = aligned(8 + len(head))
        memory = self._room(begin + end)
        memory[:8].view(torch.int64)[0] = len(head)
        memory[8 : 8 + len(head)].copy_(torch.frombuffer(bytearray(head), dtype=torch.uint8))
        for place, tensor in found:
            place.of(memory[begin:]).copy_(tensor.detach())
        self._send(Kind.BATCH, memory)

    def receive(self, source: int) -> tuple[Kind, Tensor]:
        """Wait for the next parcel of a learner; its bytes, uint8, are valid until the next call."""
        about = torch.zeros(2, dtype=torch.int64, device=self.group.device)
        self.group.send(about, source)
        kind, nbytes = about.tolist()
        memory = self._room(nbytes)
        carried = memory.to(self.group.device)
        self.group.send(carried, source)
        return Kind(kind), carried.cpu()

    def _send(self, kind: Kind, data: Tensor) -> None:
        device, rank = self.group.device, self.group.rank
        self.group.send(torch.tensor([kind, len(data)], device=device), rank)
        self.group.send(data.to(device), rank)

    def _room(self, nbytes: int) -> Tensor:
        if len(self._memory) < nbytes:
            self._memory = torch.empty(nbytes, dtype=torch.uint8)
        return self._memory[:nbytes]


def aligned(nbytes: int) -> int:
    """Return a number of bytes rounded up to `ALIGNMENT`."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def state_in(data: Tensor) -> dict[str, Any]:
    """Return the state in received bytes, on the CPU."""
    return from_bytes(data.numpy().tobytes())


def batch_in(data: Tensor, device: torch.device) -> tuple[Any, dict[str, Any]]:
    """Return the batch in received bytes, and the data about it; on the CPU its tensors are views of the bytes."""
    length = int(data[:8].view(torch.int64)[0])
    kind, values, places, about = json.loads(data[8 : 8 + length].numpy().tobytes())
    memory = data[aligned(8 + length) :]
    for place in map(Place.from_json, places):
        tensor = place.of(memory)
        if not place.field:
            about[place.key] = tensor.clone()
            continue
        tensor = tensor.to(device)
        if place.key:
            values.setdefault(place.field, {})[place.key] = tensor
        else:
            values[place.field] = tensor
    return _batch_class(kind)(**values), about


def _batch_class(kind: str) -> type:
    """Return the dataclass with a name, from a module that is imported already; nothing is imported here."""
    module, _, name = kind.partition(":")
    found = getattr(sys.modules.get(module), name, None)
    if not (isinstance(found, type) and is_dataclass(found)):
        raise TypeError(f"a batch is of the class {kind}, which is no dataclass of a module imported in this process")
    return found


def _number(value: Any) -> Any:
    """Return a NumPy number as a Python number."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"a batch holds a {type(value).__name__}: a learner group can send tensors, numbers and strings")


def _parts(batch: Any) -> Iterator[tuple[str, str, Any]]:
    """Yield the parts of a batch: name of the field, key within it if it holds tensors by name, and value."""
    for field in fields(batch):
        value = getattr(batch, field.name)
        if isinstance(value, dict) and all(isinstance(each, Tensor) for each in value.values()):
            yield from ((field.name, key, each) for key, each in value.items())
        else:
            yield field.name, "", value
