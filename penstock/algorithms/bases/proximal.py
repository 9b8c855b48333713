"""Base of PPO and APPO: several passes over each batch, kept safe by the clipped objective."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from penstock.algorithms.arithmetic.optimizers import AdamConfig, build_adam
from penstock.algorithms.bases.algorithm import Metrics
from penstock.algorithms.bases.segment import SegmentAlgorithm
from penstock.config import Config, Tunable, require
from penstock.experience.batch import Batch


@dataclass(frozen=True, kw_only=True)
class ProximalConfig(AdamConfig):
    """Settings of the clipped objective over several passes."""

    num_epochs: int = 1
    """Passes over each batch."""
    gae_lambda: Tunable[float] = 0.95
    """Lambda of generalised advantage estimation."""
    normalize_advantages: bool = True
    """Normalise advantages to mean 0 and standard deviation 1 in each update."""
    clip_range: Tunable[float] = 0.2
    """Distance that the probability ratio may move from 1."""
    target_kl: Tunable[float | None] = None
    """The remaining updates of a batch are skipped once approx_kl exceeds 1.5 times this value (nats); None: never."""

    def validate(self) -> None:
        """Raise `ConfigError` where a value is outside what is legal."""
        super().validate()
        for name in ("num_epochs", "clip_range"):
            require(getattr(self, name) > 0, name, getattr(self, name), "more than 0")
        require(0.0 <= self.gae_lambda <= 1.0, "gae_lambda", self.gae_lambda, "from 0 to 1")
        is_distance = self.target_kl is None or self.target_kl > 0
        require(is_distance, "target_kl", self.target_kl, "more than 0, or None")


class ProximalAlgorithm(SegmentAlgorithm):
    """Learns from shuffled minibatches of each batch, ``num_epochs`` times or until the policy has moved enough."""

    Config: ClassVar[type[Config]] = ProximalConfig
    config: Any  # beside these settings it has a batch_size

    def build_optimizer(self, model: Any) -> torch.optim.Optimizer:
        """Adam."""
        return build_adam(self.config, model.parameters(), self.learning_rate(self.config.learning_rate, 0.0))

    def updates(self, batch: Batch, generator: torch.Generator) -> Iterator[Batch]:
        """Minibatches of ``batch_size`` steps."""
        for _ in range(self.config.num_epochs):
            yield from self.shuffled(batch, self.config.batch_size, generator)

    def is_enough(self, metrics: Metrics) -> bool:
        """Whether the policy has moved further than ``target_kl`` allows."""
        target = self.config.target_kl
        return target is not None and bool(metrics["approx_kl"] > 1.5 * target)
