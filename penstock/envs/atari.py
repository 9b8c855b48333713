"""Atari games through the vector environment of the Arcade Learning Environment."""

from __future__ import annotations

import inspect
from typing import Any

from ale_py import AtariVectorEnv

from penstock.envs.factories import require_settings

# The preprocessing of the DQN and IMPALA papers, but with true scores, whole games and no sticky actions.
DEFAULTS: dict[str, Any] = {
    "img_height": 84,
    "img_width": 84,
    "grayscale": True,
    "stack_num": 4,
    "frameskip": 4,
    "maxpool": True,
    "noop_max": 30,
    "use_fire_reset": True,
    "repeat_action_probability": 0.0,
    "full_action_space": False,
    "max_num_frames_per_episode": 108_000,
    "reward_clipping": False,
    "episodic_life": False,
    "life_loss_info": False,
}

_REFUSED = {
    "reward_clipping": "it hides the true score; leave it False and set the learner's reward_clip instead",
    "episodic_life": "a lost life restarts the whole game, so scores would be those of one life; leave it False",
    "life_loss_info": "it reports the end of an episode, but the game continues without a reset; leave it False",
}
_OWNED = ("game", "num_envs", "batch_size", "num_threads")


def atari_arguments(game: str, env_kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return all arguments for a game, except those that depend on the worker.

    Parameters
    ----------
    game
        Name of the ROM, such as ``"space_invaders"``.
    env_kwargs
        Arguments of `AtariVectorEnv` that replace the defaults.

    Raises
    ------
    ValueError
        A key is unknown, or its value would falsify scores or episode ends.
    """
    legal = [name for name in inspect.signature(AtariVectorEnv).parameters if name not in _OWNED]
    require_settings(env_kwargs, legal, _REFUSED, "an ALE game")
    return {"game": game, **DEFAULTS, **env_kwargs}


def make_atari(arguments: dict[str, Any], num_lanes: int, num_threads: int) -> AtariVectorEnv:
    """Make the games of all lanes, stepped by ``num_threads`` native threads."""
    return AtariVectorEnv(num_envs=num_lanes, num_threads=num_threads, **arguments)
