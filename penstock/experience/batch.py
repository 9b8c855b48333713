"""Batches: full slots of the arena become dense, time-major tensors for the learner."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from penstock.experience.arena import ExperienceArena
from penstock.experience.layout import row_name
from penstock.experience.pinned import PinnedMemory
from penstock.ipc import gather

WORTH_A_COPY = 1 << 16  # bytes of a slot's observations from which on a GPU takes them out of the arena itself
PER_SEGMENT = ("memory", "lane", "replayed")


@dataclass
class Batch:
    """Experience to learn from: B segments ``[T, B]``, or M transitions ``[M]`` taken out of them.

    Attributes
    ----------
    obs
        ``[T + 1, B, ...]``; the last row is what the last transition led to. ``[M, ...]`` for transitions.
    first
        bool, as obs: the row begins an episode.
    action
        int64 ``[T, B]`` or float32 ``[T, B, d]``, as sampled.
    reward
        float32 ``[T, B]``, scaled and clipped for learning.
    terminated, truncated
        bool ``[T, B]``.
    valid
        bool ``[T, B]``: a real step (not the transition out of a final row, not padding).
    learn
        float32 ``[T, B]``: 1 where the step is learned from: it is valid, its policy lag is not too large or it is
        replayed, and its row lies behind the burn-in; a step of a segment that was drawn by priority has its importance
        weight. Else 0.
    log_prob
        float32 ``[T, B]``: of the action, under the policy that chose it.
    memory
        float32 ``[B, S]``: memory state at the start of each segment.
    lane
        int64 ``[B]``: number of the lane that each segment comes from.
    replayed
        bool ``[B]``: the segment is not fresh. Fresh ones come first.
    records
        What the algorithm recorded while acting, ``[T, B, ...]`` by name.
    targets
        What the algorithm's loss aims at: ``[T, B]`` by name.
    altered
        Columns of the data path beside those of every one (`PathMemory.columns`), ``[T, B, ...]`` by name. Empty where
        it has altered no reward of the batch.
    progress
        Fraction of ``total_steps`` learned from so far, for schedules.
    """

    obs: Tensor
    first: Tensor
    action: Tensor
    reward: Tensor
    terminated: Tensor
    truncated: Tensor
    valid: Tensor
    learn: Tensor
    log_prob: Tensor
    memory: Tensor
    lane: Tensor
    replayed: Tensor
    records: dict[str, Tensor] = field(default_factory=dict)
    targets: dict[str, Tensor] = field(default_factory=dict)
    altered: dict[str, Tensor] = field(default_factory=dict)
    progress: float = 0.0

    @property
    def num_segments(self) -> int:
        """B."""
        return self.obs.shape[1]

    def segments(self, index: Tensor) -> Batch:
        """Return the batch of these segments (int64 indices into B)."""
        return self._map(lambda name, x: x[index] if name in PER_SEGMENT else x[:, index])

    def flatten(self) -> Batch:
        """Return all T * B transitions as one flat batch, without the last observations; `PER_SEGMENT` stays."""
        length = self.reward.shape[0]
        return self._map(lambda name, x: x if name in PER_SEGMENT else x[:length].flatten(0, 1))

    def transitions(self, index: Tensor) -> Batch:
        """Return the batch of these transitions of a flat batch (int64 indices)."""
        return self._map(lambda name, x: x if name in PER_SEGMENT else x[index])

    def _map(self, change: Any) -> Batch:
        changed: dict[str, Any] = {}
        for f in fields(self):
            value = getattr(self, f.name)
            if isinstance(value, Tensor):
                changed[f.name] = change(f.name, value)
            elif isinstance(value, dict):
                changed[f.name] = {key: change(key, x) for key, x in value.items()}
        return replace(self, **changed)


class BatchReader:
    """Gathers slots into tensors that are written anew by every call.

    Parameters
    ----------
    arena
        The run's arena.
    num_segments
        B, segments per batch.
    device
        Where the tensors go; on CUDA they are copied from pinned memory. Large observations are not gathered on the
        host: they are copied slot by slot, from the arena itself.
    reward_scale, reward_clip
        What the learner sees of a reward: ``clip(reward * scale, -clip, clip)``.
    max_policy_lag
        Steps whose policy lag reaches this are not learned from; None: all are.
    burn_in
        Nor are the first rows of every segment, so many.
    num_replayed
        So many of the segments of a batch are replayed: they are given to `read`.
    note
        Called with a sentence if CUDA refuses to copy large observations from the arena itself.
    """

    def __init__(
        self,
        arena: ExperienceArena,
        num_segments: int,
        device: torch.device,
        *,
        reward_scale: float,
        reward_clip: float | None,
        max_policy_lag: int | None,
        burn_in: int = 0,
        num_replayed: int = 0,
        note: Callable[[str], object] = lambda _: None,
    ) -> None:
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
        self._pinned = PinnedMemory(obs, device) if pin and is_large else None
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
        self._gathered = {  # fresh segments, before they are put beside replayed ones
            name: np.empty((rows, self._num_fresh, *array.shape[2:]), array.dtype) if num_replayed else array
            for name, array in self._arrays.items()
        }
        self._is_replayed = torch.arange(num_segments) >= self._num_fresh
        self._copied: torch.cuda.Event | None = None  # behind the copies of the batch before

    def read(
        self, slots: np.ndarray, version: int, progress: float, replayed: Sequence[Mapping[str, np.ndarray]] = ()
    ) -> tuple[Batch, Tensor]:
        """Gather fresh segments, and put replayed ones beside them.

        Parameters
        ----------
        slots
            int64 ``[F]``: slots in state READING, held by the caller; they may be released as soon as this returns.
        version
            The learner's version now, from which the policy lag is counted.
        progress
            Fraction of ``total_steps`` learned from so far.
        replayed
            Columns of segments ``[n, T + 1, ...]`` by name, memory ``[n, S]``, lane ``[n]``, and where there are any
            importance weights ``[n]``; ``num_replayed`` segments in all.

        Returns
        -------
        batch : Batch
        lag : Tensor
            int64 ``[K]``: policy lag of each valid fresh step, on the CPU.
        """
        if self._copied is not None:
            self._copied.synchronize()  # the pinned memory may be written again from now on
        row_ids = slots[None, :] * len(self._offsets) + self._offsets
        for name, array in self._gathered.items():
            gather(self._arena.columns[name], row_ids, array)
        memory, lane, weights = self._arena.slot_memory[slots], self._arena.lane_of(slots), None
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
            first=self._to_device(on_cpu["first"]),
            action=self._to_device(on_cpu["action"][:-1]),
            reward=self._to_device(reward),
            terminated=self._to_device(on_cpu["terminated"][:-1]),
            truncated=self._to_device(on_cpu["truncated"][:-1]),
            valid=self._to_device(valid),
            learn=self._to_device(counted),
            log_prob=self._to_device(on_cpu["log_prob"][:-1]),
            memory=self._to_device(torch.from_numpy(memory)),
            lane=self._to_device(torch.from_numpy(lane)),
            replayed=self._to_device(self._is_replayed),
            altered=altered,
            records={c.name: self._to_device(on_cpu[c.name][:-1]) for c in self._arena.shape.records},
            progress=progress,
        )
        if self._device.type == "cuda":
            self._copied = torch.cuda.Event(blocking=True)
            self._copied.record(torch.cuda.current_stream(self._device))
            if self._takes_slots:
                self._copied.synchronize()  # the slots may be written again from now on
        fresh = slice(self._num_fresh)
        return batch, lag[:, fresh][valid[:, fresh]]

    def close(self) -> None:
        """Let go of the arena's memory."""
        if self._pinned is not None:
            self._pinned.close()

    def _put_beside(
        self, replayed: Sequence[Mapping[str, np.ndarray]], memory: np.ndarray, lane: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, Tensor]:
        """Fill the batch's arrays; return memory, lanes and importance weights of all segments."""
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
        """Observations ``[T + 1, B, ...]``, seen through the order in which they lie: segment by segment."""
        obs = torch.empty(
            (len(slots), *self._obs_of_slots.shape[1:]), dtype=self._obs_of_slots.dtype, device=self._device
        )
        for place, slot in zip(obs, slots.tolist(), strict=True):
            place.copy_(self._obs_of_slots[slot], non_blocking=True)
        return obs.transpose(0, 1)

    def _to_device(self, tensor: Tensor) -> Tensor:
        return tensor.to(self._device, non_blocking=True)
