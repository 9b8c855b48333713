"""Episodes to solve tasks with delayed reward, with RUDDER and without, over several seeds.

    python bench/delayed.py [--tasks watch key grid choice] [--learners rudder ppo ...] [--seeds 10] [--write FILE]
    python bench/delayed.py --growing watch [--delays 10 25 50 100 200] [--seeds 5] [--plot FILE] [--write FILE]
    python bench/delayed.py --tasks cartpole lunarlander --learners rudder ppo [--seeds 5] [--write FILE]
    python bench/delayed.py --tasks undelayed --learners rudder ppo [--seeds 5] [--write FILE]

Tasks are those of ``bench/environments/delayed.py``, which report at the end of an episode whether every decision was
the best one. Measured are the episodes until 90 of 100 successive training episodes are such successes; a run without
that counts as more than its number of episodes. Learners: PPO with RUDDER; PPO with lambda 0.95 and 1; PPO with
immediate rewards, a bound for any redistribution; DQN of ten steps with RUDDER; DQN with one step, n steps and
Monte-Carlo returns (n is the whole delay). CartPole and LunarLander pay all reward in an episode's last step; measured
are the steps until the mean return of 100 training episodes is 475, or 200. ``undelayed`` is the original CartPole, for
the cost of RUDDER without delay. Output: medians with a 95 % interval of 50,000 bootstraps. ``--growing`` varies the
delay of one task. FILE of ``--write`` grows by a line of JSON per run: runs in it are not repeated. Everything runs in
one process (``backend="serial"``).
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from runs_file import RunsFile

import penstock
from penstock.runs.machine import describe
from penstock.runs.status import Status
from penstock.studies.statistics import interval

ENVIRONMENTS = Path(__file__).parent / "environments" / "delayed.py"
WINDOW, SHARE = 100, 0.9  # number of successive training episodes, and the share of successes among them
SERIAL: dict[str, Any] = {
    "backend": "serial", "num_workers": 1, "num_envs_per_worker": 8, "eval_interval": 0, "run_dir": None
}  # fmt: skip
PPO = {"segment_length": 128, "batch_size": 256, "learning_rate": 1e-3, "learning_rate_schedule": "constant"}
DQN = {"learning_rate": 1e-3, "learning_rate_schedule": "constant", "learning_starts": 1_000, "gamma": 1.0}


@dataclass(frozen=True)
class Task:
    """A task: its class, its delay in steps, and the episodes after which a run is given up."""

    environment: str
    delay: int
    episodes: int
    delay_name: str = "delay"


TASKS = {
    "watch": Task("WatchRepair", 50, 10_000),
    "key": Task("KeyAndDoor", 100, 5_000),
    "grid": Task("DelayedGrid", 30, 10_000, "length"),
    "choice": Task("ChoiceAtStart", 200, 3_000),
}
CLASSIC = {
    "cartpole": ("CartPole-v1", 475.0, 500_000), "lunarlander": ("LunarLander-v3", 200.0, 1_500_000),
    "undelayed": ("CartPole-v1", 475.0, 500_000),
}  # fmt: skip
CLASSIC_GAMMA = 0.999  # with 0.99 a reward of T after T steps is worth most at T = 100, and CartPole needs 500
USUAL = {task: given.delay for task, given in TASKS.items()} | dict.fromkeys(CLASSIC, 500) | {"undelayed": 0}
LEARNERS = ("rudder", "ppo", "ppo lambda=1", "ppo at once", "dqn rudder", "dqn", "dqn n=10", "dqn monte-carlo")


def settings_of(learner: str, delay: int) -> tuple[Any, dict[str, Any]]:
    """Return the algorithm of a learner, and its settings."""
    if learner == "dqn rudder":
        return penstock.DQN, {**DQN, "n_step": 10, "rewards": "rudder"}
    if learner.startswith("dqn"):
        steps = {"dqn": 1, "dqn n=10": 10, "dqn monte-carlo": delay}[learner]
        return penstock.DQN, {**DQN, "n_step": steps}
    more = {"rudder": {"rewards": "rudder"}, "ppo lambda=1": {"gae_lambda": 1.0}}.get(learner, {})
    return penstock.PPO, {**PPO, **more}


class Watch:
    """Checks four times a second whether a run has solved its task in the last hundred episodes."""

    def __init__(self, needed: float, by_return: bool) -> None:
        self.reached: int | None = None
        self._needed, self._by_return = needed, by_return

    def __call__(self, status: Status) -> bool:
        """Record the number of episodes when solved; return whether the run continues."""
        value = status.mean_return if self._by_return else status.success_rate
        if status.episodes >= WINDOW and value is not None and value >= self._needed:
            self.reached = status.episodes
        return self.reached is None


def train(task: str, learner: str, seed: int, delay: int | None, limit: int | None) -> dict[str, Any]:
    """Train until the task is solved or given up; return the episodes, steps and seconds that it took."""
    began = time.monotonic()
    algorithm, settings = settings_of(learner, delay or USUAL[task])
    if task in CLASSIC:
        env_id, needed, budget = CLASSIC[task]
        env, kwargs, delay = f"{ENVIRONMENTS}:AllAtTheEnd", {"env_id": env_id}, USUAL[task]
        settings = {**settings, "gamma": CLASSIC_GAMMA}
        if task == "undelayed":
            env, kwargs = env_id, {}
        budget = limit or budget
    else:
        given, needed = TASKS[task], SHARE
        delay = delay or given.delay
        env, kwargs = f"{ENVIRONMENTS}:{given.environment}", {given.delay_name: delay}
        if learner == "ppo at once":
            env, kwargs = f"{ENVIRONMENTS}:AtOnce", {"task": given.environment, **kwargs}
        budget = (limit or given.episodes) * delay
    with algorithm(env, env_kwargs=kwargs, seed=seed, total_steps=budget, **SERIAL, **settings) as algo:
        watch = Watch(needed, task in CLASSIC)
        algo.train(quiet=True, on_update=watch)
        status = algo.status
    return {
        "task": task, "learner": learner, "seed": seed, "delay": delay, "solved": watch.reached is not None,
        "episodes": watch.reached or status.episodes, "steps": status.steps, "seconds": time.monotonic() - began,
        "limit": limit, "quality": status.experience.get("redistribution/quality"),
    }  # fmt: skip


def shown(runs: list[dict[str, Any]], measure: str) -> str:
    """Return the median of some runs and its interval, with ">" if half of them or more were given up."""
    values = np.array([run[measure] for run in runs], float)
    low, high = interval(lambda scores: np.median(scores[0], axis=-1), [values])
    solved = sum(run["solved"] for run in runs)
    more = "> " if solved <= len(runs) / 2 else ""
    return f"{more}{np.median(values):,.0f} [{low:,.0f}, {high:,.0f}], {solved} of {len(runs)} solved"


def table(runs: list[dict[str, Any]]) -> None:
    """Print a line for each task, delay and learner."""
    cases = dict.fromkeys((run["task"], run["delay"]) for run in runs)
    for task, delay in cases:
        measure = "steps" if task in CLASSIC else "episodes"
        print(f"{task}, delay {delay}: {measure} until it is solved")
        for learner in dict.fromkeys(run["learner"] for run in runs):
            of_it = [run for run in runs if (run["task"], run["delay"], run["learner"]) == (task, delay, learner)]
            if of_it:
                print(f"  {learner:16} {shown(of_it, measure)}")


def draw(runs: list[dict[str, Any]], task: str, file: Path) -> None:
    """Draw episodes over the delay, a line for each learner; hollow points were given up."""
    import matplotlib.pyplot as plt

    figure, panel = plt.subplots(figsize=(6, 4), layout="constrained")
    for number, learner in enumerate(dict.fromkeys(run["learner"] for run in runs)):
        of_it = [run for run in runs if run["learner"] == learner and run["task"] == task]
        delays = sorted({run["delay"] for run in of_it})
        by_delay = [[run for run in of_it if run["delay"] == delay] for delay in delays]
        medians = [np.median([run["episodes"] for run in each]) for each in by_delay]
        panel.plot(delays, medians, color=f"C{number}", label=learner)
        for delay, median, each in zip(delays, medians, by_delay, strict=True):
            is_solved = sum(run["solved"] for run in each) > len(each) / 2
            panel.plot(delay, median, "o", color=f"C{number}", fillstyle="full" if is_solved else "none")
    panel.set(xlabel="delay in steps", ylabel="episodes until solved (median)", xscale="log", yscale="log", title=task)
    at = sorted({run["delay"] for run in runs if run["task"] == task})
    panel.set_xticks(at, labels=[str(delay) for delay in at])
    panel.tick_params(axis="x", which="minor", bottom=False, labelbottom=False)
    panel.legend()
    figure.savefig(file)


def main() -> None:
    """Train the missing runs, and print."""
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--tasks", nargs="*", default=list(TASKS), choices=[*TASKS, *CLASSIC])
    flags.add_argument("--learners", nargs="*", default=list(LEARNERS), choices=LEARNERS)
    flags.add_argument("--seeds", type=int, default=10)
    flags.add_argument("--growing", choices=list(TASKS), metavar="TASK", help="vary the delay of this task")
    flags.add_argument("--delays", nargs="*", type=int, default=[10, 25, 50, 100, 200])
    flags.add_argument("--limit", type=int, help="episodes (CartPole, LunarLander: steps) after which a run ends")
    flags.add_argument("--plot", type=Path, metavar="FILE", help="of --growing")
    flags.add_argument("--write", type=Path, metavar="FILE")
    given = flags.parse_args()
    print(describe())
    tasks, delays = ([given.growing], given.delays) if given.growing else (given.tasks, [None])
    runs, measured = list[dict[str, Any]](), RunsFile(given.write)
    for seed in range(1, given.seeds + 1):
        for task in tasks:
            for delay in delays:
                for learner in given.learners:
                    what = {"task": task, "learner": learner, "seed": seed, "limit": given.limit}
                    run = measured.find(**what, delay=delay or USUAL[task])
                    if run is None:
                        run = train(task, learner, seed, delay, given.limit)
                        measured.add(run)
                        print(f"{task} {learner} seed {seed} delay {run['delay']}: {run['episodes']:,} episodes, "
                              f"{run['steps']:,} steps, {run['seconds']:.0f} s"
                              f"{'' if run['solved'] else ', given up'}", flush=True)  # fmt: skip
                    runs.append(run)
    table(runs)
    if given.plot and given.growing:
        draw(runs, given.growing, given.plot)


if __name__ == "__main__":
    main()
