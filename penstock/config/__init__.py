"""Settings: frozen dataclasses, validated when they are made.

A field is defined once, here or in its algorithm's file. It is a keyword argument in Python, a flag on the command
line (its docstring is the flag's help) and a key of ``config.json`` in the run directory.
"""

from penstock.config.base import NETWORK, STATE, STORED, Config
from penstock.config.checking import ConfigError, Tunable, checked, closest, find_object, read_toml, require
from penstock.config.features import FEATURES, DelayedRewardConfig, Feature, SegmentDelayedRewardConfig, grouped
from penstock.config.foreign_names import method_hint
from penstock.config.making import PRESETS, change_config, load_preset, make_config, restored_config, setting_hint
from penstock.config.policies import PolicyConfig, agents_by_policy, policy_configs
from penstock.config.replay import PrioritizedReplayConfig, ReplayConfig
from penstock.config.saved import require_no_secrets, saved, whole_arguments
from penstock.config.schedules import Schedule, Scheduled, value_at
from penstock.config.segment import (
    AsynchronousConfig,
    FreshConfig,
    MixtureConfig,
    SegmentConfig,
    require_whole_minibatches,
    require_whole_segments,
)
from penstock.config.sources import Source
from penstock.config.tunable import require_tunable, tunable_settings, tunable_values, tuned

__all__ = [
    "FEATURES",
    "NETWORK",
    "PRESETS",
    "STATE",
    "STORED",
    "AsynchronousConfig",
    "Config",
    "ConfigError",
    "DelayedRewardConfig",
    "Feature",
    "FreshConfig",
    "MixtureConfig",
    "PolicyConfig",
    "PrioritizedReplayConfig",
    "ReplayConfig",
    "Schedule",
    "Scheduled",
    "SegmentConfig",
    "SegmentDelayedRewardConfig",
    "Source",
    "Tunable",
    "agents_by_policy",
    "change_config",
    "checked",
    "closest",
    "find_object",
    "grouped",
    "load_preset",
    "make_config",
    "method_hint",
    "policy_configs",
    "read_toml",
    "require",
    "require_no_secrets",
    "require_tunable",
    "require_whole_minibatches",
    "require_whole_segments",
    "restored_config",
    "saved",
    "setting_hint",
    "tunable_settings",
    "tunable_values",
    "tuned",
    "value_at",
    "whole_arguments",
]
