"""Stable-Baselines3's updates, on command: lines of JSON come in by stdin and are answered on stdout.

It is run by the interpreter that has stable-baselines3, which need not have Penstock. First it says which versions it
has; then {"open": algorithm, "rows", "warm_up", ...} makes a learner with a full buffer, and {"updates", "threads"} is
answered by the seconds that so many updates took.
"""

from __future__ import annotations

import json
import sys
import time

import gymnasium
import numpy as np
import stable_baselines3
import torch
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm

ALGORITHMS = {name.lower(): getattr(stable_baselines3, name) for name in ("TD3", "SAC", "DDPG")}


class Shapes(gymnasium.Env):
    """The spaces of HalfCheetah-v5; it is never stepped."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (17,), np.float64)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (6,), np.float32)


def opened(algorithm: str, rows: int, hidden_sizes: list[int], batch_size: int, learning_rate: float):
    """Make the learner, with its defaults for all that is not said here, and fill its buffer."""
    model: OffPolicyAlgorithm = ALGORITHMS[algorithm](
        "MlpPolicy", Shapes(), learning_rate=learning_rate, batch_size=batch_size, buffer_size=rows,
        policy_kwargs={"net_arch": hidden_sizes}, device="cpu", seed=0,
    )  # fmt: skip
    model.set_logger(Logger(None, []))
    buffer, random = model.replay_buffer, np.random.default_rng(0)
    assert buffer is not None
    buffer.observations[:] = random.standard_normal(buffer.observations.shape)
    buffer.next_observations[:-1] = buffer.observations[1:]
    buffer.actions[:] = random.uniform(-1.0, 1.0, buffer.actions.shape)
    buffer.rewards[:] = random.standard_normal(buffer.rewards.shape)
    buffer.dones[:] = random.random(buffer.dones.shape) < 1e-3
    buffer.full = True
    return model


def main() -> None:
    """Answer commands until stdin ends."""
    versions = f"stable-baselines3 {stable_baselines3.__version__} with torch {torch.__version__}"
    print(json.dumps(versions), flush=True)
    model = None
    for line in sys.stdin:
        command = json.loads(line)
        if "open" in command:
            del model
            name, warm_up = command.pop("open"), command.pop("warm_up")
            model = opened(name, **command)
            torch.set_num_threads(1)
            model.train(warm_up, model.batch_size)
            print("null", flush=True)
        else:
            torch.set_num_threads(command["threads"])
            began = time.perf_counter()
            model.train(command["updates"], model.batch_size)
            print(time.perf_counter() - began, flush=True)


if __name__ == "__main__":
    main()
