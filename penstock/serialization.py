"""Values sent to other processes: definitions of scripts and notebooks are pickled by value, with their file names."""

from __future__ import annotations

import io
import mmap
import os
import pickle
import weakref
from collections import ChainMap
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import accumulate
from types import CodeType
from typing import Any, ClassVar

import cloudpickle

LARGE = 2**20
"""Size in bytes from which a `Parcel` uses shared memory."""

_leaves: ContextVar[bool] = ContextVar("leaves this machine", default=False)


def packed(value: Any) -> bytes:
    """Pickle a value with cloudpickle, keeping the file names of code; `pickle.loads` reads it.

    Cloudpickle 3.1.3 calls all code pickled by value "<dynamic-code>": tracebacks from another process would show
    neither file nor line.

    Raises
    ------
    Exception
        Any error of pickling: the value holds an object that cannot be pickled, such as an open file.
    """
    with io.BytesIO() as file:
        _Pickler(file).dump(value)
        return file.getvalue()


@contextmanager
def leaving_machine() -> Iterator[None]:
    """Within the block, pickle each `Parcel` whole, because it leaves this machine."""
    token = _leaves.set(True)
    try:
        yield
    finally:
        _leaves.reset(token)


class Parcel:
    """Value that many processes of this machine open. A large one is stored once, in shared memory.

    Arrays are mapped, not copied: processes share the pages, and a process that writes to a page gets its own copy.

    Parameters
    ----------
    value
        Value to share; raises as `packed` does.

    Attributes
    ----------
    nbytes
        Bytes in shared memory; 0 if the value is small and pickled.
    """

    def __init__(self, value: Any) -> None:
        buffers: list[pickle.PickleBuffer] = []
        with io.BytesIO() as file:
            _Pickler(file, buffer_callback=buffers.append).dump(value)
            stream = file.getvalue()
        parts = [memoryview(stream), *(buffer.raw() for buffer in buffers)]
        self._sizes = [part.nbytes for part in parts]
        self.nbytes = 0
        if sum(self._sizes) < LARGE:
            self._data = packed(value)
            return
        self._data = b""
        self._fd = os.memfd_create("penstock-arguments", os.MFD_CLOEXEC)
        weakref.finalize(self, os.close, self._fd)
        self._at = f"/proc/{os.getpid()}/fd/{self._fd}"
        self.nbytes = sum(map(_aligned, self._sizes))
        os.ftruncate(self._fd, self.nbytes)
        for part, begin in zip(parts, self._begins(), strict=True):
            _write(self._fd, part, begin)

    def open(self) -> Any:
        """Return the value; changes to it are visible to this process alone."""
        if self._data:
            return pickle.loads(self._data)
        fd = os.open(self._at, os.O_RDONLY | os.O_CLOEXEC)
        try:
            whole = memoryview(mmap.mmap(fd, self.nbytes, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE))
        finally:
            os.close(fd)
        stream, *buffers = (
            whole[begin : begin + size] for begin, size in zip(self._begins(), self._sizes, strict=True)
        )
        return pickle.loads(stream, buffers=buffers)

    def __getstate__(self) -> dict[str, Any]:
        if self.nbytes and _leaves.get():
            return {"_data": packed(self.open()), "_sizes": self._sizes, "nbytes": 0}
        return {name: value for name, value in vars(self).items() if name != "_fd"}

    def _begins(self) -> list[int]:
        return [0, *accumulate(map(_aligned, self._sizes[:-1]))]


def _aligned(size: int) -> int:
    return -(-size // mmap.PAGESIZE) * mmap.PAGESIZE


def _write(fd: int, data: memoryview, begin: int) -> None:
    data = data.cast("B")
    while len(data):
        written = os.pwrite(fd, data, begin)
        data, begin = data[written:], begin + written


def _code(arguments: tuple[Any, ...], filename: str) -> CodeType:
    return CodeType(*arguments).replace(co_filename=filename)


def _reduce_code(code: CodeType) -> tuple[Any, ...]:
    _, arguments = cloudpickle.Pickler.dispatch_table[CodeType](code)
    return _code, (arguments, code.co_filename)


class _Pickler(cloudpickle.Pickler):
    dispatch_table: ClassVar[Any] = ChainMap({CodeType: _reduce_code}, cloudpickle.Pickler.dispatch_table)
