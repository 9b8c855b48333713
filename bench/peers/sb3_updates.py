"""Stable-Baselines3's updates, on command: lines of JSON are read from stdin and answered on stdout.

It is run by the interpreter that has stable-baselines3, which need not have Penstock. First it prints its versions.
Then {"open": algorithm, "rows", "warm_up", ...} makes a learner with a full buffer, and {"updates", "threads"} is
answered by the seconds that these updates took.
"""

from __future__ import annotations

import json
import sys
import time

import stable_baselines3
import torch
from shapes import fill, shapes_for
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm

ALGORITHMS = {name.lower(): getattr(stable_baselines3, name) for name in ("TD3", "SAC", "DDPG", "DQN")}


def opened(
    algorithm: str, rows: int, hidden_sizes: list[int], batch_size: int, learning_rate: float, device: str
):
    """Make the learner, with its defaults for all other settings, and fill its buffer."""
    model: OffPolicyAlgorithm = ALGORITHMS[algorithm](
        "MlpPolicy", shapes_for(algorithm), learning_rate=learning_rate, batch_size=batch_size, buffer_size=rows,
        policy_kwargs={"net_arch": hidden_sizes}, device=device, seed=0,
    )  # fmt: skip
    model.set_logger(Logger(None, []))
    fill(model.replay_buffer)
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
            if torch.cuda.is_initialized():
                torch.cuda.synchronize()
            print(time.perf_counter() - began, flush=True)


if __name__ == "__main__":
    main()
