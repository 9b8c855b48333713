"""The supervisor: starts the roles, hears them, and decides when to evaluate, to save, and to stop."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch

from penstock.algorithms.segment import SegmentAlgorithm
from penstock.engine.clock import ACTIVITY, SINCE
from penstock.engine.evaluation import Evaluation
from penstock.engine.evaluator import Evaluator
from penstock.engine.launcher import LauncherDied
from penstock.engine.learner import Learner, LearnerState
from penstock.engine.local import LocalBackend, RoleDied
from penstock.engine.policy import specs_to_json
from penstock.engine.policy_worker import PolicyWorker
from penstock.engine.process import Failure
from penstock.engine.progress import Progress
from penstock.engine.roles import EvaluatorRole, LearnerRole, PolicyRole, RoleSpec, RolloutRole
from penstock.engine.rollout_worker import RolloutSpec, RolloutWorker
from penstock.engine.serial import SerialBackend
from penstock.envs.failures import EnvironmentFailure
from penstock.envs.spec import EnvSpec
from penstock.experience.arena import Control, ExperienceArena
from penstock.runs.metrics import MetricsLog
from penstock.runs.run_directory import RunDirectory
from penstock.runs.status import Status
from penstock.runs.store import CheckpointStore

ACTIVITIES = {
    "rollout": RolloutWorker.ACTIVITIES,
    "policy": PolicyWorker.ACTIVITIES,
    "learner": Learner.ACTIVITIES,
    "evaluator": Evaluator.ACTIVITIES,
}
REFRESH_INTERVAL = 0.25  # seconds between two looks at the gauges
METRICS_INTERVAL = 1.0  # seconds between two lines of metrics.jsonl
HANG_SECONDS = 30.0
SAVE_SECONDS = 60.0  # what the learner has to finish an update and write a checkpoint
FAREWELL_SECONDS = 3.0  # the same, when the run is failing


class TrainingFailed(RuntimeError):
    """The run ended because something in it failed; the message is the whole story and how to go on."""


class View(Protocol):
    """Whoever shows the run."""

    def update(self, status: Status) -> None: ...

    def event(self, text: str) -> None: ...


@dataclass(frozen=True)
class Start:
    """Where a run starts: from nothing, or from a checkpoint."""

    state: LearnerState
    optimizer_state: dict[str, Any] | None = None
    best_return: float | None = None
    seconds: float = 0.0


class Supervisor:
    """Runs one training, over any number of calls of `run`.

    Parameters
    ----------
    algorithm
        The algorithm with its config.
    env
        The environment.
    frame_skip
        Simulator frames per step.
    arena
        The run's arena, holding the weights to start from.
    start
        Where the run starts.
    run_directory
        Where it is written; None: nowhere.
    """

    def __init__(
        self,
        algorithm: SegmentAlgorithm,
        env: EnvSpec,
        frame_skip: int,
        arena: ExperienceArena,
        start: Start,
        run_directory: RunDirectory | None,
    ) -> None:
        self._algorithm = algorithm
        self._config = algorithm.config
        self._env = env
        self._arena = arena
        self._run_directory = run_directory
        self._specs = role_specs(algorithm, env, arena, start)
        backend = SerialBackend if self._config.backend == "serial" else LocalBackend
        self.backend: SerialBackend | LocalBackend = backend(arena, self._specs, self._handle)
        self.progress = Progress(self._config, algorithm.name(), env.name, frame_skip, arena.gauges)
        self.progress.steps = start.state.steps
        self.progress.best_return = start.best_return
        self.progress.seconds = start.seconds
        self.progress.run_dir = None if run_directory is None else os.fspath(run_directory.path)
        self._metrics = MetricsLog(None if run_directory is None else run_directory.path)
        self._view: View | None = None
        self._on_update: Callable[[Status], dict[str, float] | None] | None = None
        self._is_started = False
        self._is_evaluating = False
        self._next_evaluation = start.state.steps + self._eval_interval
        self._next_checkpoint = start.state.steps + self._checkpoint_interval
        self._next_refresh = self._next_metrics = 0.0
        self._saved: tuple[Any, Exception | None] | None = None
        self._weights_set = False
        self._failure: tuple[str, Failure] | None = None
        self._hanging: set[str] = set()

    # -- what the trainer asks for ---------------------------------------------------------------------------------

    def run(
        self,
        goal: int,
        deadline: float | None,
        interrupted: threading.Event,
        view: View,
        on_update: Callable[[Status], dict[str, float] | None] | None,
    ) -> str:
        """Train until a step goal, a deadline (monotonic seconds), the target return, or an interruption.

        Returns
        -------
        str
            "steps", "seconds", "target" or "interrupted".

        Raises
        ------
        TrainingFailed
            Something failed; a checkpoint was written where that was possible, and the roles are gone.
        """
        self._view, self._on_update = view, on_update
        began, before = time.monotonic(), self.progress.seconds
        self.progress.restart_rate()
        try:
            self._start()
            self._arena.control[Control.GOAL] = goal
            self._arena.ring_all()
            while not (reason := self._reason_to_stop(goal, deadline, interrupted)):
                self.backend.pump(0.1)
                self.progress.seconds = before + time.monotonic() - began
                self._require_no_failure()
                self._schedule()
                self._refresh()
            self._arena.control[Control.GOAL] = 0
            if reason in ("steps", "seconds") and self._config.eval_interval != 0 and self._is_budget_spent(reason):
                self._evaluate_now()
                self.progress.seconds = before + time.monotonic() - began
                if self._is_target_reached():
                    reason = "target"
            if self._run_directory is not None:
                self._save(self._run_directory.checkpoints, SAVE_SECONDS)
            self._refresh(final=True)
            return reason
        except (RoleDied, LauncherDied) as error:
            self._fail(str(error))
        finally:
            self._arena.control[Control.GOAL] = 0
            self._view = None

    def save(self, path: str) -> None:
        """Write one checkpoint at `path`, replaced atomically; raises what went wrong in writing it."""
        self._start()
        if error := self._save(path, SAVE_SECONDS):
            raise error

    def set_weights(self, weights: dict[str, np.ndarray]) -> None:
        """Give the learner other weights; experience collected before is fenced off."""
        self._start()
        self._weights_set = False
        self.backend.send("learner", "set_weights", weights)
        self._pump_until(lambda: self._weights_set, SAVE_SECONDS)
        self._arena.control[Control.RUN_EPOCH] += 1
        self._arena.ring_all()

    def close(self) -> None:
        """Stop all roles."""
        self._arena.control[Control.GOAL] = 0
        self.backend.close()
        self._metrics.close()

    # -- decisions -------------------------------------------------------------------------------------------------

    @property
    def _eval_interval(self) -> int:
        interval = self._config.eval_interval
        if interval is None:
            return 1 if self._config.target_return is not None else max(1, self._config.total_steps // 20)
        return interval

    @property
    def _checkpoint_interval(self) -> int:
        interval = self._config.checkpoint_interval
        return max(1, self._config.total_steps // 10) if interval is None else interval

    def _reason_to_stop(self, goal: int, deadline: float | None, interrupted: threading.Event) -> str:
        if interrupted.is_set():
            return "interrupted"
        if self._is_target_reached():
            return "target"
        if self.progress.steps >= goal:
            return "steps"
        if deadline is not None and time.monotonic() >= deadline:
            return "seconds"
        return ""

    def _is_target_reached(self) -> bool:
        target, evaluation = self._config.target_return, self.progress.evaluation
        return target is not None and evaluation is not None and evaluation.mean_return >= target

    def _is_budget_spent(self, reason: str) -> bool:
        return reason == "seconds" or self.progress.steps >= self._config.total_steps

    def _schedule(self) -> None:
        steps = self.progress.steps
        if self._eval_interval and steps >= self._next_evaluation and not self._is_evaluating:
            self._next_evaluation = steps + self._eval_interval
            self._request_evaluation()
        if self._run_directory and self._checkpoint_interval and steps >= self._next_checkpoint:
            self._next_checkpoint = steps + self._checkpoint_interval
            self.backend.send("learner", "checkpoint", (self._run_directory.checkpoints, self._meta()))

    def _request_evaluation(self) -> None:
        store = None if self._run_directory is None else self._run_directory.checkpoints
        self._is_evaluating = True
        self.backend.send("evaluator", "evaluate", {"best": store, "meta": self._meta()})

    def _evaluate_now(self) -> None:
        """Score the final weights, unless the last evaluation already did."""
        self._pump_until(lambda: not self._is_evaluating, None)
        evaluation = self.progress.evaluation
        if evaluation is None or evaluation.steps < self.progress.steps:
            self._request_evaluation()
            self._pump_until(lambda: not self._is_evaluating, None)

    def _save(self, destination: CheckpointStore | str, seconds: float) -> Exception | None:
        self._saved = None
        self.backend.send("learner", "checkpoint", (destination, self._meta()))
        self._pump_until(lambda: self._saved is not None, seconds)
        return self._saved[1] if self._saved is not None else TimeoutError("the learner did not answer")

    def _meta(self) -> dict[str, Any]:
        return {
            "algorithm": algorithm_id(type(self._algorithm)),
            "env": self._env.name,
            "seconds": self.progress.seconds,
            "mean_return": self.progress.mean_return,
            "config": self._config.to_json(),
            "specs": specs_to_json(self._algorithm.observation, self._algorithm.action),
        }

    # -- hearing and showing ---------------------------------------------------------------------------------------

    def _start(self) -> None:
        if not self._is_started:
            self._is_started = True
            self.backend.start()

    def _pump_until(self, is_done: Callable[[], bool], seconds: float | None) -> None:
        end = None if seconds is None else time.monotonic() + seconds
        while not is_done() and (end is None or time.monotonic() < end):
            self.backend.pump(0.05)
            self._require_no_failure()

    def _handle(self, role: str, kind: str, payload: Any) -> None:
        if kind == "learned":
            self.progress.take_learned(payload)
        elif kind == "episodes":
            self.progress.take_episodes(payload)
        elif kind == "metrics":
            self.progress.metrics.update(payload)
        elif kind == "evaluation":
            self._take_evaluation(*payload)
        elif kind == "saved":
            self._saved = payload
            if payload[1] is not None:
                self._event(f"warning: no checkpoint could be written, training goes on: {payload[1]}")
        elif kind == "weights_set":
            self._weights_set = True
        elif kind == "died":
            self.progress.restarts += 1
            self._is_evaluating &= role != "evaluator"
            self._event(f"{payload}: replaced")
        elif kind == "failed":
            self._take_failure(role, payload)

    def _take_evaluation(self, evaluation: Evaluation, error: Exception | None) -> None:
        self._is_evaluating = False
        self.progress.take_evaluation(evaluation)
        self._metrics.write(
            evaluation.steps, self.progress.seconds,
            {"evaluation/mean_return": evaluation.mean_return, "evaluation/std_return": evaluation.std_return},
        )  # fmt: skip
        if error is not None:
            self._event(f"warning: the best weights could not be written, training goes on: {error}")

    def _take_failure(self, role: str, failure: Failure) -> None:
        is_environment = isinstance(failure.error, EnvironmentFailure)
        if is_environment and role.startswith("rollout") and self._config.on_env_error == "restart":
            self._event(f"{role}: {failure.error}")
        elif self._failure is None:
            self._failure = role, failure

    def _require_no_failure(self) -> None:
        if self._failure is not None:
            role, failure = self._failure
            self._fail(f"{role} failed:\n{failure.text}")

    def _fail(self, story: str) -> None:
        """End the run: save what can be saved, stop the roles, and raise the whole story."""
        self._failure = None
        how_to_go_on = ""
        if self._run_directory is not None:
            try:
                self._save(self._run_directory.checkpoints, FAREWELL_SECONDS)
            except (RoleDied, LauncherDied, TrainingFailed):
                pass
            if self._run_directory.checkpoints.steps():
                how_to_go_on = f"\ngo on from the last checkpoint with: penstock resume {self._run_directory.path}"
            self._run_directory.log(story)
        self.close()
        raise TrainingFailed(story + how_to_go_on)

    def _event(self, text: str) -> None:
        if self._run_directory is not None:
            self._run_directory.log(text)
        if self._view is not None:
            self._view.event(text)

    def _refresh(self, final: bool = False) -> None:
        now = time.monotonic()
        if now < self._next_refresh and not final:
            return
        self._next_refresh = now + REFRESH_INTERVAL
        self.progress.refresh_shares(self._specs, ACTIVITIES)
        self._look_for_hangs(now)
        status = self.progress.status()
        if self._on_update is not None:
            self.progress.metrics.update(self._on_update(status) or {})
        if self._view is not None:
            self._view.update(status)
        if (now >= self._next_metrics or final) and status.steps:
            self._next_metrics = now + METRICS_INTERVAL
            self._metrics.write(status.steps, status.seconds, metrics_of(status))

    def _look_for_hangs(self, now: float) -> None:
        for spec in self._specs:
            if isinstance(spec, RolloutRole):
                gauges = self._arena.gauges[spec.index]
                activity = RolloutWorker.ACTIVITIES[int(gauges[ACTIVITY])]
                seconds = now - gauges[SINCE]
                if activity == "env" and gauges[SINCE] and seconds > HANG_SECONDS and spec.name not in self._hanging:
                    self._hanging.add(spec.name)
                    self._event(f"warning: {spec.name} hangs in {self._env.name} for {seconds:.0f} s")
                elif activity != "env" or seconds < HANG_SECONDS:
                    self._hanging.discard(spec.name)


def role_specs(
    algorithm: SegmentAlgorithm, env: EnvSpec, arena: ExperienceArena, start: Start
) -> list[RoleSpec]:
    """Decide which roles a run has and how many threads each may use."""
    config, shape = algorithm.config, arena.shape
    cores = len(os.sched_getaffinity(0))
    # What rollout workers leave over; on a small machine all share, with one thread each.
    threads = 1 if config.backend == "serial" else max(1, cores - shape.num_workers)
    is_central = infers_centrally(config.inference, algorithm)
    specs: list[RoleSpec] = [
        RolloutRole(RolloutSpec(i, env, config.seed, 0, 1), None if is_central else algorithm)
        for i in range(shape.num_workers)
    ]
    if is_central:
        specs.append(PolicyRole(algorithm, shape.num_workers, threads))
    specs.append(LearnerRole(algorithm, start.state, start.optimizer_state, shape.num_workers + 1, threads))
    specs.append(EvaluatorRole(algorithm, env, start.best_return, shape.num_workers + 2))
    return specs


def infers_centrally(inference: str, algorithm: SegmentAlgorithm) -> bool:
    """Whether a policy worker infers; "auto": on a GPU, and for images, whose networks are worth a batch."""
    if inference == "auto":
        return torch.device(algorithm.config.device).type != "cpu" or algorithm.observation.is_image
    return inference == "central"


def algorithm_id(algorithm: type[SegmentAlgorithm]) -> str:
    """Name by which `load_algorithm` finds an algorithm again: short for Penstock's own, else "module:Class"."""
    own = algorithm.__module__.startswith("penstock.")
    return algorithm.name() if own else f"{algorithm.__module__}:{algorithm.__qualname__}"


def metrics_of(status: Status) -> dict[str, float]:
    """Everything of a status that is logged, by name."""
    values: dict[str, float] = {
        "steps_per_second": status.steps_per_second,
        "policy_lag/mean": status.policy_lag_mean,
        "policy_lag/max": status.policy_lag_max,
        "updates": status.updates,
        "masked_steps": status.masked_steps,
        "skipped_updates": status.skipped_updates,
        "restarts": status.restarts,
    }
    if status.mean_return is not None and status.mean_length is not None:
        values |= {"episode/mean_return": status.mean_return, "episode/mean_length": status.mean_length}
    values |= {f"loss/{name}": value for name, value in status.losses.items()}
    values |= {f"time/{role.name}/{name}": share for role in status.roles for name, share in role.activities.items()}
    return values | {f"metrics/{name}": value for name, value in status.metrics.items()}
