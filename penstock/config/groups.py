"""Groups of settings, as shown by ``--help`` and in the signatures that editors complete."""

from __future__ import annotations

import dataclasses

from penstock.config.features import FEATURES

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
        "num_groups", "inference", "backend", "address", "nodes", "evaluator", "num_learners", "learner_nodes",
        "precision",
    },
    "network": {
        "encoder", "hidden_sizes", "activation", "shared_encoder", "memory", "memory_size", "memory_span",
        "normalize_observations", "dueling", "distributional", "num_atoms", "v_min", "v_max", "num_quantiles",
        "noisy", "noisy_sigma",
    },
    **{feature.group: set(feature.settings) for feature in FEATURES},
    LEARNING: set[str](),  # whatever is in no other, an algorithm's own settings first of all
    "budget and run": {
        "max_seconds", "eval_interval", "eval_episodes", "eval_exploration", "eval_max_steps", "checkpoint_interval",
        "keep_checkpoints", "save_replay",
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
