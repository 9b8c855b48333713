"""Training time of TD3 and SAC on HalfCheetah next to SBX, one training after the other on all cores, in turns.

    python bench/beside_sbx.py --sbx X/bin/python [--algorithms td3 sac] [--steps 50000] [--seeds 1] [--write FILE]

Both have the settings of the preset mujoco, one environment and an update for each step once learning has begun.
Penstock learns in float32 and in bfloat16. SBX (python -m venv X; X/bin/pip install sbx-rl "gymnasium[mujoco]") is
JAX on the CPU. Output: seconds of learning, for SBX including compilation, for Penstock including the start of its
processes; updates per second; and the mean return of 10 episodes of the final policy without exploration. FILE of
``--write`` grows by a line of JSON per run: runs in it are not repeated.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from runs_file import RunsFile

import penstock
from penstock.algorithms import load_algorithm
from penstock.config import load_preset, make_config
from penstock.runs.machine import describe

ENV, EPISODES = "HalfCheetah-v5", 10
PEER = Path(__file__).parent / "peers" / "sbx_training.py"
SBX, PRECISIONS = "SBX", ("float32", "bfloat16")


def train(precision: str, algorithm: str, steps: int, seed: int) -> dict[str, Any]:
    """Train with Penstock; return seconds and the score of the final policy."""
    face = {"td3": penstock.TD3, "sac": penstock.SAC}[algorithm]
    with face(
        ENV, preset="mujoco", precision=precision, total_steps=steps, seed=seed, eval_interval=0, run_dir=None
    ) as algo:
        began = time.monotonic()
        algo.train(quiet=True)
        seconds = time.monotonic() - began
        return {"seconds": seconds, "return": algo.evaluate(episodes=EPISODES).mean_return}


def train_sbx(python: Path, algorithm: str, steps: int, seed: int) -> dict[str, Any]:
    """Train with SBX; return the same facts."""
    config: Any = config_of(algorithm)
    settings = {
        "learning_rate": config.learning_rate, "batch_size": config.batch_size, "buffer_size": config.buffer_size,
        "learning_starts": config.learning_starts, "tau": config.tau, "gamma": config.gamma, "train_freq": 1,
        "gradient_steps": 1, "policy_kwargs": {"net_arch": list(config.hidden_sizes)},
    }  # fmt: skip
    told = [algorithm, ENV, *map(json.dumps, (steps, seed, EPISODES, settings))]
    done = subprocess.run([python, PEER, *told], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        sys.exit(f"{PEER.name} ended with exit status {done.returncode}")
    return json.loads(done.stdout.splitlines()[-1])


def config_of(algorithm: str) -> Any:
    """Return the settings of the preset."""
    kind = load_algorithm(algorithm)
    return make_config(kind.Config, {"env": ENV, **load_preset("mujoco", kind.Config)})


def main() -> None:
    """Train the missing runs, in turns, and print."""
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--sbx", type=Path, required=True, help="interpreter that has sbx-rl and MuJoCo")
    flags.add_argument("--algorithms", nargs="*", choices=("td3", "sac"), default=["td3", "sac"])
    flags.add_argument("--steps", type=int, default=50_000)
    flags.add_argument("--seeds", type=int, default=1)
    flags.add_argument("--write", type=Path, metavar="FILE")
    given = flags.parse_args()
    print(describe())
    measured = RunsFile(given.write)
    for algorithm in given.algorithms:
        updates = given.steps - config_of(algorithm).learning_starts
        for seed in range(1, given.seeds + 1):
            for who in (SBX, *PRECISIONS):
                what = {"algorithm": algorithm, "who": who, "steps": given.steps, "seed": seed}
                run = measured.find(**what)
                if run is None:
                    asked = algorithm, given.steps, seed
                    run = what | (train_sbx(given.sbx, *asked) if who == SBX else train(who, *asked))
                    measured.add(run)
                took, score = run["seconds"], run["return"]
                print(f"{algorithm} {who:8} seed {seed}: {took:.0f} s, {updates / took:.0f} updates/s, {score:,.0f}")


if __name__ == "__main__":
    main()
