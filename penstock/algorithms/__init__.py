"""Algorithms, one file each, loaded by name; importing this loads no torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.algorithms.registry import ALGORITHMS
from penstock.config import ConfigError, closest, find_object
from penstock.imports import place_of

if TYPE_CHECKING:
    from penstock.algorithms.bases.algorithm import Algorithm

__all__ = ["ALGORITHMS", "algorithm_id", "load_algorithm"]

def load_algorithm(name: str, instead: Any = None) -> type[Algorithm]:
    """Import an algorithm by name, "module:Class" or "file.py:Class"; `instead`: use this class of the same name.

    Raises
    ------
    ConfigError
        No algorithm has this name (the closest one is shown), or the object is not an algorithm.
    """
    target = instead or ALGORITHMS.get(name.lower(), name)
    if isinstance(target, str) and ":" not in target:
        names = [*sorted(ALGORITHMS), "file.py:Class"]
        raise ConfigError(f"unknown algorithm {target!r}{closest(target.lower(), names)} (legal: {', '.join(names)})")
    import numpy  # noqa: F401 - before torch, which swallows a Ctrl-C that arrives while it imports numpy

    algorithm = find_object(target, "algorithm") if isinstance(target, str) else target
    from penstock.algorithms.bases.replay import ReplayAlgorithm
    from penstock.algorithms.bases.segment import SegmentAlgorithm

    if not (isinstance(algorithm, type) and issubclass(algorithm, SegmentAlgorithm | ReplayAlgorithm)):
        found = f"the class {algorithm.__name__}" if isinstance(algorithm, type) else f"a {type(algorithm).__name__}"
        legal = "a subclass of SegmentAlgorithm or ReplayAlgorithm"
        raise ConfigError(f"algorithm={target!r} is not legal: it must be {legal}, found {found}")
    if instead and not f":{name}".lower().endswith((f":{algorithm.name()}", f".{algorithm.name()}")):
        raise ConfigError(f"algorithm={target!r} is not legal: the run is of {name!r}, give a class of that name")
    return algorithm


def algorithm_id(algorithm: type[Algorithm]) -> str:
    """Return the name by which `load_algorithm` finds an algorithm: a short one if built in, else its place."""
    place = place_of(algorithm)
    return next((name for name, target in ALGORITHMS.items() if target == place), place)
