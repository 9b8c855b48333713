"""The supervisor: starts the roles, handles their reports, and decides when to evaluate, to save, and to stop."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any, NoReturn

import numpy as np

from penstock.engine.backends.interruption import Interrupted
from penstock.engine.backends.launcher import LauncherDied
from penstock.engine.backends.local import STOP_SECONDS, LocalBackend
from penstock.engine.backends.restarts import Restarts, RoleDied
from penstock.engine.backends.serial import SerialBackend
from penstock.engine.contracts import Backend, RoleSpec
from penstock.engine.endings import NO_STEP, Budget, TrainingFailed, in_one_line
from penstock.engine.evaluations import Evaluations
from penstock.engine.exploits import Exploits
from penstock.engine.groups.board import Board
from penstock.engine.nodes.joining import address_of_home, cores_of_nodes_here, gauges_on
from penstock.engine.policies import Training
from penstock.engine.polling import RoleFailed, Roles
from penstock.engine.reports import Reports
from penstock.engine.roles.shared_process import parts_of
from penstock.engine.roster import role_specs
from penstock.engine.saves import Saves
from penstock.engine.scheduling import ScheduleRunner
from penstock.engine.transfers import Transfers
from penstock.engine.watching.chronicle import Chronicle, OnUpdate, View
from penstock.engine.watching.hangs import HangWatch
from penstock.engine.watching.hardware import Hardware
from penstock.engine.watching.progress import Progress
from penstock.engine.watching.time_spent import processes_by_kind, rows_by_kind
from penstock.envs.failures import EnvironmentFailure
from penstock.experience.arena import Control
from penstock.ipc.ownership import Owned, owner_only
from penstock.process_state import ProcessState
from penstock.runs.state import Written
from penstock.self_play.versions import opponents_of

FAREWELL_SECONDS = 3.0  # for the learner to write a checkpoint when the run fails


class Supervisor(Owned):
    """Runs one training, over any number of calls of `run`.

    Parameters
    ----------
    training
        The training; its policies are dropped when the run is closed.

    Attributes
    ----------
    training : Training
        The training, as given.
    backend : Backend
        Backend of the roles.
    progress : Progress
        Progress of the run.
    chronicle : Chronicle
        Records of the run.
    """

    def __init__(self, training: Training) -> None:
        self.training = training
        self.is_closed = False
        self._is_started = False
        config, policies, directory = training.config, training.policies, training.run_directory
        self._arena = arena = policies[0].arena
        self._surroundings = ProcessState(is_shared=config.backend == "serial")
        self._board = Board(config.num_learners, address_of_home(config)) if config.num_learners > 1 else None
        group = self._board.spec if self._board is not None else None
        specs = role_specs(policies, training.env, arena.shape, group, cores_of_nodes_here(config))
        restarts = Restarts(forgive_environments=config.on_env_error == "restart")
        self.progress = progress = _progress_of(training, specs)
        hardware = Hardware(lambda: self.backend.pids, has_gpu=config.device != "cpu")
        hangs, export = HangWatch(specs, arena), gauges_on(config)
        if training.sender is not None:
            progress.of_sender = training.sender.status
        self.chronicle = chronicle = Chronicle(
            progress, hangs, hardware, directory, export, training.sender, config.upload_timeout
        )
        self._opponents = opponents_of(config, policies, chronicle.lines_log)
        if self._opponents is not None:
            for number, of_policy in enumerate(progress.policies):
                of_policy.of_opponents = partial(self._opponents.status, number)
        self.backend: Backend = _backend(config.backend)(
            arena, specs, lambda role, report: self._reports.take(role, report), restarts
        )
        self._roles = roles = Roles(self.backend, specs, [policy.name for policy in policies])
        self.evaluations = Evaluations(config, progress, chronicle, roles)
        self.saves = Saves(training, progress, chronicle, roles)
        self._transfers = Transfers(policies, roles)
        self._exploits = Exploits(training, progress, chronicle, self._transfers)
        self._schedule_runner = ScheduleRunner(training.schedule, policies, progress)
        self._reports: Reports = Reports(progress, chronicle, roles, self.evaluations, self.saves, self._exploits)

    # -- calls of the trainer --------------------------------------------------------------------------------------

    def run(self, budget: Budget, interrupted: Interrupted, view: View, on_update: OnUpdate | None) -> str:
        """Train until the budget is spent, the target return is reached, or a callback or a signal ends training.

        Returns
        -------
        str
            "steps", "seconds", "target", "callback" or "interrupted".

        Raises
        ------
        TrainingFailed
            A role failed; a checkpoint was written if possible, and the run is closed.
        KeyboardInterrupt
            A second signal came; the run is closed.
        Exception
            An exception of `on_update`, raised after a checkpoint; the run may continue.
        """
        self._began = time.monotonic() - self.progress.seconds
        self._roles.interrupted = interrupted
        if on_update is not None:
            on_update = self._surroundings.outside()(on_update)
        self.progress.restart_rate()
        self.evaluations.begin(budget.deadline)
        with self.chronicle.shown_to(view, on_update), self._failing_as_a_whole():
            try:
                self._start()
                reason = self._train(self._await_lanes(budget))
                self.chronicle.refresh(final=True)
                self.chronicle.ended(*self._end_of(reason))
                return reason
            except (TrainingFailed, RoleDied, LauncherDied, KeyboardInterrupt):
                raise
            except BaseException as error:  # the callback's
                if self.is_foreign:
                    raise
                self._pause_learners()
                self.chronicle.log(f"training was ended by an exception: {error!r}")
                if not self.is_closed:
                    self.saves.save_run(self.meta())
                self.chronicle.ended("failed", repr(error))
                raise
            finally:
                self._pause_learners()

    def _train(self, budget: Budget) -> str:
        """Train, save, and score the final weights; return why training ended."""
        if note := budget.note_of_spent(self.progress.steps, self.training.config.max_seconds):
            self.chronicle.event(note)
        self._set_goal(budget.steps)
        while not (reason := self._reason_to_stop(budget)):
            self._turn()
            self._schedule()
            if len(self.training.policies) > 1:
                self._set_goal(budget.steps)
        self._pause_learners()
        if reason == "target":
            self._hold_best()
        self.saves.save_run(self.meta())
        # An evaluation may take long, or never end, so the run has been saved first.
        if self._is_budget_spent(reason) and self.evaluations.are_wanted:
            self.evaluations.score_final(self._turn, self.meta)
            if self._roles.interrupted.has_come:
                reason = "interrupted"
            elif self.evaluations.has_reached_target:
                reason = "target"
                self._hold_best()
                self.saves.save_run(self.meta())
        if self.training.run_directory is not None and not self.chronicle.is_written:
            self.saves.save_run(self.meta())
        return reason

    def save(self, paths: Sequence[str]) -> None:
        """Write a checkpoint of each policy, replacing earlier ones atomically; raise the error if writing fails."""
        with self._failing_as_a_whole():
            self._start()
            if error := self.saves.save(paths, self.meta()):
                raise error

    def set_weights(self, policy: int, weights: dict[str, np.ndarray]) -> None:
        """Replace the weights of a policy's learner.

        Segments that the policy has already collected are fenced off; a replay buffer stays as it is.
        """
        with self._failing_as_a_whole():
            self._start()
            self._transfers.set_weights(policy, weights)
            self._exploits.replaced(policy)
            self.evaluations.forget_all()

    def copy(self, parent: int | bytes, child: int) -> None:
        """Continue a policy as a copy of another, or of a saved state, with its own settings."""
        with self._failing_as_a_whole():
            self._start()
            control = self.training.policies[child].arena.control
            goal = control[Control.GOAL]
            if isinstance(parent, bytes):
                self._transfers.hand_over(parent, child)
            else:
                copied = self._transfers.copy(parent, child)
                self._exploits.copied_from_outside(parent, child, copied)
            control[Control.GOAL] = goal
            self._arena.ring_all()
            self._exploits.replaced(child)
            self.evaluations.forget_all()

    def tune(self, policy: int, values: Mapping[str, Any]) -> None:
        """Set tunable settings of a policy, from its next batch on."""
        self.require_owner()
        self.training.policies[policy].tune(values)
        self._exploits.set_from_outside(policy)

    @owner_only
    def close(self, patience: float = STOP_SECONDS) -> None:
        """Stop all roles: on request at first, by force after `patience` seconds. A second call does nothing."""
        if not self.is_closed:
            self.is_closed = True
            self._pause_learners()
            try:
                with self._surroundings.inside():
                    self.backend.close(patience)
                if self._board is not None:
                    self._board.close()
                if patience:
                    self.chronicle.flush()
                self.chronicle.close()
            finally:
                if self.training.sender is not None:
                    self.training.sender.close()
                if self.training.run_directory is not None:
                    self.training.run_directory.release()
            self.training.policies.clear()  # frees their memory, such as replay buffers

    def meta(self) -> list[dict[str, Any]]:
        """Return the metadata of each policy's checkpoint, except steps and versions."""
        training, progress = self.training, self.progress
        about = {"env": training.env.name, "seconds": progress.seconds, **self._exploits.state()}
        if training.run_directory is not None and "id" in training.run_directory.info:
            about["run"] = training.run_directory.info["id"]
        about |= {"statistics": [each.to_json() for each in training.statistics.now()]}
        metas = []
        for policy, of_policy in zip(training.policies, progress.policies, strict=True):
            matches = {} if self._opponents is None else {"matches": self._opponents.to_json(policy.number)}
            metas.append(policy.meta({**about, **matches, "mean_return": of_policy.mean_return}))
        return metas

    # -- decisions -------------------------------------------------------------------------------------------------

    def _set_goal(self, goal: int) -> None:
        """Set each policy's goal from the run's remaining steps."""
        left = goal - self.progress.steps
        for policy, progress in zip(self.training.policies, self.progress.policies, strict=True):
            policy.arena.control[Control.GOAL] = progress.steps + max(0, left)
        self._arena.ring_all()

    @owner_only
    def _pause_learners(self) -> None:
        """Set each policy's goal to 0, so that all learners stop."""
        for policy in self.training.policies:
            policy.arena.control[Control.GOAL] = 0

    def _reason_to_stop(self, budget: Budget) -> str:
        if self._roles.interrupted.has_come:
            return "interrupted"
        if self.evaluations.has_reached_target:
            return "target"
        return "callback" if self.chronicle.stop_is_asked else budget.spent(self.progress.steps)

    def _is_budget_spent(self, reason: str) -> bool:
        return reason == "seconds" or (reason == "steps" and self.progress.steps >= self.training.config.total_steps)

    def _end_of(self, reason: str) -> tuple[Written, str]:
        """Return the state of the run after training, and its reason."""
        if reason == "interrupted":
            return "interrupted", reason
        if self.saves.save_error:
            return "failed", f"not saved: {self.saves.save_error}"
        if reason == "seconds" and not self.progress.steps:
            return "failed", NO_STEP
        return "paused" if reason == "steps" and not self._is_budget_spent(reason) else "done", reason

    def _schedule(self) -> None:
        self._exploits.schedule()
        self._schedule_runner.schedule()
        self.evaluations.schedule(self.meta)
        if self._opponents is not None:
            self._opponents.schedule(self.progress.steps)
        self.saves.schedule(self.meta)

    def _hold_best(self) -> None:
        """Reset learners to the weights that reached the target, from which they have continued since."""
        for policy in self.training.policies:
            best = policy.best()
            assert best is not None
            weights = {name: tensor.numpy() for name, tensor in best.parameters[policy.id].items()}
            self._transfers.set_weights(policy.number, weights, best.steps)
            self.chronicle.log(
                f"the weights of step {best.steps:,} reached the target: the learner returns to them, at step "
                f"{self.progress.steps:,} of the run"
            )
        self.evaluations.forget()

    # -- roles -----------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        if not self._is_started:
            self._is_started = True
            for note in self.training.notes:
                self.chronicle.event(note)
            self.backend.start()

    def _await_lanes(self, budget: Budget) -> Budget:
        """Wait until there are lanes; return the budget with its deadline extended by the wait."""
        if self.backend.has_lanes:
            return budget
        began, steps = time.monotonic(), replace(budget, deadline=None)
        while not self.backend.has_lanes and not self._reason_to_stop(steps):
            self._turn()
        self._began += (waited := time.monotonic() - began)
        budget = steps if budget.deadline is None else replace(budget, deadline=budget.deadline + waited)
        self.progress.restart_rate()
        self.evaluations.begin(budget.deadline)
        return budget

    def _turn(self) -> None:
        """Poll the roles for a moment, and show the status."""
        self._roles.turn()
        self.progress.seconds = time.monotonic() - self._began
        self.chronicle.refresh()

    # -- failures --------------------------------------------------------------------------------------------------

    @contextmanager
    def _failing_as_a_whole(self) -> Iterator[None]:
        """Close the whole run if a role fails or cannot be replaced, so that no process is left."""
        self.require_owner()
        with self._surroundings.inside():
            try:
                try:
                    yield
                except RoleFailed as error:
                    self._fail(str(error), error.cause)
                except (RoleDied, LauncherDied) as error:
                    self._fail(self._roles.with_policies(str(error)), None)
            except KeyboardInterrupt:
                if not self.is_foreign:
                    self.chronicle.ended("interrupted", "interrupted", is_urgent=True)
                    self.close(patience=0.0)
                raise

    def _fail(self, story: str, cause: BaseException | None) -> NoReturn:
        """Save if possible, close the run, and raise `TrainingFailed` with the story and the command that resumes."""
        self._roles.is_failing = True
        how_to_go_on, directory = "", self.training.run_directory
        if directory is not None:
            self.chronicle.log(story)
            with suppress(RoleDied, LauncherDied):  # the learner may be gone, too
                self.saves.save_run(self.meta(), FAREWELL_SECONDS)
            # A failure at the first step, or before anything was learned, would only recur.
            is_at_once = isinstance(cause, EnvironmentFailure) and cause.step == 0
            has_learned = self.progress.steps > sum(policy.start.state.steps for policy in self.training.policies)
            is_there, saved = self.chronicle.is_written, directory.checkpoints.latest_steps()
            if has_learned and not is_at_once and is_there and saved is not None:
                how_to_go_on = f"\nresume from the last checkpoint with: {directory.resume_command(saved)}"
        self.chronicle.ended("failed", in_one_line(story))
        self.close()
        # An exception from another process has no traceback here; the story includes it as text.
        raise TrainingFailed(story + how_to_go_on) from (cause if cause and cause.__traceback__ else None)


def _progress_of(training: Training, specs: Sequence[RoleSpec]) -> Progress:
    """Return the progress at the start of a training."""
    policies, directory, arena = training.policies, training.run_directory, training.policies[0].arena
    about = {
        "algorithm": policies[0].algorithm.name(),
        "env": training.env.name,
        "frame_skip": training.frame_skip,
        "run_dir": None if directory is None else os.fspath(directory.path),
    }
    rows = rows_by_kind(parts_of(specs), arena.shape)
    names = [policy.name for policy in policies]
    progress = Progress(training.config, about, arena.gauges, rows, names, processes_by_kind(specs))
    for policy, of_policy in zip(policies, progress.policies, strict=True):
        of_policy.steps = policy.start.state.steps
        of_policy.tuned = policy.tuned
        if (best := policy.best()) is not None:
            of_policy.best_return = best.mean_return
    progress.seconds = policies[0].start.meta.get("seconds", 0.0)
    return progress


def _backend(name: str) -> Callable[..., Backend]:
    """Return the constructor of a backend."""
    if name == "ray":
        from penstock.engine.nodes.backend import NodesBackend  # not needed by runs without nodes

        return NodesBackend
    return SerialBackend if name == "serial" else LocalBackend
