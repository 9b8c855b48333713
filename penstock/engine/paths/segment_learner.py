"""Learner of fresh segments, and the reader that gathers slots of the arena into batches."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from penstock.algorithms.bases.segment import SegmentAlgorithm, SegmentUpdater
from penstock.config import AsynchronousConfig
from penstock.engine.acting.inference import MakeWeights, through_block
from penstock.engine.acting.pinned import PinnedMemory
from penstock.engine.contracts import LearnerState
from penstock.engine.messages import Note, Tell
from penstock.engine.roles.learner import Learner
from penstock.engine.watching.metrics import distribution
from penstock.experience.arena import Control, ExperienceArena
from penstock.experience.batch import Batch
from penstock.experience.layout import row_name
from penstock.ipc import gather

WORTH_A_COPY = 1 << 16  # least bytes of a slot's observations for which a GPU reads them from the arena directly


class BatchReader:
    """Gathers slots into tensors, which every call overwrites.

    Parameters
    ----------
    arena
        Arena of the policy.
    num_segments
        B, segments per batch.
    device
        Device of the batches. They are copied to CUDA from pinned memory, large observations slot by slot from the
        arena itself.
    reward_scale, reward_clip
        Rewards of a batch are ``clip(reward * scale, -clip, clip)``.
    max_policy_lag
        Steps of this policy lag or more are not learned from; None: no limit.
    burn_in
        Number of first rows of every segment that are not learned from.
    num_replayed
        Number of replayed segments per batch, which are passed to `read`.
    note
        Called with a text if CUDA refuses to copy large observations from the arena itself.
    """

    def __init__(
        self, arena: ExperienceArena, num_segments: int, device: torch.device, *, reward_scale: float,
        reward_clip: float | None, max_policy_lag: int | None, burn_in: int = 0, num_replayed: int = 0,
        note: Callable[[str], object] = lambda _: None,
    ) -> None:  # fmt: skip
        self._arena = arena
        self._device = device
        self._reward_scale = reward_scale
        self._reward_clip = reward_clip
        self._max_policy_lag = max_policy_lag
        self._burn_in = burn_in
        rows = arena.shape.rows_per_slot
        self._offsets = np.arange(rows, dtype=np.int64)[:, None]
        pin = device.type == "cuda"
        obs = arena.columns["obs"]
        self._obs_of_slots = torch.from_numpy(obs).unflatten(0, (-1, rows))
        is_large = self._obs_of_slots[0].nbytes >= WORTH_A_COPY
        self._pinned = PinnedMemory.of(obs, device) if pin and is_large else None
        is_registered = self._pinned is not None and self._pinned.is_registered
        self._takes_slots = is_registered and not num_replayed
        if self._pinned is not None and not is_registered:
            note("CUDA does not register the observations' memory: they are gathered on the host, which is slower")
        self._tensors = {
            name: torch.from_numpy(np.empty((rows, num_segments, *column.shape[1:]), column.dtype))
            for name, column in arena.columns.items()
            if not (name == "obs" and self._takes_slots)
        }
        if pin:
            self._tensors = {name: tensor.pin_memory() for name, tensor in self._tensors.items()}
        self._num_fresh = num_segments - num_replayed
        self._arrays = {name: tensor.numpy() for name, tensor in self._tensors.items()}
        self._gathered = {  # fresh segments, before they are joined with replayed ones
            name: np.empty((rows, self._num_fresh, *array.shape[2:]), array.dtype) if num_replayed else array
            for name, array in self._arrays.items()
        }
        self._is_replayed = torch.arange(num_segments) >= self._num_fresh
        self._copied: torch.cuda.Event | None = None  # recorded after the copies of the last batch

    def read(
        self, slots: np.ndarray, version: int, progress: float, replayed: Sequence[Mapping[str, np.ndarray]] = (),
        late: np.ndarray | None = None,
    ) -> tuple[Batch, Tensor]:  # fmt: skip
        """Gather fresh segments, and join them with replayed ones.

        Parameters
        ----------
        slots
            int64 ``[F]``: slots in state READING, held by the caller, which may release them when this returns.
        version
            Version of the learner's weights, from which the policy lag is counted.
        progress
            Fraction of ``total_steps`` learned from so far.
        replayed
            Columns of segments ``[n, T + 1, ...]`` by name, memory ``[n, S]``, lane ``[n]``, and importance weights
            ``[n]`` if there are any; ``num_replayed`` segments in all.
        late
            bool ``[F]``: slots that are not full yet, whose segments are empty in the batch; None: all are full.

        Returns
        -------
        batch : Batch
        lag : Tensor
            int64 ``[K]``: policy lag of each valid fresh step, on the CPU.
        """
        if self._copied is not None:
            self._copied.synchronize()  # the pinned memory may be written again from now on
        memory, lane, weights = self._gather(slots, late), self._arena.lane_of(slots), None
        if replayed:
            memory, lane, weights = self._put_beside(replayed, memory, lane)
        on_cpu = self._tensors
        valid = on_cpu["valid"][:-1]
        lag = version - on_cpu["version"][:-1]
        learn = valid.clone()
        if self._max_policy_lag is not None:
            learn &= (lag < self._max_policy_lag) | self._is_replayed
        learn[: self._burn_in] = False
        counted = learn.float() if weights is None else learn * weights
        reward = on_cpu["reward"][:-1] * self._reward_scale
        if self._reward_clip is not None:
            reward = reward.clamp(-self._reward_clip, self._reward_clip)
        altered = {
            column.name: self._to_device(on_cpu[column.name][:-1])
            for column in self._arena.shape.path_memory.columns
            if self._arena.slot_altered[slots].any()
        }
        batch = Batch(
            obs=self._take_obs(slots) if self._takes_slots else self._to_device(on_cpu["obs"]),
            first=self._to_device(on_cpu["first"]), action=self._to_device(on_cpu["action"][:-1]),
            reward=self._to_device(reward), terminated=self._to_device(on_cpu["terminated"][:-1]),
            truncated=self._to_device(on_cpu["truncated"][:-1]), valid=self._to_device(valid),
            learn=self._to_device(counted), log_prob=self._to_device(on_cpu["log_prob"][:-1]),
            memory=self._to_device(torch.from_numpy(memory)), lane=self._to_device(torch.from_numpy(lane)),
            replayed=self._to_device(self._is_replayed), altered=altered,
            records={c.name: self._to_device(on_cpu[c.name][:-1]) for c in self._arena.shape.records},
            progress=progress,
        )  # fmt: skip
        if self._device.type == "cuda":
            self._copied = torch.cuda.Event(blocking=True)
            self._copied.record(torch.cuda.current_stream(self._device))
            if self._takes_slots:
                self._copied.synchronize()  # the slots may be written again from now on
        fresh = slice(self._num_fresh)
        return batch, lag[:, fresh][valid[:, fresh]]

    def _gather(self, slots: np.ndarray, late: np.ndarray | None) -> np.ndarray:
        """Fill the arrays of fresh segments, with zeros where they are late; return the memory states of all."""
        row_ids = slots[None, :] * len(self._offsets) + self._offsets
        for name, array in self._gathered.items():
            gather(self._arena.columns[name], row_ids, array)
        memory: np.ndarray = self._arena.slot_memory[slots]
        if late is not None:
            memory[late] = 0.0
            for array in self._gathered.values():
                array[:, late] = 0
        return memory

    def close(self) -> None:
        """Unregister the arena's memory."""
        self._pinned = None

    def _put_beside(
        self, replayed: Sequence[Mapping[str, np.ndarray]], memory: np.ndarray, lane: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, Tensor]:
        """Fill the batch's arrays; return memory states, lanes and importance weights of all segments."""
        end = self._num_fresh
        memories, lanes, weights = [memory], [lane], torch.ones(len(self._is_replayed))
        for segments in replayed:
            begin, end = end, end + len(segments["lane"])
            for name, array in self._arrays.items():
                array[:, begin:end] = segments[row_name(name)].swapaxes(0, 1)
            count = len(segments["lane"])
            memories.append(segments.get("memory", np.zeros((count, 0), np.float32)))
            lanes.append(segments["lane"])
            if "weights" in segments:
                weights[begin:end] = torch.from_numpy(segments["weights"])
        for name, array in self._gathered.items():
            self._arrays[name][:, : self._num_fresh] = array
        return np.concatenate(memories), np.concatenate(lanes), weights

    def _take_obs(self, slots: np.ndarray) -> Tensor:
        """Return observations ``[T + 1, B, ...]``, a view of memory that holds them segment by segment."""
        obs = torch.empty(
            (len(slots), *self._obs_of_slots.shape[1:]), dtype=self._obs_of_slots.dtype, device=self._device
        )
        for place, slot in zip(obs, slots.tolist(), strict=True):
            place.copy_(self._obs_of_slots[slot], non_blocking=True)
        return obs.transpose(0, 1)

    def _to_device(self, tensor: Tensor) -> Tensor:
        return tensor.to(self._device, non_blocking=True)


