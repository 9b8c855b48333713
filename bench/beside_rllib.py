"""Steps per second on one simulated node, compared with RLlib at the same work: IMPALA and APPO on CartPole, in turns.

    python bench/beside_rllib.py --rllib X/bin/python [--runners N] [--lanes N] [--rounds N] [--seconds S] [--push]
                                 [--json FILE]

X is a separate environment:

    python -m venv X; X/bin/pip install "torch>=2.8,<2.14" "ray[rllib]==2.60.0" gymnasium

Both have a cluster of a home node and one more node with a core per rollout worker, a learner with one thread at home,
an MLP of 64x64, segments of 32 steps, batches of 512, and learn once from each step. Output: steps learned from per
second in every round, bytes of experience per step, and the ratio of medians. The exit code is 3 if Penstock is not 5
times as fast. With --push, weights are sent to RLlib's env runners, which by default fetch them from a server: on few,
busy cores they may wait minutes for that server.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from penstock.algorithms import load_algorithm
from penstock.bench.nodes_run import run_on_nodes
from penstock.config import make_config
from penstock.engine.backends.launcher import kept
from penstock.engine.nodes.cluster import simulated
from penstock.runs.machine import describe, machine_facts

PROGRAM = Path(__file__).with_name("peers") / "rllib_nodes.py"
SEGMENT, BATCH = 32, 512
SAME = {
    "env": "CartPole-v1", "segment_length": SEGMENT, "batch_size": BATCH, "hidden_sizes": (64, 64),
    "normalize_observations": False, "learning_rate": 5e-4,
}  # fmt: skip
OWN = {"impala": {}, "appo": {"num_epochs": 1, "num_minibatches": 1}}
MARK = 5.0
START_UP = 180.0  # seconds that RLlib may take beyond the measurement

Figures = tuple[float, float]
"""Steps per second, and bytes per step."""


def penstock(name: str, asked: argparse.Namespace, address: str) -> Figures:
    """Train on the node."""
    algorithm = load_algorithm(name)
    settings: dict[str, Any] = {
        **SAME, **OWN[name], "num_workers": asked.runners, "num_envs_per_worker": asked.lanes, "backend": "ray",
        "address": address,
    }  # fmt: skip
    run = run_on_nodes(algorithm, make_config(algorithm.Config, settings), seconds=asked.seconds)
    return run.rate, run.sent


def rllib(name: str, asked: argparse.Namespace) -> Figures:
    """Train with RLlib in a separate process."""
    numbers = (asked.runners, asked.lanes, SEGMENT, BATCH, asked.seconds, "push" if asked.push else "pull")
    command = [str(asked.rllib), str(PROGRAM), name.upper(), *map(str, numbers)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    environment.pop("PYTHONPATH", None)
    patience = asked.seconds + START_UP
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, env=environment, timeout=patience, check=False
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        sys.exit(f"RLlib's {name.upper()} gave no figure for {patience:.0f} s: is the machine busy? see --push")
    rate = re.search(r"^STEPS_PER_SECOND (\S+)$", done.stdout, re.MULTILINE)
    nbytes = re.search(r"^BYTES_PER_STEP (\S+)$", done.stdout, re.MULTILINE)
    if done.returncode or rate is None or nbytes is None:
        sys.exit(f"RLlib could not be measured (exit {done.returncode}):\n{(done.stdout + done.stderr)[-3000:]}")
    return float(rate[1]), float(nbytes[1])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rllib", type=Path, required=True)
    parser.add_argument("--runners", type=int, default=1)
    parser.add_argument("--lanes", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--push", action="store_true")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    machine = machine_facts()
    print(describe(machine), flush=True)
    found: dict[str, dict[str, list[Figures]]] = {name: {"penstock": [], "rllib": []} for name in OWN}
    with kept():
        for turn in range(asked.rounds):
            for name, of_name in found.items():
                for who in sorted(of_name, reverse=bool(turn % 2)):
                    if who == "rllib":
                        figures = rllib(name, asked)
                    else:
                        with simulated(1, asked.runners) as address:
                            figures = penstock(name, asked, address)
                    of_name[who].append(figures)
                    print(f"{name}, {who}: {figures[0]:,.0f} steps/s, {figures[1]:.1f} bytes per step", flush=True)
    ratios = {}
    for name, of_name in found.items():
        rates, nbytes = (
            {who: statistics.median(pair[place] for pair in pairs) for who, pairs in of_name.items()}
            for place in (0, 1)
        )
        ratios[name] = rates["penstock"] / rates["rllib"]
        print(
            f"{name}: {rates['penstock']:,.0f} steps/s, RLlib {rates['rllib']:,.0f}: {ratios[name]:.1f} x (mark "
            f"{MARK:g}); {nbytes['penstock']:.1f} bytes per step, RLlib {nbytes['rllib']:.1f}"
        )
    if asked.json is not None:
        asked.json.write_text(json.dumps({"machine": machine, "rounds": found, "ratios": ratios}, indent=1) + "\n")
    return 0 if min(ratios.values()) >= MARK else 3


if __name__ == "__main__":
    sys.exit(main())
