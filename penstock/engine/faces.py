"""The algorithms as users make them: ``penstock.APPO(env=...)`` is a trainer of that algorithm."""

from __future__ import annotations

from typing import Any

from penstock.algorithms import a2c, a3c, apex, appo, ddpg, dqn, impala, ppo, sac, td3
from penstock.engine.trainer import Trainer


class APPO(Trainer):
    """Trains with APPO, asynchronous PPO; settings are the fields of `penstock.algorithms.appo.APPOConfig`."""

    def __init__(self, *, preset: str | None = None, **settings: Any) -> None:
        super().__init__(appo.APPO, preset=preset, **settings)


class PPO(Trainer):
    """Trains with PPO, synchronous; settings are the fields of `penstock.algorithms.ppo.PPOConfig`."""

    def __init__(self, *, preset: str | None = None, **settings: Any) -> None:
        super().__init__(ppo.PPO, preset=preset, **settings)


class A2C(Trainer):
    """Trains with A2C, synchronous; settings are the fields of `penstock.algorithms.a2c.A2CConfig`."""

    def __init__(self, *, preset: str | None = None, **settings: Any) -> None:
        super().__init__(a2c.A2C, preset=preset, **settings)


class A3C(Trainer):
    """Trains with A3C, workers that learn; settings are the fields of `penstock.algorithms.a3c.A3CConfig`."""

    def __init__(self, *, preset: str | None = None, **settings: Any) -> None:
        super().__init__(a3c.A3C, preset=preset, **settings)


class IMPALA(Trainer):
    """Trains with IMPALA, V-trace; settings are the fields of `penstock.algorithms.impala.IMPALAConfig`."""

    def __init__(self, *, preset: str | None = None, **settings: Any) -> None:
        super().__init__(impala.IMPALA, preset=preset, **settings)


class DQN(Trainer):
    """Trains with DQN and its extensions; settings are the fields of `penstock.algorithms.dqn.DQNConfig`."""

    def __init__(self, *, preset: str | None = None, **settings: Any) -> None:
        super().__init__(dqn.DQN, preset=preset, **settings)


class ApeX(Trainer):
    """Trains with Ape-X DQN; settings are the fields of `penstock.algorithms.apex.ApeXConfig`."""

    def __init__(self, *, preset: str | None = None, **settings: Any) -> None:
        super().__init__(apex.ApeX, preset=preset, **settings)


class DDPG(Trainer):
    """Trains with DDPG, for continuous actions; settings are the fields of `penstock.algorithms.ddpg.DDPGConfig`."""

    def __init__(self, *, preset: str | None = None, **settings: Any) -> None:
        super().__init__(ddpg.DDPG, preset=preset, **settings)


class TD3(Trainer):
    """Trains with TD3, for continuous actions; settings are the fields of `penstock.algorithms.td3.TD3Config`."""

    def __init__(self, *, preset: str | None = None, **settings: Any) -> None:
        super().__init__(td3.TD3, preset=preset, **settings)


class SAC(Trainer):
    """Trains with SAC, for continuous actions; settings are the fields of `penstock.algorithms.sac.SACConfig`."""

    def __init__(self, *, preset: str | None = None, **settings: Any) -> None:
        super().__init__(sac.SAC, preset=preset, **settings)
