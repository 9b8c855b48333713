"""The algorithms as users make them: ``penstock.APPO("CartPole-v1")`` is a trainer of that algorithm.

What their settings are is written to ``faces.pyi`` for editors and type checkers: ``python tools/signatures.py``.
"""

from __future__ import annotations

import dataclasses
import inspect
import os
from collections.abc import Callable
from typing import Any, ClassVar

from penstock.algorithms import (
    a2c,
    a3c,
    apex,
    apex_dpg,
    appo,
    clear,
    crossq,
    ddpg,
    dqn,
    impact,
    impala,
    laser,
    ppo,
    pqn,
    r2d2,
    rainbow,
    sac,
    td3,
    tqc,
)
from penstock.algorithms.bases.algorithm import Algorithm
from penstock.config import ConfigError
from penstock.engine.trainer import Trainer


class _Signature:
    """Signature of a trainer with its algorithm's settings: `help` shows it, notebooks complete keywords from it."""

    def __get__(self, trainer: object, owner: type[Face]) -> inspect.Signature:
        settings = {field.name: field for field in dataclasses.fields(owner.algorithm.Config)}
        env, by_name = settings.pop("env"), inspect.Parameter.KEYWORD_ONLY
        parameters = [
            inspect.Parameter("env", inspect.Parameter.POSITIONAL_OR_KEYWORD, default=None, annotation=env.type),
            inspect.Parameter("preset", by_name, default=None, annotation="str | os.PathLike[str] | None"),
        ]
        for name, field in settings.items():
            default = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
            parameters.append(inspect.Parameter(name, by_name, default=default, annotation=field.type))
        return inspect.Signature(parameters)


class Face(Trainer):
    """A trainer of one algorithm."""

    algorithm: ClassVar[type[Algorithm]]
    __signature__ = _Signature()

    def __init__(
        self,
        env: str | Callable[..., Any] | None = None,
        *others: Any,
        preset: str | os.PathLike[str] | None = None,
        **settings: Any,
    ) -> None:
        if others:
            given = ", ".join(map(repr, (env, *others)))
            raise ConfigError(
                f"{type(self).__name__}({given}): only env is given by place, all else by name; the network is said by "
                'encoder, hidden_sizes and memory, e.g. encoder="mlp"'
            )
        super().__init__(self.algorithm, env, preset=preset, **settings)


class APPO(Face):
    """Trains with APPO, asynchronous PPO; settings are the fields of `penstock.algorithms.appo.APPOConfig`."""

    algorithm = appo.APPO


class PPO(Face):
    """Trains with PPO, synchronous; settings are the fields of `penstock.algorithms.ppo.PPOConfig`."""

    algorithm = ppo.PPO


class A2C(Face):
    """Trains with A2C, synchronous; settings are the fields of `penstock.algorithms.a2c.A2CConfig`."""

    algorithm = a2c.A2C


class A3C(Face):
    """Trains with A3C, workers that learn; settings are the fields of `penstock.algorithms.a3c.A3CConfig`."""

    algorithm = a3c.A3C


class IMPALA(Face):
    """Trains with IMPALA, V-trace; settings are the fields of `penstock.algorithms.impala.IMPALAConfig`."""

    algorithm = impala.IMPALA


class IMPACT(Face):
    """Trains with IMPACT, batches used again; settings are the fields of `penstock.algorithms.impact.IMPACTConfig`."""

    algorithm = impact.IMPACT


class CLEAR(Face):
    """Trains with CLEAR, against forgetting; settings are the fields of `penstock.algorithms.clear.CLEARConfig`."""

    algorithm = clear.CLEAR


class LASER(Face):
    """Trains with LASER, mostly from replay; settings are the fields of `penstock.algorithms.laser.LASERConfig`."""

    algorithm = laser.LASER


class PQN(Face):
    """Trains with PQN, Q-learning without replay; settings are the fields of `penstock.algorithms.pqn.PQNConfig`."""

    algorithm = pqn.PQN


class DQN(Face):
    """Trains with DQN and its extensions; settings are the fields of `penstock.algorithms.dqn.DQNConfig`."""

    algorithm = dqn.DQN


class Rainbow(Face):
    """Trains with Rainbow, six extensions of DQN; settings are those of `penstock.algorithms.rainbow.RainbowConfig`."""

    algorithm = rainbow.Rainbow


class ApeX(Face):
    """Trains with Ape-X DQN; settings are the fields of `penstock.algorithms.apex.ApeXConfig`."""

    algorithm = apex.ApeX


class R2D2(Face):
    """Trains with R2D2, recurrent Ape-X; settings are the fields of `penstock.algorithms.r2d2.R2D2Config`."""

    algorithm = r2d2.R2D2


class DDPG(Face):
    """Trains with DDPG, for continuous actions; settings are the fields of `penstock.algorithms.ddpg.DDPGConfig`."""

    algorithm = ddpg.DDPG


class TD3(Face):
    """Trains with TD3, for continuous actions; settings are the fields of `penstock.algorithms.td3.TD3Config`."""

    algorithm = td3.TD3


class SAC(Face):
    """Trains with SAC, for continuous actions; settings are the fields of `penstock.algorithms.sac.SACConfig`."""

    algorithm = sac.SAC


class TQC(Face):
    """Trains with TQC, SAC with quantile critics; settings are the fields of `penstock.algorithms.tqc.TQCConfig`."""

    algorithm = tqc.TQC


class CrossQ(Face):
    """Trains with CrossQ, SAC without targets; settings are the fields of `penstock.algorithms.crossq.CrossQConfig`."""

    algorithm = crossq.CrossQ


class ApeXDPG(Face):
    """Trains with Ape-X DPG; settings are the fields of `penstock.algorithms.apex_dpg.ApeXDPGConfig`."""

    algorithm = apex_dpg.ApeXDPG
