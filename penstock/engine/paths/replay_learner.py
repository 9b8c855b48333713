"""Learner from replay, with a fixed number of updates per step, and the readers that draw its batches."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import cycle
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from penstock.algorithms.arithmetic.td import largest_error
from penstock.algorithms.bases.algorithm import Metrics, NonFiniteUpdate
from penstock.algorithms.bases.planned import PlannedUpdate
from penstock.algorithms.bases.replay import ReplayAlgorithm
from penstock.engine.acting.inference import MakeWeights, through_block
from penstock.engine.contracts import LearnerState
from penstock.engine.messages import Command, DrawFrom, Note, Save, Tell
from penstock.engine.paths.captured_updates import CapturedUpdate
from penstock.engine.roles.learner import Learner, save_contents
from penstock.engine.watching.metrics import distribution
from penstock.experience.arena import Control, ExperienceArena
from penstock.experience.batch import SequenceBatch, TransitionBatch
from penstock.experience.run_replay import Replay
from penstock.experience.shards import ShardedBuffer
from penstock.nn import GroupBroken, leave_group
from penstock.replay import Prioritized
from penstock.runs.store import CheckpointStore

STEPS_BETWEEN_REPORTS = 1_000  # while the buffer fills, in the serial backend
Arrays = dict[str, np.ndarray]

# A drawing thread takes the interpreter's lock from the learner a few times for each batch. A batch that is drawn in a
# few microseconds is not worth that: learning from 64 vectors of 4 numbers is 1.5 times as fast without the thread.
WORTH_A_THREAD = 1 << 19  # bytes


@dataclass
class Drawn:
    """Host memory of a drawn batch, and the event after which it may be overwritten."""

    arrays: Arrays
    copied: torch.cuda.Event | None = None


class TransitionReader:
    """Draws batches of transitions, as the rate limiter admits them.

    A large batch is drawn by a thread, one ahead of the learner; its priorities are then one update older. A small one,
    and any batch `in_order`, is drawn in the calling thread on request.

    Parameters
    ----------
    replay
        Replay of the run.
    device
        Device of the batches; to CUDA they are copied from pinned memory.
    in_order
        Whether every batch is drawn on request, for reproducible runs.
    wake
        Called when a batch from shards has been drawn.

    Attributes
    ----------
    draws_ahead
        Whether a batch is to be requested before the previous one is learned from.
    """

    fields: ClassVar[tuple[str, ...]] = ("obs", "next_obs", "action", "reward", "discount", "running_return")

    def __init__(
        self, replay: Replay, device: torch.device, *, in_order: bool, wake: Callable[[], None] = lambda: None
    ) -> None:
        self._replay, self._device, self._wake = replay, device, wake
        drawn = Drawn(self._allocate())
        self._is_sharded = isinstance(replay.buffer, ShardedBuffer)
        is_worth_it = self._is_sharded or sum(array.nbytes for array in drawn.arrays.values()) >= WORTH_A_THREAD
        self.draws_ahead = is_worth_it and not in_order
        self._executor = ThreadPoolExecutor(1, "replay-reader") if self.draws_ahead else None
        self._asked: Future[Drawn] | Drawn | None = None
        self._next = cycle([drawn, Drawn(self._allocate())] if self.draws_ahead else [drawn])
        self._ones = torch.ones(replay.batch_size, device=device)

    def ask(self, beta: float | None) -> bool:
        """Request a batch, unless one is requested; return False if the rate limiter does not admit it yet.

        Also False while a batch from shards is on its way, which may take until a lost shard is replaced.

        Parameters
        ----------
        beta
            Exponent of the importance weights; None without priorities.
        """
        if self._asked is not None:
            return self._is_near
        replay = self._replay
        if not len(replay.buffer) or not replay.limiter.native.try_sample(replay.batch_size):
            return False
        drawn = next(self._next)
        self._asked = self._executor.submit(self._draw, beta, drawn) if self._executor else self._draw(beta, drawn)
        if isinstance(self._asked, Future) and self._is_sharded:
            self._asked.add_done_callback(lambda _: self._wake())
        return self._is_near

    def take(self, number: int, progress: float) -> tuple[Any, np.ndarray]:
        """Return the requested batch and its rows' ids, int64 ``[B]``; valid until two batches later."""
        asked, self._asked = self._asked, None
        drawn = asked.result() if isinstance(asked, Future) else asked
        assert drawn is not None
        arrays = drawn.arrays
        tensors = {name: self._on_device(array) for name, array in arrays.items() if name in self.fields}
        weights = self._on_device(arrays["weights"]) if "weights" in arrays else self._ones
        if self._device.type == "cuda":
            drawn.copied = torch.cuda.Event(blocking=True)
            drawn.copied.record(torch.cuda.current_stream(self._device))
        return self._batch(tensors, weights, number, progress), arrays["ids"]

    def close(self) -> None:
        """End the thread."""
        if isinstance(self._replay.buffer, ShardedBuffer):
            self._replay.buffer.close()
        if self._executor is not None:
            self._executor.shutdown()

    @property
    def _is_near(self) -> bool:
        """Whether `take` waits at most for memory to be copied."""
        return not (self._is_sharded and isinstance(self._asked, Future)) or self._asked.done()

    def _batch(self, tensors: dict[str, Tensor], weights: Tensor, number: int, progress: float) -> Any:
        return TransitionBatch(**tensors, weights=weights, number=number, progress=progress)

    def _draw(self, beta: float | None, drawn: Drawn) -> Drawn:
        if drawn.copied is not None:
            drawn.copied.synchronize()  # the pinned memory may be written again from now on
        drawn.arrays = self._replay.buffer.sample(self._replay.batch_size, beta=beta, out=drawn.arrays)
        return drawn

    def _allocate(self) -> Arrays:
        arrays = self._replay.buffer.allocate(self._replay.batch_size)
        if self._device.type != "cuda":
            return arrays
        return {name: torch.from_numpy(array).pin_memory().numpy() for name, array in arrays.items()}

    def _on_device(self, array: np.ndarray) -> Tensor:
        return torch.from_numpy(array).to(self._device, non_blocking=True)


