"""Memory that networks may take: refused with the arithmetic before it is allocated."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from penstock.ipc import require_memory


def require_memory_of_layers(sizes: Sequence[int], count: int = 1) -> None:
    """Raise MemoryError unless fully connected layers of these widths fit into the memory that is available.

    Parameters
    ----------
    sizes
        Width of the input, then of each layer.
    count
        Networks of this kind.
    """
    numbers = count * sum((before + 1) * after for before, after in pairwise(sizes))
    widths = " x ".join(map(str, sizes)) if len(sizes) <= 8 else f"{len(sizes) - 1} layers"
    require_memory(4 * numbers, f"a network of fully connected layers ({widths}: {numbers:,} float32)")


class Allowance(TorchDispatchMode):
    """Within the block, the tensors that are made may have so many bytes together; then MemoryError is raised.

    Parameters
    ----------
    nbytes
        Bytes of all tensors that are made, dead ones included.
    """

    def __init__(self, nbytes: int) -> None:
        super().__init__()
        self._nbytes = nbytes
        self._taken = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Count what an operation is asked to make, then run it."""
        kwargs = kwargs or {}
        for argument, value in zip(func._schema.arguments, args, strict=False):
            if argument.name == "size" and isinstance(value, Sequence):
                dtype = kwargs.get("dtype") or torch.get_default_dtype()
                self._taken += math.prod(value) * dtype.itemsize
                if self._taken > self._nbytes:
                    shape = " x ".join(map(str, value))
                    raise MemoryError(f"a tensor of {shape} brings it to {self._taken:,} bytes, of {self._nbytes:,}")
        return func(*args, **kwargs)