class SegmentLearner(Learner):
    """Learns from B full segments at a time, and publishes the weights.

    Each batch is read once, for as many updates as the algorithm makes from it.

    Parameters
    ----------
    algorithm, arena, state, report, weights
        As for `Learner`.
    learning
        Saved `learning_state`; None: a new optimiser.
    """

    rewards_are_as_learned: ClassVar[bool] = False
    """True: rewards in the slots are scaled and clipped already."""

    def __init__(
        self, algorithm: SegmentAlgorithm, arena: ExperienceArena, state: LearnerState,
        learning: dict[str, Any] | None, report: Tell, weights: MakeWeights = through_block,
    ) -> None:  # fmt: skip
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
        self._held = np.empty(0, np.int64)  # full slots that wait to become a batch
        self._slots = np.empty(0, np.int64)  # of the last batch
        self._masked = 0
        self._lag = torch.empty(0)
        self._waits_from: float | None = None  # monotonic seconds, while a batch is incomplete
        self._late_segments = 0

    def poll(self) -> bool:
        if self._has_reached_goal:
            self._send_queued_report()  # the goal may have been lowered since the last batch
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
        self._apply_settings()
        has_steps = bool(batch.learn.any())
        metrics = self.learn(batch) if has_steps else {}
        self._count(batch)
        self._publish()
        if self._algorithm.synchronous:
            self._arena.release(self._slots)
        if self._uses_clock and has_steps:  # a batch without steps to learn from does not measure the pace
            self._arena.control[Control.PACE] = time.monotonic_ns() - began
        self._measure_features(batch.obs, is_time_major=True)
        self._queue_report(metrics)
        return True

    def _next_batch(self) -> Batch | None:
        """Gather the next batch; None while there are too few segments."""
        size = self._arena.shape.segments_per_batch
        if len(self._held) < size:
            return self._batch_without_late() if self._has_waited() else None
        self._waits_from = None
        self._slots, self._held = self._held[:size], self._held[size:]
        if self._algorithm.synchronous:
            self._slots = self._slots[np.argsort(self._arena.lane_of(self._slots))]
        batch, self._lag = self._read(self._slots)
        if not self._algorithm.synchronous:
            self._arena.release(self._slots)
        return batch

    def _has_waited(self) -> bool:
        """Whether an incomplete batch has waited for as long as it may."""
        wait = self._algorithm.batch_timeout
        if wait is None or not len(self._held):
            return False
        if self._waits_from is None:
            self._waits_from = time.monotonic()
        return time.monotonic() - self._waits_from >= wait

    def _batch_without_late(self) -> Batch:
        """Gather the segments that are there; late lanes keep their slots, and their segments are empty."""
        self._slots, self._held, self._waits_from = self._held, self._held[:0], None
        of_lanes = np.arange(self._arena.shape.segments_per_batch)  # a synchronous run has a slot for each lane
        late = ~np.isin(of_lanes, self._slots)
        batch, self._lag = self._read(of_lanes, late)
        if not self._late_segments:
            workers = np.unique(of_lanes[late] // self._arena.shape.num_envs_per_worker).tolist()
            self._report(Note(
                f"batch_timeout={self._algorithm.batch_timeout:g}: a batch closed without {late.sum()} of {len(late)} "
                f"segments, those of rollout workers {', '.join(map(str, workers))}; late_segments counts further ones"
            ))  # fmt: skip
        self._late_segments += int(late.sum())
        return batch

    def _read(self, slots: np.ndarray, late: np.ndarray | None = None) -> tuple[Batch, Tensor]:
        """Return a batch with these fresh segments, the late ones empty, and the policy lag of their steps."""
        return self._reader.read(slots, self._version, self._steps / self._config.total_steps, late=late)

    def _count(self, batch: Batch) -> None:
        """Count the fresh steps of a batch that was learned from."""
        learned = int((batch.learn * ~batch.replayed > 0).sum())
        self._steps += learned
        self._masked += len(self._lag) - learned

    def learning_state(self) -> dict[str, Any]:
        """Return the state of the optimiser and of the updates."""
        return self._updater.state()

    def close(self) -> None:
        """Unregister the arena's memory."""
        self._reader.close()

    def experience(self) -> dict[str, float]:
        """Return the policy lag of the last batch, and the numbers of steps not learned from and of late segments."""
        lag = self._lag.cpu().numpy() if len(self._lag) else np.zeros(1)
        return {
            "policy_lag/mean": float(lag.mean()),
            **distribution("policy_lag", lag),
            "masked_steps": self._masked,
            **({"late_segments": self._late_segments} if self._algorithm.batch_timeout is not None else {}),
        }

    @property
    def step_size(self) -> float:
        return self._updater.step_size

    def _collect(self) -> None:
        """Take full slots, and release those of an earlier run epoch."""
        held = np.concatenate([self._held, self._arena.take_full()])
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
        """Run all updates of a batch; return the means of the loss's metrics."""
        with self.in_group(batch):
            return self._updater.learn(batch, begin=self._begin_update, updated=self._updated, skipped=self._skip)

    def about_batch(self) -> dict[str, Any]:
        """As `Learner.about_batch`, with the state of the generator that shuffles minibatches."""
        return super().about_batch() | {"generator": self._updater.generator.get_state()}

    def _capture_gradient(self) -> None:
        """Capture gradients again on a GPU: a capture keeps the networks and settings that it was made with."""
        if self._device.type == "cuda" and self._config.num_learners == 1:
            from penstock.engine.paths.captured_updates import CapturedGradient

            self._updater.gradient = CapturedGradient(
                self._algorithm, self._model, self._autocast, note=lambda text: self._report(Note(text))
            )

    def _updated(self) -> None:
        super()._updated()
        self._algorithm.after_update(self._model, self._updates)

    def _weights_set(self) -> None:
        self._updater.load_state(None)
        self._capture_gradient()

    def _inherit(self, learning: dict[str, Any]) -> None:
        self._updater.load_state(learning)

    def _take_settings(self) -> None:
        self._updater.apply_settings(self._config)
        self._capture_gradient()

    def _begin_update(self) -> None:
        if not self._algorithm.synchronous:
            self._publish()
