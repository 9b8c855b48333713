"""Progress of a run, from the reports of its roles."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from penstock.config import Config
from penstock.engine.messages import Learned, LearnedInWorker
from penstock.engine.watching.metrics import distribution
from penstock.engine.watching.time_spent import (
    Moment,
    RoleTime,
    busiest_role,
    busy_seconds,
    cpu_by_purpose,
    limiting_role,
    role_times,
)
from penstock.experience.layout import RoleKind
from penstock.ipc import available_cores
from penstock.play.evaluation import Evaluation, success_rate
from penstock.runs.status import REAL_WORK, MatchStatus, NodeStatus, PolicyStatus, RoleShare, Status, mean_of, summed_up

RECENT_EPISODES = 100
RECENT_SECONDS = 5.0  # rates and shares cover the last seconds
SHORTEST_WINDOW = 0.1  # seconds; shares of shorter times are noise


class PolicyProgress:
    """Progress of one policy.

    Attributes
    ----------
    name
        Name of the policy; empty in a run of one policy.
    learned
        Last report of the learner.
    steps
        Steps learned from.
    episodes
        Finished training episodes.
    evaluation
        Last evaluation; None before the first.
    best_return
        Mean return of the best weights so far; None before there are any.
    tuned
        Values of tunable settings that have been set.
    exploits
        Number of times that the population has replaced the policy; None without a population.
    of_opponents
        Function that returns status fields of the past versions that the policy plays against.
    """

    def __init__(self, name: str = "") -> None:
        self.name = name
        self.learned = Learned(steps=0)
        self.steps = 0
        self.episodes = 0
        self.evaluation: Evaluation | None = None
        self.best_return: float | None = None
        self.tuned: Mapping[str, float] = {}
        self.exploits: int | None = None
        self.of_opponents: Callable[[], Mapping[str, Any]] = dict
        self._by_worker: dict[int, LearnedInWorker] = {}
        self._recent: deque[tuple[float, int]] = deque(maxlen=RECENT_EPISODES)
        self._successes: deque[float | None] = deque(maxlen=RECENT_EPISODES)

    def take_learned(self, report: Learned) -> None:
        """Record the report of the learner."""
        if self._by_worker:
            report = self._with_workers(report)
        self.learned = report
        self.steps = report.steps

    def take_learned_in_worker(self, report: LearnedInWorker) -> None:
        """Record the report of a rollout worker that learns."""
        self._by_worker.pop(report.worker, None)
        self._by_worker[report.worker] = report  # at the end: the last one to report

    def take_episodes(self, episodes: list[tuple[float, int]], successes: Sequence[float | None]) -> None:
        """Add finished training episodes, (return, length) each, and their successes if environments report them."""
        self.episodes += len(episodes)
        self._recent.extend(episodes)
        self._successes.extend(successes)

    def take_evaluation(self, evaluation: Evaluation, *, is_best: bool) -> None:
        """Record an evaluation, and whether its weights are the best so far."""
        self.evaluation = evaluation
        if is_best:
            self.best_return = evaluation.mean_return

    def updates_of(self, version: int) -> int:
        """Return the number of updates behind a version, if no weights have been set from outside since."""
        return max(0, self.learned.updates - self.learned.version + version)

    @property
    def mean_return(self) -> float | None:
        """Mean return of recent training episodes."""
        return float(np.mean([r for r, _ in self._recent])) if self._recent else None

    @property
    def mean_length(self) -> float | None:
        """Mean length of recent training episodes, in steps."""
        return float(np.mean([n for _, n in self._recent])) if self._recent else None

    @property
    def success_rate(self) -> float | None:
        """Share of recent training episodes that were successes; None where no environment reports them."""
        return success_rate(self._successes)

    def status(self) -> PolicyStatus:
        """Return the status of the policy, in plain numbers."""
        learned, evaluation = self.learned, self.evaluation
        return PolicyStatus(
            name=self.name,
            steps=self.steps,
            episodes=self.episodes,
            mean_return=self.mean_return,
            mean_length=self.mean_length,
            success_rate=self.success_rate,
            eval_return=evaluation.mean_return if evaluation and evaluation.took_part else None,
            eval_unfinished=evaluation.unfinished if evaluation else 0,
            eval_success_rate=evaluation.success_rate if evaluation else None,
            eval_matches=tuple(
                MatchStatus(match.opponent, match.seat, match.wins, match.draws, match.losses, match.mean_return)
                for match in (evaluation.matches if evaluation else ())
            ),
            best_return=self.best_return,
            updates=learned.updates,
            version=learned.version,
            learning_rate=learned.learning_rate,
            losses=learned.losses,
            experience=learned.experience,
            skipped_updates=learned.skipped_updates,
            tuned=dict(self.tuned),
            exploits=self.exploits,
            **self.of_opponents(),
        )

    def _with_workers(self, learned: Learned) -> Learned:
        """Add the reports of rollout workers: losses of the last one, policy lag of all."""
        *_, last = self._by_worker.values()
        lags = [lag for report in self._by_worker.values() for lag in report.lags]
        found = {"policy_lag/mean": float(np.mean(lags)), **distribution("policy_lag", lags)}
        experience = found | dict(learned.experience)
        return replace(learned, losses=last.losses, learning_rate=last.learning_rate, experience=experience)


def _share_of(role: RoleTime, total: float) -> RoleShare:
    """Return the share of `total` seconds that a role spent on each activity, and on work."""
    activities = {name: spent / total for name, spent in role.wall.items()}
    return RoleShare(name=role.name, activities=activities, busy=role.busy / total)


class Progress:
    """Numbers of a run, from reports and gauges.

    Parameters
    ----------
    config
        Settings of the run.
    about
        Fields of the status that stay the same: algorithm, env, frame_skip and run_dir.
    gauges
        float64 ``[roles, 32]``: gauges of the arena.
    rows
        Rows of the gauges by kind of role.
    policies
        Names of the policies, if there are several.
    processes
        Number of processes by kind of role; a kind that is missing has a process for each row.

    Attributes
    ----------
    policies : list of PolicyProgress
        Progress of each policy.
    seconds : float
        Wall-clock seconds of the run.
    restarts : int
        Roles that were replaced.
    last_report : Moment or None
        Moment of a learner's last report; None before the first.
    nodes, gateways : dict
        Status of each node, and of each gateway, of the run, by its number.
    of_sender : callable
        Function that returns fields of the status about files that are not yet sent.
    """

    def __init__(
        self, config: Config, about: Mapping[str, Any], gauges: np.ndarray, rows: Mapping[str, list[int]],
        policies: Sequence[str] = ("",), processes: Mapping[str, int] | None = None,
    ) -> None:  # fmt: skip
        self.policies = [PolicyProgress(name) for name in policies]
        self._config, self._about, self._gauges, self._rows = config, about, gauges, rows
        self._processes = processes or {}
        self.seconds = 0.0
        self.restarts = 0
        self.nodes: dict[int, NodeStatus] = {}
        self.of_sender: Callable[[], Mapping[str, Any]] = dict
        self.gateways: dict[int, NodeStatus] = {}
        self._env_steps = None if config.num_agents is None else 0
        self._metrics: dict[str, float] = {}
        self._metric_reports: dict[str, list[float]] = {}
        self._rate: deque[tuple[float, int]] = deque()
        self.last_report: Moment | None = None
        self._looks = deque([self._moment(busy_seconds())])
        self._times: dict[str, RoleTime] = {}
        self._shares: dict[str, RoleShare] = {}
        self._learners: tuple[RoleShare, ...] = ()
        self._cores: dict[str, float] = {}

    @property
    def frame_skip(self) -> int | None:
        """Simulator frames per step; None where the environment declares none."""
        return self._about.get("frame_skip")

    @property
    def steps(self) -> int:
        """Steps learned from, by all policies."""
        return sum(policy.steps for policy in self.policies)

    @property
    def mean_return(self) -> float | None:
        """Mean return of recent training episodes; with several policies, the mean over the policies."""
        return mean_of(policy.mean_return for policy in self.policies)

    def take_learned(self, report: Learned, policy: int = 0) -> None:
        """Record the report of a policy's learner."""
        self.policies[policy].take_learned(report)
        self.last_report = self._moment()
        self._rate.append((self.last_report.time, self.steps))

    def take_env_steps(self, count: int) -> None:
        """Add steps of environments with several agents."""
        self._env_steps = (self._env_steps or 0) + count

    def take_metrics(self, metrics: Mapping[str, float]) -> None:
        """Add numbers of environments or of the user; numbers of one name between two statuses are averaged."""
        for name, value in metrics.items():
            self._metric_reports.setdefault(name, []).append(value)

    @property
    def metrics(self) -> dict[str, float]:
        """Last known mean of every reported number."""
        for name, values in self._metric_reports.items():
            self._metrics[name] = float(np.mean(values))
        self._metric_reports.clear()
        return dict(self._metrics)

    def restart_rate(self) -> None:
        """Restart the recent rate and the shares of time, after a pause of the run."""
        self._rate.clear()
        self._looks = deque([self._moment(busy_seconds())])

    @property
    def steps_per_second(self) -> float:
        """Recent rate of steps learned from, up to now, over the last two reports at least; 0 before there are two."""
        now = time.monotonic()
        while len(self._rate) > 2 and now - self._rate[0][0] > RECENT_SECONDS:
            self._rate.popleft()
        if len(self._rate) < 2:
            return 0.0
        (began, before), (_, after) = self._rate[0], self._rate[-1]
        return (after - before) / (now - began)

    def refresh_shares(self) -> None:
        """Compute how the roles and the cores spent the last seconds."""
        now = self._moment(busy_seconds())
        self._looks.append(now)
        while len(self._looks) > 2 and now.time - self._looks[1].time >= RECENT_SECONDS:
            self._looks.popleft()
        seconds = now.time - self._looks[0].time
        if seconds < SHORTEST_WINDOW:
            return
        self._times = self.role_times(self._looks[0], now)
        for kind, role in self._times.items():
            if total := max(sum(role.wall.values()), seconds * role.processes):
                self._shares[kind] = _share_of(role, total)
        if self._config.num_learners > 1:
            self._learners = tuple(self._each_learner(self._looks[0], now, seconds))
        cpu = cpu_by_purpose(self._times, now.own_cpu - self._looks[0].own_cpu)
        ours, busy = sum(cpu.values()), now.busy - self._looks[0].busy
        total = max(ours, seconds * available_cores())
        cpu["other programs"] = min(max(0.0, busy - ours), total - ours)
        self._cores = {purpose: spent / total for purpose, spent in cpu.items()}
        self._cores["idle"] = 1.0 - sum(self._cores.values())

    def role_times(self, before: Moment, after: Moment) -> dict[str, RoleTime]:
        """Return the time spent by every role between two moments, by kind."""
        return role_times(self._rows, before, after, self._processes)

    def _each_learner(self, before: Moment, after: Moment, seconds: float) -> Iterator[RoleShare]:
        """Yield the shares of time of each learner of a group."""
        for kind in (RoleKind.LEARNER, RoleKind.RANK):
            for number, row in enumerate(self._rows.get(kind, ())):
                role = role_times({kind: [row]}, before, after)[kind]
                name = kind if kind == RoleKind.LEARNER else f"{kind}-{number + 1}"
                yield _share_of(replace(role, name=name), max(sum(role.wall.values()), seconds))

    def limiting(self, times: Mapping[str, RoleTime]) -> tuple[str, str]:
        """Return the role that limits the run, and why."""
        return busiest_role(times) if self._config.backend == "serial" else limiting_role(times)

    def _moment(self, busy: float = 0.0) -> Moment:
        # In the serial backend the roles' clocks count all CPU time of this process.
        own_cpu = 0.0 if self._config.backend == "serial" else time.process_time()
        return Moment(time.monotonic(), self.steps, self._gauges.copy(), own_cpu, busy)

    def status(self) -> Status:
        """Return the status of the run, in plain numbers."""
        role, reason = self.limiting(self._times)
        policies = [policy.status() for policy in self.policies]
        return Status(
            **self._about, **summed_up(policies), total_steps=self._config.total_steps, seconds=self.seconds,
            steps_per_second=self.steps_per_second, env_steps=self._env_steps,
            target_return=self._config.target_return, restarts=self.restarts,
            real_work=sum(self._cores[work] for work in REAL_WORK) if self._cores else None, cores=self._cores,
            roles=tuple(self._shares.values()), learners=self._learners, limiting_role=role, limiting_reason=reason,
            metrics=self.metrics, policies=tuple(policies) if len(policies) > 1 else (),
            gateways=tuple(self.gateways[number] for number in sorted(self.gateways)),
            nodes=tuple(self.nodes[number] for number in sorted(self.nodes)),
            nodes_requested=self._config.nodes_requested, **self.of_sender(),
        )  # fmt: skip
