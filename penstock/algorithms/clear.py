"""CLEAR: V-trace with replay and behaviour cloning, against forgetting (Rolnick et al. 2019, arXiv:1811.11682)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from penstock.algorithms.arithmetic.losses import REDUCTIONS, masked_mean
from penstock.algorithms.bases.algorithm import Metrics
from penstock.algorithms.impala import IMPALA, IMPALAConfig
from penstock.config import Config, Tunable, require
from penstock.experience.batch import Batch
from penstock.nn import ActorCritic, Distribution


@dataclass(frozen=True, kw_only=True)
class CLEARConfig(IMPALAConfig):
    """CLEAR: half of each batch is a sample of all earlier experience, with behaviour cloning."""

    replay: tuple[str, ...] = ("queue:1/2", "reservoir:1/2,capacity=2000")
    policy_cloning_coef: Tunable[float] = 0.01
    """Weight of KL(mu || pi) on replayed steps, with mu the policy that acted."""
    value_cloning_coef: Tunable[float] = 0.005
    """Weight of the squared difference to the value recorded while acting, on replayed steps."""

    def validate(self) -> None:
        super().validate()
        for name in ("policy_cloning_coef", "value_cloning_coef"):
            require(0.0 <= getattr(self, name) < math.inf, name, getattr(self, name), "a finite number, 0 or more")


class CLEAR(IMPALA):
    """IMPALA whose policy and values stay near the recorded ones on replayed experience."""

    Config: ClassVar[type[Config]] = CLEARConfig
    config: CLEARConfig
    repeatable_updates = True
    data_path = "mixture"
    records = ("logits", "value")

    def targets(self, model: ActorCritic, batch: Batch, policy: Distribution, values: Tensor) -> dict[str, Tensor]:
        """Return V-trace's targets, and the value recorded while acting, "expected"."""
        expected = model.normalize_return(batch.records["value"])
        return super().targets(model, batch, policy, values) | {"expected": expected}

    def loss(self, batch: Batch, policy: Distribution, value: Tensor) -> tuple[Tensor, Metrics]:
        """``L = L_vtrace + c_p sum KL(mu || pi) + c_v sum (V - V_mu)^2``, with sums over replayed steps only."""
        c, reduce, replayed = self.config, REDUCTIONS[self.config.reduction], batch.learn * batch.replayed
        loss, metrics = super().loss(batch, policy, value)
        behaviour: Any = self.recorded_policy(batch.records["logits"])
        policy_distance = behaviour.kl(policy)
        value_distance = (value - batch.targets["expected"]).square()
        loss = loss + c.policy_cloning_coef * reduce(policy_distance, replayed)
        loss = loss + c.value_cloning_coef * reduce(value_distance, replayed)
        return loss, metrics | {
            "policy_cloning": masked_mean(policy_distance, replayed),
            "value_cloning": masked_mean(value_distance, replayed),
        }
