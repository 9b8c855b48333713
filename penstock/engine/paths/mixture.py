"""Fresh and replayed segments in one batch: lanes fill slots, and full segments are also stored for replay."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from penstock.config import Config, MixtureConfig
from penstock.engine.contracts import ExperienceWriter
from penstock.engine.paths.replay import load_contents
from penstock.engine.paths.segments import SegmentPath
from penstock.experience.segment_store import SegmentStore, StoringSegmentWriter, make_store

if TYPE_CHECKING:
    from penstock.engine.contracts import Start
    from penstock.engine.roles.learner import Learner
    from penstock.experience.arena import ExperienceArena
    from penstock.nn import PolicyNetwork
    from penstock.runs.run_directory import RunDirectory


@dataclass(frozen=True)
class MixturePath(SegmentPath):
    """Data path of segments that are passed to the learner and stored, once for each replayed source."""

    stores: tuple[SegmentStore, ...]
    saved_at: Path | None = None
    """Directory of the stores' contents beside checkpoints; None: not saved."""

    @classmethod
    def create(
        cls, arena: ExperienceArena, algorithm: Any, model: PolicyNetwork, start: Start, saved: Path | None
    ) -> tuple[Self, str | None]:
        """Make the stores, with their saved contents if there are any."""
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
        """Return this data path; with ``save_replay`` its stores are saved beside the checkpoints."""
        assert isinstance(config, MixtureConfig)
        return replace(self, saved_at=run.replay_path) if config.save_replay else self

    def _writer_class(self) -> Callable[..., ExperienceWriter]:
        return partial(StoringSegmentWriter, stores=self.stores)

    def _learner_class(self) -> Callable[..., Learner]:
        from penstock.engine.paths.mixture_learner import MixtureLearner

        return partial(MixtureLearner, stores=self.stores, saved_at=self.saved_at)

    @property
    def saving_apart(self) -> int:
        """1, for the learner, if the stores are saved; else 0."""
        return int(self.saved_at is not None)


def _refill(stores: tuple[SegmentStore, ...], config: MixtureConfig, saved: Path | None) -> str | None:
    """Load the saved contents of a resumed run's stores; return a note for the user about empty ones, or None."""
    empty = {}
    for store in stores:
        why = "its contents were not saved (save_replay=False)"
        if config.save_replay and saved is not None:
            directory = saved / store.source.kind
            why = f"none were saved in {directory}"
            if directory.exists() and not (why := load_contents(store.buffer, directory)):
                continue
        empty[store.source.kind] = why
    if not empty:
        return None
    reasons = "; ".join(f"{kind}: {why}" for kind, why in empty.items())
    return f"sources of replay are empty ({reasons}): learning continues when each has its min_size"
