"""Search for the fastest settings on this machine: candidates, measurements and choice.

The search is a coordinate descent. It starts with the given settings, measures a short training with each candidate,
and changes one setting at a time, continuing in a direction while that is faster, at first in strides, then in single
steps; it ends after a round without improvement. Because short measurements are noisy, "faster" requires a margin, and
at the end the best two are measured again: only these measurements count.

Most candidates are skipped, because the roles' use of time shows that they cannot be faster: a role with time to spare
needs no more resources (`Search._may_help`). Candidates that the config refuses, or that would change learning, are
skipped too: the batch stays unless its tuning is requested.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from penstock.bench.data_paths import measured_path
from penstock.config import Config, ConfigError
from penstock.engine.paths import data_path
from penstock.experience.layout import RoleKind
from penstock.ipc import available_cores, whole_cores

if TYPE_CHECKING:
    from penstock.algorithms.bases.algorithm import Algorithm
    from penstock.bench.engine_run import EngineRun
    from penstock.engine.watching.time_spent import RoleTime

WARMUP, WINDOW = 1.0, 3.0
"""Seconds of learning before and during each measurement."""
PATIENCE = 20.0
"""Shortest time limit of a measurement in seconds; it is twice the time of the first one, which has no own limit."""
MARGIN = 1.03
"""Ratio to the best rate from which a candidate counts as faster."""

_HELD_UP = 0.05  # share of a role's work spent off a core: below it, no other process takes its core
_LEAST_SHARE = 0.05  # of a rollout worker's time: below it, moving the work is not worthwhile


@dataclass(frozen=True)
class Trial:
    """Measured candidate.

    Attributes
    ----------
    config
        Settings, with number of workers and place of inference resolved.
    run
        Observations; None: the training failed.
    error
        Reason of the failure.
    took
        Seconds, including start-up.
    """

    config: Config
    run: EngineRun | None
    error: str
    took: float

    @property
    def rate(self) -> float:
        """Steps per second learned from; 0 if it failed."""
        return self.run.rate if self.run else 0.0

    @property
    def real_work(self) -> float:
        """Share of all cores' time spent on stepping environments, choosing actions and learning."""
        if self.run is None:
            return 0.0
        from penstock.runs.status import REAL_WORK

        spent = sum(role.cpu.get(work, 0.0) for role in self.run.roles for work in REAL_WORK)
        return spent / (self.run.seconds * available_cores())

    @property
    def settings(self) -> dict[str, Any]:
        """Tunable settings, resolved; batch_size is None if it is not a setting."""
        return settings_of(self.config)

    def role(self, kind: RoleKind) -> RoleTime | None:
        """Return the time spent by a kind of role; None without such a role."""
        roles = self.run.roles if self.run else ()
        return next((role for role in roles if role.name.split()[0] == kind), None)

    def facts(self) -> dict[str, Any]:
        """Return all results, for a JSON file."""
        return {
            **self.settings,
            "rate": self.rate,
            "real_work": self.real_work,
            "error": self.error,
            "took": self.took,
            "run": asdict(self.run) if self.run else None,
        }


