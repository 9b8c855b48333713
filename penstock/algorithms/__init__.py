"""The algorithms, one file each. This registry names them without importing torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.config import ConfigError, closest
from penstock.imports import find_object

if TYPE_CHECKING:
    from penstock.algorithms.segment import SegmentAlgorithm

ALGORITHMS = {
    "appo": "penstock.algorithms.appo:APPO",
    "ppo": "penstock.algorithms.ppo:PPO",
}


def load_algorithm(name: str) -> type[SegmentAlgorithm]:
    """Import an algorithm by its name on the command line, or by "module:Class" or "file.py:Class".

    Raises
    ------
    ConfigError
        There is no such algorithm; the closest name is shown.
    """
    target = ALGORITHMS.get(name.lower(), name)
    if ":" not in target:
        names = sorted(ALGORITHMS)
        raise ConfigError(f"unknown algorithm {name!r}{closest(name.lower(), names)} (legal: {', '.join(names)})")
    algorithm: type[SegmentAlgorithm] = find_object(target, "algorithm")
    return algorithm
