"""Films of a policy playing one episode."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.config import ConfigError
from penstock.engine.policy import Policy
from penstock.envs.spec import EnvSpec

MAX_STEPS = 10_000


def film(policy: Policy, env: EnvSpec, path: str, *, deterministic: bool, seed: int) -> None:
    """Play one episode and write what it looks like to a video file.

    Raises
    ------
    ConfigError
        The extra "video" is not installed, or the environment draws no pictures.
    """
    try:
        import imageio.v3 as imageio
    except ImportError:
        raise ConfigError("a video needs the packages imageio and av: pip install 'penstock[video]'") from None
    frames, fps = play_and_draw(policy, env, deterministic=deterministic, seed=seed)
    imageio.imwrite(path, np.stack(frames), fps=fps, plugin="pyav", codec="libx264")


def play_and_draw(policy: Policy, env: EnvSpec, *, deterministic: bool, seed: int) -> tuple[list[np.ndarray], float]:
    """Play one episode; return its pictures, uint8 ``[H, W, 3]`` each, and how many there are per second."""
    raise ConfigError("not yet")