class SequenceReader(TransitionReader):
    """Draws batches of sequences; see `TransitionReader`."""

    fields = ("obs", "first", "action", "reward", "discount", "valid", "memory")

    def _batch(self, tensors: dict[str, Tensor], weights: Tensor, number: int, progress: float) -> SequenceBatch:
        rows = {name: tensor.transpose(0, 1) for name, tensor in tensors.items() if name != "memory"}
        steps = {name: rows[name][:-1] for name in ("action", "reward", "discount", "valid")}
        return SequenceBatch(
            obs=rows["obs"], first=rows["first"], **steps,
            memory=tensors["memory"], weights=weights, number=number, progress=progress,
        )  # fmt: skip


class ReplayLearner(Learner):
    """Learns from batches of the replay buffer, at the pace of the rate limiter.

    Parameters
    ----------
    algorithm, arena, state, report, weights
        As for `Learner`.
    learning
        Saved `learning_state`; None: new optimisers and a new target network.
    replay
        Replay of the run.
    make_reader
        Class of the reader of batches.
    """

    def __init__(
        self, algorithm: ReplayAlgorithm, arena: ExperienceArena, state: LearnerState,
        learning: dict[str, Any] | None, report: Tell, replay: Replay, weights: MakeWeights = through_block,
        make_reader: type[TransitionReader] = TransitionReader,
    ) -> None:  # fmt: skip
        super().__init__(algorithm, arena, state, report, weights)
        config = algorithm.config
        self._replay = replay
        algorithm.begin(self._model, learning)
        self._training = algorithm.training_mode(self._model)
        is_serial, wake = config.backend == "serial", arena.learner_bell.ring
        self._reader = make_reader(replay, self._device, in_order=is_serial, wake=wake)
        sampler = algorithm.sampler()
        self._is_prioritized = isinstance(sampler, Prioritized)
        self._update: Callable[[Any], tuple[Tensor, Metrics]] = PlannedUpdate(algorithm, self._model)
        if self._device.type == "cuda":
            self._update = CapturedUpdate(
                algorithm, self._model, lambda text: report(Note(text)), waits=self._is_prioritized
            )
        self._shards = replay.buffer if isinstance(replay.buffer, ShardedBuffer) else None
        has_gaps = isinstance(sampler, Prioritized) and sampler.eviction_alpha is not None
        self._has_order = not has_gaps and self._shards is None  # whether ids count rows from the oldest
        self._ids, self._priorities = np.empty(0, np.int64), np.empty(0, np.float32)  # of the last batch
        self._batches = replay.batches_before  # learned from since the limiter began to count
        self._published_at = self._steps  # steps that the weights were published with

    def poll(self) -> bool:
        """Make one update; return False while none is due, or while the goal is reached."""
        if not self._has_reached_goal:  # at the goal the count stays that of the last checkpoint; workers continue
            self._count_steps()
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
        self._apply_settings()
        self._ids = ids
        metrics = self._learn(batch, ids)
        self._batches += 1
        self._count_steps()
        if self._version >= self._weights.version + self._config.publish_interval or self._has_reached_goal:
            self._publish()
            self._published_at = self._steps
        self._measure_features(batch.obs, is_time_major=isinstance(batch, SequenceBatch))
        self._queue_report(metrics)
        if self._replay.needs_steps:
            self._arena.ring_rollout_workers()
        return True

    def handle(self, command: Command) -> None:
        """Execute a command of `Learner`, or `DrawFrom`, which connects the replay to a shard."""
        if isinstance(command, DrawFrom) and self._shards is not None:
            self._shards.connect(command.shard)
        else:
            super().handle(command)

    def learning_state(self) -> dict[str, Any]:
        """Return the state of the algorithm, and the progress of the replay."""
        return {**self._algorithm.learning_state(), "replay": self._replay.state(self._batches)}

    def close(self) -> None:
        """End the thread that draws batches."""
        self._reader.close()

    def standing(self) -> dict[str, int]:
        """As `Learner.standing`, with the number of batches learned from."""
        return super().standing() | {"batches": self._batches}

    def take_state(self, state: dict[str, Any]) -> None:
        """As `Learner.take_state`; the state of random numbers is adopted as well."""
        self._batches = state["standing"]["batches"]
        super().take_state(state)
        self._algorithm.generator.set_state(state["learning"]["generator"].cpu())

    def _learn(self, batch: Any, ids: np.ndarray) -> dict[str, Tensor]:
        self._algorithm.schedule_learning_rates(batch.progress)
        try:
            with self.in_group(batch), self._training, self._autocast:
                batch, further = self._algorithm.prepare(self._model, batch)
                try:
                    td_error, metrics = self._update(batch)
                except GroupBroken:
                    leave_group()
                    td_error, metrics = self._update(batch)
        except NonFiniteUpdate as problem:
            self._skip(str(problem))
            return {}
        self._updated()
        if self._config.normalize_observations:
            self._model.update_observation_statistics(*batch.observed)
        if self._is_prioritized:
            self._priorities = largest_error(td_error).cpu().numpy()
            self._replay.buffer.update_priorities(ids, self._priorities)
        return {name: value.detach() for name, value in {**metrics, **further}.items()}

    def _count_steps(self) -> None:
        while self._shards is not None and self._shards.remarks:
            self._report(Note(self._shards.remarks.popleft()))
        self._steps = self._replay.steps_learned(self._batches)

    def _report_progress(self) -> None:
        """Report progress where no update reports it: before the first one, and at the goal."""
        if not self._uses_clock:
            is_time = self._steps >= self._reported_steps + STEPS_BETWEEN_REPORTS
        else:
            is_time = self._steps != self._reported_steps and time.monotonic() >= self._next_report
        reaches_goal = self._reported_steps < self._arena.control[Control.GOAL] <= self._steps
        if self._has_queued_report or is_time or reaches_goal:
            self._report_now()

    def _save(self, command: Save) -> None:
        self._report_now()  # the status shows the steps of the checkpoint
        super()._save(command)
        if isinstance(command.destination, CheckpointStore) and self._replay.saved_at is not None:
            save_contents({self._replay.saved_at: self._replay.buffer}, command, self._report)

    def transferable_state(self) -> dict[str, Any]:
        """Return target network and optimisers."""
        return {name: what for name, what in self._algorithm.learning_state().items() if name != "generator"}

    def _inherit(self, learning: dict[str, Any]) -> None:
        self._algorithm.inherit(learning)

    def _weights_set(self) -> None:
        self._published_at = self._steps
        self._algorithm.reset_target(self._model)

    def experience(self) -> dict[str, float]:
        """Return contents of the buffer, updates made for each step, and ages and priorities of the last batch."""
        buffer = self._replay.buffer
        ages = (buffer.num_added - 1 - self._ids).clip(0) if self._has_order else ()
        return {
            "replay/rows": len(buffer),
            "replay/fill": len(buffer) / buffer.capacity,
            "replay/updates_per_step": self._replay.measured_ratio,
            **distribution("replay/age", ages),
            **distribution("replay/priority", self._priorities),
        }

    @property
    def step_size(self) -> float:
        """Learning rate of the first of the algorithm's optimisers."""
        rate: float = next(iter(self._algorithm.optimizers.values())).param_groups[0]["lr"]
        return rate
