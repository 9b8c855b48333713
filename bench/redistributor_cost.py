"""Cost of redistributed rewards for the learner: a training with and without them, in turns: A, B, B, A.

    python bench/redistributor_cost.py --parts
    python bench/redistributor_cost.py [--turns 4] [--seconds 20] [--epochs 10] [--hidden 256] [--length 200]
    python bench/redistributor_cost.py --own IMPALA [--turns 4] [--seconds 20]

APPO learns CartPole with the whole return at the end of an episode. Learner and rollout worker share the first core,
the redistributor has the second core. Predictions are always trusted, so that every segment is redistributed. Output:
the share of redistributed steps, the share of the learner's time spent waiting for data, and three rates of steps
learned from: per second, per CPU second of the learner's gathering and learning, and per CPU second of learner and
worker. Other programs disturb mostly the first rate. The second is the rate of a learner that never waits; the others
include the worker's cost of redistribution. The learner's work includes ten reports per second, a larger share at lower
rates. ``--own`` measures an algorithm with its default settings, with which learning is much faster.

``--parts`` measures instead, in one process without other work, the shares of redistribution in the time of learner and
rollout worker, with the default settings of each algorithm and trusted predictions.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from pathlib import Path
from typing import Any

import penstock
from penstock.engine.paths.segment_learner import SegmentLearner
from penstock.engine.roles.learner import Learner
from penstock.engine.roles.rollout_worker import RolloutWorker
from penstock.engine.watching.clock import CPU
from penstock.rudder.learning import PredictorTraining
from penstock.rudder.redistribution import RedistributedLearner, SegmentRedistribution
from penstock.runs.machine import describe
from penstock.runs.status import Status

ENVIRONMENT = f"{Path(__file__).parent / 'environments' / 'delayed.py'}:AllAtTheEnd"
WARM_UP = 5.0  # seconds
STEPS = 10_000  # before a part is measured; twice as many while it is measured
LEARNERS_CORE, REDISTRIBUTORS_CORE = 0, 1
ALGORITHMS = ("PPO", "APPO", "PQN", "A2C", "IMPALA")
RATES = ("per second", "per second of the learner's work", "per second on the core")
TRUSTING = {"redistribution_max_error": 2.0}  # no error is as large: every prediction is used


def cpu_seconds(pid: int) -> float:
    """Return the seconds that a process was on a core."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def pin(pids: dict[str, int]) -> None:
    """Give one core to the redistributor, and the other core to all other roles."""
    for role, pid in pids.items():
        core = REDISTRIBUTORS_CORE if role == "redistributor" else LEARNERS_CORE
        for thread in Path(f"/proc/{pid}/task").iterdir():
            os.sched_setaffinity(int(thread.name), {core})


class Window:
    """Records steps, clock, the learner's work, and CPU time of learner and worker after the warm-up."""

    def __init__(self, algo: Any, seconds: float) -> None:
        self._algo, self._seconds, self._began = algo, seconds, time.monotonic()
        self.notes: list[tuple[int, float, float, float]] = []

    def __call__(self, status: Status) -> bool:
        """Record the current values; return whether the run continues."""
        pids = self._algo._supervisor.backend.pids
        now = time.monotonic() - self._began
        if "learner" in pids and now > WARM_UP:
            if not self.notes:
                pin(pids)
            gauges = self._algo._supervisor._arena.gauges_of("learner")
            work = sum(gauges[CPU][Learner.ACTIVITIES.index(activity)] for activity in ("gather", "learn"))
            on_core = cpu_seconds(pids["learner"]) + cpu_seconds(pids["rollout-0"])
            self.notes.append((status.steps, now, float(work), on_core))
        return now < WARM_UP + self._seconds


