"""Settings of algorithms that learn from segments, fresh or mixed with replayed ones."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Literal

from penstock.config.base import NETWORK, Config
from penstock.config.checking import ConfigError, Tunable, require
from penstock.config.schedules import Scheduled
from penstock.config.sources import Source, parse_source, parse_sources


@dataclass(frozen=True, kw_only=True)
class FreshConfig(Config):
    """Settings of algorithms over fresh segments. A batch is one segment of every lane."""

    fixed: ClassVar[Mapping[str, str]] = dict.fromkeys(("memory", "memory_size", "memory_span"), NETWORK)

    memory: Literal["none", "gru", "lstm"] = "none"
    """Memory core after the encoder."""
    memory_size: int = 128
    """Width of the memory core."""
    memory_span: int | None = None
    """Steps over which an untrained memory core remembers (chrono initialisation, arXiv:1804.11188); None: default
    initialisation."""
    burn_in: int = 0
    """First steps of each segment that only warm up the memory state: no loss, no gradient."""
    max_grad_norm: Tunable[float] = 0.5
    """Global norm to which gradients are clipped."""
    segment_length: int = 32
    """Steps per segment (T)."""

    def validate(self) -> None:
        super().validate()
        for name in ("memory_size", "segment_length", "max_grad_norm"):
            require(getattr(self, name) > 0, name, getattr(self, name), "more than 0")
        span = self.memory_span
        require(span is None or span > 1, "memory_span", span, "2 or more, or None")
        if self.burn_in and self.memory == "none":
            raise ConfigError(
                f"burn_in={self.burn_in} has no memory to warm up: use memory='gru', or burn_in=0"
            )
        is_within = 0 <= self.burn_in < self.segment_length
        require(is_within, "burn_in", self.burn_in, f"0 or more, and less than segment_length={self.segment_length}")

    @property
    def segments_per_batch(self) -> int:
        """Number of segments per batch (B)."""
        return self.num_lanes

    @property
    def shared_by_learners(self) -> dict[str, int]:
        """Return the segments of a batch, and the segments or steps of an update."""
        shared, steps = {"segments of a batch": self.segments_per_batch}, getattr(self, "batch_size", None)
        if steps is None:
            return shared
        if self.memory == "none":
            return {**shared, f"steps of an update (batch_size={steps})": steps}
        of_update = f"segments of an update (batch_size={steps} / segment_length={self.segment_length})"
        return {**shared, of_update: steps // self.segment_length}

    @property
    def fresh_per_batch(self) -> int:
        """Number of fresh segments per batch."""
        return self.segments_per_batch

    def data_path_for(self, usual: str | type, algorithm: str) -> str | type:
        """Return "mixture" with replayed segments, else the usual one."""
        return "mixture" if usual == "segments" and self.replayed_sources else super().data_path_for(usual, algorithm)

    @property
    def further_records(self) -> tuple[str, ...]:
        """Columns that features record while acting, in addition to the algorithm's."""
        return ()

    @property
    def target_changes(self) -> tuple[str, ...]:
        """Places of classes, each made with the config, whose objects map (batch, targets) to changed targets."""
        return ()

    @property
    def replayed_sources(self) -> tuple[Source, ...]:
        """Sources of replayed segments."""
        return ()


