"""A training with Stable-Baselines3 as most users would run it, and the scores of its final and its best policy.

    X/bin/python bench/peers/sb3_final.py ALGORITHM ENV STEPS SEED EPISODES [ARGUMENTS]

ARGUMENTS are the environment's, as JSON. Training uses the library's defaults and one environment, on the CPU. The best
policy is that of its EvalCallback: 20 evaluations of 20 episodes. Prints one line of JSON: {"version": ..., "seconds":
..., "final": {...}, "best": {...}}; each policy has the returns of EPISODES fresh episodes, "deterministic" and
"sampled".
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import stable_baselines3
import torch
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import EvalCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy

LANES = 10  # that fresh episodes are played in
SCORING = 1_000_000  # added to the seed of the environments that score


def returns_of(
    model: BaseAlgorithm, env: str, arguments: dict[str, Any], seed: int, episodes: int
) -> dict[str, list[float]]:
    """Return the returns of fresh episodes, with deterministic and with sampled actions."""
    found = {}
    for name, deterministic in (("deterministic", True), ("sampled", False)):
        lanes = make_vec_env(env, n_envs=LANES, seed=seed + SCORING, env_kwargs=arguments)
        found[name], _ = evaluate_policy(
            model, lanes, episodes, deterministic=deterministic, return_episode_rewards=True
        )
        lanes.close()
    return found


def main() -> None:
    """Train, score and print."""
    name, env, steps, seed, episodes = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:6])
    arguments = json.loads(sys.argv[6]) if len(sys.argv) > 6 else {}
    torch.set_num_threads(1)
    kind = getattr(stable_baselines3, name.upper())
    with tempfile.TemporaryDirectory() as folder:
        lanes = make_vec_env(env, seed=seed, env_kwargs=arguments)
        evaluation = EvalCallback(
            make_vec_env(env, seed=seed + SCORING // 2, env_kwargs=arguments), best_model_save_path=folder,
            eval_freq=max(1, steps // 20), n_eval_episodes=20, verbose=0,
        )  # fmt: skip
        model = kind("MlpPolicy", lanes, seed=seed, device="cpu")
        began = time.monotonic()
        model.learn(steps, evaluation)
        seconds = time.monotonic() - began
        best = kind.load(Path(folder) / "best_model.zip", device="cpu")
        scores = {
            which: returns_of(policy, env, arguments, seed, episodes)
            for which, policy in (("final", model), ("best", best))
        }
    print(json.dumps({"version": stable_baselines3.__version__, "seconds": seconds, **scores}))


if __name__ == "__main__":
    main()
