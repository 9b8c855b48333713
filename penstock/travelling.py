"""Values that travel to other processes: what scripts and notebooks define goes by value, with where it was written."""

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
"""Bytes from which on a `Parcel` lies in shared memory."""

_leaves: ContextVar[bool] = ContextVar("leaves this machine", default=False)


def packed(value: Any) -> bytes:
    """Pickle a value with cloudpickle, code with its file name; `pickle.loads` undoes it.

    Cloudpickle 3.1.3 calls all code that goes by value "<dynamic-code>": a traceback from another process would name
    no file and show no line.

    Raises
    ------
    Exception
        Whatever pickling raises, of any type: the value holds something that cannot travel, such as an open file.
    """
    with io.BytesIO() as file:
        _Pickler(file).dump(value)
        return file.getvalue()


@contextmanager
def leaving_machine() -> Iterator[None]:
    """Within it every `Parcel` is pickled whole: what is pickled leaves this machine."""
    token = _leaves.set(True)
    try:
        yield
    finally:
        _leaves.reset(token)


class Parcel:
    """A value that many processes of this machine open: where it is large, its memory travels once.

    Arrays are mapped, not copied: all processes have the same pages, and one that writes to a page has its own of it.

    Parameters
    ----------
    value
        What travels; raises as `packed` does.

    Attributes
    ----------
    nbytes
        Size of what lies in shared memory; 0 where it is small and travels as bytes.
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
        """Return the value; it may be changed, which no other sees."""
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
