"""Is another version of Penstock as fast? The same measurements of both, in turns: A, B, B, A, and so on.

    python bench/in_turns.py BEFORE [AFTER] --throughput cartpole pong --ideal cartpole lunarlander pong [--turns 4]

BEFORE and AFTER are the Pythons of two environments, each with a version of its own installed (a git worktree of a
commit, with ``pip install -e .`` in an environment of its own). AFTER left out is the Python that runs this. Printed
are the medians of all turns, the slowest and the fastest, and the quotient of the medians. The measurements are the
installed commands ``penstock bench throughput`` and ``penstock bench ideal`` of each version. Nothing else may run
beside them.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
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


def measured(python: Path, kind: str, work: str, seconds: float) -> float:
    """One turn: steps per second, or the share of the ideal in percent."""
    command = [str(python), "-m", "penstock.cli", "bench", kind]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "measured.json"
        if kind == "throughput":
            command += ["--work", work, "--seconds", str(seconds)]
        else:
            command += ["appo", *IDEAL[work], "--bench-seconds", str(seconds)]
        subprocess.run([*command, "--rounds", "1", "--json", str(file)], check=True, capture_output=True, cwd=folder)
        found = json.loads(file.read_text())
    if kind == "ideal":
        return 100.0 * float(found["efficiency"])
    (rounds,) = [entry["rounds"]["penstock"] for entry in found["measured"]]
    return float(rounds[0])


def main() -> None:
    """Measure and print."""
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("before", type=Path, metavar="BEFORE")
    flags.add_argument("after", type=Path, nargs="?", default=Path(sys.executable), metavar="AFTER")
    flags.add_argument("--turns", type=int, default=4, help="turns of each")
    flags.add_argument("--seconds", type=float, default=5.0, help="of each measurement")
    flags.add_argument("--throughput", nargs="*", default=[], metavar="WORK")
    flags.add_argument("--ideal", nargs="*", default=[], choices=list(IDEAL), metavar="WORK")
    flags.add_argument("--write", type=Path, metavar="FILE", help="write every turn as a line of JSON")
    given = flags.parse_args()
    works = [("throughput", work) for work in given.throughput] + [("ideal", work) for work in given.ideal]
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
        spreads = {who: f"{min(values):,.0f} to {max(values):,.0f}" for who, values in found.items()}
        print(
            f"{kind} {work}: before {medians['before']:,.1f} ({spreads['before']}), after {medians['after']:,.1f} "
            f"({spreads['after']}): {medians['after'] / medians['before']:.3f} x, {given.turns} turns each",
            flush=True,
        )


if __name__ == "__main__":
    main()
