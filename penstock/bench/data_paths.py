"""Properties of data paths for measurements: one class per kind of data path."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from penstock.bench import BenchError
from penstock.config import AsynchronousConfig, Config
from penstock.engine.paths import DataPath, data_path, entry_of
from penstock.engine.paths.gradients import GradientPath
from penstock.engine.paths.mixture import MixturePath
from penstock.engine.paths.replay import ReplayPath
from penstock.engine.paths.segments import CircularPath, SegmentPath
from penstock.engine.paths.sequences import SequencePath

if TYPE_CHECKING:
    from penstock.algorithms.bases.algorithm import Algorithm
    from penstock.experience.arena import ExperienceArena

QUICK_ROWS, QUICK_START = 10_000, 1_000  # of a replay buffer in measurements


class Rehearsal(Protocol):
    """One kind of a run's work, repeated to measure its cost."""

    def do(self) -> float:
        """Do the work once; return the number of the run's steps that it covers."""
        ...

    def close(self) -> None:
        """Release all resources."""
        ...


class Measured:
    """Properties of a data path without its own entry."""

    batch_is_free: ClassVar[bool] = True
    """False if the smallest batch is always the fastest, so that tuning makes no sense."""

    @classmethod
    def lanes_of_batch(cls, config: Config) -> int | None:
        """Return the number of lanes with one segment each in a batch; None: any lanes with any number."""
        return None

    @classmethod
    def quick(cls, config: Config) -> Config:
        """Return settings with the same work per step in which learning starts at once."""
        return config

    @classmethod
    def rehearsal(cls, arena: ExperienceArena, algorithm: Any) -> Rehearsal:
        """Return the rehearsal of learning from the rows of a full arena."""
        raise BenchError(
            f"the data path of {algorithm.name()} cannot be measured: add its class to "
            "penstock.bench.data_paths.MEASURED, with a subclass of Measured"
        )


class MeasuredSegments(Measured):
    """Fresh segments, each used once: a rehearsal makes all updates of a batch."""

    @classmethod
    def lanes_of_batch(cls, config: Config) -> int | None:
        """Return all lanes of a synchronous algorithm."""
        return None if isinstance(config, AsynchronousConfig) else config.num_lanes

    @classmethod
    def rehearsal(cls, arena: ExperienceArena, algorithm: Any) -> Rehearsal:
        """Return the rehearsal of a batch's updates."""
        from penstock.bench.rehearsals import SegmentRehearsal

        return SegmentRehearsal(arena, algorithm, algorithm.config.segments_per_batch)


class MeasuredCircular(MeasuredSegments):
    """Batches used several times."""

    @classmethod
    def rehearsal(cls, arena: ExperienceArena, algorithm: Any) -> Rehearsal:
        """Return the rehearsal of a batch's updates, repeated as often as the batch is used."""
        from penstock.bench.rehearsals import SegmentRehearsal

        c = algorithm.config
        return SegmentRehearsal(arena, algorithm, c.segments_per_batch, uses=c.batch_uses)


class MeasuredMixture(MeasuredSegments):
    """Fresh and replayed segments in one batch."""

    @classmethod
    def quick(cls, config: Any) -> Config:
        """Return settings in which replay starts once a batch's share is stored."""
        sources = (replace(s, min_size=config.segments_from(s)) for s in config.replayed_sources)
        quick: Config = replace(config, replay=(f"queue:{config.fresh_share}", *map(str, sources)))
        return quick


class MeasuredGradients(MeasuredSegments):
    """Segments learned from by their own rollout workers."""

    @classmethod
    def lanes_of_batch(cls, config: Config) -> int | None:
        """Return the lanes of one rollout worker."""
        return config.lanes_per_worker

    @classmethod
    def rehearsal(cls, arena: ExperienceArena, algorithm: Any) -> Rehearsal:
        """Return the rehearsal of computing and applying the gradient of one segment per lane of a worker."""
        from penstock.bench.rehearsals import SegmentRehearsal

        return SegmentRehearsal(arena, algorithm, algorithm.config.lanes_per_worker)


class MeasuredReplay(Measured):
    """Replayed transitions: a rehearsal makes one update."""

    batch_is_free: ClassVar[bool] = False

    @classmethod
    def quick(cls, config: Any) -> Config:
        """Return settings with an early start of learning and a small buffer."""
        starts = min(config.learning_starts, max(config.batch_size, QUICK_START))
        rows = min(config.buffer_size, max(QUICK_ROWS, starts, config.num_lanes * config.steps_of_a_row))
        quick: Config = replace(config, learning_starts=starts, buffer_size=rows)
        return quick

    @classmethod
    def rehearsal(cls, arena: ExperienceArena, algorithm: Any) -> Rehearsal:
        """Return the rehearsal of an update from transitions."""
        from penstock.bench.rehearsals import ReplayRehearsal, transitions_in

        return ReplayRehearsal(arena, algorithm, transitions_in)


class MeasuredSequences(MeasuredReplay):
    """Replayed sequences."""

    @classmethod
    def rehearsal(cls, arena: ExperienceArena, algorithm: Any) -> Rehearsal:
        """Return the rehearsal of an update from sequences."""
        from penstock.bench.rehearsals import ReplayRehearsal, sequences_in

        return ReplayRehearsal(arena, algorithm, sequences_in)


MEASURED: dict[type[DataPath], type[Measured]] = {
    DataPath: Measured,
    SegmentPath: MeasuredSegments,
    CircularPath: MeasuredCircular,
    MixturePath: MeasuredMixture,
    GradientPath: MeasuredGradients,
    ReplayPath: MeasuredReplay,
    SequencePath: MeasuredSequences,
}
"""Class of properties for each data path."""


def measured_path(algorithm: Algorithm | type[Algorithm], config: Config | None = None) -> type[Measured]:
    """Return the properties of an algorithm's data path; for a class, with these settings."""
    return entry_of(MEASURED, data_path(algorithm, config))
