"""Exchange of policies with others: repositories of the Hugging Face Hub, and models of Stable-Baselines3."""

import importlib
from typing import Any

__all__ = ["ExchangeError", "import_sb3", "pull", "push"]

_HOMES = {"import_sb3": "penstock.exchange.sb3", "pull": "penstock.exchange.hub", "push": "penstock.exchange.hub"}


class ExchangeError(ValueError):
    """A policy cannot be published, fetched or imported; the message gives the reason and the remedy."""


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
