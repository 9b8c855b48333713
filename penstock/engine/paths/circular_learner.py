"""The learner with a circular buffer of batches (IMPACT, arXiv:1912.00167, section 3.3)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch

from penstock.engine.paths.segment_learner import SegmentLearner
from penstock.experience.batch import Batch


@dataclass
class Kept:
    """A batch in the circular buffer, and how often it may still be learned from."""

    batch: Batch
    uses_left: int


class CircularBatches:
    """Batches, each of which is handed out so many times: at once when it is new, later at random.

    Parameters
    ----------
    capacity
        Batches that are held (N); one more takes the place of the oldest.
    uses
        How often each is handed out at most (K).
    generator
        Draws among those that may be used again.
    """

    def __init__(self, capacity: int, uses: int, generator: torch.Generator) -> None:
        self._capacity, self._uses, self._generator = capacity, uses, generator
        self._kept: list[Kept] = []
        self.num_handed_out = self.num_taken = 0

    def __len__(self) -> int:
        """Batches that may be used again."""
        return len(self._kept)

    def put(self, batch: Batch) -> Batch:
        """Take a new batch, and hand it out for the first time."""
        self._kept = [*self._kept, Kept(batch, self._uses)][-self._capacity :]
        self.num_taken += 1
        return self._hand_out(self._kept[-1])

    def again(self) -> Batch | None:
        """Hand out one of those that may be used again; None: there is none."""
        if not self._kept:
            return None
        return self._hand_out(self._kept[int(torch.randint(len(self._kept), (), generator=self._generator))])

    def forget_all(self) -> None:
        """Hold nothing any more."""
        self._kept.clear()

    def _hand_out(self, kept: Kept) -> Batch:
        kept.uses_left -= 1
        self.num_handed_out += 1
        self._kept = [each for each in self._kept if each.uses_left]
        return kept.batch


class CircularLearner(SegmentLearner):
    """Learns from each new batch at once, and while there is none, or no place for one, from one that it has kept.

    So a batch is used as often as it may be, unless environments are slower than that: rollout workers wait then where
    they would be ahead, and the learner hardly ever.

    The parameters are those of `SegmentLearner`; the algorithm's config has ``num_batches`` and ``batch_uses``.
    """

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._batches = CircularBatches(self._config.num_batches, self._config.batch_uses, self._updater.generator)
        self._is_new = False

    def _next_batch(self) -> Batch | None:
        has_room = len(self._batches) < self._config.num_batches
        batch = super()._next_batch() if has_room else None
        self._is_new = batch is not None
        if batch is not None:
            everything = torch.arange(batch.num_segments, device=batch.obs.device)
            return self._batches.put(batch.segments(everything))  # a copy: the reader's memory is used anew
        batch = self._batches.again()
        if batch is None:
            return None
        is_replayed = torch.ones_like(batch.replayed)  # what is counted of it was counted when it was new
        return replace(batch, progress=self._steps / self._config.total_steps, replayed=is_replayed)

    def _count(self, batch: Batch) -> None:
        if self._is_new:
            super()._count(batch)

    def _weights_set(self) -> None:
        super()._weights_set()
        self._batches.forget_all()  # they were collected before, as segments that are fenced off

    def experience(self) -> dict[str, float]:
        """Beside policy lag: batches that are kept, and how often each has been used."""
        batches = self._batches
        uses = batches.num_handed_out / max(1, batches.num_taken)
        return super().experience() | {"replay/circular/batches": len(batches), "replay/circular/uses": uses}
