"""The instrument: what this machine does with Penstock, beside its peers.

Importing this package is cheap; a bench is imported when it runs.
"""

from __future__ import annotations

BENCHES: dict[str, str] = {"replay": "penstock.bench.replay"}
"""Benches by the name that the command line gives them; each module has ``run``."""


class BenchError(RuntimeError):
    """A bench cannot be run, or what it measures does something wrong; the message says what to do."""


class BenchUsageError(ValueError):
    """A bench is asked for what it cannot do."""
