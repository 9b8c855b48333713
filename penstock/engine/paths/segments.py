"""Fresh segments: lanes fill slots of the arena, and the learner learns from each once, or several times."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.config import ConfigError
from penstock.engine.contracts import ExperienceWriter
from penstock.engine.paths.base import DataPath
from penstock.experience.segments import SegmentWriter

if TYPE_CHECKING:
    from penstock.engine.acting.weights import MakeWeights
    from penstock.engine.contracts import LearnerState
    from penstock.engine.messages import Tell
    from penstock.engine.paths.segment_learner import SegmentLearner
    from penstock.engine.roles.learner import Learner
    from penstock.engine.watching.clock import Clock
    from penstock.envs.lanes import Lanes
    from penstock.experience.arena import ExperienceArena
    from penstock.nn import PolicyNetwork


@dataclass(frozen=True)
class SegmentPath(DataPath):
    """Segments that are handed over to the learner, slot by slot."""

    @classmethod
    def numbers(cls, algorithm: Any, model: PolicyNetwork) -> dict[str, int]:
        """Segments of T steps, as many slots per lane as it takes for nobody to wait, and B segments in a batch."""
        config = algorithm.config
        return {
            "segment_length": config.segment_length,
            "slots_per_lane": _slots_per_lane(algorithm),
            "segments_per_batch": config.fresh_per_batch,
        }

    def writer(
        self, arena: ExperienceArena, worker: int, lanes: Lanes, first_lane: int, actor: Any, clock: Clock
    ) -> ExperienceWriter:
        """Fill slots."""
        return SegmentWriter(arena, worker, lanes, first_lane)

    def learner(
        self,
        arena: ExperienceArena,
        algorithm: Any,
        state: LearnerState,
        learning: dict[str, Any] | None,
        report: Tell,
        weights: MakeWeights,
    ) -> Learner:
        """Take full slots."""
        return self.learner_class()(algorithm, arena, state, learning, report, weights)

    @classmethod
    def learner_class(cls) -> type[SegmentLearner]:
        """Learner class."""
        from penstock.engine.paths.segment_learner import SegmentLearner

        return SegmentLearner


@dataclass(frozen=True)
class CircularPath(SegmentPath):
    """Segments in batches that are used several times: the learner keeps the newest in a circular buffer."""

    @classmethod
    def learner_class(cls) -> type[SegmentLearner]:
        """Learner class that takes full slots into a circular buffer of batches."""
        from penstock.engine.paths.circular_learner import CircularLearner

        return CircularLearner


def _slots_per_lane(algorithm: Any) -> int:
    """Segments that there is room for, of each lane.

    While an asynchronous learner collects a batch, every lane may have its share of it waiting, and a slot to write
    beside: lanes that wait for slots then always leave the learner enough to go on, and none takes the room of another.
    The share is such that a batch can come of all rollout workers but one, which may be slow, and of one node where
    there are several, because the others may be gone. A synchronous learner keeps the slot of every lane until it has
    learned, so that nobody can step meanwhile.
    """
    config = algorithm.config
    if not algorithm.synchronous:
        lanes_of_others = config.num_lanes - config.lanes_per_worker or config.num_lanes
        lanes_of_others = min(lanes_of_others, config.num_lanes // config.num_nodes)
        return 1 + math.ceil(config.fresh_per_batch / lanes_of_others)
    if config.segments_per_batch != config.num_lanes:
        raise ConfigError(
            f"{algorithm.name()} is synchronous, so a batch is one segment of every lane; found segments_per_batch="
            f"{config.segments_per_batch} for {config.lanes_in_words}: make them equal"
        )
    return 1
