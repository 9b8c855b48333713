"""Masking of possible secrets, by name."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from typing import Any

from penstock.runs.files import json_values

_SECRET = re.compile(
    r"token|secret|passw|passphrase|pwd|credential|(api|access|private|signing|encryption)[_-]?key|auth|bearer|cookie",
    re.IGNORECASE,
)
_USER_OF_ADDRESS = re.compile(r"(\w://[^/\s:@]*:)[^/\s@]+@")
_HIDDEN = "***"


def is_secret(name: str) -> bool:
    """Whether what has this name may be a secret."""
    return _SECRET.search(name) is not None


def masked(value: Any, name: str = "") -> Any:
    """Return a value of JSON with what may be a secret, by its name, replaced; all of it where a list or object is."""
    if is_secret(name):
        return json_values(value) if value in (None, "") else _HIDDEN
    if isinstance(value, Mapping):
        return {key: masked(item, str(key)) for key, item in value.items()}
    if isinstance(value, list):
        return [masked(item, name) for item in value]
    return _masked_text(value) if isinstance(value, str) else json_values(value)


def masked_command(command: str) -> str:
    """Return a command line with what may be a secret replaced: by the names of flags, also within JSON."""
    try:
        words = shlex.split(command)
    except ValueError:
        return _HIDDEN
    shown, is_hidden = [], False
    for word in words:
        if word.startswith("--"):
            flag, equals, value = word.partition("=")
            is_hidden = is_secret(flag)
            shown.append(f"{flag}{equals}{_HIDDEN if is_hidden and equals else _masked_word(value)}")
        else:  # a flag's values may be several words
            shown.append(_HIDDEN if is_hidden else _masked_word(word))
    return " ".join(word if _HIDDEN in word and " " not in word else shlex.quote(word) for word in shown)


def _masked_word(word: str) -> str:
    name, equals, value = word.partition("=")
    if equals and name.replace("_", "").replace("-", "").replace(".", "").isalnum():
        return f"{name}={_HIDDEN if is_secret(name) else _masked_text(value)}"
    return _masked_text(word)


def _masked_text(text: str) -> str:
    """A text with the password of an address replaced, and within JSON what may be a secret."""
    if text[:1] in ("{", "["):
        try:
            return json.dumps(masked(json.loads(text)))
        except (ValueError, RecursionError):
            return _HIDDEN if is_secret(text) else text
    return _USER_OF_ADDRESS.sub(rf"\1{_HIDDEN}@", text)
