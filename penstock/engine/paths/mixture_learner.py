"""Learner of mixed batches: fresh segments, and replayed ones drawn from their stores."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from penstock.algorithms.bases.segment import SegmentAlgorithm
from penstock.engine.acting.inference import MakeWeights, through_block
from penstock.engine.contracts import LearnerState
from penstock.engine.messages import Save, Tell
from penstock.engine.paths.drawing import DrawAhead, DrawOnRequest, make_draws
from penstock.engine.paths.segment_learner import SegmentLearner
from penstock.engine.roles.learner import save_contents
from penstock.engine.watching.metrics import distribution
from penstock.experience.arena import ExperienceArena
from penstock.experience.batch import Batch
from penstock.experience.segment_store import Segments, SegmentStore
from penstock.runs.store import CheckpointStore


class MixtureLearner(SegmentLearner):
    """Learns from batches of fresh and replayed segments, in the shares of their sources.

    Learning starts when each source holds its minimum of segments. Until then fresh segments only fill the stores, and
    their steps count as learned from.

    Parameters
    ----------
    algorithm, arena, state, learning, report, weights
        As for `SegmentLearner`.
    stores
        Replayed segments, a store per source.
    saved_at
        Directory of the stores' contents beside checkpoints; None: not saved.
    """

    def __init__(
        self, algorithm: SegmentAlgorithm, arena: ExperienceArena, state: LearnerState,
        learning: dict[str, Any] | None, report: Tell, weights: MakeWeights = through_block, *,
        stores: tuple[SegmentStore, ...], saved_at: Path | None,
    ) -> None:  # fmt: skip
        super().__init__(algorithm, arena, state, learning, report, weights)
        self._stores = stores
        self._saved_at = saved_at
        self._is_filling = True
        self._drawn = dict.fromkeys((store.source.kind for store in self._stores), 0)
        self._ages = dict.fromkeys(self._drawn, np.zeros(1, np.int64))
        self._segments: list[Segments] = []  # replayed segments of the last batch, by store
        self._added_before = {store.source.kind: store.buffer.num_added for store in self._stores}
        self._draws = draws = make_draws(self._algorithm, self._arena, self._stores)

        def draw() -> list[Segments]:
            progress = self._steps / self._config.total_steps
            return [draw_one(progress) for draw_one in draws]

        is_costly = any(store.source.compares for store in self._stores)
        self._drawing = DrawAhead(draw, self.bell) if is_costly and self._uses_clock else DrawOnRequest(draw)

    def close(self) -> None:
        """End the draws, and unregister the arena's memory."""
        self._drawing.close()
        super().close()

    def _collect(self) -> None:
        """Take full slots; release them at once while the stores fill."""
        super()._collect()
        self._is_filling = self._is_filling and not all(store.is_ready for store in self._stores)
        if self._is_filling and len(self._held):
            self._steps += self._valid_steps_in(self._held)
            self._normalize_by(self._held)
            self._arena.release(self._held)
            self._held = self._held[:0]
            self._queue_report({})

    def _normalize_by(self, slots: np.ndarray) -> None:
        """Update the observation statistics with segments that only fill the stores."""
        rows, columns = self._arena.shape.rows_per_slot, self._arena.columns
        obs, valid = (
            torch.from_numpy(columns[name].reshape(-1, rows, *columns[name].shape[1:])[slots][:, :-1]).to(self._device)
            for name in ("obs", "valid")
        )
        self._model.update_observation_statistics(obs, valid)
        self.is_changed_apart = True

    def _next_batch(self) -> Batch | None:
        if self._is_filling or len(self._held) < self._arena.shape.segments_per_batch:
            return None
        drawn = self._drawing.take()
        if drawn is None:
            return None
        self._weights.show()  # draws read the weights from the block
        self._segments = drawn
        return super()._next_batch()

    def _read(self, slots: np.ndarray, late: np.ndarray | None = None) -> tuple[Batch, Tensor]:
        for store, segments in zip(self._stores, self._segments, strict=True):
            kind = store.source.kind
            self._drawn[kind] += store.count
            ages = self._version - segments["version"][:, :-1]
            self._ages[kind] = ages[segments["valid"][:, :-1]]
        return self._reader.read(slots, self._version, self._steps / self._config.total_steps, self._segments)

    def _count(self, batch: Batch) -> None:
        """Count the fresh steps; set the priority of each prioritized segment to its mean absolute advantage."""
        super()._count(batch)
        end = self._arena.shape.segments_per_batch
        for store, segments in zip(self._stores, self._segments, strict=True):
            begin, end = end, end + store.count
            if store.source.kind == "prioritized" and "advantage" in batch.targets:
                learn = (batch.learn[:, begin:end] > 0).float()
                error = (batch.targets["advantage"][:, begin:end].abs() * learn).sum(0) / learn.sum(0).clamp(min=1.0)
                is_finite = error.isfinite().cpu().numpy()
                priorities = error.cpu().numpy()[is_finite]
                store.buffer.update_priorities(segments["ids"][is_finite], priorities)

    def _save(self, command: Save) -> None:
        super()._save(command)
        if isinstance(command.destination, CheckpointStore) and self._saved_at is not None:
            buffers = {self._saved_at / store.source.kind: store.buffer for store in self._stores}
            save_contents(buffers, command, self._report)

    def experience(self) -> dict[str, float]:
        """As `SegmentLearner.experience`, with contents, age and uses of each source's segments."""
        found = super().experience() | {"replay/prefetched": self._drawing.depth}
        for store, draw in zip(self._stores, self._draws, strict=True):
            kind, buffer = store.source.kind, store.buffer
            stats = buffer.stats()
            lost = stats.rows_skipped + stats.rows_without_frames + draw.num_uniform * store.count
            found |= {
                f"replay/{kind}/share": float(store.source.share),
                f"replay/{kind}/segments": len(buffer),
                f"replay/{kind}/age": float(self._ages[kind].mean()),
                **distribution(f"replay/{kind}/age", self._ages[kind]),
                f"replay/{kind}/uses": self._drawn[kind] / max(1, buffer.num_added - self._added_before[kind]),
                f"replay/{kind}/lost": lost,
            }
        return found
