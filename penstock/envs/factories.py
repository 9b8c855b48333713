"""Arguments of an environment factory: it requests them by parameter name; the user's own take precedence.

=================  ====================================================================================================
parameter          value
=================  ====================================================================================================
``worker_index``   number of the rollout worker, from 0; `EVALUATOR` in the evaluator, `OUTSIDE` for environments made
                   to look at their spaces, to score a policy or to film it
``lane``           number of the environment among all lanes of the run, from 0, and from a million on for lanes that
                   nothing is learned from; for a vector environment that of its first lane
``seed``           what the first reset is seeded with, in [0, 2^31): another for each lane and after each restart; for
                   a vector environment that of its first lane
``num_envs``       lanes of the group, which a vector environment must have; single environments are never told
=================  ====================================================================================================

- What the user gives, in ``env_kwargs`` or to `functools.partial`, is never replaced.
- A function is given each value whose name is a parameter of its own; so is a class of vector environments.
- A class of single environments is given a value only if the parameter has no default. A default stays, because
  ``seed=0`` may name a level and ``lane=2`` a lane of a road.
- ``**kwargs`` ask for nothing. A registered id is told nothing.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, Literal

EVALUATOR, OUTSIDE = -1, -2  # worker_index where no rollout worker makes the environment
TOLD = ("worker_index", "lane", "seed")

Vectorize = Literal["make", "vector"]


def told(source: Callable[..., Any], env_kwargs: Mapping[str, Any], values: Mapping[str, int]) -> dict[str, Any]:
    """Return the arguments to call a factory with: the user's, and those of `values` that it asks for.

    Parameters
    ----------
    source
        The factory.
    env_kwargs
        The user's arguments.
    values
        What it can be told; with "num_envs" among them it makes vector environments, and is told that in any case.
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
    """Raise ValueError if a factory called `name` cannot be called with the user's arguments and what it asks for."""
    try:
        signature = inspect.signature(source)
    except (TypeError, ValueError):
        return
    is_vector = vectorize == "vector"
    try:
        signature.bind(**told(source, env_kwargs, dict.fromkeys([*TOLD, "num_envs"] if is_vector else TOLD, 0)))
    except TypeError as error:
        given = ", ".join([*env_kwargs, *(["num_envs"] if is_vector else [])]) or "nothing"
        asks_for_lanes = "num_envs" in signature.parameters and not is_vector
        hint = ". A factory of vector environments is used with vectorize='vector'" if asks_for_lanes else ""
        raise ValueError(f"env_kwargs do not fit {name}{signature}: {error}; given {given}{hint}") from None


def name_of_factory(source: Any) -> str:
    """Return what a factory is called, whatever `functools.partial` has wrapped around it."""
    maker, _ = _unwrapped(source)
    return getattr(maker, "__name__", type(maker).__name__)


def _parameters(source: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(source).parameters
    except (TypeError, ValueError):
        return {}


def _unwrapped(source: Any) -> tuple[Any, set[str]]:
    """Return what partials have been made of, and the names of the arguments that they bind."""
    bound: set[str] = set()
    while isinstance(source, functools.partial):
        bound.update(source.keywords)
        source = source.func
    return source, bound
