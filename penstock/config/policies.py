"""Several policies in one run: the agents and the settings of each."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from penstock.config.base import Config
from penstock.config.checking import ConfigError, closest, find_object
from penstock.config.making import make_config
from penstock.self_play import settings as self_play

AGENTS = "agents"
"""Key of a policy's settings: patterns of its agents' names."""
OF_THE_RUN = (
    "env", "env_kwargs", "vectorize", "on_env_error", "num_workers", "pin_workers", "num_envs_per_worker", "num_groups",
    "num_agents",
    "num_policies", "policies", "policy_of", "seats", "inference", "backend", "address", "nodes", "nodes_per_gateway",
    "node_weights", "evaluator", "num_evaluators", "num_learners", "learner_nodes", "device", "seed", "total_steps",
    "max_seconds",
    "opponents", "opponent_pool", "opponent_interval", "opponent_share", "opponent_sampling", "eval_against",
    "pbt", "pbt_space", "pbt_interval", "pbt_start", "pbt_fraction", "pbt_metric", "pbt_episodes",
    "schedule", "schedule_policy",
    "eval_interval", "eval_episodes", "eval_exploration", "eval_max_steps", "eval_videos", "checkpoint_interval",
    "keep_checkpoints", "run_dir", "upload_timeout",
)  # fmt: skip
"""Settings shared by all policies of a run."""


class PolicyConfig(NamedTuple):
    """One policy's part of a run."""

    name: str
    """Name of the policy; empty in a run of one policy."""
    agents: tuple[str, ...]
    """Agents of the policy; empty in environments with one agent, where it has its own environments."""
    config: Config
    """Settings of the policy; ``total_steps`` is its share of the run's."""


def policy_configs(config: Config, agents: Sequence[str]) -> list[PolicyConfig]:
    """Return a run's policies.

    Parameters
    ----------
    config
        Settings of the run.
    agents
        Names of the environment's agents; empty if it has only one.

    Raises
    ------
    ConfigError
        A pattern matches no agent; an agent has no policy, or two; a policy's setting is unknown, illegal, or belongs
        to the whole run; or there are too many policies for the agents or environments.
    """
    found = tuple(agents)
    if unnamed := [name for name in config.policies if not isinstance(name, str) or not name]:
        raise ConfigError(f"policies: {unnamed[0]!r} is not legal as the name of a policy: give text that is not empty")
    if config.seats == "shuffled" and (len(found) < 2 or len(config.policy_names) < 2):
        raise ConfigError(
            "seats='shuffled' exchanges agents between policies from game to game, and "
            + ("the environment has one agent" if len(found) < 2 else "one policy plays all agents")
            + ": leave it out; opponents='past' draws seats in any case"
        )
    if not config.policies and config.num_policies == 1:
        if config.policy_of is not None:
            raise ConfigError("policy_of assigns agents to policies, but there is one: give num_policies or policies")
        own = dataclasses.replace(config, num_agents=len(found), num_groups=_num_groups(config)) if found else config
        return [PolicyConfig("", found, own)]
    if config.policies and config.num_policies not in (1, len(config.policies)):
        raise ConfigError(
            f"num_policies={config.num_policies} contradicts policies={list(config.policies)}: give only one of them"
        )
    if not found:
        return _population(config)
    played = agents_by_policy(config, found)
    envs = {name: self_play.envs_of(config, name) for name in played}
    lanes = {name: envs[name] * len(its) for name, its in played.items()}
    shares = {
        name: {
            "num_agents": len(played[name]), "num_envs_per_worker": envs[name], "num_groups": _num_groups(config),
            "total_steps": max(1, round(config.total_steps * lanes[name] / sum(lanes.values()))),
        } for name in played
    }  # fmt: skip
    return [PolicyConfig(name, its, _with_own(config, name, config.policies.get(name, {}), shares[name]))
            for name, its in played.items()]  # fmt: skip


