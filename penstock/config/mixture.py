"""The settings of algorithms whose batches mix fresh and replayed segments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from penstock.config.checking import ConfigError
from penstock.config.segment import AsynchronousConfig
from penstock.config.sources import Source, parse_source, parse_sources


@dataclass(frozen=True, kw_only=True)
class MixtureConfig(AsynchronousConfig):
    """Settings of algorithms whose batches mix fresh and replayed segments."""

    replay: tuple[str, ...] = ("queue:1",)
    """Composition of each batch: sources as kind:share,setting=value. Shares are exact, such as 0.5 or 7/8. Kinds:
    queue (fresh segments), uniform, reservoir, prioritized, attentive, elite."""
    save_replay: bool = False
    """Store replayed segments in checkpoints; learning pauses meanwhile. A run resumed without them refills its sources
    before it learns."""

    def __post_init__(self) -> None:
        if isinstance(self.replay, str | Mapping):
            object.__setattr__(self, "replay", (self.replay,))
        texts = tuple(str(parse_source(each)) if isinstance(each, Mapping) else each for each in self.replay)
        object.__setattr__(self, "replay", texts)
        super().__post_init__()

    def validate(self) -> None:
        """Raise `ConfigError` where a value is outside what is legal."""
        super().validate()
        needed = [source.starts_at(self.segments_from(source)) for source in self.replayed_sources]
        if needed and max(needed) * self.segment_length >= self.total_steps:
            raise ConfigError(
                f"nothing would be learned: the sources of replay fill for {max(needed) * self.segment_length} steps, "
                f"and total_steps={self.total_steps}: use more total_steps, or a smaller min_size"
            )

    @property
    def sources(self) -> tuple[Source, ...]:
        """Sources of each batch."""
        return parse_sources(self.replay, self.segments_per_batch)

    @property
    def replayed_sources(self) -> tuple[Source, ...]:
        """Those that replay."""
        return tuple(source for source in self.sources if not source.is_fresh)

    @property
    def fresh_share(self) -> Fraction:
        """Part of each batch that is fresh."""
        return next(source.share for source in self.sources if source.is_fresh)

    @property
    def fresh_per_batch(self) -> int:
        """Fresh segments in each batch."""
        return int(self.fresh_share * self.segments_per_batch)

    def segments_from(self, source: Source) -> int:
        """Segments of a source in each batch."""
        return int(source.share * self.segments_per_batch)
