"""Arguments of environments: the user's own, their checks, and those that a factory requests by parameter name.

=================  ====================================================================================================
parameter          value
=================  ====================================================================================================
``worker_index``   number of the rollout worker, from 0; `EVALUATOR` in the evaluator, `OUTSIDE` for environments made
                   to read their spaces, to score a policy or to film it
``lane``           number of the environment among all lanes of the run, from 0; from a million on for lanes without
                   learning; for a vector environment that of its first lane
``seed``           seed of the first reset, in [0, 2^31), different for each lane and after each restart; for a vector
                   environment that of its first lane
``num_envs``       lanes of the group, which a vector environment must have; not passed to single environments
=================  ====================================================================================================

- Arguments in ``env_kwargs``, or bound by `functools.partial`, are never replaced.
- A function receives each value whose name is one of its parameters; so does a class of vector environments.
- A class of single environments receives a value only if the parameter has no default: ``seed=0`` may name a level and
  ``lane=2`` a lane of a road.
- ``**kwargs`` request nothing. A registered id receives nothing.
"""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

EVALUATOR, OUTSIDE = -1, -2  # worker_index where no rollout worker makes the environment
REQUESTABLE = ("worker_index", "lane", "seed")

Vectorize = Literal["make", "vector"]


def requested(source: Callable[..., Any], env_kwargs: Mapping[str, Any], values: Mapping[str, int]) -> dict[str, Any]:
    """Return the arguments to call a factory with: the user's, and those of `values` that it requests.

    Parameters
    ----------
    source
        The factory.
    env_kwargs
        The user's arguments.
    values
        Available values; "num_envs" among them marks a factory of vector environments, and is always passed.
    """
    parameters = _parameters(source)
    maker, bound = _unwrapped(source)
    is_vector = "num_envs" in values
    keeps_defaults = inspect.isclass(maker) and not is_vector
    asked = {
        name: values[name]
        for name, parameter in parameters.items()
        if name in values
        and name not in bound
        and parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
        and not (keeps_defaults and parameter.default is not parameter.empty)
    }
    if is_vector:
        asked["num_envs"] = values["num_envs"]
    return {**asked, **env_kwargs}


def require_fitting_arguments(
    name: str, source: Callable[..., Any], env_kwargs: Mapping[str, Any], vectorize: Vectorize
) -> None:
    """Raise ValueError if a factory called `name` does not accept the user's arguments and those it requests."""
    try:
        signature = inspect.signature(source)
    except (TypeError, ValueError):
        return
    is_vector = vectorize == "vector"
    try:
        names = [*REQUESTABLE, "num_envs"] if is_vector else REQUESTABLE
        signature.bind(**requested(source, env_kwargs, dict.fromkeys(names, 0)))
    except TypeError as error:
        given = ", ".join([*env_kwargs, *(["num_envs"] if is_vector else [])]) or "nothing"
        asks_for_lanes = "num_envs" in signature.parameters and not is_vector
        hint = ". A factory of vector environments is used with vectorize='vector'" if asks_for_lanes else ""
        raise ValueError(f"env_kwargs do not fit {name}{signature}: {error}; given {given}{hint}") from None


def require_settings(
    env_kwargs: Mapping[str, Any], legal: Sequence[str], refused: Mapping[str, str], name: str
) -> None:
    """Raise ValueError for settings of a simulator called `name` that are unknown, or refused for a reason."""
    for setting, value in env_kwargs.items():
        if setting not in legal:
            raise ValueError(f"env_kwargs: {setting!r} is not a setting of {name}{legal_instead(setting, legal)}")
        if value and setting in refused:
            raise ValueError(f"env_kwargs: {setting}={value!r} is not supported: {refused[setting]}")


def legal_instead(argument: str, legal: Sequence[str]) -> str:
    """Return the end of a message about an unknown argument: the closest legal one, and all of them."""
    close = difflib.get_close_matches(argument, legal, n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return f": {hint}legal are {', '.join(legal) or 'none'}"


class Wrapped:
    """Factory of environments inside wrappers; it takes the arguments of the factory that it wraps.

    Parameters
    ----------
    source
        Registered spec, or factory.
    wrappers
        Functions or classes that take an environment and return one; the last is the outermost.
    """

    def __init__(self, source: Any, wrappers: Sequence[Callable[[Any], Any]]) -> None:
        self.source = source
        self.wrappers = tuple(wrappers)
        if callable(source):
            self.__signature__ = inspect.signature(source)

    def __call__(self, **kwargs: Any) -> Any:
        if callable(self.source):
            env = self.source(**kwargs)
        else:
            import gymnasium

            env = (gymnasium.make_vec if "num_envs" in kwargs else gymnasium.make)(self.source, **kwargs)
        for wrapper in self.wrappers:
            env = wrapper(env)
        return env


def made_hint(env: Any) -> str:
    """Return a hint about an environment that is already made, where a constructor is expected; "" if it is not."""
    if isinstance(env, str | type) or not (hasattr(env, "step") and hasattr(env, "reset")):
        return ""
    name = getattr(getattr(env, "spec", None), "id", None)
    if hasattr(env, "num_envs"):
        maker = f'gym.make_vec("{name}", num_envs=num_envs)' if name else f"{type(env).__name__}(num_envs)"
        ways = f'env=lambda num_envs: {maker}, vectorize="vector"'
    else:
        ways = f'env=lambda: gym.make("{name}"), or env="{name}"' if name else f"env=lambda: {type(env).__name__}(...)"
    return f"env={env!r} is already made, but every lane makes its own environment: give a constructor, {ways}"


def name_of_factory(source: Any) -> str:
    """Return the name of a factory, also within `functools.partial`."""
    maker, _ = _unwrapped(source)
    return getattr(maker, "__name__", type(maker).__name__)


def _parameters(source: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(source).parameters
    except (TypeError, ValueError):
        return {}


def _unwrapped(source: Any) -> tuple[Any, set[str]]:
    """Return the callable within partials and wrappers, and the names of the arguments that partials bind."""
    bound: set[str] = set()
    while isinstance(source, functools.partial | Wrapped):
        if isinstance(source, functools.partial):
            bound.update(source.keywords)
        source = source.source if isinstance(source, Wrapped) else source.func
    return source, bound
