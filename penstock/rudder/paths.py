"""Data paths with redistributed rewards: for fresh segments, and for replayed transitions.

Lanes feed each full slot to the redistributor, and redistribute its rewards in place. Transitions are fed, held until
their episode is over, and then written with redistributed rewards.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from penstock.config import Config, ConfigError
from penstock.engine.contracts import ExperienceWriter
from penstock.engine.nodes.transport import SegmentTransport, StepTransport
from penstock.engine.paths.base import DataPath
from penstock.engine.paths.replay import ReplayPath, make_replay, transition_buffer
from penstock.engine.paths.segments import SegmentPath
from penstock.envs.lanes import Lanes
from penstock.experience.arena import ExperienceArena
from penstock.experience.layout import PathMemory, RunShape
from penstock.experience.outbox import Inbox, NodeReplay, Rows
from penstock.experience.run_replay import Replay, TransitionWriter
from penstock.experience.segments import SegmentWriter
from penstock.replay import Field
from penstock.rudder.feed import COLUMNS, PREDICTOR, Feed, Hold, RedistributedEpisodes, feed_segments
from penstock.rudder.settings import ROLE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.engine.contracts import RoleSpec, Start
    from penstock.engine.roles.learner import Learner
    from penstock.engine.watching.clock import Clock
    from penstock.nn import PolicyNetwork
    from penstock.runs.run_directory import RunDirectory

PIECE = 128  # largest number of steps of an episode that are fed at once


@dataclass(frozen=True)
class RedistributedPath(DataPath):
    """Common part of both data paths: the feed, and the redistributor with its saved state."""

    algorithm: Any
    feed: Feed
    saved_at: Path | None = None
    """Directory of the redistributor's saved state, next to the checkpoints; None: nothing is saved."""

    def kept_in(self, run: RunDirectory, config: Config) -> Self:
        """As in the base class, with the redistributor's saved state."""
        kept: Any = super().kept_in(run, config)
        found: Self = replace(kept, saved_at=run.path / ROLE)
        return found

    def roles(self, algorithm: Any, policy: int) -> Sequence[RoleSpec]:
        from penstock.rudder.redistributor import RedistributorRole

        return (RedistributorRole(algorithm, self.feed, self.saved_at, policy),)

    @property
    def saving_apart(self) -> int:
        """As in the base class, with the redistributor if it is saved."""
        return super().saving_apart + (self.saved_at is not None)


@dataclass(frozen=True)
class RedistributedSegmentPath(RedistributedPath, SegmentPath):
    """Segments, fed to the redistributor and delivered with redistributed rewards."""

    @classmethod
    def numbers(cls, algorithm: Any, model: PolicyNetwork) -> dict[str, Any]:
        """As in the base class, with memory for the predictor, and for redistributed next to original rewards."""
        from penstock.rudder.predictor import predictor_block

        columns = COLUMNS if algorithm.config.mixes_advantages else ()
        return super().numbers(algorithm, model) | {"path_memory": PathMemory(predictor_block(algorithm), columns)}

    @classmethod
    def create(
        cls, arena: ExperienceArena, algorithm: Any, model: PolicyNetwork, start: Start, saved: Path | None
    ) -> tuple[Self, str | None]:
        """Make the data path with its feed."""
        return cls(algorithm, Feed.make(arena.shape)), None

    def writer(
        self, arena: ExperienceArena, worker: int, lanes: Lanes, first_lane: int, actor: Any, clock: Clock
    ) -> ExperienceWriter:
        """Make the writer that feeds full slots and redistributes their rewards."""
        redistribution = self.redistribution(arena, range(first_lane, first_lane + lanes.num_lanes))

        def redistribute(slots: np.ndarray) -> None:
            clock.switch("redistribute")
            redistribution(slots)
            clock.switch("write")

        is_serial = self.algorithm.config.backend == "serial"
        return FeedingSegmentWriter(arena, worker, lanes, first_lane, self.feed, redistribute, gives_turn=is_serial)

    def redistribution(self, arena: ExperienceArena, lanes: range) -> Callable[[np.ndarray], None]:
        """Make the redistribution of the lanes' segments. Loads torch even if a policy worker infers."""
        from penstock.rudder.redistribution import SegmentRedistribution

        return SegmentRedistribution(self.algorithm, arena, lanes)

    def _learner_class(self) -> Callable[..., Learner]:
        from penstock.rudder.redistribution import RedistributedLearner

        return RedistributedLearner


