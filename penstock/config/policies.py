"""Several policies in one run: which agents are whose, and with which settings each learns."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from penstock.config.base import Config
from penstock.config.checking import ConfigError, closest
from penstock.config.making import make_config

AGENTS = "agents"
"""Key of a policy's settings: patterns of the agents that it plays."""
OF_THE_RUN = (
    "env", "env_kwargs", "vectorize", "on_env_error", "num_workers", "num_envs_per_worker", "num_groups", "num_agents",
    "num_policies", "policies", "inference", "backend", "address", "nodes", "device", "seed", "total_steps",
    "max_seconds", "eval_interval", "eval_episodes", "eval_exploration", "eval_max_steps", "checkpoint_interval",
    "keep_checkpoints", "run_dir",
)  # fmt: skip
"""Settings that all policies of a run share."""


class PolicyConfig(NamedTuple):
    """One policy's part of a run."""

    name: str
    """Nothing where a run has one policy."""
    agents: tuple[str, ...]
    """Agents that it plays; empty where the environment has one."""
    config: Config
    """Its settings; ``total_steps`` is its share of the run's."""


def policy_configs(config: Config, agents: Sequence[str]) -> list[PolicyConfig]:
    """Return a run's policies.

    Parameters
    ----------
    config
        Settings of the run.
    agents
        Names of the environment's agents; empty where it has one.

    Raises
    ------
    ConfigError
        A pattern matches no agent, an agent is nobody's or two policies', a policy's setting is unknown, not legal, or
        of the whole run, or there are more policies than agents.
    """
    found = tuple(agents)
    if not config.policies and config.num_policies == 1:
        return [PolicyConfig("", found, dataclasses.replace(config, num_agents=len(found)) if found else config)]
    if not found:
        raise ConfigError(
            f"{'policies' if config.policies else 'num_policies'}: the environment has one agent, and several policies "
            "need several: use an environment of several agents, or one policy"
        )
    if config.policies and config.num_policies not in (1, len(config.policies)):
        raise ConfigError(
            f"num_policies={config.num_policies} and policies={list(config.policies)} say different things: give one"
        )
    if config.num_policies > len(found):
        raise ConfigError(
            f"num_policies={config.num_policies} is more than the {len(found)} agents of the environment: "
            f"{', '.join(found)}"
        )
    settings = config.policies or {
        str(number): {AGENTS: list(found[number :: config.num_policies])} for number in range(config.num_policies)
    }
    played = {name: _agents_of(name, each, found) for name, each in settings.items()}
    for agent in found:
        of = [name for name, theirs in played.items() if agent in theirs]
        if len(of) != 1:
            what = "no policy plays it" if not of else f"the policies {' and '.join(of)} play it"
            raise ConfigError(
                f"policies: agent {agent!r} needs one policy, and {what}; the agents are {', '.join(found)}"
            )
    return [PolicyConfig(name, played[name], _config_of(config, name, each, len(played[name]), len(found)))
            for name, each in settings.items()]  # fmt: skip


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
    for pattern in patterns:
        if not any(fnmatchcase(agent, pattern) for agent in agents):
            raise ConfigError(
                f"policies[{name!r}]: no agent matches {pattern!r}{closest(pattern, list(agents))}; the agents are "
                f"{', '.join(agents)}"
            )
    return tuple(agent for agent in agents if any(fnmatchcase(agent, pattern) for pattern in patterns))


def _config_of(config: Config, name: str, settings: Mapping[str, Any], num_agents: int, of: int) -> Config:
    own = {key: value for key, value in settings.items() if key != AGENTS}
    if shared := sorted(own.keys() & set(OF_THE_RUN)):
        raise ConfigError(f"policies[{name!r}]: {', '.join(shared)} is of the whole run: give it beside policies")
    values = {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}
    values |= {"num_agents": num_agents, "total_steps": max(1, round(config.total_steps * num_agents / of))}
    try:
        return make_config(type(config), {**values, **own})
    except ConfigError as error:
        raise ConfigError(f"policies[{name!r}]: {error}") from error
