"""Fresh and replayed segments in one batch: lanes fill slots, and what they fill is kept to be learned from again."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from penstock.config import Config, MixtureConfig
from penstock.engine.contracts import ExperienceWriter
from penstock.engine.paths.contents import load_contents
from penstock.engine.paths.segments import SegmentPath
from penstock.experience.segment_store import SegmentStore, StoringSegmentWriter, make_store

if TYPE_CHECKING:
    from penstock.engine.acting.weights import MakeWeights
    from penstock.engine.contracts import LearnerState, Start
    from penstock.engine.messages import Tell
    from penstock.engine.roles.learner import Learner
    from penstock.engine.watching.clock import Clock
    from penstock.envs.lanes import Lanes
    from penstock.experience.arena import ExperienceArena
    from penstock.nn import PolicyNetwork
    from penstock.runs.run_directory import RunDirectory


@dataclass(frozen=True)
class MixturePath(SegmentPath):
    """Segments that are handed over to the learner, slot by slot, and kept in a store for each source that replays."""

    stores: tuple[SegmentStore, ...]
    saved_at: Path | None = None
    """Directory that a checkpoint writes the stores to; None: nowhere."""

    @classmethod
    def create(
        cls, arena: ExperienceArena, algorithm: Any, model: PolicyNetwork, start: Start, saved: Path | None
    ) -> tuple[Self, str | None]:
        """Make the stores, or go on with what is saved of them.

        Raises
        ------
        MemoryError
            A store does not fit in memory; the message shows the arithmetic.
        """
        config = algorithm.config
        stores = tuple(
            make_store(source, config.segments_from(source), arena.shape, config.seed + number)
            for number, source in enumerate(config.replayed_sources)
        )
        note = None
        if start.learning is not None:
            note = _refill(stores, config, saved)
        return cls(stores), note

    def kept_in(self, run: RunDirectory, config: Config) -> MixturePath:
        """With ``save_replay`` the stores are saved beside the checkpoints."""
        assert isinstance(config, MixtureConfig)
        return replace(self, saved_at=run.replay_path) if config.save_replay else self

    def writer(
        self, arena: ExperienceArena, worker: int, lanes: Lanes, first_lane: int, actor: Any, clock: Clock
    ) -> ExperienceWriter:
        """Fill slots, and keep what they are filled with."""
        return StoringSegmentWriter(arena, worker, lanes, first_lane, self.stores)

    def learner(
        self,
        arena: ExperienceArena,
        algorithm: Any,
        state: LearnerState,
        learning: dict[str, Any] | None,
        report: Tell,
        weights: MakeWeights,
    ) -> Learner:
        """Take full slots, and draw from the stores."""
        from penstock.engine.paths.mixture_learner import MixtureLearner

        return MixtureLearner(algorithm, arena, state, learning, report, weights, self.stores, self.saved_at)

    @property
    def saving_apart(self) -> int:
        """The learner, where the stores are saved."""
        return int(self.saved_at is not None)


def _refill(stores: tuple[SegmentStore, ...], config: MixtureConfig, saved: Path | None) -> str | None:
    """Load what is saved of the stores of a run that goes on; return what the user is to be told."""
    empty = {}
    for store in stores:
        why = "its contents were not saved (save_replay=False)"
        if config.save_replay and saved is not None:
            directory = saved / store.source.kind
            why = f"there is none in {directory}"
            if directory.exists() and not (why := load_contents(store.buffer, directory)):
                continue
        empty[store.source.kind] = why
    if not empty:
        return None
    reasons = "; ".join(f"{kind}: {why}" for kind, why in empty.items())
    return f"sources of replay are empty ({reasons}): learning goes on when each has its min_size"
