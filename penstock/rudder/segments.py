"""Fresh segments: lanes feed each full slot to the redistributor, and redistribute its rewards in their place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from penstock.config import Config
from penstock.engine.contracts import ExperienceWriter
from penstock.engine.nodes.transport import SegmentTransport
from penstock.engine.paths.segments import SegmentPath
from penstock.experience.arena import ExperienceArena
from penstock.experience.layout import PathMemory
from penstock.experience.segments import SegmentWriter
from penstock.rudder.feed import COLUMNS, PREDICTOR, Feed, feed_segments
from penstock.rudder.settings import ROLE

if TYPE_CHECKING:
    from penstock.algorithms.bases.segment import SegmentAlgorithm
    from penstock.engine.contracts import RoleSpec, Start
    from penstock.engine.roles.learner import Learner
    from penstock.engine.watching.clock import Clock
    from penstock.envs.lanes import Lanes
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
    def numbers(cls, algorithm: Any, model: PolicyNetwork) -> dict[str, Any]:
        """Return those of segments, and memory for the predictor and for redistributed rewards beside original ones."""
        from penstock.rudder.predictor import predictor_block

        columns = COLUMNS if algorithm.config.mixes_advantages else ()
        return super().numbers(algorithm, model) | {"path_memory": PathMemory(predictor_block(algorithm), columns)}

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
        return replace(self, saved_at=run.path / ROLE)

    def roles(self, algorithm: Any, policy: int) -> Sequence[RoleSpec]:
        """The redistributor."""
        from penstock.rudder.redistributor import RedistributorRole

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
        from penstock.rudder.redistribution import SegmentRedistribution

        return SegmentRedistribution(self.algorithm, arena, lanes)

    def _learner_class(self) -> Callable[..., Learner]:
        from penstock.rudder.redistribution import RedistributedLearner

        return RedistributedLearner

    @property
    def saving_apart(self) -> int:
        """The redistributor, where it is saved."""
        return int(self.saved_at is not None)


class FeedingSegmentWriter(SegmentWriter):
    """Segments that are fed, besides, to a role that learns from them in its own time, and are changed then.

    Nobody waits for that role, but in a serial run: there it has its turn before slots are handed over.

    Parameters
    ----------
    arena, worker, lanes, first_lane
        As for `SegmentWriter`.
    feed
        Where they go.
    redistribute
        Called with the slots when they are full and fed: changes the rewards in them.
    gives_turn
        Whether full slots are kept until that role has published anew, as in a serial run, where all have their turn.
    """

    def __init__(
        self, arena: ExperienceArena, worker: int, lanes: Lanes, first_lane: int, feed: Feed,
        redistribute: Callable[[np.ndarray], None], *, gives_turn: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(arena, worker, lanes, first_lane)
        self._feed = feed
        self._feed_writer = feed.buffer.writer(lanes.num_lanes)
        self._redistribute = redistribute
        self._gives_turn = gives_turn
        self._fed_at: int | None = None  # version of the predictor when the full slots were fed; None: none are kept

    def open(self) -> bool:
        """Begin new segments as `SegmentWriter` does.

        Full ones that are kept are handed over before, if it is time. Then the learner has its turn first: False.
        """
        if self._fed_at is None:
            return super().open()
        if self.arena.blocks[PREDICTOR].version != self._fed_at:
            self._hand_over()
        return False

    def _deliver(self) -> None:
        feed_segments(self.arena, self._feed, self._feed_writer, self.slots)
        if self._gives_turn:
            self._fed_at = self.arena.blocks[PREDICTOR].version
        else:
            self._hand_over()

    def _hand_over(self) -> None:
        self._fed_at = None
        self._redistribute(self.slots)
        super()._deliver()


class RedistributedSegmentTransport(SegmentTransport):
    """Transport of segments whose rewards home redistributes."""

    def to_node(self) -> Self:
        """Fill slots on the node."""
        return replace(self, path=SegmentPath())

    def on_arrival(self, arena: ExperienceArena) -> Callable[[np.ndarray], None]:
        """Feed the redistributor, and redistribute; slots that arrive together may hold several segments of a lane."""
        from penstock.rudder.redistribution import each_lane_once

        feed, writer = self.path.feed, self.path.feed.buffer.writer()
        redistribute = self.path.redistribution(arena, range(arena.shape.num_lanes))

        def take(slots: np.ndarray) -> None:
            slots = slots[arena.slot_number[slots].argsort(kind="stable")]
            feed_segments(arena, feed, writer, slots)
            for turn in each_lane_once(arena.lane_of(slots)):
                redistribute(slots[turn])

        return take
