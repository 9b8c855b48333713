"""Masking of secrets: one list of names decides which values are masked when shown or recorded.

======================================  ==================================================
possible secret                         examples
======================================  ==================================================
a value whose name is on the list       ``api_key="..."``, ``--token ...``
everything within such a value          ``auth={"user": "...", "password": "..."}``
credentials in an address               ``https://user:password@host?token=...``
a value within JSON in a text           ``'{"pwd": "..."}'``
======================================  ==================================================

Booleans, None, and numbers with a plural name (``max_tokens=512``) are not secrets.
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
"""Mark of a secret among an environment's saved arguments."""


def is_secret(name: str, value: Any = "?") -> bool:
    """Return whether a value of this name may be a secret."""
    if value is None or isinstance(value, bool) or (isinstance(value, str | list | tuple | dict) and not value):
        return False
    if isinstance(value, numbers.Real) and name[-1:] in ("s", "S"):
        return False
    return _SECRET.search(name) is not None


def has_secret(text: str) -> bool:
    """Return whether a text contains an address or JSON with a possible secret."""
    return _masked_text(text) != text


def flags_of_secrets(env_kwargs: Any) -> str:
    """Return flags with which the user gives the arguments marked as secrets again; "" if there are none."""
    names = [name for name, value in env_kwargs.items() if _has_mark(value)] if isinstance(env_kwargs, Mapping) else []
    return f" --env-kwargs {' '.join(f'{name}=...' for name in names)}" if names else ""


def masked(value: Any, name: str = "") -> Any:
    """Return a JSON value with possible secrets replaced: all values under a secret's name, and secrets in texts.

    A value named "command" is masked as a command line.
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
    """Return a command line with possible secrets replaced, as `masked_arguments` does."""
    try:
        return joined(masked_arguments(shlex.split(command)))
    except ValueError:
        return _HIDDEN


def masked_arguments(arguments: Sequence[str]) -> list[str]:
    """Return a command's words with possible secrets replaced: by the names of flags and keys, also in JSON.

    A flag's value extends to the next flag, a key's value to the next key or flag.
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
    """Join masked words into a shell command; masks are not quoted."""
    return " ".join(word if _HIDDEN in word and " " not in word else shlex.quote(word) for word in arguments)


def _masked_text(text: str) -> str:
    """Return a text with possible secrets in addresses and JSON replaced."""
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
