"""Memory of the arena that a GPU copies from directly."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import torch


class PinnedMemory:
    """An array's memory registered with CUDA: copies from it to the GPU need no buffer between, and do not wait.

    Parameters
    ----------
    array
        The array, which stays where it is. It is kept alive.
    device
        The GPU.

    Attributes
    ----------
    is_registered
        False if CUDA refused: copies are then slower, and that is all.
    """

    def __init__(self, array: np.ndarray, device: torch.device) -> None:
        self._array = array
        cudart = torch.cuda.cudart()
        self.is_registered = int(cudart.cudaHostRegister(array.ctypes.data, array.nbytes, 0)) == 0
        if not self.is_registered:
            with suppress(RuntimeError):  # CUDA tells of the error once more, at the next thing it is asked to do
                torch.zeros(1, device=device)

    def close(self) -> None:
        """Take the registration back; a second call does nothing."""
        if self.is_registered:
            self.is_registered = False
            torch.cuda.cudart().cudaHostUnregister(self._array.ctypes.data)
