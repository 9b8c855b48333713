"""The learner: turns full segments into updates, and publishes the weights."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from penstock.algorithms.segment import SegmentAlgorithm
from penstock.engine.clock import Clock
from penstock.engine.rollout_worker import Report
from penstock.engine.weights import SharedWeights
from penstock.experience.arena import Control, ExperienceArena
from penstock.experience.batch import Batch, BatchReader
from penstock.ipc import SlotState
from penstock.runs.checkpoint import CheckpointError, save_checkpoint
from penstock.runs.store import CheckpointStore

LEARNER = 0xFFFF  # owner of slots in state READING
MAX_SKIPPED_IN_A_ROW = 20
REPORT_INTERVAL = 0.1  # seconds


class LearningDiverged(RuntimeError):
    """Loss or gradient was not finite too many times in a row."""


@dataclass(frozen=True)
class LearnerState:
    """Where learning stands, beside weights and optimiser."""

    steps: int = 0
    version: int = 0
    updates: int = 0


class Learner:
    """Takes B full segments at a time, learns from them, and publishes what came of it.

    Parameters
    ----------
    algorithm
        Its losses, its optimiser, its minibatches.
    arena
        The run's arena, holding the weights to start from.
    state
        Where learning stands.
    optimizer_state
        State dict of the optimiser to go on from; None: a new one.
    report
        Called with ("learned", dict) after batches, at most ten times per second and at every goal.
    """

    ACTIVITIES = ("learn", "gather", "wait for data", "wait for goal")

    def __init__(
        self,
        algorithm: SegmentAlgorithm,
        arena: ExperienceArena,
        state: LearnerState,
        optimizer_state: dict[str, Any] | None,
        report: Report,
    ) -> None:
        config = algorithm.config
        self.bell = arena.learner_bell
        self._algorithm = algorithm
        self._config = config
        self._arena = arena
        self._report = report
        self._device = torch.device(config.device)
        self._model = algorithm.build_model().to(self._device)
        self._weights = SharedWeights(self._model, arena.weights)
        self._weights.refresh()
        self._optimizer = algorithm.build_optimizer(self._model)
        if optimizer_state is not None:
            self._optimizer.load_state_dict(optimizer_state)
        self._reader = BatchReader(
            arena, config.segments_per_batch, self._device,
            reward_scale=config.reward_scale, reward_clip=config.reward_clip, max_policy_lag=config.max_policy_lag,
        )  # fmt: skip
        self._autocast = torch.autocast(self._device.type, torch.bfloat16, enabled=config.precision == "bfloat16")
        self._generator = torch.Generator().manual_seed(config.seed)
        self._clock = Clock(arena.gauges[arena.shape.num_workers + 1], self.ACTIVITIES)
        self._held = np.empty(0, np.int64)
        self._steps, self._version, self._updates = state.steps, state.version, state.updates
        self._masked = self._skipped = self._skipped_in_a_row = 0
        self._next_report = 0.0
        self._owed: tuple[dict[str, Tensor], Tensor] | None = None  # what the last batch brought, if not yet reported

    def poll(self) -> bool:
        """Learn from one batch; False while there is none, or while the goal is reached."""
        if self._steps >= self._arena.control[Control.GOAL]:
            self._report_what_is_owed()  # the goal may have been drawn nearer since the last batch
            self._clock.switch("wait for goal")
            return False
        self._clock.switch("gather")
        self._collect()
        size = self._config.segments_per_batch
        if len(self._held) < size:
            self._clock.switch("wait for data")
            return False
        slots, self._held = self._held[:size], self._held[size:]
        if self._algorithm.synchronous:
            slots = slots[np.argsort(self._arena.slot_lane[slots])]
        batch, lag = self._reader.read(slots, self._version, self._steps / self._config.total_steps)
        if not self._algorithm.synchronous:
            self._arena.release(slots)
        self._clock.switch("learn")
        learned = int(batch.learn.sum())
        metrics = self._learn(batch) if learned else {}
        self._steps += learned
        self._masked += len(lag) - learned
        self._publish()
        if self._algorithm.synchronous:
            self._arena.release(slots)
        self._report_learned(metrics, lag)
        return True

    def handle(self, command: str, payload: Any) -> None:
        """Take a command: "checkpoint" (number, store or path, meta) or "set_weights" (state dict of arrays)."""
        if command == "checkpoint":
            self._save(*payload)
        elif command == "set_weights":
            self._model.load_state_dict({name: torch.from_numpy(array) for name, array in payload.items()})
            self._version += 1
            self._publish()
            self._report("weights_set", self._version)
        else:
            raise ValueError(f"the learner knows no command {command!r}: checkpoint or set_weights")

    def close(self) -> None:
        """Nothing is held open."""

    def _collect(self) -> None:
        """Take hold of full slots; those of an earlier run epoch go straight back."""
        hints = self._arena.full.pop_many(self._arena.shape.num_slots)
        taken = hints[self._arena.slots.claim(hints, SlotState.FULL, SlotState.READING, LEARNER)]
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

    def _learn(self, batch: Batch) -> dict[str, Tensor]:
        """Run all updates of a batch; return the means of what the loss reports."""
        config, sums, count = self._config, dict[str, Tensor](), 0
        for group in self._optimizer.param_groups:
            group["lr"] = self._learning_rate(batch.progress)
        with torch.no_grad(), self._autocast:
            self._algorithm.prepare(self._model, batch)
        stop = False
        for _ in range(config.num_epochs):
            for minibatch in self._algorithm.minibatches(batch, self._generator):
                if not minibatch.learn.any():
                    continue  # the optimiser's momentum would still move the weights
                metrics = self._update(minibatch)
                for name, value in metrics.items():
                    sums[name] = sums[name] + value if name in sums else value
                count += 1
                stop = config.target_kl is not None and bool(metrics["approx_kl"] > 1.5 * config.target_kl)
                if stop:
                    break
            if stop:
                break
        with torch.no_grad():
            self._algorithm.update_statistics(self._model, batch)
        return {name: value / count for name, value in sums.items()}

    def _update(self, batch: Batch) -> dict[str, Tensor]:
        if not self._algorithm.synchronous:
            self._publish()
        self._optimizer.zero_grad(set_to_none=False)
        with self._autocast:
            loss, metrics = self._algorithm.loss(self._model, batch)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(self._model.parameters(), self._config.max_grad_norm)
        if math.isfinite((loss.detach() + norm).item()):
            self._optimizer.step()
            self._version += 1
            self._updates += 1
            self._skipped_in_a_row = 0
        else:
            self._skip(loss, norm)
        return {name: value.detach() for name, value in metrics.items()} | {"grad_norm": norm.detach()}

    def _skip(self, loss: Tensor, norm: Tensor) -> None:
        self._skipped += 1
        self._skipped_in_a_row += 1
        if self._skipped_in_a_row >= MAX_SKIPPED_IN_A_ROW:
            raise LearningDiverged(
                f"{self._skipped_in_a_row} updates in a row were not finite (loss {loss.item()}, gradient norm "
                f"{norm.item()}) at update {self._updates}, step {self._steps}: lower learning_rate "
                f"(now {self._config.learning_rate}), check the rewards' scale (reward_scale), or use float32"
            )

    def _learning_rate(self, progress: float) -> float:
        rate = self._config.learning_rate
        return rate * max(0.0, 1.0 - progress) if self._config.learning_rate_schedule == "linear" else rate

    def _publish(self) -> None:
        if self._weights.version != self._version:
            self._weights.publish(self._version, self._steps)

    def _report_learned(self, metrics: dict[str, Tensor], lag: Tensor) -> None:
        self._owed = metrics, lag
        is_quiet = self._config.backend != "serial"  # where what is decided must not depend on the time
        if not is_quiet or time.monotonic() >= self._next_report or self._steps >= self._arena.control[Control.GOAL]:
            self._report_what_is_owed()

    def _report_what_is_owed(self) -> None:
        if self._owed is None:
            return
        (metrics, lag), self._owed = self._owed, None
        self._next_report = time.monotonic() + REPORT_INTERVAL
        self._report(
            "learned",
            {
                "steps": self._steps,
                "version": self._version,
                "updates": self._updates,
                "masked_steps": self._masked,
                "skipped_updates": self._skipped,
                "lag_mean": lag.float().mean().item() if len(lag) else 0.0,
                "lag_max": lag.max().item() if len(lag) else 0.0,
                "learning_rate": self._optimizer.param_groups[0]["lr"],
                "losses": {name: value.item() for name, value in metrics.items()},
            },
        )

    def _save(self, number: int, destination: CheckpointStore | str, meta: dict[str, Any]) -> None:
        counters = {"steps": self._steps, "version": self._version, "updates": self._updates}
        meta = {**meta, **counters}
        state = {"optimizer": self._optimizer.state_dict(), **counters}
        weights = self._model.state_dict()
        error: Exception | None = None
        try:
            if isinstance(destination, CheckpointStore):
                destination.save(self._steps, meta=meta, weights=weights, state=state)
            else:
                save_checkpoint(destination, meta=meta, weights=weights, state=state)
        except (OSError, CheckpointError) as problem:
            error = problem
        self._report("saved", (number, error))
