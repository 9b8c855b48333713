"""Buffer fields for an environment's spaces: ``env_dict``, and the splitting of steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import DTypeLike

if TYPE_CHECKING:
    import gymnasium


def create_env_dict(
    env: gymnasium.Env[Any, Any], *, int_type: DTypeLike | None = None, float_type: DTypeLike | None = None
) -> dict[str, dict[str, Any]]:
    """Return the ``env_dict`` for transitions of an environment.

    Keys are ``rew``, ``done``, ``obs``, ``next_obs`` and ``act``. A Tuple space has a key per member, ``obs0``,
    ``next_obs0``, ``act0`` and so on; a Dict space ``obs_<key>``, ``next_obs_<key>`` and ``act_<key>``, the names used
    by ``create_before_add_func``. (cpprb's two functions disagree: its ``create_env_dict`` has ``<key>`` and
    ``next_<key>``, so that no transition fits, and an action may overwrite an observation with the same key.)

    Parameters
    ----------
    env : gymnasium.Env
    int_type : dtype, optional
        Dtype of Discrete, MultiDiscrete and MultiBinary spaces; default: int32.
    float_type : dtype, optional
        Dtype of Box spaces, replacing their own, and of ``rew`` and ``done``; default: float32.

    Raises
    ------
    NotImplementedError
        A space is of another kind, or nested deeper.
    """
    integer = np.int32 if int_type is None else int_type
    floating = np.float32 if float_type is None else float_type
    env_dict: dict[str, dict[str, Any]] = {name: {"shape": 1, "dtype": floating} for name in ("rew", "done")}
    for name in ("obs", "next_obs"):
        for suffix, space in _parts(env.observation_space):
            env_dict[name + suffix] = _entry(space, integer, floating)
    for suffix, space in _parts(env.action_space):
        env_dict["act" + suffix] = _entry(space, integer, floating)
    return env_dict


def create_before_add_func(env: gymnasium.Env[Any, Any]) -> Callable[..., dict[str, Any]]:
    """Return ``before_add(obs, act, next_obs, rew, done)``, which makes the arguments of ``add`` for an environment.

    Examples
    --------
    >>> buffer = ReplayBuffer(1000, create_env_dict(env))
    >>> before_add = create_before_add_func(env)
    >>> buffer.add(**before_add(obs, act, next_obs, rew, done))
    """
    take_observation = _taker(env.observation_space)
    take_action = _taker(env.action_space)

    def before_add(obs: Any, act: Any, next_obs: Any, rew: Any, done: Any) -> dict[str, Any]:
        return {
            **take_observation("obs", obs),
            **take_action("act", act),
            **take_observation("next_obs", next_obs),
            "rew": rew,
            "done": done,
        }

    return before_add


def _parts(space: Any) -> Iterator[tuple[str, Any]]:
    """Yield the spaces with a key each, and the suffix of the key."""
    from gymnasium import spaces

    if isinstance(space, spaces.Tuple):
        yield from ((str(i), part) for i, part in enumerate(space.spaces))
    elif isinstance(space, spaces.Dict):
        yield from ((f"_{key}", part) for key, part in space.spaces.items())
    else:
        yield "", space


def _taker(space: Any) -> Callable[[str, Any], dict[str, Any]]:
    from gymnasium import spaces

    if isinstance(space, spaces.Tuple):
        return lambda name, value: {f"{name}{i}": part for i, part in enumerate(value)}
    if isinstance(space, spaces.Dict):
        return lambda name, value: {f"{name}_{key}": part for key, part in value.items()}
    return lambda name, value: {name: value}


def _entry(space: Any, integer: DTypeLike, floating: DTypeLike) -> dict[str, Any]:
    from gymnasium import spaces

    if isinstance(space, spaces.Box):
        return {"dtype": floating, "shape": space.shape}
    if isinstance(space, spaces.Discrete):
        return {"dtype": integer, "shape": 1}
    if isinstance(space, spaces.MultiDiscrete):
        return {"dtype": integer, "shape": space.nvec.shape}
    if isinstance(space, spaces.MultiBinary):
        return {"dtype": integer, "shape": space.n}
    raise NotImplementedError(
        f"a buffer has no entry for the space {space}: use Box, Discrete, MultiDiscrete, MultiBinary, or a Tuple or "
        "Dict of these"
    )
