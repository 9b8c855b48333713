"""Refusals of environments: the reason why one cannot be trained on or made, and the remedy."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec as RegisteredEnv
from gymnasium.envs.registration import load_env_creator
from gymnasium.vector import VectorEnv

from penstock.envs.factories import legal_instead
from penstock.envs.failures import EnvironmentUsageError, UnknownEnvironmentError, UnsupportedSpaceError
from penstock.extras import extra_with, install_command

_RESET = "reset(self, *, seed=None, options=None) returns (observation, info)"
_STEP = "step(self, action) returns (observation, reward, terminated, truncated, info)"


def require_single(env: Any) -> None:
    """Raise `EnvironmentUsageError` unless `env` is a Gymnasium environment of one agent."""
    if agents := several_agents(env):
        raise UnsupportedSpaceError(f"found {agents}")
    if isinstance(env, VectorEnv):
        raise EnvironmentUsageError(
            f"found the vector environment {type(env).__name__}: pass vectorize='vector' to use one"
        )
    if not isinstance(env, gymnasium.Env):
        raise EnvironmentUsageError(_why_no_environment(env))
    _require_spaces(env, "observation_space", "action_space")
    for each in (env, env.unwrapped):
        if not _takes_seed(each.reset):
            raise EnvironmentUsageError(
                f"{type(each).__name__}.reset{inspect.signature(each.reset)} takes no seed, as in old Gym. In "
                f"Gymnasium {_RESET}, and {_STEP}"
            )


def require_vector(env: Any, num_envs: int) -> None:
    """Raise `EnvironmentUsageError` unless `env` is a vector environment of `num_envs` lanes."""
    if not isinstance(env, VectorEnv):
        raise EnvironmentUsageError(
            f"vectorize='vector' expects a gymnasium.vector.VectorEnv, found {_kind(env)}: use vectorize='make' for "
            "single environments"
        )
    if getattr(env, "num_envs", None) != num_envs:
        found = getattr(env, "num_envs", None)
        raise EnvironmentUsageError(f"expected a vector environment with num_envs={num_envs}, found num_envs={found}")
    _require_spaces(env, "single_observation_space", "single_action_space")


def several_agents(env: Any) -> str:
    """Return a hint about an environment of several agents that `games` does not recognise; "" for one agent.

    An environment with a list of agents still counts as one agent's if it has a single observation space and a single
    action space. PettingZoo is not imported.
    """
    agents = _agents(env)
    observation, action = _of(env, "observation_space"), _of(env, "action_space")
    if not (agents or callable(action) or isinstance(_of(env, "action_spaces"), dict)):
        return ""
    keys = getattr(action, "spaces", None)
    is_dict_by_agent = isinstance(keys, dict) and bool(agents) and set(keys) <= set(agents)
    # PettingZoo's spaces are methods, or dicts, by agent.
    are_single = not any(each is None or callable(each) or isinstance(each, dict) for each in (observation, action))
    if are_single and not is_dict_by_agent:
        return ""
    shown = f" ({', '.join(map(str, agents[:3]))}{', ...' if len(agents) > 3 else ''})" if agents else ""
    return (
        f"an environment of several agents{shown} of an unknown kind: legal are PettingZoo's ParallelEnv and "
        "AECEnv with possible_agents, and environments of lists (see docs/guides/several-agents.md)"
    )


def explained(error: BaseException, source: Any, kwargs: Mapping[str, Any]) -> EnvironmentUsageError | None:
    """Return a refusal that explains an error in making an environment; None if its traceback is needed.

    Parameters
    ----------
    error
        The exception.
    source, kwargs
        Registered spec or callable, and its arguments.
    """
    causes = _causes(error)
    for cause in causes:
        if isinstance(cause, ModuleNotFoundError) and cause.name and (extra := extra_with(cause.name)):
            return UnknownEnvironmentError(needs(cause.name.partition(".")[0], extra))
    maker = _maker(source)
    if isinstance(error, ImportError) and isinstance(source, RegisteredEnv) and _is_of_gymnasium(maker):
        versions = [each for each in gymnasium.registry.values() if each.name == source.name]
        newest = max(versions, key=lambda each: each.version or 0)
        hint = f" Newest of its kind: {newest.id!r}" if newest.id != source.id else ""
        return UnknownEnvironmentError(" ".join(str(error).split()) + hint)
    for cause in causes:
        found = re.search(r"got an unexpected keyword argument '(\w+)'", str(cause))
        if isinstance(cause, TypeError) and found and found[1] in kwargs:
            instead = legal_instead(found[1], _parameters(maker))
            return EnvironmentUsageError(f"env_kwargs: {found[1]!r} is not an argument of it{instead}")
    return None


def needs(package: str, extra: str) -> str:
    """Return the message for a missing package of an extra."""
    return f"it needs the package {package}, which is not installed: {install_command(extra)}"


def _why_no_environment(env: Any) -> str:
    if not (callable(getattr(env, "reset", None)) and callable(getattr(env, "step", None))):
        return f"expected a gymnasium.Env, found {_kind(env)}: a factory returns a new environment each time"
    is_old = any(base.__module__.partition(".")[0] == "gym" for base in type(env).__mro__)
    old = ", an environment of old Gym" if is_old else ""
    advice = f"derive it from gymnasium.Env, where {_RESET}, and {_STEP}"
    return f"expected a gymnasium.Env, found {_kind(env)}{old}: {advice}"


def _agents(env: Any) -> list[str | int]:
    """Return the names of the environment's agents, if they have names."""
    for name in ("possible_agents", "agents"):
        agents = _of(env, name)
        if isinstance(agents, list | tuple | set | dict) and agents:
            return [agent for agent in agents if isinstance(agent, str | int)]
    return []


