"""Fresh segments in batches that are used several times: the learner keeps the newest in a circular buffer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.engine.paths.base import Rehearsal
from penstock.engine.paths.segments import SegmentPath

if TYPE_CHECKING:
    from penstock.engine.paths.segment_learner import SegmentLearner
    from penstock.experience.arena import ExperienceArena


@dataclass(frozen=True)
class CircularPath(SegmentPath):
    """Segments that are handed over to the learner, which may use a batch of them again."""

    @classmethod
    def rehearsal(cls, arena: ExperienceArena, algorithm: Any) -> Rehearsal:
        """All updates of a batch, as often as it is used."""
        from penstock.engine.paths.rehearsals import SegmentRehearsal

        c = algorithm.config
        return SegmentRehearsal(arena, algorithm, c.segments_per_batch, uses=c.batch_uses)

    @classmethod
    def learner_class(cls) -> type[SegmentLearner]:
        """One that takes full slots into a circular buffer of batches."""
        from penstock.engine.paths.circular_learner import CircularLearner

        return CircularLearner