@dataclass(frozen=True)
class RedistributedReplayPath(RedistributedPath, ReplayPath):
    """Transitions in a replay buffer, written with redistributed rewards when their episode is over."""

    @classmethod
    def numbers(cls, algorithm: Any, model: PolicyNetwork) -> dict[str, Any]:
        """As in the base class, with memory for the predictor.

        Raises
        ------
        ConfigError
            The algorithm gives first priorities.
        """
        from penstock.rudder.predictor import predictor_block

        if algorithm.initial_priorities() is not None:
            raise ConfigError(
                f"rewards='rudder' is not possible here: {algorithm.name()} finds first priorities when a step is "
                "taken, but redistributed rewards are known when its episode is over; use rewards='environment'"
            )
        return super().numbers(algorithm, model) | {"path_memory": PathMemory(predictor_block(algorithm))}

    @classmethod
    def create(
        cls, arena: ExperienceArena, algorithm: Any, model: PolicyNetwork, start: Start, saved: Path | None
    ) -> tuple[Self, str | None]:
        """Make the replay buffer, or restore a saved one, and make the feed."""
        replay, note = make_replay(algorithm, start, saved, transition_buffer(algorithm, kind=Field((), "int8")))
        return cls(replay, algorithm, Feed.make(arena.shape, PIECE)), note

    def writer(
        self, arena: ExperienceArena, worker: int, lanes: Lanes, first_lane: int, actor: Any, clock: Clock
    ) -> ExperienceWriter:
        """Make the writer that holds each episode until it is over; on a node, one that writes steps for home."""
        if isinstance(self.replay, NodeReplay):
            return NumberedWriter(arena, worker, lanes, first_lane, self.replay)
        return RedistributedWriter(arena, worker, lanes, first_lane, self.replay, self.hold(arena))

    def hold(self, arena: ExperienceArena) -> Hold:
        """Return the constructor of the holder of episodes. Loads torch even if a policy worker infers."""
        from penstock.rudder.redistribution import EpisodeRedistribution

        return partial(
            RedistributedEpisodes, self.replay, feed=self.feed, bell=arena.bells[ROLE],
            redistribute=EpisodeRedistribution(self.algorithm, arena),
            max_steps=self.algorithm.config.redistributor_max_steps,
        )  # fmt: skip

    def _learner_class(self) -> Callable[..., Learner]:
        from penstock.rudder.redistribution import RedistributedReader, RedistributedReplayLearner

        return partial(RedistributedReplayLearner, replay=self.replay, make_reader=RedistributedReader)


class FeedingSegmentWriter(SegmentWriter):
    """Writer of segments that feeds full slots to the redistributor, and redistributes their rewards.

    In a serial run, full slots are kept until the redistributor has published again; other runs do not wait for it.

    Parameters
    ----------
    arena, worker, lanes, first_lane
        As for `SegmentWriter`.
    feed
        Feed of the redistributor.
    redistribute
        Function that redistributes the rewards in full slots.
    gives_turn
        Whether full slots are kept until the redistributor has published again.
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
        self._fed_at: int | None = None  # version of the predictor when kept slots were fed; None: none are kept

    def open(self) -> bool:
        """Begin new segments, see the base class; False also while slots are kept, and when they are delivered."""
        if self._fed_at is None:
            return super().open()
        if self.arena.blocks[PREDICTOR].version != self._fed_at:
            self._redistribute_and_deliver()
        return False

    def _deliver(self) -> None:
        feed_segments(self.arena, self._feed, self._feed_writer, self.slots)
        if self._gives_turn:
            self._fed_at = self.arena.blocks[PREDICTOR].version
        else:
            self._redistribute_and_deliver()

    def _redistribute_and_deliver(self) -> None:
        self._fed_at = None
        self._redistribute(self.slots)
        super()._deliver()


class OriginalRewardWriter(TransitionWriter):
    """Writer of transitions with the environment's rewards, for a holder of episodes that redistributes them."""

    def _store_reward(self) -> None:
        self._step["reward"][...] = self.lanes.reward


