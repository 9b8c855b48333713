"""Features (parts of a run that settings turn on, each in its own package), and the groups of all settings."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping
from typing import Protocol

from penstock.rudder.settings import RUDDER, DelayedRewardConfig, SegmentDelayedRewardConfig

__all__ = ["FEATURES", "DelayedRewardConfig", "Feature", "SegmentDelayedRewardConfig", "group_of", "grouped"]


class Feature(Protocol):
    """Hooks of a feature: plain data, with places of code as "module:object", so that nothing is imported too early.

    What a feature does in a run follows from the settings that turn it on (`Config.data_path_for`,
    `FreshConfig.further_records`, `FreshConfig.target_changes`) and from its data paths, which add roles, writers,
    learners, and memory to the arena (`PathMemory`).
    """

    group: str
    """Title of the settings in ``--help`` and signatures."""
    settings: tuple[str, ...]
    """Names of the settings."""
    data_paths: Mapping[str, str]
    """Places of data paths, by the names that algorithms use."""
    transports: Mapping[str, str]
    """Places of transports between nodes, by the places of data paths."""
    modules: tuple[str, ...]
    """Modules that roles need, imported once before roles are forked."""
    roles: Mapping[str, tuple[str, ...]]
    """Activities of each kind of role that the feature adds; a policy has one of each kind, or none."""
    activities: tuple[str, ...]
    """Activities that the feature adds to rollout workers."""
    metrics: str
    """Prefix of the feature's metrics."""
    explain: str
    """Place of the function that plots what the feature did in an episode, as ``penstock eval --explain``."""

    def hint(self, setting: str, known: Collection[str]) -> str | None:
        """Return the hint for a setting that an algorithm lacks; None: it is no setting of this feature."""
        ...

    def rows(self, metrics: Mapping[str, float], shown: Callable[[float], str]) -> list[tuple[str, str]]:
        """Return rows of the live view from metrics named without the prefix, with numbers formatted by `shown`."""
        ...


FEATURES: tuple[Feature, ...] = (RUDDER,)
"""All features."""

MOST_USED, LEARNING = "most used", "learning"

_GROUPS = {
    MOST_USED: {
        "env", "total_steps", "target_return", "num_workers", "num_envs_per_worker", "learning_rate", "device", "seed",
        "run_dir",
    },
    "environment": {"env_kwargs", "vectorize", "on_env_error", "reward_scale", "reward_clip"},
    "several agents": {
        "num_agents", "num_policies", "policies", "policy_of", "team_reward", "seats", "opponents", "opponent_pool",
        "opponent_interval", "opponent_share", "opponent_sampling", "eval_against",
    },
    "population": {
        "pbt", "pbt_space", "pbt_interval", "pbt_start", "pbt_fraction", "pbt_metric", "pbt_episodes",
        "schedule", "schedule_policy",
    },
    "machine": {
        "pin_workers", "num_groups", "inference", "backend", "address", "nodes", "nodes_per_gateway", "node_weights",
        "evaluator", "num_evaluators", "num_learners", "learner_nodes", "precision",
    },
    "network": {
        "encoder", "hidden_sizes", "activation", "shared_encoder", "memory", "memory_size", "memory_span",
        "continuous_actions", "initial_log_std", "log_std_lr_scale",
        "normalize_observations", "dueling", "distributional", "num_atoms", "v_min", "v_max", "num_quantiles",
        "num_acting_quantiles", "noisy", "noisy_sigma", "resnet_width", "resnet_pool", "spectral_norm", "network",
        "normalization", "unit_weights", "critic_hidden_sizes",
    },
    **{feature.group: set(feature.settings) for feature in FEATURES},
    LEARNING: set[str](),  # every other setting
    "budget and run": {
        "max_seconds", "eval_interval", "eval_episodes", "eval_exploration", "eval_max_steps", "eval_videos",
        "checkpoint_interval",
        "keep_checkpoints", "save_replay", "upload_timeout",
    },
}  # fmt: skip


def group_of(setting: str) -> str:
    """Return the group of a setting."""
    return next((group for group, settings in _GROUPS.items() if setting in settings), LEARNING)


def grouped(config_class: type) -> dict[str, list[dataclasses.Field[object]]]:
    """Return the fields of a config class by group, in the order of display."""
    groups: dict[str, list[dataclasses.Field[object]]] = {group: [] for group in _GROUPS}
    for field in dataclasses.fields(config_class):
        groups[group_of(field.name)].append(field)
    return groups
