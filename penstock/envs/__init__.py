"""Environments of every kind behind one contract: lanes that step together.

Importing this package is cheap: Gymnasium is loaded when an environment is resolved or made.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from penstock.envs.failures import EnvironmentFailure, UnknownEnvironmentError, UnsupportedSpaceError
from penstock.envs.lanes import EpisodeRecord, Lanes
from penstock.envs.spaces import ActionSpec, ObservationSpec

if TYPE_CHECKING:
    from penstock.envs.making import lane_seed, make_env, make_lanes, probe
    from penstock.envs.spec import EnvSpec

__all__ = [
    "ActionSpec",
    "EnvSpec",
    "EnvironmentFailure",
    "EpisodeRecord",
    "Lanes",
    "ObservationSpec",
    "UnknownEnvironmentError",
    "UnsupportedSpaceError",
    "lane_seed",
    "make_env",
    "make_lanes",
    "probe",
]

_NEEDS_GYMNASIUM = {
    "EnvSpec": "penstock.envs.spec",
    "lane_seed": "penstock.envs.making",
    "make_env": "penstock.envs.making",
    "make_lanes": "penstock.envs.making",
    "probe": "penstock.envs.making",
}


def __getattr__(name: str) -> Any:
    if name in _NEEDS_GYMNASIUM:
        return getattr(importlib.import_module(_NEEDS_GYMNASIUM[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
