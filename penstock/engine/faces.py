"""The algorithms as users make them: ``penstock.APPO(env=...)`` is a trainer of that algorithm."""

from __future__ import annotations

from typing import Any

from penstock.algorithms import appo, ppo
from penstock.engine.trainer import Trainer


class APPO(Trainer):
    """Trains with APPO, asynchronous PPO; settings are the fields of `penstock.algorithms.appo.APPOConfig`."""

    def __init__(self, *, preset: str | None = None, **settings: Any) -> None:
        super().__init__(appo.APPO, preset=preset, **settings)


class PPO(Trainer):
    """Trains with PPO, synchronous; settings are the fields of `penstock.algorithms.ppo.PPOConfig`."""

    def __init__(self, *, preset: str | None = None, **settings: Any) -> None:
        super().__init__(ppo.PPO, preset=preset, **settings)
