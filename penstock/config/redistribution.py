"""The settings of algorithms whose rewards may be redistributed: delayed ones are handed out where they were earned."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from penstock.config.base import Config
from penstock.config.checking import ConfigError, require
from penstock.config.segment import FreshConfig

RECEIVERS = "ppo, appo, a2c, impala or pqn"
"""The algorithms over segments that take redistributed rewards."""


@dataclass(frozen=True, kw_only=True)
class RedistributorConfig(Config):
    """Settings of whoever learns what earned a delayed reward: the redistributor of RUDDER (arXiv:1806.07857)."""

    fixed: ClassVar[Mapping[str, str]] = {
        "rewards": "what is learned from would mean something else",
        "redistributor_size": "the redistributor's weights are of this network",
        "redistribution_attribution": "the redistributor's network sees other things with each",
    }

    rewards: Literal["environment", "rudder"] = "environment"
    """"environment": learn from the environment's rewards; "rudder": redistribute delayed rewards to the steps that
    earned them, by a network trained beside the policy. Reported returns stay unchanged."""
    redistribution_attribution: Literal["difference", "integrated_gradients"] = "difference"
    """Credit of a step: the difference that it makes to the prediction, or integrated gradients."""
    redistribution_points: int = 20
    """Points on the path of integrated gradients."""
    redistribution_max_error: float = 0.2
    """Original rewards are used while predictions leave more than this share of the returns' variance unexplained."""
    redistributor_size: int = 32
    """Memory cells of the network that predicts returns."""
    redistributor_learning_rate: float = 5e-3
    """Step size of this network's optimiser."""
    redistributor_interval: int = 25
    """Steps of the run per update of this network."""
    redistributor_batch_size: int = 8
    """Episodes per update of this network."""
    redistributor_lessons: int = 512
    """Capacity of this network's episode buffer; the episodes with the largest prediction errors are kept."""
    redistributor_chunk: int = 500
    """Steps of truncated backpropagation; longer episodes are cut into chunks that overlap by half."""
    redistributor_max_steps: int = 10_000
    """Longest episode to learn from."""

    def validate(self) -> None:
        """Raise `ConfigError` where a value is outside what is legal."""
        super().validate()
        positive = (
            "redistribution_points", "redistributor_size", "redistributor_interval", "redistributor_batch_size",
            "redistributor_max_steps",
        )  # fmt: skip
        for name in positive:
            require(getattr(self, name) > 0, name, getattr(self, name), "more than 0")
        is_error = 0.0 < self.redistribution_max_error < math.inf
        require(is_error, "redistribution_max_error", self.redistribution_max_error, "more than 0, and finite")
        is_rate = 0.0 < self.redistributor_learning_rate < math.inf
        require(is_rate, "redistributor_learning_rate", self.redistributor_learning_rate, "more than 0, and finite")
        require(self.redistributor_chunk > 1, "redistributor_chunk", self.redistributor_chunk, "2 or more")
        lessons, batch = self.redistributor_lessons, self.redistributor_batch_size
        require(lessons >= batch, "redistributor_lessons", lessons, f"redistributor_batch_size={batch} or more")
        if self.rewards == "rudder":
            self._require_redistribution()

    def _require_redistribution(self) -> None:
        """Raise `ConfigError` where rewards cannot be redistributed."""


@dataclass(frozen=True, kw_only=True)
class RedistributionConfig(RedistributorConfig, FreshConfig):
    """Settings of algorithms over fresh segments whose rewards RUDDER may redistribute (arXiv:1806.07857)."""

    redistribution_value: Literal["redistributed", "original"] = "redistributed"
    """Rewards that values are learned from: "redistributed", as for the policy; "original", with redistributed rewards
    mixed into the policy's advantages, as in the paper's Atari experiments."""
    redistribution_share: float = 0.5
    """With original values, largest share of redistributed rewards in the advantages."""
    redistribution_trace: float = 0.5
    """With original values, share of each redistributed reward that is also credited to the preceding step."""

    def validate(self) -> None:
        """Raise `ConfigError` where a value is outside what is legal."""
        super().validate()
        for name in ("redistribution_share", "redistribution_trace"):
            require(0.0 <= getattr(self, name) <= 1.0, name, getattr(self, name), "from 0 to 1")

    def _require_redistribution(self) -> None:
        if self.replayed_sources:
            raise ConfigError(
                "rewards='rudder' redistributes the rewards of fresh segments, in the order in which each lane wrote "
                f"them, and this replays segments ({', '.join(source.kind for source in self.replayed_sources)}): use "
                f"rewards='environment', or {RECEIVERS} without replay"
            )
