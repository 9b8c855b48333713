"""A training of Stable-Baselines3 on the one-step task of bench/environments/one_step.py.

    X/bin/python bench/peers/sb3_one_step.py ALGORITHM BOX SEED STEPS

Training uses the library's defaults, on the CPU; BOX is the environment's arguments as JSON. Prints one line of JSON,
as bench/bounded_actions.py: {"distance": of the most probable action, "seconds": ...}.
"""

from __future__ import annotations

import json
import math
import sys
import time
from pathlib import Path

import stable_baselines3
import torch

sys.path.insert(0, str(Path(__file__).parents[1]))
from environments.one_step import OneStep


def main() -> None:
    """Train, score and print."""
    name, box, seed, steps = sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    torch.set_num_threads(1)
    env = OneStep(**box)
    model = getattr(stable_baselines3, name.upper())("MlpPolicy", env, seed=seed, device="cpu")
    began = time.monotonic()
    model.learn(steps)
    seconds = time.monotonic() - began
    action, _ = model.predict(env.reset()[0], deterministic=True)
    reward = env.step(action)[1]
    print(json.dumps({"distance": round(math.sqrt(-reward), 5), "seconds": round(seconds, 1)}))


if __name__ == "__main__":
    main()
