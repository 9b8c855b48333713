"""Secrets by their names: one list of names, by which values are masked where they are shown or recorded.

======================================  ==================================================
what may be a secret                    examples
======================================  ==================================================
a value whose name says so              ``api_key="..."``, ``--token ...``
everything within such a value          ``auth={"user": "...", "password": "..."}``
what an address has of it               ``https://user:password@host?token=...``
a value within JSON that a text holds   ``'{"pwd": "..."}'``
======================================  ==================================================

Truth values, nothing, and numbers whose name is a plural (``max_tokens=512``) are none.
"""

from __future__ import annotations

import json
import numbers
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

_SECRET = re.compile(
    r"token(?!i[sz])|secret|passw|passphrase|pwd|credential|(api|access|private|signing|encryption)[_-]?key|auth(?!or)|"
    r"authori[sz]|bearer|cookie",
    re.IGNORECASE,
)
_USER_OF_ADDRESS = re.compile(r"(\w://[^/\s:@]*:)[^/\s]+@")
_OF_QUERY = re.compile(r"([?&]([\w.-]+)=)[^&#\s]+")
_KEY = re.compile(r"([\w.-]+)=")
_HIDDEN = "***"

NOT_SAVED_SECRET = {"$not_saved": "secret"}
"""Mark of a secret among the arguments of an environment, where these are written down."""


def is_secret(name: str, value: Any = "?") -> bool:
    """Whether a value of this name may be a secret."""
    if value is None or isinstance(value, bool) or (isinstance(value, str | list | tuple | dict) and not value):
        return False
    if isinstance(value, numbers.Real) and name[-1:] in ("s", "S"):
        return False
    return _SECRET.search(name) is not None


def has_secret(text: str) -> bool:
    """Whether a text holds an address or JSON with what may be a secret."""
    return _masked_text(text) != text


def flags_of_secrets(env_kwargs: Any) -> str:
    """Flags that give again which arguments of an environment, JSON values, are marked as secrets; "": none is."""
    names = [name for name, value in env_kwargs.items() if _has_mark(value)] if isinstance(env_kwargs, Mapping) else []
    return f" --env-kwargs {' '.join(f'{name}=...' for name in names)}" if names else ""


def masked(value: Any, name: str = "") -> Any:
    """Return a value of JSON with what may be a secret, by its name, replaced; all of it where a list or object is.

    What is named "command" is masked as a command line.
    """
    if is_secret(name, value):
        return _HIDDEN
    if isinstance(value, Mapping):
        return {key: masked(item, str(key)) for key, item in value.items()}
    if name == "command" and isinstance(value, list) and all(isinstance(word, str) for word in value):
        return masked_arguments(value)
    if isinstance(value, list | tuple):
        return type(value)([masked(item, name) for item in value]) if type(value) in (list, tuple) else value
    if not isinstance(value, str):
        return value
    return masked_command(value) if name == "command" else _masked_text(value)


def masked_command(command: str) -> str:
    """Return a command line with what may be a secret replaced, as `masked_arguments` does."""
    try:
        return joined(masked_arguments(shlex.split(command)))
    except ValueError:
        return _HIDDEN


def masked_arguments(arguments: Sequence[str]) -> list[str]:
    """Return the words of a command with what may be a secret replaced: by the names of flags and keys, also in JSON.

    All words up to the next flag belong to a flag, and those up to the next key or flag to a key.
    """
    shown, of_flag, of_key, is_code = [], False, False, False
    for word in arguments:
        flag, equals, value = word.partition("=") if word.startswith("--") else ("", "", word)
        if flag:
            of_flag, of_key = is_secret(flag), False
        if flag and not equals:
            shown.append(flag)
        elif of_flag or (is_code and _SECRET.search(word)):
            shown.append(f"{flag}{equals}{_HIDDEN}")
        elif key := _KEY.match(value):
            of_key = is_secret(key[1])
            shown.append(f"{flag}{equals}{key[0]}{_HIDDEN if of_key else _masked_text(value[key.end():])}")
        else:
            shown.append(f"{flag}{equals}{_HIDDEN if of_key else _masked_text(value)}")
        is_code = word == "-c"  # Python's
    return shown


def joined(arguments: Sequence[str]) -> str:
    """Return masked words as one line of a shell, in which what was replaced stands without quotes."""
    return " ".join(word if _HIDDEN in word and " " not in word else shlex.quote(word) for word in arguments)


def _masked_text(text: str) -> str:
    """A text with what may be a secret in an address or in JSON replaced."""
    if text[:1] in ("{", "["):
        try:
            found = json.loads(text)
            shown = masked(found)
        except (ValueError, RecursionError):
            return _HIDDEN if _SECRET.search(text) else text
        return text if shown == found else json.dumps(shown)
    text = _USER_OF_ADDRESS.sub(rf"\1{_HIDDEN}@", text)
    return _OF_QUERY.sub(lambda found: f"{found[1]}{_HIDDEN}" if is_secret(found[2]) else found[0], text)


def _has_mark(value: Any) -> bool:
    if isinstance(value, Mapping):
        return value == NOT_SAVED_SECRET or any(map(_has_mark, value.values()))
    return isinstance(value, list | tuple) and any(map(_has_mark, value))
