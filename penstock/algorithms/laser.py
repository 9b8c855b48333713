"""LASER: V-trace from replay, with a trust region for states (Schmitt et al. 2020, arXiv:1909.11583)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from penstock.algorithms.arithmetic.losses import REDUCTIONS, effective_samples, masked_mean, value_error
from penstock.algorithms.arithmetic.returns import explained_variance
from penstock.algorithms.bases.algorithm import Metrics
from penstock.algorithms.impala import IMPALA, IMPALAConfig
from penstock.config import Config, ConfigError, Tunable, require
from penstock.envs.spaces import ActionKind, ActionSpec
from penstock.experience.batch import Batch
from penstock.nn import ActorCritic, Distribution


@dataclass(frozen=True, kw_only=True)
class LASERConfig(IMPALAConfig):
    """LASER: most of each batch is replayed; states for which the policy has changed too much are masked out."""

    replay: tuple[str, ...] = ("queue:1/4", "uniform:3/4,capacity=2000")
    trust_region: Tunable[float] = 0.3
    """States with a larger KL(pi || implied policy), in nats, are masked out of the loss, and traces end there."""

    def validate(self) -> None:
        super().validate()
        require(self.trust_region > 0, "trust_region", self.trust_region, "more than 0")


class LASER(IMPALA):
    """IMPALA on replayed experience, restricted to states where V-trace's implied policy is near the learned one.

    V-trace with truncated ratios learns the value of an implied policy between mu and pi, whose targets mislead if it
    is far from pi. The test depends on the state alone: a test of the action taken would be biased (section 4).
    """

    Config: ClassVar[type[Config]] = LASERConfig
    config: LASERConfig
    repeatable_updates = True
    data_path = "mixture"
    actions: ClassVar[tuple[ActionKind, ...]] = ("discrete",)
    records = ("logits",)

    def _require_fitting(self, action: ActionSpec) -> None:
        try:
            super()._require_fitting(action)
        except ConfigError as refusal:
            raise ConfigError(
                f"{refusal}; LASER's implied policy needs a sum over all actions, and so a single discrete choice; "
                "IMPALA with replay= and CLEAR replay without it"
            ) from None

    def targets(self, model: ActorCritic, batch: Batch, policy: Distribution, values: Tensor) -> dict[str, Tensor]:
        """Return V-trace's targets, with traces within relevant states."""
        behaviour = torch.log_softmax(batch.records["logits"], -1)
        divergence = implied_divergence(torch.log_softmax(policy.flat, -1), behaviour, self.config.rho_bar)
        relevant = divergence < self.config.trust_region
        targets = self.vtrace(model, batch, policy, values, relevant)
        nothing = {"advantage": 0.0 * values[:-1], "return": values[:-1]}  # targets of irrelevant states
        chosen = {name: torch.where(relevant, targets[name], x) for name, x in nothing.items()}
        return targets | chosen | {"relevant": relevant.float()}

    def loss(self, batch: Batch, policy: Distribution, value: Tensor) -> tuple[Tensor, Metrics]:
        """``L = sum m (-log pi(a) pg + c_v 1/2 (v - V)^2) - c_e sum H``, with the entropy of fresh steps only."""
        c, reduce, target = self.config, REDUCTIONS[self.config.reduction], batch.targets["return"]
        log_ratio = batch.targets["log_ratio"]
        relevant = batch.learn * batch.targets["relevant"]
        fresh = batch.learn * ~batch.replayed

        policy_loss = -reduce(policy.log_prob(batch.action) * batch.targets["advantage"], relevant)
        value_loss = reduce(value_error(value, target), relevant)
        entropy = reduce(policy.entropy(), fresh)
        loss = policy_loss + c.value_coef * value_loss - self.entropy_coef(batch) * entropy
        return loss, {
            "policy_loss": policy_loss,
            "value_loss": value_loss,
            "entropy": masked_mean(policy.entropy(), fresh),
            "ratio": masked_mean(log_ratio.exp(), relevant),
            "effective_samples": effective_samples(log_ratio, relevant),
            "irrelevant": masked_mean(1.0 - batch.targets["relevant"], batch.learn),
            "explained_variance": explained_variance(value, target, relevant.bool()),
        }


def implied_divergence(log_pi: Tensor, log_mu: Tensor, rho_bar: float) -> Tensor:
    """``KL(pi || pi_mu)`` of each state, in nats, with ``pi_mu(a) = min(rho_bar mu(a), pi(a)) / sum`` (equation 4).

    Parameters
    ----------
    log_pi, log_mu
        Log-probabilities of all actions by the learned policy and the policy that acted, float32 ``[..., A]``.
    rho_bar
        V-trace's bound on the ratio.
    """
    log_implied = torch.log_softmax(torch.minimum(log_mu + math.log(rho_bar), log_pi), -1)
    return (log_pi.exp() * (log_pi - log_implied)).sum(-1)
