"""What the roles have reported so far, and what it says about the run."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from penstock.config import Config
from penstock.engine.clock import ACTIVITY
from penstock.engine.evaluation import Evaluation
from penstock.engine.roles import RoleSpec
from penstock.runs.status import RoleShare, Status

RECENT_EPISODES = 100
RATE_SECONDS = 5.0
SHORTEST_WINDOW = 0.1  # seconds; shares of less would be chance


class Progress:
    """Numbers of a run, gathered from reports and gauges.

    Parameters
    ----------
    config
        The run's settings.
    algorithm, env
        Names shown.
    frame_skip
        Simulator frames per step.
    gauges
        float64 ``[roles, 16]``: the arena's gauges.
    """

    def __init__(self, config: Config, algorithm: str, env: str, frame_skip: int, gauges: np.ndarray) -> None:
        self._config = config
        self._names = {"algorithm": algorithm, "env": env}
        self._frame_skip = frame_skip
        self._gauges = gauges
        self.run_dir: str | None = None
        self.learned: dict[str, Any] = {}
        self._by_worker: dict[int, dict[str, Any]] = {}
        self._learned_in_workers: dict[str, Any] = {}
        self.steps = 0
        self.seconds = 0.0
        self.restarts = 0
        self.episodes = 0
        self.evaluation: Evaluation | None = None
        self.best_return: float | None = None
        self._metrics: dict[str, float] = {}
        self._metric_reports: dict[str, list[float]] = {}
        self._recent: deque[tuple[float, int]] = deque(maxlen=RECENT_EPISODES)
        self._rate: deque[tuple[float, int]] = deque()
        self._gauges_then = gauges.copy()
        self._shares: dict[str, RoleShare] = {}

    def take_learned(self, report: dict[str, Any]) -> None:
        """Note where the learner stands."""
        self.learned = {**self.learned, **report, **self._learned_in_workers}
        self.steps = report["steps"]
        self._rate.append((time.monotonic(), self.steps))

    def take_learned_in_worker(self, report: dict[str, Any]) -> None:
        """Note what a worker that learns itself says of it: losses are the last one's, policy lag is all workers'."""
        self._by_worker[report["worker"]] = report
        lags = {name: [each[name] for each in self._by_worker.values()] for name in ("lag_min", "lag_mean", "lag_max")}
        self._learned_in_workers = {
            "losses": report["losses"],
            "learning_rate": report["learning_rate"],
            "lag_min": min(lags["lag_min"]),
            "lag_mean": float(np.mean(lags["lag_mean"])),
            "lag_max": max(lags["lag_max"]),
        }

    def take_episodes(self, episodes: list[tuple[float, int]]) -> None:
        """Note finished training episodes, (return, length) each."""
        self.episodes += len(episodes)
        self._recent.extend(episodes)

    def take_metrics(self, metrics: Mapping[str, float]) -> None:
        """Note numbers of environments or of the user; reports of one name between two statuses are averaged."""
        for name, value in metrics.items():
            self._metric_reports.setdefault(name, []).append(value)

    @property
    def metrics(self) -> dict[str, float]:
        """The last known mean of every number reported."""
        for name, values in self._metric_reports.items():
            self._metrics[name] = float(np.mean(values))
        self._metric_reports.clear()
        return dict(self._metrics)

    def take_evaluation(self, evaluation: Evaluation) -> None:
        """Note an evaluation."""
        self.evaluation = evaluation
        if self.best_return is None or evaluation.mean_return > self.best_return:
            self.best_return = evaluation.mean_return

    def restart_rate(self) -> None:
        """Forget the recent rate: the run has rested."""
        self._rate.clear()

    @property
    def mean_return(self) -> float | None:
        """Mean return of recent training episodes."""
        return float(np.mean([r for r, _ in self._recent])) if self._recent else None

    @property
    def mean_length(self) -> float | None:
        """Mean length of recent training episodes, in steps."""
        return float(np.mean([n for _, n in self._recent])) if self._recent else None

    @property
    def steps_per_second(self) -> float:
        """Recent rate of steps learned from; 0 where nothing was learned for a while."""
        now = time.monotonic()
        while self._rate and now - self._rate[0][0] > RATE_SECONDS:
            self._rate.popleft()
        if len(self._rate) < 2:
            return 0.0
        (began, before), (_, after) = self._rate[0], self._rate[-1]
        return (after - before) / (now - began)

    def refresh_shares(self, specs: Sequence[RoleSpec], activities: dict[str, tuple[str, ...]]) -> None:
        """Work out how every role spent the time since the last call."""
        spent = (self._gauges - self._gauges_then)[:, :ACTIVITY]
        if spent.max() < SHORTEST_WINDOW:
            return
        self._gauges_then = self._gauges.copy()
        kinds: dict[str, list[int]] = {}
        for spec in specs:
            kinds.setdefault(spec.name.split("-")[0], []).append(spec.index)
        for kind, rows in kinds.items():
            names = activities[kind]
            seconds = np.maximum(spent[rows, : len(names)], 0.0).sum(0)  # a role made anew begins at zero
            if (total := seconds.sum()) > 0.0:
                shares = dict(zip(names, (seconds / total).tolist(), strict=True))
                busy = sum(share for name, share in shares.items() if not name.startswith("wait"))
                name = kind if len(rows) == 1 else f"{kind} x{len(rows)}"
                self._shares[kind] = RoleShare(name=name, activities=shares, busy=busy)

    def limiting(self) -> tuple[str, str]:
        """Name the role that holds the run back, and why."""
        rollout, learner, policy = (self._shares.get(kind) for kind in ("rollout", "learner", "policy"))
        if rollout is None or learner is None:
            return "", ""
        for_learner = rollout.activities["wait for slots"] + rollout.activities["wait for learner"]
        for_actions = rollout.activities["wait for actions"]
        if for_learner > 0.2 and for_learner >= for_actions:
            return learner.name, f"rollout workers wait {for_learner:.0%} of their time for it"
        if for_actions > 0.2 and policy is not None:
            return policy.name, f"rollout workers wait {for_actions:.0%} of their time for actions"
        most = max(("env", "infer", "write", "learn"), key=lambda name: rollout.activities[name])
        return rollout.name, f"busy {rollout.busy:.0%} of the time, mostly {most}"

    def status(self) -> Status:
        """Everything shown, as plain numbers."""
        learned = self.learned
        role, reason = self.limiting()
        return Status(
            **self._names,
            run_dir=self.run_dir,
            steps=self.steps,
            total_steps=self._config.total_steps,
            seconds=self.seconds,
            steps_per_second=self.steps_per_second,
            frame_skip=self._frame_skip,
            masked_steps=learned.get("masked_steps", 0),
            episodes=self.episodes,
            mean_return=self.mean_return,
            mean_length=self.mean_length,
            eval_return=self.evaluation.mean_return if self.evaluation else None,
            best_return=self.best_return,
            target_return=self._config.target_return,
            updates=learned.get("updates", 0),
            version=learned.get("version", 0),
            losses=learned.get("losses", {}),
            policy_lag_min=learned.get("lag_min", 0.0),
            policy_lag_mean=learned.get("lag_mean", 0.0),
            policy_lag_max=learned.get("lag_max", 0.0),
            replay_rows=learned.get("replay_rows"),
            updates_per_step=learned.get("updates_per_step"),
            skipped_updates=learned.get("skipped_updates", 0),
            restarts=self.restarts,
            roles=tuple(self._shares.values()),
            limiting_role=role,
            limiting_reason=reason,
            metrics=self.metrics,
        )
