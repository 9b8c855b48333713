"""Memory that a large argument of the environment costs each process of a run: private and shared, in MiB.

    python bench/large_arguments.py [MEBIBYTES] [WORKERS]

Output: anonymous and shared memory of each process during training, less that of a run without the argument.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import gymnasium
import numpy as np

import penstock


class Tables(gymnasium.Env):
    """Reads a table in every step."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, table: np.ndarray) -> None:
        self.table = table
        self.sum = float(table.sum())

    def reset(self, *, seed=None, options=None):  # type: ignore[no-untyped-def]
        """Begin."""
        return np.zeros(1, np.float32), {}

    def step(self, action):  # type: ignore[no-untyped-def]
        """End."""
        return np.zeros(1, np.float32), 0.0, False, True, {}


def memory_of(pid: int) -> tuple[float, float]:
    """Return the anonymous and shared resident memory of a process, in MiB."""
    lines = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(lines["RssAnon"].split()[0]) / 1024, int(lines["RssShmem"].split()[0]) / 1024


def measured(table: np.ndarray, workers: int) -> dict[str, tuple[float, float]]:
    """Return the memory of all descendants of this process during a training, by name."""
    found: dict[str, tuple[float, float]] = {}

    def look(status: object) -> None:
        for place in Path("/proc").glob("[0-9]*"):
            try:
                title = (place / "cmdline").read_bytes().split(b"\0")[0].decode()
                if title.startswith("penstock-") and descends(int(place.name)):
                    found[title] = memory_of(int(place.name))
            except (OSError, KeyError, ValueError):  # the process has ended meanwhile, or has no memory
                continue

    with penstock.PPO(
        env=Tables, env_kwargs={"table": table}, num_workers=workers, total_steps=20_000, eval_interval=5_000,
        run_dir=None,
    ) as algo:  # fmt: skip
        algo.train(quiet=True, on_update=look)
    return found


def descends(pid: int) -> bool:
    """Return whether a process is a descendant of this one."""
    while pid > 1:
        if pid == os.getpid():
            return True
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return False


def main() -> None:
    """Parse the command, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mebibytes", type=int, nargs="?", default=190)
    parser.add_argument("workers", type=int, nargs="?", default=3)
    arguments = parser.parse_args()
    without = measured(np.zeros(1), arguments.workers)
    table = np.ones(arguments.mebibytes * 2**20 // 8)
    for name, (anonymous, shared) in sorted(measured(table, arguments.workers).items()):
        before = without.get(name, (0.0, 0.0))
        print(f"{name:<24} anonymous {anonymous - before[0]:8.1f} MiB   shared {shared - before[1]:8.1f} MiB")


if __name__ == "__main__":
    main()
