"""Transport of experience from a node to home: full segments, or steps. One class for each kind of data path."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from penstock.config import FEATURES, find_object
from penstock.engine.paths import DataPath
from penstock.engine.paths.gradients import GradientPath
from penstock.engine.paths.hindsight import HindsightPath
from penstock.engine.paths.mixture import MixturePath
from penstock.engine.paths.replay import ReplayPath
from penstock.engine.paths.segments import SegmentPath
from penstock.engine.paths.sequences import SequencePath
from penstock.experience.outbox import Inbox, NodeReplay, Outbox
from penstock.experience.run_replay import transition_fields
from penstock.experience.segment_store import keep_segments
from penstock.experience.sequences import sequence_fields
from penstock.experience.shards import ShardedBuffer
from penstock.replay import Field, ReplayBuffer
from penstock.self_play.path import ActingPath

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np

    from penstock.experience.arena import ExperienceArena
    from penstock.experience.layout import RunShape


@dataclass(frozen=True)
class SegmentTransport:
    """Transport of full slots, each to the slot at home that mirrors it.

    Attributes
    ----------
    path
        Data path of the policy: at home that of the run, on a node the part of it that is sent there.
    """

    path: Any
    unit: ClassVar[Literal["segments", "steps"]] = "segments"

    @property
    def is_sharded(self) -> bool:
        """Whether experience stays at gateways below this end, in shards of the replay."""
        return False

    def to_node(self) -> Self:
        """Return the form of the transport for a node: a path without home's memory."""
        return self

    def path_on_node(self, arena: ExperienceArena, relays: bool = False) -> DataPath:
        """Return the data path of the roles of a node, or of a gateway that relays, with the memory that they share."""
        path: DataPath = self.path
        return path

    def relaying(self, path: DataPath, shard: ReplayBuffer | None = None) -> SegmentTransport:
        """Return the form of a node's transport for a gateway's receiver, with the path of the gateway's roles."""
        return SegmentTransport(path)

    def on_arrival(self, arena: ExperienceArena) -> Callable[[np.ndarray], None]:
        """Make the function that home calls with full slots of a node (int64 ``[K]``) before the learner gets them."""
        return lambda slots: None


class StoredSegmentTransport(SegmentTransport):
    """Transport of segments that home keeps in its stores."""

    def to_node(self) -> Self:
        """Fill slots on the node; segments are stored and drawn at home."""
        return replace(self, path=SegmentPath())

    def on_arrival(self, arena: ExperienceArena) -> Callable[[np.ndarray], None]:
        """Store segments."""
        return partial(keep_segments, arena, self.path.stores, {})


@dataclass(frozen=True)
class StepTransport(SegmentTransport):
    """Transport of steps: an outbox on the node records the writers' calls, which are repeated at home.

    Attributes
    ----------
    stays_below
        Whether this is the form for a gateway of gateways, which keep the steps in shards.
    """

    unit: ClassVar[Literal["segments", "steps"]] = "steps"
    stays_below: bool = False

    @property
    def is_sharded(self) -> bool:
        """Whether steps stay at gateways below this end, in shards of the replay."""
        return self.stays_below or isinstance(self.path.replay.buffer, ShardedBuffer)

    def to_node(self) -> Self:
        """Write steps on the node; the buffer stays at home, or at gateways."""
        there = replace(self.path, replay=NodeReplay.of(self.path.replay))
        return replace(self, path=there, stays_below=self.is_sharded)

    def path_on_node(self, arena: ExperienceArena, relays: bool = False) -> DataPath:
        """Return the data path with an outbox instead of the buffer.

        Besides the steps granted ahead there is room for one per lane that is reported as taken and not yet written.
        A gateway's has twice the room: steps are reported as taken before they arrive from the nodes.
        """
        shape = arena.shape
        ahead = steps_ahead(shape.num_lanes) * (2 if relays else 1) + shape.num_lanes
        most_calls = self.calls_per_step * (ahead // shape.group_size + 1) * (shape.num_agents or 1)
        outbox: Any = Outbox.make(self.fields(shape), shape.group_size, most_calls)
        path: DataPath = replace(self.path, replay=replace(self.path.replay, buffer=outbox))
        return path

    def relaying(self, path: DataPath, shard: ReplayBuffer | None = None) -> SegmentTransport:
        """Return the form for a gateway's receiver, which writes steps into the gateway's outbox, or into its shard."""
        there: Any = path
        if shard is not None:
            there = replace(there, replay=replace(there.replay, buffer=shard))
        return replace(self, path=there, stays_below=self.stays_below and shard is None)

    @property
    def calls_per_step(self) -> int:
        """Largest number of a writer's calls per step of a group of lanes."""
        return 1

    def fields(self, shape: RunShape) -> dict[str, Field]:
        """Return the fields of one step."""
        replay = self.path.replay
        return transition_fields(
            shape.observation, shape.action, with_values=replay.initial_priorities is not None,
            with_returns=replay.return_discount is not None,
        )  # fmt: skip

    def inbox(self, arena: ExperienceArena) -> Inbox:
        """Make the inbox that repeats a node's calls at home."""
        return Inbox(self.path.replay)


class HindsightTransport(StepTransport):
    """Transport of steps and of relabelled rows."""

    @property
    def calls_per_step(self) -> int:
        """Calls of the step itself, and of relabelled rows, some of which may be waiting."""
        calls: int = 2 + self.path.goals_per_step
        return calls


class SequenceTransport(StepTransport):
    """Transport of steps that home joins to sequences."""

    @property
    def calls_per_step(self) -> int:
        """Calls of a step that is an episode's first, with padding, and its last, with the final row."""
        calls: int = self.path.burn_in + 2
        return calls

    def fields(self, shape: RunShape) -> dict[str, Field]:
        """Return the fields of one step, without the signals of transitions."""
        with_values = self.path.replay.initial_priorities is not None
        return sequence_fields(shape.observation, shape.action, shape.state_size, with_values=with_values)


TRANSPORTS: dict[type[DataPath], type[SegmentTransport] | str] = {
    DataPath: "its experience cannot be sent between machines yet",
    SegmentPath: SegmentTransport,
    GradientPath: "its rollout workers learn on parameters that all of them share in the memory of one machine",
    MixturePath: StoredSegmentTransport,
    ReplayPath: StepTransport,
    HindsightPath: HindsightTransport,
    SequencePath: SequenceTransport,
    ActingPath: SegmentTransport,  # of lanes that deliver no experience
}
"""Transport of each data path, or the reason why lanes on other nodes cannot deliver its experience."""

OF_FEATURES = {path: place for feature in FEATURES for path, place in feature.transports.items()}
"""Places of transports, by the places of data paths."""


def transport_class(path: type[DataPath]) -> type[SegmentTransport] | str:
    """Return the transport of a data path, or the reason why there is none."""
    for base in path.__mro__:
        if (place := OF_FEATURES.get(f"{base.__module__}:{base.__qualname__}")) is not None:
            found: type[SegmentTransport] = find_object(place, "transport")
            return found
        if base in TRANSPORTS:
            return TRANSPORTS[base]
    raise TypeError(f"{path.__name__} is no data path")


def transport_of(path: DataPath) -> SegmentTransport:
    """Make the transport of a run's data path."""
    found = transport_class(type(path))
    if isinstance(found, str):
        raise TypeError(f"{type(path).__name__} has no transport: {found}")
    return found(path)


def steps_ahead(num_lanes: int) -> int:
    """Return the largest number of granted steps that a node has not taken: two per lane."""
    return 2 * num_lanes
