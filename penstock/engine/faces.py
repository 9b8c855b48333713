"""Trainer classes of the algorithms, such as ``penstock.APPO``.

``python tools/signatures.py`` writes their settings to ``faces.pyi`` for editors and type checkers.
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
    btr,
    clear,
    crossq,
    ddpg,
    dqn,
    fasttd3,
    flashsac,
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
    xqc,
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

    def __init_subclass__(cls) -> None:
        kind = cls.algorithm
        meant = sorted(name for name in vars(cls) if name[0] != "_" and name != "algorithm" and hasattr(kind, name))
        if meant:
            raise TypeError(
                f"{cls.__name__} defines {', '.join(meant)} on a trainer, where they have no effect: derive it from "
                f"{kind.__module__}.{kind.__qualname__}, and train it by penstock.Trainer({cls.__name__}, env=...)"
            )

    def __init__(
        self, env: str | Callable[..., Any] | None = None, *others: Any, preset: str | os.PathLike[str] | None = None,
        **settings: Any,
    ) -> None:  # fmt: skip
        if others:
            given = ", ".join(map(repr, (env, *others)))
            raise ConfigError(
                f"{type(self).__name__}({given}): only env is positional, give all else by name; describe the network "
                'by encoder, hidden_sizes and memory, e.g. encoder="mlp"'
            )
        super().__init__(self.algorithm, env, preset=preset, **settings)


def _face(algorithm: type[Algorithm], about: str) -> type[Face]:
    config = algorithm.Config
    doc = f"Trains with {about}; settings are fields of `{config.__module__}.{config.__qualname__}`."
    return type(algorithm.__name__, (Face,), {"__doc__": doc, "__module__": __name__, "algorithm": algorithm})


APPO = _face(appo.APPO, "APPO, asynchronous PPO")
PPO = _face(ppo.PPO, "PPO, synchronous")
A2C = _face(a2c.A2C, "A2C, synchronous")
A3C = _face(a3c.A3C, "A3C, learning in the workers")
IMPALA = _face(impala.IMPALA, "IMPALA, V-trace")
IMPACT = _face(impact.IMPACT, "IMPACT, which reuses batches")
CLEAR = _face(clear.CLEAR, "CLEAR, against forgetting")
LASER = _face(laser.LASER, "LASER, mostly on replayed data")
PQN = _face(pqn.PQN, "PQN, Q-learning without replay")
DQN = _face(dqn.DQN, "DQN and its extensions")
Rainbow = _face(rainbow.Rainbow, "Rainbow, six extensions of DQN")
BTR = _face(btr.BTR, "BTR, Rainbow's successor")
ApeX = _face(apex.ApeX, "Ape-X DQN")
R2D2 = _face(r2d2.R2D2, "R2D2, recurrent Ape-X")
DDPG = _face(ddpg.DDPG, "DDPG, for continuous actions")
TD3 = _face(td3.TD3, "TD3, for continuous actions")
SAC = _face(sac.SAC, "SAC, for continuous actions")
TQC = _face(tqc.TQC, "TQC, SAC with quantile critics")
CrossQ = _face(crossq.CrossQ, "CrossQ, SAC without targets")
FlashSAC = _face(flashsac.FlashSAC, "FlashSAC, SAC at fixed norms")
FastTD3 = _face(fasttd3.FastTD3, "FastTD3, TD3 for many lanes")
XQC = _face(xqc.XQC, "XQC, SAC that classifies returns")
ApeXDPG = _face(apex_dpg.ApeXDPG, "Ape-X DPG")