class RedistributedWriter(OriginalRewardWriter):
    """Writer of an episode's transitions when the episode is over.

    While learning waits for a first row, held steps are written with their own rewards.

    Parameters
    ----------
    arena, worker, lanes, first_lane, replay
        As for `StepWriter`.
    hold
        Constructor of the holder of the lanes' episodes.
    """

    def __init__(
        self, arena: ExperienceArena, worker: int, lanes: Lanes, first_lane: int, replay: Replay, hold: Hold
    ) -> None:
        super().__init__(arena, worker, lanes, first_lane, replay)
        self._writer = hold(self.lane_numbers, self._step)

    def _admit(self, num_steps: int) -> bool:
        """Return whether the rate limiter admits steps; while the buffer is empty, write held steps instead, if any."""
        if self._replay.limiter.try_insert(num_steps):
            return True
        if not len(self._replay.buffer):
            self._writer.write_held()
        return not len(self._replay.buffer)


class NumberedWriter(OriginalRewardWriter):
    """Writer on a node, of each transition with the number of its lane in the run."""

    def __init__(self, arena: ExperienceArena, worker: int, lanes: Lanes, first_lane: int, replay: Replay) -> None:
        super().__init__(arena, worker, lanes, first_lane, replay)
        self._step["lane"] = arena.shape.first_lane + self.lane_numbers


class RedistributedInbox(Inbox):
    """Inbox at home that holds the episodes of a node's lanes, as `RedistributedWriter` does at home.

    Parameters
    ----------
    replay
        Replay of the run.
    hold
        Constructor of the holder of the lanes' episodes.
    """

    _writers: dict[int, RedistributedEpisodes]

    def __init__(self, replay: Replay, hold: Hold) -> None:
        super().__init__(replay)
        self._hold = hold

    def add(self, calls: Rows) -> None:
        """Add calls, ``[K, ...]`` by field; if learning waits for a first row, write the held steps for it."""
        super().add(calls)
        limiter = self._replay.limiter
        if not len(self._replay.buffer) and limiter.inserts >= limiter.min_size:
            for episodes in self._writers.values():
                episodes.write_held()

    def _writer_of(self, call: Rows) -> RedistributedEpisodes:
        return self._hold(call["lane"], call)


class RedistributedSegmentTransport(SegmentTransport):
    """Transport of segments whose rewards home redistributes."""

    def to_node(self) -> Self:
        """Fill slots on the node."""
        return replace(self, path=SegmentPath())

    def on_arrival(self, arena: ExperienceArena) -> Callable[[np.ndarray], None]:
        """Return the function that feeds and redistributes slots, which may hold several segments of a lane."""
        from penstock.rudder.redistribution import each_lane_once

        feed, writer = self.path.feed, self.path.feed.buffer.writer()
        redistribute = self.path.redistribution(arena, range(arena.shape.num_lanes))

        def take(slots: np.ndarray) -> None:
            slots = slots[arena.slot_number[slots].argsort(kind="stable")]
            feed_segments(arena, feed, writer, slots)
            for turn in each_lane_once(arena.lane_of(slots)):
                redistribute(slots[turn])

        return take


class RedistributedStepTransport(StepTransport):
    """Transport of steps; home holds their episodes until it redistributes their rewards."""

    def to_node(self) -> Self:
        """Write steps on the node with the environment's rewards; buffer and feed stay at home."""
        nothing: Any = None
        path = replace(self.path, replay=NodeReplay.of(self.path.replay), feed=nothing, saved_at=None)
        return replace(self, path=path)

    def fields(self, shape: RunShape) -> dict[str, Field]:
        """Return the fields of one step, its lane among them."""
        return super().fields(shape) | {"lane": Field((), "int64")}

    def inbox(self, arena: ExperienceArena) -> Inbox:
        """Make the inbox that holds the episodes of a node's lanes at home."""
        return RedistributedInbox(self.path.replay, self.path.hold(arena))
