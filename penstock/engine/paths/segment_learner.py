"""The learner of fresh segments: each batch is taken once, for as many updates as the algorithm makes of it."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import torch
from torch import Tensor

from penstock.algorithms.arithmetic.optimizers import go_on
from penstock.algorithms.bases.segment import SegmentAlgorithm
from penstock.config import AsynchronousConfig
from penstock.engine.acting.weights import MakeWeights, through_block
from penstock.engine.messages import Note, Tell
from penstock.engine.paths.segment_updates import learn_batch
from penstock.engine.roles.learner import Learner, LearnerState
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
        self._algorithm = algorithm
        self._optimizer = algorithm.build_optimizer(self._model)
        if learning is not None:
            go_on(self._optimizer, learning["optimizer"])
        self._reader = BatchReader(
            arena, config.segments_per_batch, self._device,
            reward_scale=config.reward_scale, reward_clip=config.reward_clip,
            max_policy_lag=config.max_policy_lag if isinstance(config, AsynchronousConfig) else None,
            burn_in=config.burn_in, note=lambda text: report(Note(text)),
        )  # fmt: skip
        self._generator = torch.Generator().manual_seed(config.seed)
        self._held = np.empty(0, np.int64)
        self._masked = 0
        self._lag = torch.empty(0)

    def poll(self) -> bool:
        """Learn from one batch; False while there is none, or while the goal is reached."""
        if self._has_reached_goal:
            self._report_what_is_owed()  # the goal may have been drawn nearer since the last batch
            self._clock.switch("wait for goal")
            return False
        self._clock.switch("gather")
        self._collect()
        size = self._config.segments_per_batch
        if len(self._held) < size:
            self._clock.switch("wait for data")
            return False
        began = time.monotonic_ns()
        slots, self._held = self._held[:size], self._held[size:]
        if self._algorithm.synchronous:
            slots = slots[np.argsort(self._arena.lane_of(slots))]
        batch, lag = self._reader.read(slots, self._version, self._steps / self._config.total_steps)
        if not self._algorithm.synchronous:
            self._arena.release(slots)
        self._clock.switch("learn")
        learned = int(batch.learn.sum())
        metrics = self.learn(batch) if learned else {}
        self._steps += learned
        self._masked += len(lag) - learned
        self._lag = lag
        self._publish()
        if self._algorithm.synchronous:
            self._arena.release(slots)
        if self._heeds_time and learned:  # to gather what is too old to be learned from tells nothing of the pace
            self._arena.control[Control.PACE] = time.monotonic_ns() - began
        self._owe(metrics)
        return True

    def learning_state(self) -> dict[str, Any]:
        """The optimiser's state."""
        return {"optimizer": self._optimizer.state_dict()}

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
        rate: float = self._optimizer.param_groups[0]["lr"]
        return rate

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
        for group in self._optimizer.param_groups:
            group["lr"] = self._algorithm.learning_rate(self._config.learning_rate, batch.progress)
        return learn_batch(
            self._algorithm, self._model, self._optimizer, batch, self._generator, self._autocast,
            begin=self._begin_update, updated=self._updated, skipped=self._skip,
        )  # fmt: skip

    def _begin_update(self) -> None:
        if not self._algorithm.synchronous:
            self._publish()
