"""EnvPool environments by id, such as ``EnvPool/Pong-v5``: one pool for all lanes of a group."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import re
import warnings
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from gymnasium.vector import VectorEnv

from penstock.envs.factories import require_settings
from penstock.envs.failures import UnknownEnvironmentError
from penstock.redaction import masked

NAMESPACE = "EnvPool/"
_OLDEST = "1.2.5"  # earlier pools are not Gymnasium vector environments

_REFUSED = {
    "reward_clip": "it hides the true score; leave it False and set the learner's reward_clip instead",
    "episodic_life": "a lost life ends the episode, so scores would be those of one life; leave it False",
}
_OWNED = {
    "num_envs": "a pool holds the lanes of a group: set num_envs_per_worker",
    "batch_size": "the lanes of a group step together: set num_groups=2 to overlap stepping and inference",
    "max_num_players": "one lane is one player",
}
_HIDDEN = ("env_seed", "gym_reset_return_info")
# Arguments of `envpool.make` besides a task's own settings.
_PIXELS = ("from_pixels", "render_width", "render_height", "render_camera_id")


def pool_arguments(env: str, env_kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return all arguments for a pool, except those that depend on the group.

    Parameters
    ----------
    env
        Environment id, with `NAMESPACE`.
    env_kwargs
        Settings of the task, as `envpool.make` takes them.

    Raises
    ------
    UnknownEnvironmentError
        EnvPool is not installed or too old, or has no such task.
    ValueError
        A setting is unknown, managed by Penstock, or falsifies scores; or several players share an environment.
    """
    envpool = _envpool(env)
    task = env.removeprefix(NAMESPACE)
    known = {name.lower(): name for name in envpool.list_all_envs()}
    if task not in known.values():
        close = [repr(NAMESPACE + known[match]) for match in difflib.get_close_matches(task.lower(), known, n=3)]
        hint = f" Did you mean {' or '.join(close)}?" if close else ""
        raise UnknownEnvironmentError(
            f"env={env!r}: EnvPool {envpool.__version__} has no task {task!r}.{hint} envpool.list_all_envs() names all"
        )
    settings = _settings(task)
    if settings["max_num_players"] > 1:
        players = settings["max_num_players"]
        raise ValueError(f"env={env!r} has {players} players, but Penstock trains only EnvPool tasks of one player")
    legal = [name for name in (*settings, *_PIXELS) if name not in _OWNED and name not in _HIDDEN]
    for name, value in env_kwargs.items():
        if name in _OWNED:
            raise ValueError(f"env_kwargs: {name}={value!r} is not legal with {env}: {_OWNED[name]}")
    require_settings(env_kwargs, legal, _REFUSED, env)
    try:
        envpool.make_spec(task, **env_kwargs)
    except (AssertionError, RuntimeError, TypeError, ValueError) as error:
        defaults = {name: settings[name] for name in env_kwargs if name in settings}
        why = str(error).partition("\n")[0]
        raise ValueError(
            f"env_kwargs={masked(dict(env_kwargs))} do not fit {env}, whose defaults are {defaults}: {why}"
        ) from error
    return {"task_id": task, **env_kwargs}


def make_pool(arguments: Mapping[str, Any], seeds: list[int], num_threads: int) -> VectorEnv:
    """Make the pool of a group: one environment per seed, stepped by `num_threads` native threads.

    A seed or number of threads in `arguments` takes precedence.
    """
    import envpool

    chosen = {"seed": seeds, "num_threads": num_threads, **arguments}
    pool: Any = envpool.make_gymnasium(num_envs=len(seeds), **chosen)
    with warnings.catch_warnings():
        # EnvPool declares bounds in float64; the warning about their conversion is expected.
        warnings.filterwarnings("ignore", message=".*precision lowered by casting to float32")
        _ = pool.single_observation_space, pool.single_action_space
    return pool


def _envpool(env: str) -> ModuleType:
    """Import EnvPool, or raise `UnknownEnvironmentError` with the package to install."""
    install = "pip install 'penstock[envpool]'"
    if importlib.util.find_spec("envpool") is None:
        raise UnknownEnvironmentError(f"env={env!r}: environments of EnvPool need the package envpool: {install}")
    envpool = importlib.import_module("envpool")
    if _numbers(envpool.__version__) < _numbers(_OLDEST):
        problem = f"found EnvPool {envpool.__version__}, expected {_OLDEST} or later: {install}"
        raise UnknownEnvironmentError(f"env={env!r}: {problem}")
    return envpool


def _settings(task: str) -> dict[str, Any]:
    """Return a task's settings with their defaults, even if the task needs more to be made."""
    from envpool.registration import registry

    module, spec, arguments = registry.specs[task]
    return getattr(importlib.import_module(module), spec).gen_config(**arguments)._asdict()


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)[:3]]
