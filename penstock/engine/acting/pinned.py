"""Host memory that a GPU reads in place."""

from __future__ import annotations

import weakref
from contextlib import suppress
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

PORTABLE_AND_MAPPED = 1 | 2  # flags of cudaHostRegister
WORTH_READING = 1 << 12  # bytes of a row from which a copy by the host costs more than a read over the bus


class PinnedMemory:
    """Memory of an array, registered with CUDA: copies from it to the GPU need no buffer and do not wait.

    `of` returns the same registration to all callers in the process; it ends when the last one drops it. On a CPU there
    is nothing to register.

    Parameters
    ----------
    array
        Array with contiguous memory, which is not moved and is kept alive.
    device
        Device that reads it.

    Attributes
    ----------
    is_registered
        False if CUDA refused: the device reads copies then.
    """

    _registered: ClassVar[weakref.WeakValueDictionary[tuple[int, int, str], PinnedMemory]] = (
        weakref.WeakValueDictionary()
    )

    def __init__(self, array: np.ndarray, device: torch.device) -> None:
        self._array, self._device = array, device
        self.is_registered = True
        if device.type == "cuda":
            cudart, address = torch.cuda.cudart(), array.ctypes.data
            self.is_registered = int(cudart.cudaHostRegister(address, array.nbytes, PORTABLE_AND_MAPPED)) == 0
            if self.is_registered:
                weakref.finalize(self, cudart.cudaHostUnregister, address).atexit = False
            else:
                with suppress(RuntimeError):  # CUDA raises the error again at the next call
                    torch.zeros(1, device=device)

    @classmethod
    def of(cls, array: np.ndarray, device: torch.device) -> PinnedMemory:
        """Return the registration of an array's memory."""
        key = array.ctypes.data, array.nbytes, str(device)
        found = cls._registered.get(key)
        if found is None:
            found = cls._registered[key] = cls(array, device)
        return found

    def on_device(self) -> Tensor:
        """Return the memory's bytes as a tensor of the device, uint8 ``[nbytes]``: kernels read them over the bus."""
        if self._device.type == "cpu":
            return torch.from_numpy(self._array.reshape(-1).view(np.uint8))
        return torch.as_tensor(_Bytes(self._array), device=self._device)


class _Bytes:
    """An array's bytes at an address that host and GPU share, in the interface that torch reads."""

    def __init__(self, array: np.ndarray) -> None:
        self._array = array
        self.__cuda_array_interface__: dict[str, Any] = {
            "shape": (array.nbytes,), "typestr": "|u1", "data": (array.ctypes.data, False), "version": 3,
        }  # fmt: skip


class RowsInPlace:
    """Rows of a column of the arena, which a device reads where they were written.

    Parameters
    ----------
    memory
        Memory of the column.
    row_nbytes
        Bytes of a row, a multiple of 8.
    """

    def __init__(self, memory: PinnedMemory, row_nbytes: int) -> None:
        self._memory = memory  # stays registered as long as it is read
        self._words = memory.on_device().view(torch.int64).view(-1, row_nbytes // 8)

    @staticmethod
    def serves(column: np.ndarray) -> bool:
        """Return whether a column's rows are large enough to be read in place, and consist of whole words."""
        row_nbytes = column[0].nbytes
        return row_nbytes >= WORTH_READING and row_nbytes % 8 == 0

    def read(self, rows: Tensor, into: Tensor) -> None:
        """Read rows, int64 ``[n]`` on the device, into a tensor ``[n, ...]``."""
        words = into.view(len(into), -1).view(torch.uint8).view(torch.int64)
        torch.index_select(self._words, 0, rows, out=words)
