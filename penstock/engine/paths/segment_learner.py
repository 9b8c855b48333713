"""The learner of fresh segments: each batch is taken once, for as many updates as the algorithm makes of it."""

from __future__ import annotations

import time
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from penstock.algorithms.bases.segment import SegmentAlgorithm, SegmentUpdater
from penstock.config import AsynchronousConfig
from penstock.engine.acting.weights import MakeWeights, through_block
from penstock.engine.contracts import LearnerState
from penstock.engine.messages import Note, Tell
from penstock.engine.roles.learner import Learner
from penstock.experience.arena import Control, ExperienceArena
from penstock.experience.batch import Batch, BatchReader
from penstock.ipc import SlotState

READER = 0xFFFF  # owner of slots in state READING


class SegmentLearner(Learner):
    """Takes B full segments at a time, learns from them, and publishes what came of it.

    Parameters
    ----------
    algorithm
        Its losses, its optimiser, its minibatches.
    arena, state, report, weights
        As for `Learner`.
    learning
        What `learning_state` returned, to go on from; None: a new optimiser.
    """

    rewards_are_as_learned: ClassVar[bool] = False
    """True: rewards lie in their slots scaled and clipped already."""

    def __init__(
        self,
        algorithm: SegmentAlgorithm,
        arena: ExperienceArena,
        state: LearnerState,
        learning: dict[str, Any] | None,
        report: Tell,
        weights: MakeWeights = through_block,
    ) -> None:
        super().__init__(algorithm, arena, state, report, weights)
        config = algorithm.config
        scale, clip = (1.0, None) if self.rewards_are_as_learned else (config.reward_scale, config.reward_clip)
        self._updater = SegmentUpdater(algorithm, self._model, learning)
        self._reader = BatchReader(
            arena, config.segments_per_batch, self._device,
            reward_scale=scale, reward_clip=clip,
            max_policy_lag=config.max_policy_lag if isinstance(config, AsynchronousConfig) else None,
            burn_in=config.burn_in, num_replayed=config.segments_per_batch - arena.shape.segments_per_batch,
            note=lambda text: report(Note(text)),
        )  # fmt: skip
        self._capture_gradient()
        self._held = np.empty(0, np.int64)  # full slots in hand
        self._slots = np.empty(0, np.int64)  # of the last batch
        self._masked = 0
        self._lag = torch.empty(0)

    def poll(self) -> bool:
        """Learn from one batch; False while there is none, or while the goal is reached."""
        if self._has_reached_goal:
            self._send_queued_report()  # the goal may have been drawn nearer since the last batch
            self._clock.switch("wait for goal")
            return False
        self._clock.switch("gather")
        self._collect()
        began = time.monotonic_ns()
        batch = self._next_batch()
        if batch is None:
            self._clock.switch("wait for data")
            return False
        self._clock.switch("learn")
        self._heed_settings()
        has_something = bool(batch.learn.any())
        metrics = self.learn(batch) if has_something else {}
        self._count(batch)
        self._publish()
        if self._algorithm.synchronous:
            self._arena.release(self._slots)
        if self._uses_clock and has_something:  # to gather what is too old to be learned from tells nothing of the pace
            self._arena.control[Control.PACE] = time.monotonic_ns() - began
        self._queue_report(metrics)
        return True

    def _next_batch(self) -> Batch | None:
        """Gather what is to be learned from next; None while there is not enough."""
        size = self._arena.shape.segments_per_batch
        if len(self._held) < size:
            return None
        self._slots, self._held = self._held[:size], self._held[size:]
        if self._algorithm.synchronous:
            self._slots = self._slots[np.argsort(self._arena.lane_of(self._slots))]
        batch, self._lag = self._read(self._slots)
        if not self._algorithm.synchronous:
            self._arena.release(self._slots)
        return batch

    def _read(self, slots: np.ndarray) -> tuple[Batch, Tensor]:
        """Gather a batch with these fresh segments; return the policy lag of their steps, too."""
        return self._reader.read(slots, self._version, self._steps / self._config.total_steps)

    def _count(self, batch: Batch) -> None:
        """Note that a batch was learned from: its fresh steps are steps of the run."""
        learned = int((batch.learn * ~batch.replayed > 0).sum())
        self._steps += learned
        self._masked += len(self._lag) - learned

    def learning_state(self) -> dict[str, Any]:
        """State of the optimiser, and of the algorithm's learner."""
        return self._updater.state()

    def close(self) -> None:
        """Let go of the arena."""
        self._reader.close()

    def experience(self) -> dict[str, float]:
        """Policy lag of the last batch, and how many steps were not learned from."""
        lag = self._lag.float() if len(self._lag) else torch.zeros(1)
        return {
            "policy_lag/min": lag.min().item(),
            "policy_lag/mean": lag.mean().item(),
            "policy_lag/max": lag.max().item(),
            "masked_steps": self._masked,
        }

    @property
    def step_size(self) -> float:
        """The optimiser's."""
        return self._updater.step_size

    def _collect(self) -> None:
        """Take hold of full slots; those of an earlier run epoch go straight back."""
        hints = self._arena.full.pop_many(self._arena.shape.num_slots)
        taken = hints[self._arena.slots.claim(hints, SlotState.FULL, SlotState.READING, READER)]
        held = np.concatenate([self._held, taken])
        fresh = self._arena.slot_epoch[held] == self._arena.control[Control.RUN_EPOCH]
        if not fresh.all():
            self._masked += self._valid_steps_in(held[~fresh])
            self._arena.release(held[~fresh])
        self._held = held[fresh]

    def _valid_steps_in(self, slots: np.ndarray) -> int:
        shape = self._arena.shape
        rows = slots[:, None] * shape.rows_per_slot + np.arange(shape.segment_length)
        return int(self._arena.columns["valid"][rows].sum())

    def learn(self, batch: Batch) -> dict[str, Tensor]:
        """Run all updates of a batch; return the means of what the loss reports."""
        self._updater.schedule_learning_rate(batch.progress)
        with self.together(batch):
            return self._updater.learn(
                batch, begin=self._begin_update, updated=self._updated, skipped=self._skip
            )

    def about_batch(self) -> dict[str, Any]:
        """Besides, the random numbers by which it is split into minibatches."""
        return super().about_batch() | {"generator": self._updater.generator.get_state()}

    def _capture_gradient(self) -> None:
        """Capture gradients anew on a GPU: a capture holds the networks and numbers of its time."""
        if self._device.type == "cuda" and self._config.num_learners == 1:
            from penstock.engine.paths.captured_gradient import CapturedGradient

            self._updater.gradient = CapturedGradient(
                self._algorithm, self._model, self._autocast, note=lambda text: self._report(Note(text))
            )

    def _updated(self) -> None:
        super()._updated()
        self._algorithm.updated(self._model, self._updates)

    def _weights_set(self) -> None:
        self._updater.go_on(None)
        self._capture_gradient()

    def _inherit(self, learning: dict[str, Any]) -> None:
        self._updater.go_on(learning)

    def _take_settings(self) -> None:
        self._updater.take_settings(self._config)
        self._capture_gradient()

    def _begin_update(self) -> None:
        if not self._algorithm.synchronous:
            self._publish()
