"""Penstock: asynchronous reinforcement learning that uses every core of the machine.

Public interface. Names are imported on first use, so that importing the package is cheap.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import signal
import threading
import warnings
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock import replay
    from penstock.algorithms.bases.replay import ReplayAlgorithm
    from penstock.algorithms.bases.segment import SegmentAlgorithm
    from penstock.config import AsynchronousConfig, MixtureConfig, PrioritizedReplayConfig, ReplayConfig, SegmentConfig
    from penstock.engine.faces import (
        A2C,
        A3C,
        APPO,
        BTR,
        CLEAR,
        DDPG,
        DQN,
        IMPACT,
        IMPALA,
        LASER,
        PPO,
        PQN,
        R2D2,
        SAC,
        TD3,
        TQC,
        XQC,
        ApeX,
        ApeXDPG,
        CrossQ,
        FastTD3,
        FlashSAC,
        Rainbow,
    )
    from penstock.engine.inspection import inspect
    from penstock.engine.trainer import Trainer
    from penstock.envs import make_env
    from penstock.play.policy import Policy, load_policy
    from penstock.population.schedule import load_schedule

    __version__: str

__all__ = [
    "A2C",
    "A3C",
    "APPO",
    "BTR",
    "CLEAR",
    "DDPG",
    "DQN",
    "IMPACT",
    "IMPALA",
    "LASER",
    "PPO",
    "PQN",
    "R2D2",
    "SAC",
    "TD3",
    "TQC",
    "XQC",
    "ApeX",
    "ApeXDPG",
    "AsynchronousConfig",
    "CrossQ",
    "FastTD3",
    "FlashSAC",
    "MixtureConfig",
    "Policy",
    "PrioritizedReplayConfig",
    "Rainbow",
    "ReplayAlgorithm",
    "ReplayConfig",
    "SegmentAlgorithm",
    "SegmentConfig",
    "Trainer",
    "__version__",
    "inspect",
    "load_policy",
    "load_schedule",
    "make_env",
    "replay",
]

_HOMES = {
    "AsynchronousConfig": "penstock.config",
    "MixtureConfig": "penstock.config",
    "Policy": "penstock.play.policy",
    "PrioritizedReplayConfig": "penstock.config",
    "ReplayAlgorithm": "penstock.algorithms.bases.replay",
    "ReplayConfig": "penstock.config",
    "SegmentAlgorithm": "penstock.algorithms.bases.segment",
    "SegmentConfig": "penstock.config",
    "Trainer": "penstock.engine.trainer",
    "inspect": "penstock.engine.inspection",
    "load_policy": "penstock.play.policy",
    "load_schedule": "penstock.population.schedule",
    "make_env": "penstock.envs",
}  # all other names: penstock.engine.faces


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return importlib.import_module("importlib.metadata").version("penstock")
    if name == "replay":
        return importlib.import_module("penstock.replay")
    if name not in __all__:
        plain = name.lower().replace("_", "")
        meant = next((known for known in __all__ if known.lower().replace("_", "") == plain), None)
        hint = f"; did you mean {meant!r}?" if meant else ""
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}{hint}")
    home = _HOMES.get(name, "penstock.engine.faces")
    if threading.current_thread() is not threading.main_thread():
        return getattr(importlib.import_module(home), name)
    # Delay Ctrl-C: after an interrupted import of torch, the next one crashes the process.
    interrupts: list[Any] = []
    before = signal.signal(signal.SIGINT, lambda *interrupt: interrupts.append(interrupt))
    try:
        found = getattr(importlib.import_module(home), name)
    finally:
        signal.signal(signal.SIGINT, signal.SIG_DFL if before is None else before)
    if interrupts and callable(before):
        before(*interrupts[0])
    return found


def __dir__() -> list[str]:
    return __all__


if importlib.util.find_spec("penstock._native") is None:
    raise ImportError(importlib.import_module("penstock.imports").why_not_built())
if os.path.isfile(_HERE := os.path.join("penstock", "__init__.py")) and not os.path.samefile(_HERE, __file__):
    warnings.warn(
        f"penstock is imported from {os.path.dirname(__file__)}, not from the source tree in this folder; to use the "
        "tree: pip install -e .", stacklevel=2,
    )  # fmt: skip
