"""Share of the time of several nodes in which they train the trials of a search.

    python bench/trials_on_nodes.py [--trials 12] [--steps 20000] [--nodes 3]

`penstock search --backend ray` trains PPO on CartPole on isolated nodes of one core each (root and Linux namespaces are
needed; Ray counts a core per node, and they share the cores of this machine). A node trains a trial from the moment
when the trial's actor is there until its end is known at home. The share is the sum of these times, divided by the
number of nodes times the time from the first start to the last end. What it lacks is the start of each trial's actor,
and the end of the search, when nodes have no trial left. The exit code is 3 below 0.85.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # for tests.engine.isolated_nodes

from penstock.runs.machine import describe
from tests.engine.isolated_nodes import IsolatedCluster

MARK = 0.85
SPACE = "[learning_rate]\nlow = 1e-4\nhigh = 1e-2\nlog = true\n"


def main() -> int:
    """Search, and print the share; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=12)
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--nodes", type=int, default=3)
    flags = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    names = [f"node{number}" for number in range(flags.nodes)]
    with tempfile.TemporaryDirectory() as folder, IsolatedCluster(*names) as cluster:
        cluster.start()
        Path(folder, "space.toml").write_text(SPACE)
        search = [
            sys.executable, "-m", "penstock.cli", "search", "ppo", "--env", "CartPole-v1", "--space", "space.toml",
            "--trials", str(flags.trials), "--total-steps", str(flags.steps), "--no-prune", "--num-workers", "1",
            "--backend", "ray", "--address", cluster.address,
        ]  # fmt: skip
        begun, spans, nodes = {}, [], Counter()
        with subprocess.Popen(search, cwd=folder, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for line in process.stdout:
                print(line, end="", flush=True)
                if found := re.match(r"trial-(\d+)-seed-\d+: on node (\w+)", line):
                    begun[found[1]] = time.monotonic()
                    nodes[found[2]] += 1
                elif (found := re.match(r"trial (\d+): done", line)) is not None:
                    spans.append((begun.pop(found[1]), time.monotonic()))
    if process.returncode or len(spans) != flags.trials:
        return 1
    first, last = min(begin for begin, _ in spans), max(end for _, end in spans)
    share = sum(end - begin for begin, end in spans) / (flags.nodes * (last - first))
    print(describe())
    print(f"trials by node: {', '.join(f'{name} {count}' for name, count in sorted(nodes.items()))}")
    print(f"share of the nodes' time: {share:.3f} (mark: {MARK}), in {last - first:.0f} s")
    return 0 if share >= MARK and len(nodes) == flags.nodes else 3


if __name__ == "__main__":
    sys.exit(main())
