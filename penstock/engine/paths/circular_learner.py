"""Learner with a circular buffer of batches (IMPACT, arXiv:1912.00167, section 3.3)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch

from penstock.algorithms.bases.segment import SegmentAlgorithm
from penstock.engine.acting.inference import MakeWeights, through_block
from penstock.engine.contracts import LearnerState
from penstock.engine.messages import Tell
from penstock.engine.paths.segment_learner import SegmentLearner
from penstock.experience.arena import ExperienceArena
from penstock.experience.batch import Batch


@dataclass
class Kept:
    """Batch in the circular buffer, with the number of uses left."""

    batch: Batch
    uses_left: int


class CircularBatches:
    """Batches that are each returned several times: at once when new, later at random.

    Parameters
    ----------
    capacity
        N: number of batches held; a further one replaces the oldest.
    uses
        K: largest number of uses of a batch.
    generator
        Random numbers of the draws.
    """

    def __init__(self, capacity: int, uses: int, generator: torch.Generator) -> None:
        self._capacity, self._uses, self._generator = capacity, uses, generator
        self._kept: list[Kept] = []
        self.num_used = self.num_taken = 0

    def __len__(self) -> int:
        """Return the number of batches that may be used again."""
        return len(self._kept)

    def put(self, batch: Batch) -> Batch:
        """Add a batch, and return it as its first use."""
        self._kept = [*self._kept, Kept(batch, self._uses)][-self._capacity :]
        self.num_taken += 1
        return self._use(self._kept[-1])

    def again(self) -> Batch | None:
        """Return a random batch that may be used again; None if there is none."""
        if not self._kept:
            return None
        return self._use(self._kept[int(torch.randint(len(self._kept), (), generator=self._generator))])

    def forget_all(self) -> None:
        """Drop all batches."""
        self._kept.clear()

    def _use(self, kept: Kept) -> Batch:
        kept.uses_left -= 1
        self.num_used += 1
        self._kept = [each for each in self._kept if each.uses_left]
        return kept.batch


class CircularLearner(SegmentLearner):
    """Learns from each new batch at once, and from a kept one while there is no new one, or no room for one.

    So the learner hardly ever waits; rollout workers wait if they collect batches faster than the learner uses them up.

    Parameters are those of `SegmentLearner`; the algorithm's config has ``num_batches`` and ``batch_uses``.
    """

    def __init__(
        self, algorithm: SegmentAlgorithm, arena: ExperienceArena, state: LearnerState,
        learning: dict[str, Any] | None, report: Tell, weights: MakeWeights = through_block,
    ) -> None:  # fmt: skip
        super().__init__(algorithm, arena, state, learning, report, weights)
        self._batches = CircularBatches(self._config.num_batches, self._config.batch_uses, self._updater.generator)
        self._is_new = False

    def _next_batch(self) -> Batch | None:
        has_room = len(self._batches) < self._config.num_batches
        batch = super()._next_batch() if has_room else None
        self._is_new = batch is not None
        if batch is not None:
            everything = torch.arange(batch.num_segments, device=batch.obs.device)
            return self._batches.put(batch.segments(everything))  # a copy: the reader overwrites its memory
        batch = self._batches.again()
        if batch is None:
            return None
        is_replayed = torch.ones_like(batch.replayed)  # its steps were counted when it was new
        return replace(batch, progress=self._steps / self._config.total_steps, replayed=is_replayed)

    def _count(self, batch: Batch) -> None:
        if self._is_new:
            super()._count(batch)

    def _weights_set(self) -> None:
        super()._weights_set()
        self._batches.forget_all()  # they were collected with other weights, like fenced segments

    def experience(self) -> dict[str, float]:
        """As `SegmentLearner.experience`, with the number of kept batches and the mean uses of a batch."""
        batches = self._batches
        uses = batches.num_used / max(1, batches.num_taken)
        return super().experience() | {"replay/circular/batches": len(batches), "replay/circular/uses": uses}
