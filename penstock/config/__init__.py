"""Settings: frozen dataclasses, validated when they are made.

A field is defined once, here or in its algorithm's file. It is a keyword argument in Python, a flag on the command
line (its docstring is the flag's help) and a key of ``config.json`` in the run directory.
"""

from penstock.config.base import NETWORK, STATE, STORED, Config
from penstock.config.checking import ConfigError, closest, require
from penstock.config.making import PRESETS, cannot_change, change_config, find_object, load_preset, make_config
from penstock.config.replay import ReplayConfig
from penstock.config.segment import AsynchronousConfig, SegmentConfig, require_whole_segments

__all__ = [
    "NETWORK",
    "PRESETS",
    "STATE",
    "STORED",
    "AsynchronousConfig",
    "Config",
    "ConfigError",
    "ReplayConfig",
    "SegmentConfig",
    "cannot_change",
    "change_config",
    "closest",
    "find_object",
    "load_preset",
    "make_config",
    "require",
    "require_whole_segments",
]
