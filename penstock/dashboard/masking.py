"""Masking of possible secrets, by name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from penstock.runs.files import json_values

_SECRET = re.compile(r"token|secret|passw|credential|api_?key|auth", re.IGNORECASE)
_SECRET_WORD = re.compile(r"([\w-]*(?:token|secret|passw|credential|api[_-]?key|auth)[\w-]*[= ])\S+", re.IGNORECASE)


def is_secret(name: str) -> bool:
    """Whether what has this name may be a secret."""
    return _SECRET.search(name) is not None


def masked(value: Any, name: str = "") -> Any:
    """Return a value of JSON with what may be a secret, by its name, replaced."""
    if isinstance(value, Mapping):
        return {key: masked(item, str(key)) for key, item in value.items()}
    if isinstance(value, list):
        return [masked(item, name) for item in value]
    return "***" if is_secret(name) and value not in (None, "") else json_values(value)


def masked_command(command: str) -> str:
    """Return a command line with the values of such flags replaced."""
    return _SECRET_WORD.sub(r"\1***", command)