class Search:
    """Search for the fastest settings within a time limit.

    Parameters
    ----------
    algorithm, config
        Run with the initial settings.
    fixed
        Names of settings that stay.
    end
        End of the search, in monotonic seconds.
    tune_batch
        Whether the number of steps per update may change.
    report
        Called with each trial.

    Attributes
    ----------
    trials
        All measurements in order; those at the end repeat two earlier settings.
    measured
        Properties of the data path for measurements.
    best
        Trial of the fastest settings; None before the first measurement.
    ended
        Reason of the end; "interrupted" until then.
    """

    def __init__(
        self, algorithm: type[Algorithm], config: Config, *, fixed: Collection[str] = (), end: float,
        tune_batch: bool = False, report: Callable[[Trial], None] = lambda trial: None,
    ) -> None:  # fmt: skip
        self._algorithm = algorithm
        self._workers_learn = data_path(algorithm, config).workers_learn
        self.measured = measured_path(algorithm, config)
        self._config = config
        self._end = end
        self._tune_batch = tune_batch
        self._report = report
        self._values = {name: v for name, v in _values(config, tune_batch).items() if name not in fixed}
        self.trials: list[Trial] = []
        self.best: Trial | None = None
        self.ended = "interrupted"

    def run(self) -> None:
        """Measure until no candidate is faster, or time is up.

        Raises
        ------
        Exception
            Any error of the initial settings.
        """
        self._measure(self._config)
        ended = "no remaining candidate can be faster"
        try:
            while self._go_round():
                pass
        except _TimeIsOver:
            ended = "no time for more"
        self._confirm()
        self.ended = ended

    @property
    def first(self) -> Trial:
        """Trial of the initial settings."""
        return self.trials[0]

    def rate(self, trial: Trial) -> float:
        """Return the last measured steps per second of a trial's settings; 0 if that failed.

        The measurement that made a candidate the best is biased upwards; a repeated one is not.
        """
        return next(other.rate for other in reversed(self.trials) if other.settings == trial.settings)

    @property
    def has_found(self) -> bool:
        """Whether the best settings may be recommended: the search ended, or they were confirmed to be faster."""
        return self.ended != "interrupted" or (
            self.best is not None and self.rate(self.best) > MARGIN * (self.rate(self.first) or self.first.rate)
        )

    def found(self) -> dict[str, Any]:
        """Return the fastest values of all settings that were free to change."""
        assert self.best is not None
        free = [name for name in self.best.settings if name in self._values]
        values = {name: getattr(self.best.config, name) for name in free}
        return {name: value for name, value in values.items() if value is not None}

    # -- the descent -----------------------------------------------------------------------------------------------

    def _go_round(self) -> bool:
        """Try every setting once; return whether one was faster."""
        before = self.best
        for name in self._values:
            for stride in (2, 1) if name == "num_envs_per_worker" else (1,):
                for direction in (stride, -stride):
                    while self._may_help(name, direction) and self._step(name, direction):
                        pass
        return self.best is not before

    def _step(self, name: str, by: int) -> bool:
        """Measure the next legal value of a setting, `by` steps from the best; return whether it is faster."""
        assert self.best is not None
        now = self.best.settings[name]
        values = sorted({*self._values[name], now})
        others = range(values.index(now) + by, len(values) if by > 0 else -1, by)
        candidate = next(filter(None, (self._legal({name: values[place]}) for place in others)), None)
        if candidate is None:
            return False
        settings = settings_of(candidate)
        trial = next((trial for trial in self.trials if trial.settings == settings), None)
        if trial is None:
            if not self._fits(3):  # this one, and the final two
                raise _TimeIsOver
            trial = self._measure(candidate)
        if trial.rate <= MARGIN * self.best.rate:
            return False
        self.best = trial
        return True

    def _may_help(self, name: str, direction: int) -> bool:
        """Return whether a change can be faster than the best trial, judged by its roles' use of time.

        - If rollout workers wait for the learner, more of them wait longer. If no other process takes cores from the
          learner, it is fully used: neither lanes nor the place of inference help.
        - Fewer workers do less if each has its own core, unless the learner lacks cores.
        - A policy worker helps if rollout workers spend part of their time choosing actions.
        - Groups help if rollout workers wait for actions.

        Roles that take turns allow no such conclusions: the time of each counts.
        """
        assert self.best is not None and self.best.run is not None
        rollout, learner, policy = map(self.best.role, (RoleKind.ROLLOUT, RoleKind.LEARNER, RoleKind.POLICY))
        takes_turns = self._config.backend == "serial" or self._algorithm.synchronous
        if rollout is None or learner is None:
            return True
        if name == "num_groups":
            return policy is not None and rollout.share("wait for actions") >= _LEAST_SHARE
        if takes_turns:
            return True
        learner_limits = self.best.run.limiting_role == learner.name
        if name == "num_workers":
            return not learner_limits if direction > 0 else learner_limits or not _is_unhindered(rollout)
        if learner_limits and _is_unhindered(learner):
            return name == "batch_size"
        if name == "inference" and policy is None:
            return rollout.share("infer") >= _LEAST_SHARE
        return True

    def _legal(self, change: dict[str, Any]) -> Config | None:
        """Return the best settings with a change; None if it is illegal, changes learning or is slow to measure."""
        assert self.best is not None
        best = self.best.config
        if "num_workers" in change and self._lanes_are_batch and "num_envs_per_worker" in self._values:
            change = {**change, "num_envs_per_worker": best.num_lanes // change["num_workers"]}
        try:
            candidate = replace(best, **change)
        except ConfigError:
            return None
        if self._lanes_of_batch(candidate) != self._lanes_of_batch(best):
            return None
        # At first, segments of all lanes fill at the same time: several such waves must fit into the window.
        wave = candidate.num_lanes * getattr(candidate, "segment_length", 1)
        is_quick = wave <= self.best.rate * WINDOW / 2 or candidate.num_lanes <= best.num_lanes
        return candidate if is_quick else None

    @property
    def _lanes_are_batch(self) -> bool:
        """Whether a batch is one segment of every lane, and must stay."""
        return self._lanes_of_batch(self._config) is not None and not self._workers_learn

    def _lanes_of_batch(self, config: Config) -> int | None:
        """Return the lanes whose segments make up a batch that must stay; None: any number."""
        return None if self._tune_batch else self.measured.lanes_of_batch(config)

    def kept(self) -> str:
        """Return the settings of the batch that stay unless requested; "" if there are none."""
        config = self._config
        if not self.measured.batch_is_free or self._tune_batch:
            return ""
        kept = [f"batch_size={config.batch_size}"] if hasattr(config, "batch_size") else []
        if self._workers_learn:
            kept.append(f"num_envs_per_worker={config.num_envs_per_worker}")
        if self._lanes_are_batch:
            kept.append(f"num_workers * num_envs_per_worker = {config.num_lanes}")
        return ", ".join(kept)

    # -- measuring -------------------------------------------------------------------------------------------------

    def _measure(self, config: Config) -> Trial:
        from penstock.bench.engine_run import run_engine  # imports torch

        began = time.monotonic()
        run, error = None, ""
        try:
            measured = self.measured.quick(config)
            patience = max(PATIENCE, 2.0 * self.first.took if self.trials else self._end - began)
            run = run_engine(self._algorithm, measured, seconds=WINDOW, warmup=WARMUP, patience=patience)
        except Exception as problem:
            if not self.trials:
                raise
            error = str(problem) or type(problem).__name__
        trial = Trial(config, run, error, time.monotonic() - began)
        if run is not None:
            place: Literal["central", "local"] = "central" if trial.role(RoleKind.POLICY) else "local"
            trial = replace(trial, config=replace(config, num_workers=config.workers, inference=place))
        self.trials.append(trial)
        self.best = self.best or trial  # before `report`, which may be interrupted
        self._report(trial)
        return trial

    def _fits(self, trials: int) -> bool:
        """Return whether there is time for more trials, each as long as the longest of the last ones."""
        longest = max(trial.took for trial in self.trials[-3:])
        return time.monotonic() + trials * longest <= self._end

    def _confirm(self) -> None:
        """Measure the best two again; the second becomes the best if it is faster then."""
        assert self.best is not None
        others = [trial for trial in self.trials if trial is not self.best and trial.run]
        if not others or not self._fits(2):
            return
        second = max(others, key=lambda trial: trial.rate)
        for finalist in (self.best, second):
            self._measure(finalist.config)
        if self.rate(second) > MARGIN * self.rate(self.best):
            self.best = second


class _TimeIsOver(Exception):
    """No time for another candidate."""


def settings_of(config: Config) -> dict[str, Any]:
    """Return the tunable settings, resolved; batch_size is None if it is not a setting."""
    is_double = config.inference == "central" and config.num_envs_per_worker % 2 == 0
    return {
        "num_workers": config.workers,
        "num_envs_per_worker": config.num_envs_per_worker,
        "inference": config.inference,
        "num_groups": config.num_groups or (2 if is_double else 1),
        "batch_size": getattr(config, "batch_size", None),
    }


def describe_quick(config: Config, measured: Config) -> str:
    """Describe the settings that differ during measurement."""
    settings, before = measured.to_json(), config.to_json()
    changed = [f"{name}={value}" for name, value in settings.items() if value != before[name]]
    return f"measured with {' and '.join(changed)}"


def _values(config: Config, tune_batch: bool) -> dict[str, list[Any]]:
    """Return the other values of each setting, the most important settings first."""
    count, powers = whole_cores(), [2**i for i in range(10)]
    values: dict[str, list[Any]] = {
        "num_envs_per_worker": powers,
        "num_workers": [*(n for n in powers if n < count), max(1, count - 1), count, count + 1],
        "inference": ["local", "central"],
        "num_groups": [1, 2],
    }
    if tune_batch and hasattr(config, "batch_size"):
        values["batch_size"] = [config.batch_size * n // 4 for n in (1, 2, 4, 8, 16, 32, 64)]
    return values


def _is_unhindered(role: RoleTime) -> bool:
    """Return whether a role was on a core while it worked."""
    from penstock.bench.account import shares_by_cause

    shares = shares_by_cause(role)
    return shares["held up"] <= _HELD_UP * (shares["working"] + shares["held up"])
