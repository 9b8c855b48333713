"""The settings of algorithms that may replay sequences, for networks with memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from penstock.config.base import NETWORK, STORED
from penstock.config.checking import ConfigError, require
from penstock.config.replay import PrioritizedConfig


@dataclass(frozen=True, kw_only=True)
class SequenceConfig(PrioritizedConfig):
    """Settings of algorithms that replay transitions, and with memory sequences.

    With memory the rows of the replay buffer are sequences of an episode's successive steps: ``burn_in`` and then
    ``sequence_length`` of them. A batch is of ``batch_size`` sequences. ``buffer_size`` and ``updates_per_step`` count
    steps nevertheless; an episode shorter than a sequence takes the place of a whole one.
    """

    fixed: ClassVar[Mapping[str, str]] = {
        "memory": NETWORK, "memory_size": NETWORK, "memory_span": NETWORK,
        "sequence_length": STORED, "burn_in": STORED, "sequence_overlap": STORED,
    }  # fmt: skip

    memory: Literal["none", "gru", "lstm"] = "none"
    """Memory core after the encoder; with one, sequences are replayed instead of transitions, as in R2D2."""
    memory_size: int = 128
    """Width of the memory core."""
    memory_span: int | None = None
    """Steps over which an untrained memory core remembers (chrono initialisation, arXiv:1804.11188); None: default
    initialisation."""
    sequence_length: int = 20
    """Learned steps per sequence; without memory, all settings of sequences have no effect."""
    burn_in: int = 10
    """Steps before these that only warm up the stored memory state: no loss, no gradient."""
    sequence_overlap: int = 10
    """Learned steps shared by successive sequences of an episode."""
    priority_eta: float = 0.9
    """Weight of the largest error in a sequence's priority; the mean error has the rest."""

    def validate(self) -> None:
        """Raise `ConfigError` where a value is outside what is legal."""
        super().validate()
        length, span = self.sequence_length, self.memory_span
        require(span is None or span > 1, "memory_span", span, "2 or more, or None")
        for name in ("memory_size", "sequence_length"):
            require(getattr(self, name) > 0, name, getattr(self, name), "1 or more")
        require(0.0 <= self.priority_eta <= 1.0, "priority_eta", self.priority_eta, "from 0 to 1")
        is_within = 0 <= self.burn_in <= length
        require(is_within, "burn_in", self.burn_in, f"0 or more, and at most sequence_length={length}")
        overlap = self.sequence_overlap
        is_less = 0 <= overlap < length
        require(is_less, "sequence_overlap", overlap, f"0 or more, and less than sequence_length={length}")
        if self.memory != "none" and self.buffer_size < self.num_lanes * length:
            raise ConfigError(
                f"buffer_size={self.buffer_size} is too small for {self.lanes_in_words} of "
                f"sequence_length={length}: use at least {self.num_lanes * length}"
            )

    def _require_hindsight(self) -> None:
        super()._require_hindsight()
        if self.memory != "none":
            raise ConfigError(
                f"memory={self.memory!r} is not possible with hindsight={self.hindsight!r}: with memory sequences are "
                'replayed, and the steps of one are relabelled with different goals; use memory="none" (R2D2 without '
                'is "dqn")'
            )

    def _require_redistribution(self) -> None:
        super()._require_redistribution()
        if self.memory != "none":
            raise ConfigError(
                f"rewards='rudder' is not possible with memory={self.memory!r}: with memory sequences are replayed, "
                'and written before their episode is over; use memory="none" (R2D2 without is "dqn")'
            )

    @property
    def steps_of_a_row(self) -> int:
        """Steps by which a lane has finished a row of the replay buffer in any case."""
        return super().steps_of_a_row if self.memory == "none" else self.sequence_length + 1

    @property
    def sequence_period(self) -> int:
        """Steps from the beginning of a sequence to that of the next one in its episode."""
        return self.sequence_length - self.sequence_overlap