def agents_by_policy(config: Config, agents: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return the agents that each policy plays in an environment with several; parameters as for `policy_configs`.

    Raises
    ------
    ConfigError
        A pattern matches no agent; an agent has no policy, or two; or there are more policies than agents.
    """
    found = tuple(agents)
    if config.num_policies > len(found) and config.policy_of is None:
        raise ConfigError(
            f"num_policies={config.num_policies} is more than the {len(found)} agents of the environment: "
            f"{', '.join(found)}"
        )
    settings = config.policies or {
        str(number): {AGENTS: list(found[number :: config.num_policies])} for number in range(config.num_policies)
    }
    if config.policy_of is not None:
        settings = _played_by(config, found)
    played = {name: _agents_of(name, each, found) for name, each in settings.items()}
    for agent in found:
        of = [name for name, theirs in played.items() if agent in theirs]
        if len(of) != 1:
            what = "no policy plays it" if not of else f"the policies {' and '.join(of)} play it"
            raise ConfigError(
                f"policies: agent {agent!r} needs one policy, and {what}; the agents are {', '.join(found)}"
            )
    return played


def _num_groups(config: Config) -> int | None:
    """Number of groups for all policies; None: one, or two if both would have the same games."""
    return config.num_groups or (None if self_play.splits_in_two(config) else 1)


def _population(config: Config) -> list[PolicyConfig]:
    """Return policies of one-agent environments, each with an equal share of every worker's environments.

    Each has its own seed, for different initial weights.
    """
    names, size = config.policy_names, config.num_envs_per_worker
    if AGENTS in (key for own in config.policies.values() if isinstance(own, Mapping) for key in own):
        raise ConfigError(f"policies: {AGENTS} are given, but the environment has one agent: leave {AGENTS} out")
    if config.policy_of is not None:
        of_env = [_called(config.policy_of, "", env, names) for env in range(size)]
        if without := [name for name in names if name not in of_env]:
            raise ConfigError(
                f"policy_of gives the policy {without[0]!r} none of the {size} environments of a worker: every policy "
                "needs one or more"
            )
    elif size % len(names):
        legal = [count for count in (size // len(names) * len(names), (size // len(names) + 1) * len(names)) if count]
        raise ConfigError(
            f"num_envs_per_worker={size} cannot be shared among {len(names)} policies, which play equally many "
            f"environments of a worker: use {' or '.join(map(str, legal))}"
        )
    else:
        of_env = [names[env % len(names)] for env in range(size)]
    made = []
    for number, name in enumerate(names):
        own, count = config.policies.get(name, {}), of_env.count(name)
        share = {
            "num_envs_per_worker": count, "total_steps": max(1, round(config.total_steps * count / size)),
            "seed": config.seed + number,
        }  # fmt: skip
        made.append(PolicyConfig(name, (), _with_own(config, name, own, share)))
    return made


def _played_by(config: Config, agents: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return each policy's settings, with the agents that `policy_of` assigns to it."""
    names, played = config.policy_names, dict[str, list[str]]()
    if AGENTS in (key for own in config.policies.values() if isinstance(own, Mapping) for key in own):
        raise ConfigError(f"policy_of and {AGENTS} both assign agents to policies: give only one of them")
    for agent in agents:
        of = [_called(config.policy_of, agent, env, names) for env in range(config.num_envs_per_worker)]
        if len(set(of)) > 1:
            raise ConfigError(
                f"policy_of gives agent {agent!r} to {of[0]!r} in environment 0 and to others elsewhere: if several "
                "agents play together, the policy must depend on the agent alone"
            )
        played.setdefault(of[0], []).append(agent)
    if without := [name for name in names if name not in played]:
        raise ConfigError(f"policy_of gives the policy {without[0]!r} no agent: every policy needs one or more")
    return {name: {**config.policies.get(name, {}), AGENTS: played[name]} for name in names}


def _called(policy_of: Any, agent: str, env: int, names: Sequence[str]) -> str:
    """Return the policy of an agent in an environment of a worker."""
    function = find_object(policy_of, "policy_of") if isinstance(policy_of, str) else policy_of
    found = function(agent, env)
    name = str(found) if isinstance(found, int) else found
    if name not in names:
        near = closest(name, list(names)) if isinstance(name, str) else ""
        raise ConfigError(
            f"policy_of({agent!r}, {env}) returned {found!r}, which is no policy{near}; the policies are "
            f"{', '.join(names)}"
        )
    return str(name)


def _agents_of(name: str, settings: Mapping[str, Any], agents: tuple[str, ...]) -> tuple[str, ...]:
    if not isinstance(settings, Mapping):
        raise ConfigError(
            f"policies[{name!r}]={settings!r} is not legal: give its settings by name, such as {{'agents': 'red_*'}}; "
            f"on the command line {name}='{{\"agents\": \"red_*\"}}'"
        )
    given = settings.get(AGENTS)
    patterns = [given] if isinstance(given, str) else given
    if not patterns or not all(isinstance(pattern, str) for pattern in patterns):
        raise ConfigError(
            f"policies[{name!r}]: {AGENTS}={given!r} is not legal: give a pattern such as 'adversary_*', or several"
        )
    # A name that holds wildcards stands for itself, too.
    matched = {each: [agent for agent in agents if agent == each or fnmatchcase(agent, each)] for each in patterns}
    for pattern, found in matched.items():
        if not found:
            raise ConfigError(
                f"policies[{name!r}]: no agent matches {pattern!r}{closest(pattern, list(agents))}; the agents are "
                f"{', '.join(agents)}"
            )
    return tuple(agent for agent in agents if any(agent in found for found in matched.values()))


def _with_own(config: Config, name: str, settings: Any, share: Mapping[str, Any]) -> Config:
    """Return the settings of a policy: the run's, its share of shared ones, and its own."""
    if not isinstance(settings, Mapping):
        raise ConfigError(f"policies[{name!r}]={settings!r} is not legal: give its settings by name, or {{}}")
    own = {key: value for key, value in settings.items() if key != AGENTS}
    if shared := sorted(own.keys() & set(OF_THE_RUN)):
        raise ConfigError(f"policies[{name!r}]: {', '.join(shared)} belongs to the whole run: give it outside policies")
    values = {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}
    try:
        return make_config(type(config), {**values, **share, **own})
    except ConfigError as error:
        raise ConfigError(f"policies[{name!r}]: {error}") from error
