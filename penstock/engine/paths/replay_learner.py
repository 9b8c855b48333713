"""The learner from replay: update after update, as many for each step as the config says."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from torch import Tensor

from penstock.algorithms.arithmetic.td import largest_error
from penstock.algorithms.bases.algorithm import NonFiniteUpdate
from penstock.algorithms.bases.replay import ReplayAlgorithm
from penstock.engine.acting.weights import MakeWeights, through_block
from penstock.engine.contracts import LearnerState
from penstock.engine.messages import Note, Save, Tell
from penstock.engine.paths.contents import save_contents
from penstock.engine.roles.learner import Learner
from penstock.experience.arena import Control, ExperienceArena
from penstock.experience.run_replay import Replay
from penstock.experience.transition_batch import TransitionReader
from penstock.nn import GroupBroken, leave_group
from penstock.replay import Prioritized
from penstock.runs.store import CheckpointStore

STEPS_BETWEEN_REPORTS = 1_000  # while the buffer fills, in the serial backend


class ReplayLearner(Learner):
    """Draws batches from the replay buffer and learns from them; the rate limiter says when the next one is due.

    Parameters
    ----------
    algorithm
        Its update.
    arena, state, report, weights
        As for `Learner`.
    learning
        What `learning_state` returned, to go on from; None: new optimisers and a new target network.
    replay
        Where batches come from.
    make_reader
        Makes what draws them.
    """

    def __init__(
        self,
        algorithm: ReplayAlgorithm,
        arena: ExperienceArena,
        state: LearnerState,
        learning: dict[str, Any] | None,
        report: Tell,
        replay: Replay,
        weights: MakeWeights = through_block,
        make_reader: type[TransitionReader] = TransitionReader,
    ) -> None:
        super().__init__(algorithm, arena, state, report, weights)
        config = algorithm.config
        self._replay = replay
        algorithm.begin(self._model, learning)
        self._training = algorithm.training_mode(self._model)
        self._reader = make_reader(replay, self._device, in_order=config.backend == "serial")
        self._is_prioritized = isinstance(algorithm.sampler(), Prioritized)
        self._batches = replay.batches_before  # learned from since the limiter began to count
        self._published_at = self._steps  # steps that the published weights are said to have learned from

    def poll(self) -> bool:
        """Make one update; False while none is due, or while the goal is reached."""
        if not self._has_reached_goal:  # there the count stands still, though workers go on as far as the limiter lets
            self._count_steps()  # them: what is said last is what the last checkpoint says
        if self._has_reached_goal:
            if self._steps != self._published_at:  # steps are counted without an update, too
                self._weights.publish(self._version, self._steps)
                self._published_at = self._steps
            self._publish()
            self._report_progress()
            self._clock.switch("wait for goal")
            return False
        progress = self._steps / self._config.total_steps
        beta = self._algorithm.beta(progress)
        if not self._reader.ask(beta):
            self._report_progress()
            self._clock.switch("wait for data")
            return False
        self._clock.switch("gather")
        batch, ids = self._reader.take(self._updates + 1, progress)
        if self._reader.draws_ahead:
            self._reader.ask(beta)
        self._clock.switch("learn")
        self._heed_settings()
        metrics = self._learn(batch, ids)
        self._batches += 1
        self._count_steps()
        if self._version >= self._weights.version + self._config.publish_interval or self._has_reached_goal:
            self._publish()
            self._published_at = self._steps
        self._queue_report(metrics)
        if self._replay.calls_for_steps:
            self._arena.ring_rollout_workers()
        return True

    def learning_state(self) -> dict[str, Any]:
        """State of the algorithm, and how far the replay is."""
        return {**self._algorithm.learning_state(), "replay": self._replay.state(self._batches)}

    def close(self) -> None:
        """End the thread that draws batches."""
        self._reader.close()

    def standing(self) -> dict[str, int]:
        """Besides, batches learned from."""
        return super().standing() | {"batches": self._batches}

    def take_state(self, state: dict[str, Any]) -> None:
        """Go on in the place of a learner that has died; random numbers are those of the others, too."""
        self._batches = state["standing"]["batches"]
        super().take_state(state)
        self._algorithm.generator.set_state(state["learning"]["generator"].cpu())

    def _learn(self, batch: Any, ids: np.ndarray) -> dict[str, Tensor]:
        self._algorithm.schedule_learning_rates(batch.progress)
        try:
            with self.together(batch), self._training, self._autocast:
                try:
                    td_error, metrics = self._algorithm.update(self._model, batch)
                except GroupBroken:
                    leave_group()
                    td_error, metrics = self._algorithm.update(self._model, batch)
        except NonFiniteUpdate as problem:
            self._skip(str(problem))
            return {}
        self._updated()
        while self._algorithm.remarks:
            self._report(Note(self._algorithm.remarks.pop(0)))
        if self._config.normalize_observations:
            self._model.update_observation_statistics(*batch.observed)
        if self._is_prioritized:
            self._replay.buffer.update_priorities(ids, largest_error(td_error).cpu().numpy())
        return {name: value.detach() for name, value in metrics.items()}

    def _count_steps(self) -> None:
        self._steps = self._replay.steps_learned(self._batches)

    def _report_progress(self) -> None:
        """Say how far the run is where no update says so: before the first one, and at the goal."""
        if not self._uses_clock:
            is_time = self._steps >= self._reported_steps + STEPS_BETWEEN_REPORTS
        else:
            is_time = self._steps != self._reported_steps and time.monotonic() >= self._next_report
        reaches_goal = self._reported_steps < self._arena.control[Control.GOAL] <= self._steps
        if is_time or reaches_goal:
            self._has_queued_report = True
        if self._has_queued_report:
            self._send_queued_report()

    def _save(self, command: Save) -> None:
        self._report_now()  # the checkpoint holds the steps of now, and so is the status to
        super()._save(command)
        if isinstance(command.destination, CheckpointStore) and self._replay.saved_at is not None:
            save_contents({self._replay.saved_at: self._replay.buffer}, command, self._report)

    def transferable_state(self) -> dict[str, Any]:
        """Target network and optimisers."""
        return {name: what for name, what in self._algorithm.learning_state().items() if name != "generator"}

    def _inherit(self, learning: dict[str, Any]) -> None:
        self._algorithm.inherit(learning)

    def _weights_set(self) -> None:
        self._published_at = self._steps
        self._algorithm.restart_target(self._model)

    def experience(self) -> dict[str, float]:
        """Rows in the buffer, and updates made for each step."""
        return {"replay/rows": len(self._replay.buffer), "replay/updates_per_step": self._replay.measured_ratio}

    @property
    def step_size(self) -> float:
        """That of the first of the algorithm's optimisers."""
        rate: float = next(iter(self._algorithm.optimizers.values())).param_groups[0]["lr"]
        return rate
