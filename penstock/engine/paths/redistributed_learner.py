"""The learner of segments whose rewards lie in their slots as they were redistributed."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from penstock.algorithms.bases.segment import SegmentAlgorithm
from penstock.algorithms.rudder import build_predictor, predictor_metrics
from penstock.engine.acting.weights import MakeWeights, SharedWeights
from penstock.engine.contracts import LearnerState
from penstock.engine.messages import Tell
from penstock.engine.paths.segment_learner import SegmentLearner
from penstock.experience.arena import ExperienceArena
from penstock.experience.batch import Batch


class RedistributedLearner(SegmentLearner):
    """Shows how well returns are predicted, too; parameters are those of `SegmentLearner`."""

    rewards_are_as_learned: ClassVar[bool] = True

    def __init__(
        self,
        algorithm: SegmentAlgorithm,
        arena: ExperienceArena,
        state: LearnerState,
        learning: dict[str, Any] | None,
        report: Tell,
        weights: MakeWeights,
    ) -> None:
        super().__init__(algorithm, arena, state, learning, report, weights)
        self._predictor = build_predictor(algorithm)
        self._predictor_weights = SharedWeights(self._predictor, arena.redistribution)
        self._redistributed = 0  # steps of the last batch

    def _read(self, slots: np.ndarray) -> tuple[Batch, Tensor]:
        self._redistributed = int(self._arena.slot_redistributed[slots].sum())
        return super()._read(slots)

    def experience(self) -> dict[str, float]:
        """Besides, how well returns are predicted, and what that has changed."""
        self._predictor_weights.refresh()
        return super().experience() | predictor_metrics(self._predictor, self._redistributed / max(1, len(self._lag)))
