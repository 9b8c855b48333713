"""Detection of environments that are already made, where a constructor is expected.

They, and environments of several agents, are recognised by their attributes, without importing Gymnasium or PettingZoo,
so that reading settings needs neither.
"""

from __future__ import annotations

from typing import Any


def made_hint(env: Any) -> str:
    """Return a hint about an environment that is already made; "" if it is not."""
    if isinstance(env, str | type) or not (hasattr(env, "step") and hasattr(env, "reset")):
        return ""
    name = getattr(getattr(env, "spec", None), "id", None)
    if hasattr(env, "num_envs"):
        maker = f'gym.make_vec("{name}", num_envs=num_envs)' if name else f"{type(env).__name__}(num_envs)"
        ways = f'env=lambda num_envs: {maker}, vectorize="vector"'
    else:
        ways = f'env=lambda: gym.make("{name}"), or env="{name}"' if name else f"env=lambda: {type(env).__name__}(...)"
    return f"env={env!r} is already made, but every lane makes its own environment: give a constructor, {ways}"


def several_agents(env: Any) -> str:
    """Return a hint about an environment of several agents that `games` does not recognise; "" for one agent.

    An environment with a list of agents still counts as one agent's if it has a single observation space and a single
    action space.
    """
    agents = _agents(env)
    observation, action = (_of(env, name) for name in ("observation_space", "action_space"))
    if not (agents or callable(action) or isinstance(_of(env, "action_spaces"), dict)):
        return ""
    if all(_is_space(space) for space in (observation, action)) and not _is_by(action, agents):
        return ""
    shown = f" ({', '.join(map(str, agents[:3]))}{', ...' if len(agents) > 3 else ''})" if agents else ""
    return (
        f"an environment of several agents{shown} of an unknown kind: legal are PettingZoo's ParallelEnv and "
        "AECEnv with possible_agents, and environments of lists (see docs/environments.md)"
    )


def _agents(env: Any) -> list[str | int]:
    """Return the names of the environment's agents, if they have names."""
    for name in ("possible_agents", "agents"):
        agents = _of(env, name)
        if isinstance(agents, list | tuple | set | dict) and agents:
            return [agent for agent in agents if isinstance(agent, str | int)]
    return []


def _is_space(space: Any) -> bool:
    """Return whether it is a single space; PettingZoo's are a method or a dict, by agent."""
    return not (space is None or callable(space) or isinstance(space, dict))


def _is_by(space: Any, agents: list[str | int]) -> bool:
    """Return whether a Dict space has a space for each agent."""
    keys = getattr(space, "spaces", None)
    return isinstance(keys, dict) and bool(agents) and set(keys) <= set(agents)


def _of(env: Any, name: str) -> Any:
    try:
        return getattr(env, name, None)
    except Exception:  # a property that raises counts as missing
        return None
