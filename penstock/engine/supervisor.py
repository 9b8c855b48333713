"""The supervisor: starts the roles, hears them, and decides when to evaluate, to save, and to stop."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, NoReturn

import numpy as np

from penstock.config import Config
from penstock.engine.backends.interruption import Interrupted
from penstock.engine.backends.launcher import LauncherDied
from penstock.engine.backends.local import STOP_SECONDS, LocalBackend
from penstock.engine.backends.restarts import Restarts, RoleDied
from penstock.engine.backends.serial import SerialBackend
from penstock.engine.contracts import Backend
from penstock.engine.endings import TrainingFailed
from penstock.engine.evaluations import Evaluations
from penstock.engine.exploits import Exploits
from penstock.engine.following import ScheduleFollower
from penstock.engine.groups.board import board_for
from penstock.engine.messages import Evaluate, Report, Save
from penstock.engine.nodes.joining import address_of_home, cores_of_nodes_here
from penstock.engine.policies import Policy
from penstock.engine.reports import Reports
from penstock.engine.roles.specs import name_of
from penstock.engine.roles.together import parts_of, policies_by_role, with_policy_names
from penstock.engine.roster import role_specs
from penstock.engine.saves import Saves
from penstock.engine.transfers import Transfers
from penstock.engine.turns import RoleFailed, Turns
from penstock.engine.watching.chronicle import Chronicle, OnUpdate, View
from penstock.engine.watching.hangs import HangWatch
from penstock.engine.watching.hardware import Hardware
from penstock.engine.watching.progress import Progress
from penstock.engine.watching.time_spent import rows_by_kind
from penstock.envs.failures import EnvironmentFailure
from penstock.envs.spec import EnvSpec
from penstock.experience.arena import Control
from penstock.experience.layout import ROLES_OF_FEATURES, RoleKind
from penstock.experience.statistics import RunStatistics
from penstock.ipc.ownership import Owned, owner_only
from penstock.population.decisions import Population
from penstock.population.lineage import LINEAGE
from penstock.population.schedule import Schedule
from penstock.runs.checkpoint import CheckpointError
from penstock.runs.run_directory import RunDirectory
from penstock.runs.state import Written
from penstock.runs.store import CheckpointStore
from penstock.self_play.versions import opponents_of
from penstock.surroundings import Surroundings

FAREWELL_SECONDS = 3.0  # what the learner has to write a checkpoint when the run is failing


class Supervisor(Owned):
    """Runs one training, over any number of calls of `run`.

    Parameters
    ----------
    config
        The run's settings.
    policies
        Its policies. Their arenas hold the weights to start from, and the best of a run that goes on. When the run is
        closed they are let go of.
    env
        The environment.
    frame_skip
        Simulator frames per step.
    run_directory
        Where it is written; None: nowhere.
    notes
        What the user is to be told first.
    population
        Decides who copies whom; None: nobody does.
    lineage_lines
        Lines of the lineage that a population which goes on has written; None: it is a new one.
    schedule
        Values of tunable settings by steps, which hold instead of the config's; None: there is none.
    statistics
        Running statistics of the environment's wrappers; None: there are none.

    Attributes
    ----------
    statistics
        The same.
    """

    def __init__(
        self,
        config: Config,
        policies: list[Policy],
        env: EnvSpec,
        frame_skip: int,
        run_directory: RunDirectory | None,
        notes: Sequence[str] = (),
        population: Population | None = None,
        lineage_lines: int | None = None,
        schedule: Schedule | None = None,
        statistics: RunStatistics | None = None,
    ) -> None:
        self._config = config
        self._policies = policies
        self._env = env
        self.statistics = statistics or RunStatistics()
        self._surroundings = Surroundings(is_shared=config.backend == "serial")
        self._arena = arena = policies[0].arena
        self._run_directory = run_directory
        self._board = board_for(config.num_learners, address_of_home(config))
        group = self._board.spec if self._board is not None else None
        specs = role_specs(policies, env, arena.shape, group, cores_of_nodes_here(config))
        restarts = Restarts(forgive_environments=config.on_env_error == "restart")
        self.backend: Backend = _backend(config.backend)(arena, specs, self._take, restarts)
        names = [policy.name for policy in policies]
        policies_of_roles = policies_by_role(parts_of(specs), names)
        self._turns = Turns(self.backend, policies_of_roles)
        self._policies_of_processes = policies_by_role(specs, names)
        rows = rows_by_kind(parts_of(specs), arena.shape)
        algorithm = policies[0].algorithm.name()
        self.progress = Progress(config, algorithm, env.name, frame_skip, arena.gauges, rows, names)
        for policy, progress in zip(policies, self.progress.policies, strict=True):
            progress.steps = policy.start.state.steps
            progress.tuned = policy.tuned
            if (best := policy.best()) is not None:
                progress.best_return = best.mean_return
        self._stood_at = self.progress.steps
        self.progress.seconds = policies[0].start.seconds
        self.progress.run_dir = None if run_directory is None else os.fspath(run_directory.path)
        hangs = HangWatch(specs, arena)
        hardware = Hardware(lambda: self.backend.pids, has_gpu=config.device != "cpu")
        self._chronicle = Chronicle(self.progress, hangs, hardware, run_directory, has_begun=self.progress.steps > 0)
        self._notes = notes
        self.is_closed = False
        self._is_started = False

        def stores() -> list[CheckpointStore | None]:
            return [None if run_directory is None else run_directory.of_policy(name).checkpoints for name in names]

        self.evaluations = Evaluations(config, self.progress, self._chronicle, self._ask_evaluator, stores)
        self._opponents = opponents_of(config, policies, self._chronicle.lines_log)
        if self._opponents is not None:
            for number, progress in enumerate(self.progress.policies):
                progress.of_opponents = partial(self._opponents.status, number)
        self.saves = Saves(
            config, self.progress.steps, run_directory, policies=names, ask=self._ask_to_save,
            saving_apart=sum(policy.path.saving_apart for policy in policies), turn_until=self._turns.until,
            chronicle=self._chronicle,
        )  # fmt: skip
        self._transfers = Transfers(policies, self.backend.send, self._turns.until, arena.ring_all)
        self._exploits = Exploits(
            population, config.pbt_metric, policies, self.progress, self._transfers, self._chronicle,
            None if run_directory is None else run_directory.path / LINEAGE, lineage_lines,
        )  # fmt: skip
        self._following = ScheduleFollower(schedule or {}, policies, self.progress)
        self._reports = Reports(
            self.progress, self._chronicle, self._turns, self.evaluations, self.saves, self._transfers, self._exploits,
            self._policies_of_processes, policies_of_roles,
        )  # fmt: skip

    # -- what the trainer asks for ---------------------------------------------------------------------------------

    def run(
        self,
        goal: int,
        deadline: float | None,
        interrupted: Interrupted,
        view: View,
        on_update: OnUpdate | None,
    ) -> str:
        """Train until a step goal, a deadline (monotonic seconds), the target return, or an interruption.

        Returns
        -------
        str
            "steps", "seconds", "target", "callback" or "interrupted".

        Raises
        ------
        TrainingFailed
            Something failed; a checkpoint was written where that was possible, and the roles are gone.
        KeyboardInterrupt
            A second interruption came: the roles are gone.
        Exception
            Whatever `on_update` raised, after a checkpoint; the roles are there, and may go on.
        """
        self._began = time.monotonic() - self.progress.seconds
        self._turns.interrupted = interrupted
        if on_update is not None:
            on_update = self._surroundings.outside()(on_update)
        self.progress.restart_rate()
        self.evaluations.begin(deadline)
        with self._chronicle.shown_to(view, on_update), self._failing_as_a_whole():
            try:
                self._start()
                if spent := self._spent(goal, deadline):
                    self._chronicle.event(spent)
                self._set_goal(goal)
                while not (reason := self._reason_to_stop(goal, deadline, interrupted)):
                    self._turn()
                    self._schedule()
                    if len(self._policies) > 1:
                        self._set_goal(goal)
                self._rest()
                if reason == "target":
                    self._hold_best()
                self._save_run()
                # An evaluation may take long, or for ever: what was learned is safe by now.
                if self._is_budget_spent(reason) and self.evaluations.are_wanted:
                    self.evaluations.score_final(self._turn, self.meta, interrupted)
                    if interrupted.has_come:
                        reason = "interrupted"
                    elif self.evaluations.has_reached_target:
                        reason = "target"
                        self._hold_best()
                        self._save_run()
                if self._run_directory is not None and not self._chronicle.is_written:
                    self._save_run()
                self._chronicle.refresh(final=True)
                self._chronicle.ended(self._state_after(reason), reason)
                return reason
            except (TrainingFailed, RoleDied, LauncherDied, KeyboardInterrupt):
                raise
            except BaseException as error:  # the callback's
                if self.is_foreign:
                    raise
                self._rest()
                self._chronicle.log(f"training was left by an exception: {error!r}")
                if not self.is_closed:
                    self._save_run()
                self._chronicle.ended("failed", repr(error))
                raise
            finally:
                self._rest()

    def save(self, paths: Sequence[str]) -> None:
        """Write a checkpoint of each policy, replaced atomically; raises what went wrong in writing it."""
        with self._failing_as_a_whole():
            self._start()
            if error := self.saves.save(paths, self.meta()):
                raise error

    def set_weights(self, policy: int, weights: dict[str, np.ndarray]) -> None:
        """Give a policy's learner other weights.

        Segments that the policy has collected before are fenced off; a replay buffer stays as it is.
        """
        with self._failing_as_a_whole():
            self._start()
            self._transfers.set_weights(policy, weights)
            self._exploits.replaced(policy)
            self.evaluations.forget_all()  # what was played with the old weights says nothing of these

    def copy(self, parent: int | bytes, child: int) -> None:
        """Let a policy go on as a copy of another, or of what was saved of one, with its own settings."""
        with self._failing_as_a_whole():
            self._start()
            goal = self._policies[child].arena.control[Control.GOAL]
            if isinstance(parent, bytes):
                self._transfers.hand_over(parent, child)
            else:
                copied = self._transfers.copy(parent, child)
                self._exploits.copied_from_outside(parent, child, copied)
            self._policies[child].arena.control[Control.GOAL] = goal
            self._arena.ring_all()
            self._exploits.replaced(child)
            self.evaluations.forget_all()

    def tune(self, policy: int, values: Mapping[str, Any]) -> None:
        """Let other values of a policy's tunable settings hold from its next batch on."""
        self.require_owner()
        self._policies[policy].tune(values)
        self.progress.policies[policy].tuned = self._policies[policy].tuned
        self._exploits.set_from_outside(policy)

    @owner_only
    def close(self, patience: float = STOP_SECONDS) -> None:
        """Stop all roles: at first by asking them, after `patience` seconds for certain. May be called again."""
        if not self.is_closed:
            self.is_closed = True
            self._rest()
            try:
                with self._surroundings.inside():
                    self.backend.close(patience)
                if self._board is not None:
                    self._board.close()
                self._chronicle.close()
            finally:
                if self._run_directory is not None:
                    self._run_directory.release()  # nobody writes there any more
            self._policies.clear()  # whatever memory they hold, such as replay buffers, is given back

    # -- decisions -------------------------------------------------------------------------------------------------

    def _set_goal(self, goal: int) -> None:
        """Let the run go on to so many steps, whoever of its policies makes them."""
        left = goal - self.progress.steps
        for policy, progress in zip(self._policies, self.progress.policies, strict=True):
            policy.arena.control[Control.GOAL] = progress.steps + max(0, left)
        self._arena.ring_all()

    @owner_only
    def _rest(self) -> None:
        """Let nobody learn more."""
        for policy in self._policies:
            policy.arena.control[Control.GOAL] = 0

    def _reason_to_stop(self, goal: int, deadline: float | None, interrupted: Interrupted) -> str:
        if interrupted.has_come:
            return "interrupted"
        if self.evaluations.has_reached_target:
            return "target"
        if self._chronicle.stop_is_asked:
            return "callback"
        if self.progress.steps >= goal:
            return "steps"
        if deadline is not None and time.monotonic() >= deadline:
            return "seconds"
        return ""

    def _spent(self, goal: int, deadline: float | None) -> str:
        """Return the reason why there is nothing to train, and what to set for more; "" while there is."""
        steps = self.progress.steps
        if steps >= goal:
            return (
                f"nothing is left to train: the run stands at step {steps:,}, and total_steps={goal} is spent: set "
                f"total_steps={steps + goal} or more, or in Python call train(steps)"
            )
        if deadline is not None and time.monotonic() >= deadline:
            limit = self._config.max_seconds
            return f"nothing is left to train: max_seconds={limit:g} are spent: set more"
        return ""

    def _is_budget_spent(self, reason: str) -> bool:
        return reason == "seconds" or (reason == "steps" and self.progress.steps >= self._config.total_steps)

    def _state_after(self, reason: str) -> Written:
        if reason == "interrupted":
            return "interrupted"
        return "paused" if reason == "steps" and not self._is_budget_spent(reason) else "done"

    def _schedule(self) -> None:
        self._exploits.schedule()
        self._following.schedule()
        self.evaluations.schedule(self.meta)
        if self._opponents is not None:
            self._opponents.schedule(self.progress.steps)
        self.saves.schedule(self.progress.steps, self.meta)

    def _save_run(self) -> None:
        self.saves.save_run(self.meta(), self.progress.steps)

    def _ask_evaluator(self, command: Evaluate) -> bool:
        return self.backend.send(RoleKind.EVALUATOR, command)

    def _ask_to_save(self, command: Save, policy: int) -> bool:
        """Command a policy's learner to save, and its roles of features; return whether it has a learner."""
        for kind in ROLES_OF_FEATURES:
            self.backend.send(name_of(kind, policy), command)
        return self.backend.send(name_of(RoleKind.LEARNER, policy), command)

    def _hold_best(self) -> None:
        """Let learners hold the weights that have reached the target; they have gone on since these were copied."""
        for policy in self._policies:
            best = policy.best()
            assert best is not None
            weights = {name: tensor.numpy() for name, tensor in best.parameters[policy.id].items()}
            self._transfers.set_weights(policy.number, weights, best.steps)
            self._chronicle.log(
                f"the weights of step {best.steps:,} have reached the target: the learner holds them, at step "
                f"{self.progress.steps:,} of the run"
            )
        self.evaluations.forget()

    def meta(self) -> list[dict[str, Any]]:
        """Metadata of each policy's checkpoint, besides those of the weights' owner."""
        about = {"env": self._env.name, "seconds": self.progress.seconds, **self._exploits.state()}
        if self._run_directory is not None and "id" in self._run_directory.info:
            about["run"] = self._run_directory.info["id"]
        about |= {"statistics": [each.to_json() for each in self.statistics.now()]}
        metas = []
        for policy, progress in zip(self._policies, self.progress.policies, strict=True):
            matches = {} if self._opponents is None else {"matches": self._opponents.to_json(policy.number)}
            metas.append(policy.meta({**about, **matches, "mean_return": progress.mean_return}))
        return metas

    # -- hearing ---------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        if not self._is_started:
            self._is_started = True
            for note in self._notes:
                self._chronicle.event(note)
            self.backend.start()

    def _turn(self) -> None:
        """Hear the roles for a moment, and show where the run stands."""
        self._turns.turn()
        self.progress.seconds = time.monotonic() - self._began
        self._chronicle.refresh()

    def _take(self, role: str, report: Report) -> None:
        self._reports.take(role, report)

    # -- failing ---------------------------------------------------------------------------------------------------

    @contextmanager
    def _failing_as_a_whole(self) -> Iterator[None]:
        """Nothing in the run is left half alive: whatever cannot be mended ends all of it."""
        self.require_owner()
        with self._surroundings.inside():
            try:
                try:
                    yield
                except RoleFailed as error:
                    self._fail(str(error), error.cause)
                except (RoleDied, LauncherDied) as error:
                    self._fail(with_policy_names(str(error), self._policies_of_processes), None)
            except KeyboardInterrupt:
                if not self.is_foreign:
                    self._chronicle.ended("interrupted", "interrupted")
                    self.close(patience=0.0)
                raise

    def _fail(self, story: str, cause: BaseException | None) -> NoReturn:
        """End the run: save what can be saved, stop the roles, and raise the whole story."""
        self._turns.is_failing = True
        how_to_go_on = ""
        if self._run_directory is not None:
            with suppress(RoleDied, LauncherDied):  # the learner may be gone, too
                self.saves.save_run(self.meta(), self.progress.steps, FAREWELL_SECONDS)
            is_at_once = isinstance(cause, EnvironmentFailure) and cause.step == 0
            has_learned = self.progress.steps > self._stood_at
            # What failed at once, or before anything was learned, would fail again in the same way.
            is_there, saved = self._chronicle.is_written, None
            with suppress(CheckpointError):
                saved = self._run_directory.checkpoints.steps()
            if has_learned and not is_at_once and is_there and saved:
                command = self._run_directory.resume_command(max(saved))
                how_to_go_on = f"\ngo on from the last checkpoint with: {command}"
            self._chronicle.log(story)
        self._chronicle.ended("failed", story.partition("\n")[0])
        self.close()
        # Of an exception that came from another process nothing more is known than the story tells.
        raise TrainingFailed(story + how_to_go_on) from (cause if cause and cause.__traceback__ else None)


def _backend(name: str) -> Callable[..., Backend]:
    """Constructor of a backend."""
    if name == "ray":
        from penstock.engine.nodes.backend import NodesBackend  # a run without nodes needs nothing of it

        return NodesBackend
    return SerialBackend if name == "serial" else LocalBackend
