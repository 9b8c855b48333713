"""Speed of two versions of Penstock: the same measurements of both in turns, as A, B, B, A.

    python bench/in_turns.py BEFORE [AFTER] --throughput cartpole pong --ideal cartpole --updates td3 --replay --startup
        --memory [--turns 4]

BEFORE and AFTER are the Pythons of two environments, each with an editable install of its own checkout (a git worktree
of a commit, with ``pip install -e .``). The default of AFTER is the Python that runs this script. Output: the median of
all turns, the slowest and the fastest turn, and the ratio of the medians. Nothing else may run meanwhile.

========== =============================================================================== =========================
flag       measurement                                                                     unit
========== =============================================================================== =========================
throughput ``penstock bench throughput`` of each version                                   steps learned from / s
ideal      ``penstock bench ideal`` of each version                                        percent of the ideal
updates    ``bench/updates.py`` of each version, one thread                                updates / s
replay     256 rows drawn by priority from 100,000, and their priorities updated           batches / s
startup    ``penstock train`` of APPO on CartPole with a budget of one step, to its end    s
memory     unique set size of a rollout worker of APPO on CartPole, central inference      MB
========== =============================================================================== =========================
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

FASTEST = ["--segment-length", "32", "--num-minibatches", "1", "--num-epochs", "1", "--shared-encoder", "True",
           "--no-normalize-observations"]  # fmt: skip
IDEAL = {
    "cartpole": ["--env", "CartPole-v1", "--num-envs-per-worker", "256", "--batch-size", "8192", *FASTEST],
    "lunarlander": ["--env", "LunarLander-v3", "--num-envs-per-worker", "256", "--batch-size", "8192", *FASTEST],
    "pong": ["--env", "ALE/Pong-v5", "--encoder", "nature_cnn", "--num-envs-per-worker", "32", "--batch-size", "512",
             *FASTEST],
}  # fmt: skip
STARTUP = ["train", "appo", "--env", "CartPole-v1", "--total-steps", "1", "--eval-interval", "0", "--run-dir", "None"]
REPLAY = """
import sys, time
import numpy as np
from penstock.replay import Field, Prioritized, ReplayBuffer

rng = np.random.default_rng(0)
rows = 100_000
fields = {"obs": Field((17,)), "action": Field((6,)), "reward": Field(), "next_obs": Field((17,))}
buffer = ReplayBuffer(rows, fields, sampler=Prioritized(alpha=0.6, beta=0.4), seed=0)
values = {name: np.zeros((rows, *field.shape), np.float32) for name, field in fields.items()}
buffer.add(**values, priorities=rng.random(rows))
errors = rng.random((64, 256))
batches, seconds = 0, float(sys.argv[1])
began = time.perf_counter()
while time.perf_counter() - began < seconds:
    for error in errors:
        buffer.update_priorities(buffer.sample(256)["ids"], error)
    batches += len(errors)
print(batches / (time.perf_counter() - began))
"""
MEMORY = """
import psutil
import penstock

with penstock.APPO(env="CartPole-v1", inference="central", run_dir=None, eval_interval=0) as algo:
    algo.train(20_000, quiet=True)
    processes = psutil.Process().children(recursive=True)
    workers = [process for process in processes if process.cmdline()[:1] and "penstock-rollout" in process.cmdline()[0]]
    print(max(worker.memory_full_info().uss for worker in workers) / 1e6)
"""


def measured(python: Path, kind: str, work: str, seconds: float) -> float:
    """Measure one turn, in the unit of its kind."""
    with tempfile.TemporaryDirectory() as folder:

        def output(*command: object) -> str:
            words = [str(python), *map(str, command)]
            return subprocess.run(words, check=True, capture_output=True, text=True, cwd=folder).stdout

        file = Path(folder) / "measured.json"
        match kind:
            case "throughput":
                flags = ["--work", work, "--seconds", seconds, "--rounds", 1, "--json", file]
                output("-m", "penstock.cli", "bench", "throughput", *flags)
                (rounds,) = [entry["rounds"]["penstock"] for entry in json.loads(file.read_text())["measured"]]
                return float(rounds[0])
            case "ideal":
                flags = ["appo", *IDEAL[work], "--bench-seconds", seconds, "--rounds", 1, "--json", file]
                output("-m", "penstock.cli", "bench", "ideal", *flags)
                return 100.0 * float(json.loads(file.read_text())["efficiency"])
            case "updates":
                package = Path(output("-c", "import penstock; print(penstock.__file__)").strip())
                program = package.parents[1] / "bench" / "updates.py"
                flags = ["--algorithms", work, "--threads", 1, "--rounds", 1, "--rows", 100_000]
                table = output(program, *flags).splitlines()
                (row,) = [line.split() for line in table if line.startswith(f"{work} ")]
                return float(row[4].replace(",", ""))  # algorithm, threads, "penstock", precision, updates / s
            case "replay":
                return float(output("-c", REPLAY, seconds))
            case "startup":
                began = time.monotonic()
                output("-m", "penstock.cli", *STARTUP)
                return time.monotonic() - began
            case _:
                return float(output("-c", MEMORY).splitlines()[-1])


def main() -> None:
    """Measure and print."""
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("before", type=Path, metavar="BEFORE")
    flags.add_argument("after", type=Path, nargs="?", default=Path(sys.executable), metavar="AFTER")
    flags.add_argument("--turns", type=int, default=4, help="turns of each")
    flags.add_argument("--seconds", type=float, default=5.0, help="of each measurement")
    flags.add_argument("--throughput", nargs="*", default=[], metavar="WORK")
    flags.add_argument("--ideal", nargs="*", default=[], choices=list(IDEAL), metavar="WORK")
    flags.add_argument("--updates", nargs="*", default=[], metavar="ALGORITHM")
    for kind in ("replay", "startup", "memory"):
        flags.add_argument(f"--{kind}", action="store_true")
    flags.add_argument("--write", type=Path, metavar="FILE", help="write every turn as a line of JSON")
    given = flags.parse_args()
    works = [(kind, work) for kind in ("throughput", "ideal", "updates") for work in getattr(given, kind)]
    works += [(kind, "") for kind in ("replay", "startup", "memory") if getattr(given, kind)]
    for kind, work in works:
        found = defaultdict[str, list[float]](list)
        for turn in range(given.turns):
            order = ("before", "after") if turn % 2 == 0 else ("after", "before")
            for who in order:
                found[who].append(measured(getattr(given, who), kind, work, given.seconds))
        if given.write:
            with given.write.open("a") as file:
                file.write(json.dumps({"kind": kind, "work": work, "seconds": given.seconds, **found}) + "\n")
        medians = {who: statistics.median(values) for who, values in found.items()}
        spreads = {who: f"{min(values):,.4g} to {max(values):,.4g}" for who, values in found.items()}
        print(
            f"{' '.join(filter(None, (kind, work)))}: before {medians['before']:,.4g} ({spreads['before']}), after "
            f"{medians['after']:,.4g} ({spreads['after']}): {medians['after'] / medians['before']:.3f} x, "
            f"{given.turns} turns each",
            flush=True,
        )


if __name__ == "__main__":
    main()
