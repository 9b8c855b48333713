"""Values that travel to other processes: what scripts and notebooks define goes by value, with where it was written."""

from __future__ import annotations

import io
from collections import ChainMap
from types import CodeType
from typing import Any, ClassVar

import cloudpickle


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


def _code(arguments: tuple[Any, ...], filename: str) -> CodeType:
    return CodeType(*arguments).replace(co_filename=filename)


def _reduce_code(code: CodeType) -> tuple[Any, ...]:
    _, arguments = cloudpickle.Pickler.dispatch_table[CodeType](code)
    return _code, (arguments, code.co_filename)


class _Pickler(cloudpickle.Pickler):
    dispatch_table: ClassVar[Any] = ChainMap({CodeType: _reduce_code}, cloudpickle.Pickler.dispatch_table)
