"""Fresh segments whose rewards are redistributed when lanes have filled a slot, and fed it to a redistributor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from penstock.config import Config
from penstock.engine.contracts import ExperienceWriter
from penstock.engine.paths.segments import SegmentPath
from penstock.experience.feed import Feed, FeedingSegmentWriter

if TYPE_CHECKING:
    import numpy as np

    from penstock.algorithms.bases.segment import SegmentAlgorithm
    from penstock.engine.contracts import RoleSpec, Start
    from penstock.engine.paths.segment_learner import SegmentLearner
    from penstock.engine.watching.clock import Clock
    from penstock.envs.lanes import Lanes
    from penstock.experience.arena import ExperienceArena
    from penstock.nn import PolicyNetwork
    from penstock.runs.run_directory import RunDirectory


@dataclass(frozen=True)
class RedistributedPath(SegmentPath):
    """Segments that are fed to the role that predicts returns, and handed over with redistributed rewards."""

    algorithm: SegmentAlgorithm
    feed: Feed
    saved_at: Path | None = None
    """Directory in which the redistributor saves itself beside the checkpoints; None: nowhere."""

    @classmethod
    def numbers(cls, algorithm: Any, model: PolicyNetwork) -> dict[str, int]:
        """As for segments, the size of the predictor, and whether original rewards stay beside redistributed ones."""
        keeps_original = algorithm.config.redistribution_value == "original"
        return super().numbers(algorithm, model) | predictor_numbers(algorithm) | {"keeps_original": keeps_original}

    @classmethod
    def create(
        cls, arena: ExperienceArena, algorithm: Any, model: PolicyNetwork, start: Start, saved: Path | None
    ) -> tuple[Self, str | None]:
        """Make the feed.

        Raises
        ------
        MemoryError
            It does not fit in memory; the message shows the arithmetic.
        """
        return cls(algorithm, Feed.make(arena.shape)), None

    def kept_in(self, run: RunDirectory, config: Config) -> RedistributedPath:
        """The redistributor is saved beside the checkpoints."""
        return replace(self, saved_at=run.redistributor_path)

    def roles(self, algorithm: Any, policy: int) -> Sequence[RoleSpec]:
        """The redistributor."""
        from penstock.engine.roles.specs import RedistributorRole

        return (RedistributorRole(algorithm, self.feed, self.saved_at, policy),)

    def writer(
        self, arena: ExperienceArena, worker: int, lanes: Lanes, first_lane: int, actor: Any, clock: Clock
    ) -> ExperienceWriter:
        """Fill slots, feed what they are filled with, and redistribute its rewards."""
        redistribution = self.redistribution(arena, range(first_lane, first_lane + lanes.num_lanes))

        def redistribute(slots: np.ndarray) -> None:
            clock.switch("redistribute")
            redistribution(slots)
            clock.switch("write")

        is_serial = self.algorithm.config.backend == "serial"
        return FeedingSegmentWriter(arena, worker, lanes, first_lane, self.feed, redistribute, gives_turn=is_serial)

    def redistribution(self, arena: ExperienceArena, lanes: range) -> Callable[[np.ndarray], None]:
        """Make the redistribution of the lanes' segments. Loads torch even where a policy worker infers."""
        from penstock.engine.paths.redistribution import SegmentRedistribution

        return SegmentRedistribution(self.algorithm, arena, lanes)

    @classmethod
    def learner_class(cls) -> type[SegmentLearner]:
        """Learner class that also reports the quality of predicted returns."""
        from penstock.engine.paths.redistributed_learner import RedistributedLearner

        return RedistributedLearner

    @property
    def saving_apart(self) -> int:
        """The redistributor, where it is saved."""
        return int(self.saved_at is not None)


def predictor_numbers(algorithm: Any) -> dict[str, int]:
    """Numbers that a predictor of returns adds to the run's shape."""
    from penstock.algorithms.rudder import build_predictor
    from penstock.engine.acting.weights import weights_nbytes

    return {"redistribution_nbytes": weights_nbytes(build_predictor(algorithm))}
