"""Environment arguments as JSON. Values without a JSON type become marks; some are only marked as not saved.

=================================================  ==================================================================
mark                                               value
=================================================  ==================================================================
``{"$tuple": [...]}``                              a tuple
``{"$float": "inf"}``                              a float that is not finite
``{"$path": "maps/a.txt"}``                        a path
``{"$dict": [[key, value], ...]}``                 a dict whose keys are not all strings
``{"$array": [...], "shape": ..., "dtype": ...}``  a NumPy array of numbers, of at most `LARGEST` elements
``{"$not_saved": "numpy.ndarray float64 (9, 9)"}`` any other object: give it again to resume
``{"$not_saved": "secret"}``                       a possible secret, by its name (`penstock.redaction`): give it again
=================================================  ==================================================================
"""

from __future__ import annotations

import math
import numbers
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePath
from typing import Any

from penstock.config.checking import ConfigError
from penstock.redaction import NOT_SAVED_SECRET, flags_of_secrets, has_secret, is_secret

LARGEST = 256
NOT_SAVED = "$not_saved"
_MARKS = ({"$tuple"}, {"$float"}, {"$path"}, {"$dict"}, {"$array", "shape", "dtype"}, {NOT_SAVED})


def saved(value: Any, name: str = "") -> Any:
    """Return a value as JSON, which `restored` reads; secrets, recognised by name, are replaced by marks."""
    if isinstance(value, dict) and value.keys() == {NOT_SAVED}:
        return dict(value)
    if is_secret(name, value) or (isinstance(value, str) and has_secret(value)):
        return dict(NOT_SAVED_SECRET)
    if value is None or isinstance(value, bool | str):
        return value
    if _is_number_of_numpy(value):
        value = value.item()
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {"$float": repr(float(value))}
    if isinstance(value, PurePath):
        return {"$path": str(value)}
    if type(value) is tuple:
        return {"$tuple": [saved(item) for item in value]}
    if isinstance(value, list):
        return [saved(item) for item in value]
    if isinstance(value, dict):
        if _is_mark(value):
            return dict(value)
        if all(isinstance(key, str) for key in value):
            return {key: saved(item, key) for key, item in value.items()}
        return {"$dict": [[saved(key), saved(item, str(key))] for key, item in value.items()]}
    if _is_array(value) and value.dtype.kind in "biuf" and value.size <= LARGEST:
        elements = [saved(item) for item in value.ravel().tolist()]
        return {"$array": elements, "shape": list(value.shape), "dtype": value.dtype.name}
    return {NOT_SAVED: described(value)}


def restored(value: Any) -> Any:
    """Return the value written by `saved`. A mark of a value that was not saved stays a mark."""
    if isinstance(value, list):
        return [restored(item) for item in value]
    if not isinstance(value, dict):
        return value
    if not _is_mark(value):
        return {key: restored(item) for key, item in value.items()}
    if "$tuple" in value:
        return tuple(restored(item) for item in value["$tuple"])
    if "$float" in value:
        return float(value["$float"])
    if "$path" in value:
        return Path(value["$path"])
    if "$dict" in value:
        return {restored(key): restored(item) for key, item in value["$dict"]}
    if "$array" in value:
        import numpy

        elements = [restored(item) for item in value["$array"]]
        return numpy.array(elements, value["dtype"]).reshape(value["shape"])
    return dict(value)


def described(value: Any) -> str:
    """Describe a value that cannot be saved: its type, and an array's dtype and shape."""
    kind = type(value)
    name = f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.")
    if _is_array(value):
        return f"{name} {value.dtype} {value.shape}"
    own = getattr(value, "__qualname__", None)
    return f"{name} {value.__module__}.{own}" if own else name


def _has_mark(value: Any) -> bool:
    """Return whether the value holds marks, so that `restored` must rebuild it."""
    if isinstance(value, dict):
        return _is_mark(value) or any(map(_has_mark, value.values()))
    return isinstance(value, list) and any(map(_has_mark, value))


def whole_arguments(env_kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the environment's arguments as values.

    Raises
    ------
    ConfigError
        Some were neither saved with the run nor given again; the message names them.
    """
    if missing := _not_saved(env_kwargs):
        given = ", ".join(f'"{name}": ...' for name in missing)
        flags = flags_of_secrets(env_kwargs)
        raise ConfigError(
            f"env_kwargs of this run hold what config.json cannot or must not: {_listed(missing)}. Give it again in "
            f"Python, as env_kwargs={{{given}}}, to resume() or load_policy(){f', or as{flags}' if flags else ''}; all "
            "other arguments are known"
        )
    return {name: restored(value) if _has_mark(value) else value for name, value in env_kwargs.items()}


def require_no_secrets(env_kwargs: Mapping[str, Any], command: str) -> None:
    """Refuse secrets in a command that starts and resumes runs unattended.

    Raises
    ------
    ConfigError
        Arguments of the environment would not be saved; the message names them.
    """
    if missing := _not_saved(saved(env_kwargs)):
        raise ConfigError(
            f"env_kwargs hold {_listed(missing)}, which is not legal in {command}: it resumes runs unattended, from "
            "files in which no secret is written. Let the environment read it from an environment variable "
            "(os.environ), which these processes inherit"
        )


def _not_saved_in(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if _is_mark(value) and NOT_SAVED in value:
            yield str(value[NOT_SAVED])
        else:
            for item in value.values():
                yield from _not_saved_in(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _not_saved_in(item)


def _not_saved(env_kwargs: Mapping[str, Any]) -> dict[str, str]:
    """Return descriptions, by name, of the arguments that are not saved with a run."""
    found = ((name, next(_not_saved_in(value), None)) for name, value in env_kwargs.items())
    return {name: kind for name, kind in found if kind is not None}


def _listed(arguments: Mapping[str, str]) -> str:
    return ", ".join(f"{name!r} ({kind})" for name, kind in arguments.items())


def _is_mark(value: dict[Any, Any]) -> bool:
    return set(value) in _MARKS


def _is_array(value: Any) -> bool:
    numpy = sys.modules.get("numpy")  # without NumPy imported, no value is an array
    return numpy is not None and isinstance(value, numpy.ndarray)


def _is_number_of_numpy(value: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.bool_ | numpy.integer | numpy.floating)