def measured(rewards: str, given: argparse.Namespace) -> dict[str, float]:
    """Measure one turn: rates, and the share of time that the learner waited for data."""
    settings: dict[str, Any] = {
        "num_workers": 1, "num_envs_per_worker": 16, "total_steps": 10**8, "eval_interval": 0, "run_dir": None,
        "env_kwargs": {"env_id": "CartPole-v1", "max_episode_steps": given.length}, "backend": "local", **TRUSTING,
    }  # fmt: skip
    if not given.own:
        settings |= {
            "segment_length": 32, "batch_size": 512, "num_epochs": given.epochs,
            "hidden_sizes": (given.hidden, given.hidden),
        }  # fmt: skip
    with getattr(penstock, given.own or "APPO")(ENVIRONMENT, rewards=rewards, **settings) as algo:
        window = Window(algo, given.seconds)
        algo.train(quiet=True, on_update=window)
        roles, shown = {str(role.name): role.activities for role in algo.status.roles}, algo.status.experience
    steps, *seconds = (last - first for first, last in zip(window.notes[0], window.notes[-1], strict=True))
    return {
        **{rate: steps / spent for rate, spent in zip(RATES, seconds, strict=True)},
        "waits": roles["learner"]["wait for data"],
        "updates": shown.get("redistribution/updates", 0.0),
        "share": shown.get("redistribution/share", 0.0),
    }


def parts(algorithm: str, given: argparse.Namespace) -> tuple[float, float]:
    """Return redistribution's shares of the time of an algorithm's learner and rollout worker, in one process.

    The learner additionally reads how much of a batch is redistributed, and reports the predictor's quality; the time
    that these calls take without redistribution is subtracted.
    """
    spent = dict.fromkeys(("learner", "of the learner", "plain", "worker", "of the worker"), 0.0)

    def timed(kind: type, method: str, what: str) -> None:
        plain = getattr(kind, method)

        def run(self: Any, *arguments: Any) -> Any:
            began = time.process_time()
            answer = plain(self, *arguments)
            spent[what] += (time.process_time() - began) * (answer is not False)
            return answer

        setattr(kind, method, run)
        undo.append((kind, method, plain))

    undo: list[tuple[type, str, Any]] = []
    env: dict[str, Any] = {"env_id": "CartPole-v1", "max_episode_steps": given.length}
    settings: dict[str, Any] = {
        "num_workers": 1, "backend": "serial", "eval_interval": 0, "run_dir": None, "redistributor_interval": 1_000,
    }  # fmt: skip
    with getattr(penstock, algorithm)(ENVIRONMENT, env_kwargs=env, rewards="rudder", **settings) as algo:
        algo.train(STEPS, quiet=True)
        timed(RolloutWorker, "poll", "worker")
        timed(SegmentRedistribution, "__call__", "of the worker")
        timed(RedistributedLearner, "poll", "learner")
        for method in ("_read", "experience"):
            timed(RedistributedLearner, method, "of the learner")
            timed(SegmentLearner, method, "plain")
        algo.train(2 * STEPS, quiet=True)
    for kind, method, plain in undo:
        setattr(kind, method, plain)
    of_learner = (spent["of the learner"] - spent["plain"]) / spent["learner"]
    return of_learner, spent["of the worker"] / spent["worker"]


def main() -> None:
    """Measure in turns and print."""
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--turns", type=int, default=4, help="of each")
    flags.add_argument("--seconds", type=float, default=20.0, help="of each turn, after a warm-up")
    flags.add_argument("--epochs", type=int, default=10)
    flags.add_argument("--hidden", type=int, default=256, help="width of both hidden layers")
    flags.add_argument("--length", type=int, default=200, help="most steps of an episode")
    flags.add_argument("--own", choices=ALGORITHMS, metavar="ALGORITHM", help="measure with its default settings")
    flags.add_argument("--parts", action="store_true", help="measure shares of the time of learner and worker")
    given = flags.parse_args()
    print(describe())
    if given.parts:
        PredictorTraining.quality = 1.0  # type: ignore[assignment, method-assign]
        for algorithm in ALGORITHMS:
            of_learner, of_worker = parts(algorithm, given)
            print(f"{algorithm:8} of the learner {of_learner:.1%}, of the worker {of_worker:.1%}", flush=True)
        return
    found: dict[str, list[dict[str, float]]] = {"environment": [], "rudder": []}
    for turn in range(given.turns):
        for rewards in list(found)[:: 1 if turn % 2 == 0 else -1]:
            one = measured(rewards, given)
            found[rewards].append(one)
            print(f"turn {turn + 1} {rewards:12}", *(f"{name} {value:,.2f}" for name, value in one.items()), flush=True)
    for name in RATES:
        without, with_it = (statistics.median(one[name] for one in found[rewards]) for rewards in found)
        print(f"{name}: {without:,.0f} without, {with_it:,.0f} with, {with_it / without:.3f}")


if __name__ == "__main__":
    main()