@dataclass(frozen=True, kw_only=True)
class SegmentConfig(FreshConfig):
    """Settings of actor-critics that learn from fresh segments."""

    fixed: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("shared_encoder", "normalize_returns", "continuous_actions", "initial_log_std", "log_std_lr_scale"), NETWORK
    )

    shared_encoder: bool | None = None
    """One encoder for policy and value; None: shared for images, memory and custom modules, separate for mlp."""
    continuous_actions: Literal["clipped", "squashed"] = "clipped"
    """Distribution of actions. "clipped": normal, clipped by the environment's lanes, with one standard deviation for
    all observations; "squashed": tanh of a normal one, which cannot leave the range, with a standard deviation that
    depends on the observation (arXiv:2006.05990, section 3.2). If any number is unbounded, all are "clipped"."""
    initial_log_std: float | None = None
    """Logarithm of the initial standard deviation of continuous actions, in units of half their range; None: -0.1 if
    squashed, 0 if clipped."""
    log_std_lr_scale: float = 1.0
    """Learning rate of the log standard deviation of "clipped" actions, relative to other parameters. 16 lets it fall
    within some ten thousand steps, for actions that must be precise, but too early if rewards are yet to be found."""
    entropy_coef: Tunable[Scheduled] = 0.01
    """Weight of the entropy bonus, or a function of progress as for learning_rate."""
    entropy_coef_final: float | None = None
    """Final weight of the entropy bonus: a numeric entropy_coef moves linearly to it over total_steps; None:
    constant."""
    value_coef: Tunable[float] = 0.5
    """Weight of the value loss."""
    normalize_returns: bool = True
    """Running normalisation of value targets; its statistics are part of the weights."""

    def validate(self) -> None:
        super().validate()
        for name in ("entropy_coef", "entropy_coef_final", "value_coef"):
            value = getattr(self, name)
            is_weight = not isinstance(value, float) or 0.0 <= value < math.inf
            require(is_weight, name, value, "a finite number, 0 or more")
        if self.entropy_coef_final is not None and not isinstance(self.entropy_coef, float):
            raise ConfigError(
                f"entropy_coef={self.entropy_coef!r} is a function, which also gives the final value: use "
                f"entropy_coef_final=None, found {self.entropy_coef_final}"
            )


@dataclass(frozen=True, kw_only=True)
class AsynchronousConfig(SegmentConfig):
    """Settings of algorithms whose lanes never wait for the learner. A batch has segments from any lanes."""

    learning_rates: ClassVar[tuple[float, float]] = (2e-3, 5e-4)

    batch_size: int = 512
    """Steps per update."""
    max_policy_lag: int = 100
    """Policy lag, in versions, from which a step is masked out of the loss."""

    def validate(self) -> None:
        super().validate()
        require(self.max_policy_lag > 0, "max_policy_lag", self.max_policy_lag, "more than 0")
        require_whole_segments(self.batch_size, self.segment_length)

    @property
    def segments_per_batch(self) -> int:
        """Number of segments per batch (B), from any lanes."""
        return self.batch_size // self.segment_length


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
        super().validate()
        needed = [source.starts_at(self.segments_from(source)) for source in self.replayed_sources]
        if needed and max(needed) * self.segment_length >= self.total_steps:
            raise ConfigError(
                f"nothing would be learned: the sources of replay need {max(needed) * self.segment_length} steps to "
                f"fill, but total_steps={self.total_steps}: use more total_steps, or a smaller min_size"
            )

    @property
    def sources(self) -> tuple[Source, ...]:
        """Sources of each batch."""
        return parse_sources(self.replay, self.segments_per_batch)

    @property
    def replayed_sources(self) -> tuple[Source, ...]:
        return tuple(source for source in self.sources if not source.is_fresh)

    @property
    def fresh_share(self) -> Fraction:
        """Fraction of each batch that is fresh."""
        return next(source.share for source in self.sources if source.is_fresh)

    @property
    def fresh_per_batch(self) -> int:
        return int(self.fresh_share * self.segments_per_batch)

    def segments_from(self, source: Source) -> int:
        """Return the number of segments per batch of a source."""
        return int(source.share * self.segments_per_batch)


def require_whole_segments(batch_size: int, segment_length: int) -> None:
    """Raise `ConfigError` unless `batch_size` steps are a whole number of segments."""
    require(batch_size > 0, "batch_size", batch_size, "more than 0")
    if batch_size % segment_length:
        raise ConfigError(
            f"batch_size={batch_size} is not a whole number of segments: use a multiple of "
            f"segment_length={segment_length}"
        )


def require_whole_minibatches(config: FreshConfig, batch_size: int) -> None:
    """Raise `ConfigError` unless `batch_size` divides the steps of one segment of every lane.

    With memory, minibatches are whole segments; without, single steps.
    """
    require(batch_size > 0, "batch_size", batch_size, "more than 0")
    if config.memory != "none":
        require_whole_segments(batch_size, config.segment_length)
    if config.num_lanes * config.segment_length % batch_size:
        hint = "" if config.num_agents is not None else "; if environments have several agents, give num_agents, too"
        raise ConfigError(
            f"batch_size={batch_size} does not divide the {config.num_lanes * config.segment_length} steps that "
            f"{config.lanes_in_words} collect in segments of {config.segment_length}{hint}"
        )