def _of(env: Any, name: str) -> Any:
    try:
        return getattr(env, name, None)
    except Exception:  # a property that raises counts as missing
        return None


def _require_spaces(env: Any, *names: str) -> None:
    for name in names:
        if getattr(env, name, None) is None:
            example = "Discrete(2)" if "action" in name else "Box(-1.0, 1.0, (4,))"
            raise UnsupportedSpaceError(
                f"{type(env.unwrapped).__name__} has no {name}: set it in __init__, e.g. "
                f"self.{name} = gymnasium.spaces.{example}"
            )


def _parameters(maker: Any) -> list[str]:
    """Return the argument names of a class or function; for a class, also those passed on to its bases."""
    makers = maker.__mro__[:-1] if inspect.isclass(maker) else [maker]
    names: dict[str, None] = {}
    for each in makers:
        try:
            parameters = list(inspect.signature(each).parameters.values())
        except (TypeError, ValueError):
            continue
        kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
        names |= dict.fromkeys(one.name for one in parameters if one.kind in kinds)
        if not any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters):
            break
    return list(names)


def _maker(source: Any) -> Any:
    if not isinstance(source, RegisteredEnv):
        return source
    try:
        return load_env_creator(source.entry_point) if isinstance(source.entry_point, str) else source.entry_point
    except Exception:  # the class cannot be loaded: its entry point names it
        return source.entry_point


def _is_of_gymnasium(maker: Any) -> bool:
    place = maker if isinstance(maker, str) else getattr(maker, "__module__", "")
    return place.partition(":")[0].partition(".")[0] == "gymnasium"


def _takes_seed(reset: Callable[..., Any]) -> bool:
    try:
        inspect.signature(reset).bind(seed=0)
    except TypeError:
        return False
    except ValueError:  # written in C, without a signature
        return True
    return True


def _causes(error: BaseException) -> list[BaseException]:
    """Return an exception and its causes, the outermost first."""
    causes = [error]
    while (cause := causes[-1].__cause__ or causes[-1].__context__) is not None and cause not in causes:
        causes.append(cause)
    return causes


def _kind(value: Any) -> str:
    word = type(value).__name__
    return f"{'an' if word[:1].lower() in 'aeiou' else 'a'} {word}" if value is not None else "None"
