"""The algorithms, one file each. This registry names them without importing torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.config import ConfigError, closest, find_object
from penstock.imports import place_of

if TYPE_CHECKING:
    from penstock.algorithms.bases.algorithm import Algorithm

ALGORITHMS = {
    "appo": "penstock.algorithms.appo:APPO",
    "ppo": "penstock.algorithms.ppo:PPO",
    "a2c": "penstock.algorithms.a2c:A2C",
    "a3c": "penstock.algorithms.a3c:A3C",
    "impala": "penstock.algorithms.impala:IMPALA",
    "impact": "penstock.algorithms.impact:IMPACT",
    "clear": "penstock.algorithms.clear:CLEAR",
    "laser": "penstock.algorithms.laser:LASER",
    "pqn": "penstock.algorithms.pqn:PQN",
    "dqn": "penstock.algorithms.dqn:DQN",
    "rainbow": "penstock.algorithms.rainbow:Rainbow",
    "apex": "penstock.algorithms.apex:ApeX",
    "r2d2": "penstock.algorithms.r2d2:R2D2",
    "ddpg": "penstock.algorithms.ddpg:DDPG",
    "td3": "penstock.algorithms.td3:TD3",
    "sac": "penstock.algorithms.sac:SAC",
    "tqc": "penstock.algorithms.tqc:TQC",
    "crossq": "penstock.algorithms.crossq:CrossQ",
    "apexdpg": "penstock.algorithms.apex_dpg:ApeXDPG",
}


def load_algorithm(name: str) -> type[Algorithm]:
    """Import an algorithm by its name on the command line, or by "module:Class" or "file.py:Class".

    Raises
    ------
    ConfigError
        There is no such algorithm (the closest name is shown), or it is none.
    """
    target = ALGORITHMS.get(name.lower(), name)
    if ":" not in target:
        names = sorted(ALGORITHMS)
        raise ConfigError(f"unknown algorithm {name!r}{closest(name.lower(), names)} (legal: {', '.join(names)})")
    algorithm = find_object(target, "algorithm")
    from penstock.algorithms.bases.replay import ReplayAlgorithm
    from penstock.algorithms.bases.segment import SegmentAlgorithm

    if not (isinstance(algorithm, type) and issubclass(algorithm, SegmentAlgorithm | ReplayAlgorithm)):
        found = f"the class {algorithm.__name__}" if isinstance(algorithm, type) else f"a {type(algorithm).__name__}"
        legal = "a subclass of SegmentAlgorithm or ReplayAlgorithm"
        raise ConfigError(f"algorithm={name!r} is not legal: it must be {legal}, found {found}")
    return algorithm


def algorithm_id(algorithm: type[Algorithm]) -> str:
    """Name by which `load_algorithm` finds an algorithm again: short for Penstock's own, else its place."""
    place = place_of(algorithm)
    return next((name for name, target in ALGORITHMS.items() if target == place), place)
