"""JSON files of runs, read with limits: a damaged or hostile file causes an error message and nothing else."""

from __future__ import annotations

import dataclasses
import errno
import json
import math
import os
import stat
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

MOST_NBYTES = 1 << 23
"""Largest legal size of a file."""
MOST_DEPTH = 64
"""Largest legal depth of nested lists and objects."""
_IN_WORDS = {dict: "an object", list: "a list", str: "a text", bool: "true or false", int: "a whole number",
             float: "a number", type(None): "null"}  # fmt: skip


class DocumentError(ValueError):
    """A file is not ordinary, not JSON, too large, nested too deeply, or has values of wrong types."""


def read_document(path: Path, shape: Any = dict[str, Any], most_nbytes: int = MOST_NBYTES) -> Any:
    """Read an ordinary JSON file; links, folders and pipes are refused.

    Parameters
    ----------
    path
        The file.
    shape
        Type of the value: a `TypedDict` or a dataclass for an object with these keys (further keys are legal, and keys
        that are not required may be missing), or a type such as ``dict[str, list[int]]``. null is legal for a float,
        because JSON has no NaN.
    most_nbytes
        Largest legal size.

    Raises
    ------
    DocumentError
        The content is refused; the message names the file and the problem.
    OSError
        The file does not exist, or the operating system refuses to read it.
    """
    return document_in(read_ordinary(path, most_nbytes), os.fspath(path), shape)


def read_ordinary(path: Path, most_nbytes: int) -> bytes:
    """Read an ordinary file of at most `most_nbytes` bytes; errors are those of `read_document`."""
    with open(_opened(path), "rb") as file:
        data = file.read(most_nbytes + 1)
    if len(data) > most_nbytes:
        raise DocumentError(f"{path} cannot be read: it has more than {most_nbytes:,} bytes, which is the limit")
    return data


def open_ordinary(path: Path) -> int | None:
    """Open an ordinary file for reading; return a descriptor to close, or None if it is missing or not ordinary."""
    try:
        return _opened(path)
    except (OSError, DocumentError):
        return None


def _opened(path: Path) -> int:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):  # a link, a socket
            raise DocumentError(f"{path} is not an ordinary file") from None
        raise
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise DocumentError(f"{path} is not an ordinary file")


def document_in(data: bytes | str, name: str, shape: Any = dict[str, Any]) -> Any:
    """Read the JSON of a file as `read_document` does; messages begin with `name`."""
    try:
        value = json.loads(data, parse_constant=_null)
    except RecursionError:
        raise DocumentError(f"{name} cannot be read: it is nested deeper than {MOST_DEPTH} levels") from None
    except ValueError as error:
        raise DocumentError(f"{name} cannot be read: it is not JSON ({error})") from None
    if problem := _excess(value):
        raise DocumentError(f"{name} cannot be read: {problem}")
    require_shape(value, name, shape)
    return value


def require_readable(data: bytes, name: str) -> None:
    """Raise `DocumentError` for JSON that `read_document` would refuse; the message begins with `name`."""
    if len(data) > MOST_NBYTES:
        raise DocumentError(f"{name} would have {len(data):,} bytes, and at most {MOST_NBYTES:,} can be read back")
    document_in(data, name)


def require_shape(value: Any, name: str, shape: Any) -> None:
    """Raise `DocumentError` for a JSON value of another type than `shape`; the message begins with `name`."""
    if problem := next(_mismatches(value, shape, ""), None):
        raise DocumentError(f"{name} cannot be read: {problem}")


def is_finite(value: float) -> bool:
    """Return whether a number is finite and within the range of a float."""
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def _null(constant: str) -> None:
    """Return None for NaN and infinities."""


def _excess(value: Any) -> str | None:
    """Return a description of nesting that is too deep or a number that is too large; None if there is neither."""
    level = [value]
    for _ in range(MOST_DEPTH):
        below: list[Any] = []
        for item in level:
            if type(item) is dict:
                below += item.values()
            elif type(item) is list:
                below += item
            elif type(item) in (int, float) and not is_finite(item):
                return "it has a number beyond 1e308"
        if not below:
            return None
        level = below
    return f"it is nested deeper than {MOST_DEPTH} levels"


def _mismatches(value: Any, shape: Any, where: str) -> Iterator[str]:
    """Yield descriptions of values at `where` in the file that are not of type `shape`."""
    if shape is Any:
        return
    origin, arguments = typing.get_origin(shape), typing.get_args(shape)
    if origin in (typing.Union, types.UnionType):
        if all(any(_mismatches(value, each, where)) for each in arguments):
            yield _wrong(value, shape, where)
    elif origin is typing.Literal:
        if value not in arguments:
            yield _wrong(value, shape, where)
    elif typing.is_typeddict(shape) or dataclasses.is_dataclass(shape):
        yield from _mismatches_of_keys(value, shape, where)
    elif origin in (dict, Mapping):
        if type(value) is not dict:
            yield _wrong(value, shape, where)
        else:
            for key, item in value.items():
                yield from _mismatches(item, arguments[1], f"{where}[{_short(key)}]")
    elif origin in (list, tuple, Sequence):
        if type(value) is not list:
            yield _wrong(value, shape, where)
        else:
            for index, item in enumerate(value):
                yield from _mismatches(item, arguments[0], f"{where}[{index}]")
    elif shape is float:
        if value is not None and type(value) not in (int, float):
            yield _wrong(value, shape, where)
    elif type(value) is not (type(None) if shape is None else shape):
        yield _wrong(value, shape, where)


hints_of = lru_cache(typing.get_type_hints)
"""Types of the fields of a class by name."""


def _required_in(shape: Any, where: str) -> frozenset[str]:
    """Return the required keys of a value at `where`; a dataclass for a whole file requires none."""
    if dataclasses.is_dataclass(shape):
        fields = dataclasses.fields(shape) if where else ()
        return frozenset(one.name for one in fields if one.default is one.default_factory)
    return getattr(shape, "__required_keys__", frozenset())


def _mismatches_of_keys(value: Any, shape: Any, where: str) -> Iterator[str]:
    if type(value) is not dict:
        yield _wrong(value, dict, where)
        return
    for key in sorted(_required_in(shape, where) - value.keys()):
        yield f'{where or "it"} has no "{key}"'
    for key, hint in hints_of(shape).items():
        if key in value:
            yield from _mismatches(value[key], hint, f"{where}.{key}" if where else key)


def _wrong(value: Any, shape: Any, where: str) -> str:
    return f"{where or 'it'} is {_found(value)}, not {_in_words(shape)}"


def _in_words(shape: Any) -> str:
    origin, arguments = typing.get_origin(shape), typing.get_args(shape)
    if origin is typing.Literal:
        return " or ".join(map(_short, arguments))
    if origin in (typing.Union, types.UnionType):
        return " or ".join(map(_in_words, arguments))
    return _IN_WORDS.get(origin or shape, _IN_WORDS[list if origin in (tuple, Sequence) else dict])


def _found(value: Any) -> str:
    return _IN_WORDS[type(value)] if isinstance(value, dict | list) else _short(value)


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
