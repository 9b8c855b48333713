"""Batches of transitions: drawn from the replay buffer, large ones by a thread of its own, one ahead of the learner."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import cycle
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from penstock.experience.run_replay import Replay

Arrays = dict[str, np.ndarray]

# A thread that draws takes the interpreter's lock from the learner a few times for each batch. What is drawn in a few
# microseconds is not worth that: learning from 64 vectors of 4 numbers goes half as fast again without the thread.
WORTH_A_THREAD = 1 << 19  # bytes


@dataclass(frozen=True)
class TransitionBatch:
    """B transitions to learn from.

    Attributes
    ----------
    obs, next_obs
        ``[B, ...]``: the observation, and the one that the last of the transition's steps led to: the true final one
        where an episode was truncated; of no meaning where it terminated.
    action
        int64 ``[B]`` or float32 ``[B, d]`` in [-1, 1], the first step's.
    reward
        float32 ``[B]``: discounted sum over the steps, scaled and clipped for learning.
    discount
        float32 ``[B]``: ``gamma**m`` after m steps, 0 where the last of them terminated the episode.
    weights
        float32 ``[B]``: importance weights of prioritized replay; 1 without.
    number
        Of this update, counted from 1 over the whole run.
    progress
        Fraction of ``total_steps`` learned from so far, for schedules.
    """

    obs: Tensor
    next_obs: Tensor
    action: Tensor
    reward: Tensor
    discount: Tensor
    weights: Tensor
    number: int
    progress: float

    @property
    def observed(self) -> tuple[Tensor, None]:
        """Observations that running normalisations take in, ``[B, ...]``: all of them count."""
        return self.obs, None


@dataclass
class Drawn:
    """Host memory of a drawn batch, and the event after which it may be overwritten."""

    arrays: Arrays
    copied: torch.cuda.Event | None = None


class TransitionReader:
    """Draws batches, as far as the rate limiter lets it.

    A large batch is drawn while the one before is learned from; its priorities are then one update older. A small one,
    and any where all is to happen in order, is drawn in the calling thread when it is asked for.

    Parameters
    ----------
    replay
        Where transitions come from.
    device
        Where the tensors go; on CUDA they are copied from pinned memory.
    in_order
        All is to happen in order.

    Attributes
    ----------
    draws_ahead
        Whether a batch is to be asked for before the one before is learned from.
    """

    fields: ClassVar[tuple[str, ...]] = ("obs", "next_obs", "action", "reward", "discount")

    def __init__(self, replay: Replay, device: torch.device, *, in_order: bool) -> None:
        self._replay = replay
        self._device = device
        drawn = Drawn(self._allocate())
        self.draws_ahead = not in_order and sum(array.nbytes for array in drawn.arrays.values()) >= WORTH_A_THREAD
        self._executor = ThreadPoolExecutor(1, "replay-reader") if self.draws_ahead else None
        self._asked: Future[Drawn] | Drawn | None = None
        self._next = cycle([drawn, Drawn(self._allocate())] if self.draws_ahead else [drawn])
        self._ones = torch.ones(replay.batch_size, device=device)

    def ask(self, beta: float | None) -> bool:
        """Have a batch drawn, unless one is; False if the rate limiter does not let it yet.

        Parameters
        ----------
        beta
            Exponent of the importance weights; None without priorities.
        """
        if self._asked is not None:
            return True
        replay = self._replay
        if not len(replay.buffer) or not replay.limiter.try_sample(replay.batch_size):
            return False
        drawn = next(self._next)
        self._asked = self._executor.submit(self._draw, beta, drawn) if self._executor else self._draw(beta, drawn)
        return True

    def take(self, number: int, progress: float) -> tuple[Any, np.ndarray]:
        """Return the batch that was asked for, and its rows' ids, int64 ``[B]``; valid until two batches later."""
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
        if self._executor is not None:
            self._executor.shutdown()

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
