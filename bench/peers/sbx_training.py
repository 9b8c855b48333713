"""A training with SBX, and the score of its final policy: run by the interpreter that has sbx-rl (JAX on the CPU).

    X/bin/python bench/peers/sbx_training.py ALGORITHM ENV STEPS SEED EPISODES SETTINGS

SETTINGS are keyword arguments of SBX's class, as JSON. Prints one line of JSON: {"version", "seconds", "return"}: the
seconds of learning, including compilation, and the mean return of EPISODES without exploration.
"""

from __future__ import annotations

import json
import sys
import time

import gymnasium
import jax
import numpy as np
import sbx
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.noise import NormalActionNoise

NOISE = 0.1  # of TD3's exploration, as in the paper: SBX itself adds none


def main() -> None:
    """Train, score and print."""
    name, env_id, steps, seed, episodes, settings = sys.argv[1], sys.argv[2], *map(json.loads, sys.argv[3:])
    env = gymnasium.make(env_id)
    if name == "td3":
        shape = env.action_space.shape
        settings["action_noise"] = NormalActionNoise(np.zeros(shape), np.full(shape, NOISE))
    model = getattr(sbx, name.upper())("MlpPolicy", env, seed=seed, **settings)
    began = time.monotonic()
    model.learn(steps)
    jax.block_until_ready(model.policy.qf_state.params)
    seconds = time.monotonic() - began
    mean, _ = evaluate_policy(model, gymnasium.make(env_id), episodes)
    version = f"sbx-rl {sbx.__version__}, jax {jax.__version__}"
    print(json.dumps({"version": version, "seconds": seconds, "return": mean}))


if __name__ == "__main__":
    main()
