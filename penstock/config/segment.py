"""The settings of algorithms that learn from fresh segments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from penstock.config.base import Config
from penstock.config.checking import ConfigError, require


@dataclass(frozen=True, kw_only=True)
class SegmentConfig(Config):
    """Settings of algorithms that learn from fresh segments."""

    shared_encoder: bool | None = None
    """One encoder for policy and value; None: shared for images, memory and own modules, separate for mlp."""
    memory: Literal["none", "gru", "lstm"] = "none"
    """Memory core behind the encoder."""
    memory_size: int = 128
    """Width of the memory core."""
    max_grad_norm: float = 0.5
    """Gradients are scaled down to this global norm."""
    segment_length: int = 32
    """Steps per segment (T)."""
    batch_size: int = 512
    """Steps per update (one minibatch)."""
    num_epochs: int = 1
    """Passes over each batch."""
    gae_lambda: float = 0.95
    """Lambda of the advantage estimator."""
    entropy_coef: float = 0.01
    """Weight of the entropy bonus."""
    entropy_coef_final: float | None = None
    """The entropy bonus moves linearly to this over total_steps; None: stays."""
    value_coef: float = 0.5
    """Weight of the value loss."""
    normalize_returns: bool = True
    """Running normalisation of value targets; its statistics travel with the weights."""
    max_policy_lag: int = 100
    """Steps chosen by weights this many versions old, or older, are masked out of the loss."""
    target_kl: float | None = None
    """A batch's remaining updates are left out once the loss's approx_kl exceeds 1.5 times this (nats)."""

    def validate(self) -> None:
        """Raise `ConfigError` where a value is outside what is legal."""
        super().validate()
        for name in ("memory_size", "segment_length", "batch_size", "num_epochs", "max_policy_lag", "max_grad_norm"):
            require(getattr(self, name) > 0, name, getattr(self, name), "more than 0")
        require(0.0 <= self.gae_lambda <= 1.0, "gae_lambda", self.gae_lambda, "from 0 to 1")
        is_distance = self.target_kl is None or self.target_kl > 0
        require(is_distance, "target_kl", self.target_kl, "more than 0, or None")
        if self.batch_size % self.segment_length:
            raise ConfigError(
                f"batch_size={self.batch_size} is not a whole number of segments: "
                f"use a multiple of segment_length={self.segment_length}"
            )

    @property
    def segments_per_batch(self) -> int:
        """Segments that the learner takes at once (B): those of one update."""
        return self.batch_size // self.segment_length
