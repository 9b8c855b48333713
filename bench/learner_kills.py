"""Recovery of a group of learners after a kill: time, and updates lost.

    python bench/learner_kills.py [--role rank-1] [--kills 10] [--seconds-between 1]

PPO learns CartPole with two learners until it has reached its target and one learner was killed N times. Output per
kill: the seconds until both learn together again, the updates before the kill, and the updates from which the new group
continued. The exit code is 1 if an update was lost, a group took more than 10 s, or the target was missed.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from typing import Any

import penstock
from penstock.runs.machine import describe

MARK = 10.0  # seconds


class Killer:
    """Kills a learner, waits until the group is complete again, and repeats.

    Parameters
    ----------
    algo
        The run.
    role, kills, pause
        Killed role, number of kills, and seconds between them in which the group learns.
    """

    def __init__(self, algo: Any, role: str, kills: int, pause: float) -> None:
        self._backend = algo._supervisor.backend
        self._role, self._left, self._pause = role, kills, pause
        self._since = time.monotonic()
        self._killed_at = 0.0
        self._formed = self._updates = 0
        self.seconds: list[float] = []
        self.lost = 0

    def __call__(self, status: Any) -> bool:
        """Check the run; return whether it continues."""
        formed, now = int(status.experience.get("learners/rendezvous", 0)), time.monotonic()
        if self._killed_at and formed > self._formed:
            self.seconds.append(now - self._killed_at)
            self.lost += max(0, self._updates - status.updates)
            took = self.seconds[-1]
            print(f"{took:6.2f} s, {self._updates:>6,} updates before, {status.updates:>6,} after", flush=True)
            self._since, self._killed_at = now, 0.0
        is_whole = status.experience.get("learners/active") == 2
        if self._left and not self._killed_at and is_whole and now - self._since > self._pause:
            self._left, self._killed_at = self._left - 1, now
            self._formed, self._updates = formed, status.updates
            os.kill(self._backend.pids[self._role], signal.SIGKILL)
        has_reached = status.eval_return is not None and status.eval_return >= 475
        return bool(self._left or self._killed_at or not has_reached)


def main() -> None:
    """Parse the command, kill, and print."""
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--role", choices=["learner", "rank-1"], default="rank-1")
    flags.add_argument("--kills", type=int, default=10)
    flags.add_argument("--seconds-between", type=float, default=1.0)
    flags.add_argument("--steps", type=int, default=1_000_000)
    given = flags.parse_args()
    print(describe())
    with penstock.PPO("CartPole-v1", num_learners=2, num_workers=1, total_steps=given.steps, run_dir=None) as algo:
        killer = Killer(algo, given.role, given.kills, given.seconds_between)
        result = algo.train(quiet=True, on_update=killer)
    most = max(killer.seconds)
    print(f"{len(killer.seconds)} kills of {given.role}: {most:.2f} s at most, {killer.lost} updates lost, "
          f"final return {result.eval_return} at step {result.steps:,}, {algo.status.restarts} restarts")  # fmt: skip
    is_back = len(killer.seconds) == given.kills and most <= MARK
    sys.exit(int(not is_back or killer.lost > 0 or (result.eval_return or 0.0) < 475))


if __name__ == "__main__":
    main()
