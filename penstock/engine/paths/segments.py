"""Fresh segments: lanes fill slots of the arena, and the learner learns from each once or several times."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.config import ConfigError
from penstock.engine.contracts import ExperienceWriter
from penstock.engine.paths.base import DataPath
from penstock.experience.segments import SegmentWriter

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.engine.roles.learner import Learner
    from penstock.nn import PolicyNetwork


@dataclass(frozen=True)
class SegmentPath(DataPath):
    """Data path of segments that are passed to the learner slot by slot."""

    @classmethod
    def numbers(cls, algorithm: Any, model: PolicyNetwork) -> dict[str, int]:
        """Return the steps of a segment, slots per lane so that no role waits, and fresh segments per batch."""
        config = algorithm.config
        return {
            "segment_length": config.segment_length,
            "slots_per_lane": _slots_per_lane(algorithm),
            "segments_per_batch": config.fresh_per_batch,
        }

    def _writer_class(self) -> Callable[..., ExperienceWriter]:
        return SegmentWriter

    def _learner_class(self) -> Callable[..., Learner]:
        from penstock.engine.paths.segment_learner import SegmentLearner

        return SegmentLearner


@dataclass(frozen=True)
class CircularPath(SegmentPath):
    """Data path of segments in batches that are used several times, from a circular buffer of the learner."""

    def _learner_class(self) -> Callable[..., Learner]:
        from penstock.engine.paths.circular_learner import CircularLearner

        return CircularLearner


def _slots_per_lane(algorithm: Any) -> int:
    """Return the number of slots per lane.

    With an asynchronous learner, a lane has slots for its share of a batch, which may wait to be collected, and one to
    write: even if lanes wait for slots, the learner has enough for a batch. The share is large enough for a batch to
    come from all rollout workers but one, which may be slow, and from one of several nodes, because the others may be
    gone. A synchronous learner holds the slot of every lane until it has learned, so that no lane steps meanwhile.
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
