"""Bitwise comparison of two versions of Penstock: the weights of serial runs of every algorithm.

    python bench/same_weights.py [ALGORITHM ...] [--updates N] [--against X/bin/python]

Each algorithm trains with one seed in the serial backend for N updates. Output: a hash of its weights. ``--against``
names the Python of an environment with another version (a git worktree of another commit, with ``pip install -e .`` in
its own environment): it runs this same file, and the exit code is 1 if any hash differs.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
from pathlib import Path

import penstock

SEGMENTS = {"env": "CartPole-v1", "num_envs_per_worker": 4, "segment_length": 16}
REPLAY = {"learning_starts": 64, "buffer_size": 2_000, "num_envs_per_worker": 2, "batch_size": 32}
RUDDER = {"rewards": "rudder", "redistribution_max_error": 2.0, "redistributor_interval": 100}  # always trusted
RUNS = {  # by algorithm; further words distinguish variants
    "APPO": {**SEGMENTS, "batch_size": 64, "num_epochs": 2},
    "PPO": {**SEGMENTS, "batch_size": 64, "num_epochs": 4, "num_workers": 2},
    "IMPALA": {**SEGMENTS, "batch_size": 64, "memory": "gru", "memory_size": 16},
    "APPO vtrace": {**SEGMENTS, "batch_size": 32, "num_epochs": 1, "advantage_estimator": "vtrace"},
    "PPO clipped values": {**SEGMENTS, "batch_size": 64, "value_clip_range": 0.2, "memory": "lstm", "memory_size": 16},
    "IMPACT": {**SEGMENTS, "batch_size": 64, "kl_coef": 0.1},
    "CLEAR": {**SEGMENTS, "batch_size": 64},
    "LASER": {**SEGMENTS, "batch_size": 64},
    "A2C": {**SEGMENTS, "num_workers": 2},
    "A3C": {**SEGMENTS, "num_workers": 2},
    "PQN": {**SEGMENTS, "batch_size": 64},
    "DQN": {"env": "CartPole-v1", **REPLAY, "prioritized": True, "n_step": 3},
    "DQN quantiles": {"env": "CartPole-v1", **REPLAY, "distributional": "quantile", "rescale_values": True},
    "DQN iqn": {"env": "CartPole-v1", **REPLAY, "distributional": "iqn", "double": True},
    "DQN memory": {"env": "CartPole-v1", **REPLAY, "batch_size": 4, "memory": "gru", "memory_size": 16},
    "Rainbow": {"env": "CartPole-v1", **REPLAY},
    "BTR": {"env": "CartPole-v1", **REPLAY},
    "ApeX": {"env": "CartPole-v1", **REPLAY},
    "R2D2": {"env": "CartPole-v1", **REPLAY, "batch_size": 4},
    "TD3": {"env": "Pendulum-v1", **REPLAY},
    "SAC": {"env": "Pendulum-v1", **REPLAY},
    "DDPG": {"env": "Pendulum-v1", **REPLAY},
    "TQC": {"env": "Pendulum-v1", **REPLAY},
    "CrossQ": {"env": "Pendulum-v1", **REPLAY},
    "FlashSAC": {"env": "Pendulum-v1", **REPLAY},
    "FastTD3": {"env": "Pendulum-v1", **REPLAY},
    "XQC": {"env": "Pendulum-v1", **REPLAY},
    "ApeXDPG": {"env": "Pendulum-v1", **REPLAY},
    "PPO rudder": {**SEGMENTS, **RUDDER, "batch_size": 64},
    "APPO rudder": {**SEGMENTS, **RUDDER, "batch_size": 64, "num_epochs": 2, "redistribution_value": "original"},
    "A2C rudder": {**SEGMENTS, **RUDDER, "redistribution_attribution": "integrated_gradients"},
    "DQN rudder": {"env": "CartPole-v1", **REPLAY, **RUDDER},
    "TD3 rudder": {"env": "Pendulum-v1", **REPLAY, **RUDDER},
}


def weights_of(name: str, updates: int) -> str:
    """Train for a number of updates; return a hash of all weights."""
    settings = {"backend": "serial", "seed": 7, "run_dir": None, "eval_interval": 0, "num_workers": 1, **RUNS[name]}
    with getattr(penstock, name.split()[0])(total_steps=10_000_000, **settings) as algo:
        while algo.status.updates < updates:
            algo.train(256, quiet=True)
        weights = algo.get_parameters()[0]
    found = hashlib.sha256()
    for key in sorted(weights):
        found.update(key.encode() + weights[key].contiguous().numpy().tobytes())
    return found.hexdigest()[:16]


def main() -> None:
    """Parse the command, train, compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("algorithms", nargs="*", metavar="ALGORITHM", help="all of them when left out")
    parser.add_argument("--updates", type=int, default=200)
    parser.add_argument("--against", type=Path)
    parser.add_argument("--json", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    names = arguments.algorithms or list(RUNS)
    if unknown := set(names) - RUNS.keys():
        parser.error(f"no such algorithm: {', '.join(sorted(unknown))} (legal: {', '.join(RUNS)})")
    own = {name: weights_of(name, arguments.updates) for name in names}
    if arguments.json:
        print(json.dumps(own))
        return
    others = {}
    if arguments.against is not None:
        command = [arguments.against, __file__, *names, "--updates", str(arguments.updates), "--json"]
        others = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    for name in names:
        verdict = "" if not others else "  the same" if own[name] == others[name] else f"  DIFFERS: {others[name]}"
        print(f"{name:<20} {own[name]}{verdict}")
    sys.exit(int(bool(others) and own != others))


if __name__ == "__main__":
    main()
