"""SBX's updates, on command, as by `sb3_updates.py` for Stable-Baselines3.

It is run by the interpreter that has sbx-rl (JAX on the CPU), confined to as many cores as it may have threads.
{"updates", "per_call"} is answered by the seconds that these updates took, with `per_call` of them in each call.
"""

from __future__ import annotations

import json
import os
import sys
import time

import jax
import sbx
from shapes import fill, shapes_for
from stable_baselines3.common.logger import Logger

ALGORITHMS = {name.lower(): getattr(sbx, name) for name in ("TD3", "SAC", "DDPG", "DQN", "TQC", "CrossQ")}


def opened(
    algorithm: str, rows: int, hidden_sizes: list[int], batch_size: int, learning_rate: float, device: str
):
    """Make the learner, with its defaults for all other settings, and fill its buffer.

    JAX chooses the device; `device` must be the same.
    """
    if (jax.default_backend() == "cpu") != (device == "cpu"):
        sys.exit(f"JAX computes on {jax.default_backend()}, but --device is {device}")
    model = ALGORITHMS[algorithm](
        "MlpPolicy", shapes_for(algorithm), learning_rate=learning_rate, batch_size=batch_size, buffer_size=rows,
        policy_kwargs={"net_arch": hidden_sizes}, seed=0,
    )  # fmt: skip
    model.set_logger(Logger(None, []))
    fill(model.replay_buffer)
    return model


def updates(model, count: int, per_call: int) -> None:
    """Make a number of updates, and wait for the last one."""
    for _ in range(count // per_call):
        model.train(per_call, model.batch_size)
    critics = "qf1_state" if hasattr(model.policy, "qf1_state") else "qf_state"  # TQC's critics are separate
    jax.block_until_ready(getattr(model.policy, critics).params)


def main() -> None:
    """Answer commands until stdin ends."""
    print(json.dumps(f"sbx-rl {sbx.__version__} with jax {jax.__version__}"), flush=True)
    model = None
    for line in sys.stdin:
        command = json.loads(line)
        if "open" in command:
            name, warm_up = command.pop("open"), command.pop("warm_up")
            model = opened(name, **command)
            for per_call in (1, 32):
                updates(model, warm_up, per_call)
            print("null", flush=True)
        else:
            per_call = command["per_call"]
            updates(model, per_call, per_call)  # compiles it, if necessary
            began = time.perf_counter()
            updates(model, command["updates"], per_call)
            print(time.perf_counter() - began, flush=True)


if __name__ == "__main__":
    threads = int(sys.argv[1])
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
    main()
