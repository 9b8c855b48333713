"""APPO: asynchronous PPO (Petrenko et al. 2020, "Sample Factory", arXiv:2006.11751)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal, Self

from torch import Tensor

from penstock.algorithms.arithmetic.losses import log_importance_ratio
from penstock.algorithms.arithmetic.returns import vtrace
from penstock.algorithms.ppo import ProximalAlgorithm, ProximalConfig
from penstock.config import AsynchronousConfig, Config, Scheduled, SegmentDelayedRewardConfig, Tunable, require
from penstock.envs.spaces import ActionSpec, ObservationSpec
from penstock.experience.batch import Batch
from penstock.nn import ActorCritic, Distribution

FEWEST_EPOCHS, MOST_EPOCHS = 2, 8
SETTLED_LAG = 32


@dataclass(frozen=True, kw_only=True)
class APPOConfig(ProximalConfig, AsynchronousConfig, SegmentDelayedRewardConfig):
    """APPO: rollout workers never wait for the learner; stale experience is clipped, corrected or masked."""

    batch_size: int = 256
    """Steps per update (one minibatch)."""
    num_epochs: int | None = None
    """Passes over each batch. None: 2 to 8, as many as keep policy lag within 32 updates (fewer with more lanes); 2
    with an image encoder."""
    learning_rate: Scheduled | None = None
    """Step size of the optimiser, or a function of progress ("module:name"); None: 2e-3, with an image encoder 5e-4."""
    learning_rate_schedule: Literal["constant", "linear"] = "linear"
    entropy_coef: Scheduled = 0.003
    num_minibatches: int = 2
    """Updates per pass; a batch has num_minibatches * batch_size steps."""
    advantage_estimator: Literal["gae", "vtrace"] = "gae"
    """"gae": once per batch, from the learner's values; "vtrace": corrected for policy lag, recomputed in every
    update."""
    clip_range: float = 0.2
    """Probability ratios are clipped to [1 / (1 + clip_range), 1 + clip_range]."""
    loss: Literal["clipped", "decoupled"] = "clipped"
    """"clipped": ratios to the policy that acted; "decoupled": to the policy at the batch's start, with an importance
    weight for the difference between the two (arXiv:2110.00641)."""
    rho_proximal: Tunable[float] = 2.0
    """Decoupled loss: bound on a step's importance weight."""
    rho_bar: Tunable[float] = 1.0
    """V-trace: bound on the probability ratio in the temporal difference."""
    c_bar: Tunable[float] = 1.0
    """V-trace: bound on the probability ratio in the trace."""

    def validate(self) -> None:
        super().validate()
        require(self.num_minibatches > 0, "num_minibatches", self.num_minibatches, "more than 0")
        require(self.rho_proximal > 0, "rho_proximal", self.rho_proximal, "more than 0")
        require(0 < self.c_bar <= self.rho_bar, "c_bar", self.c_bar, f"more than 0 and at most rho_bar={self.rho_bar}")

    def resolved(self, *, encodes_images: bool) -> Self:
        """As in the base class, with a number of epochs.

        While a segment waits, the learner uses ``num_lanes / segments_per_batch`` batches in
        ``num_epochs * num_minibatches`` updates each. The sum is the segment's policy lag; `SETTLED_LAG` limits it.
        With few lanes, more passes need fewer steps; with many lanes or large networks, they would stall the lanes.
        """
        config = super().resolved(encodes_images=encodes_images)
        if config.num_epochs is not None:
            return config
        lag_of_epoch = config.num_minibatches * config.num_lanes / config.segments_per_batch
        epochs = FEWEST_EPOCHS if encodes_images else int(SETTLED_LAG / lag_of_epoch)
        return replace(config, num_epochs=min(max(epochs, FEWEST_EPOCHS), MOST_EPOCHS))

    @property
    def segments_per_batch(self) -> int:
        """Segments of a batch (B), from any lanes."""
        return self.num_minibatches * self.batch_size // self.segment_length


class APPO(ProximalAlgorithm):
    """PPO's clipped objective on experience that is a few updates old, with GAE or V-trace.

    **Learning** minimises PPO's loss (`ProximalAlgorithm.loss`). The ratio to the policy that acted is clipped to
    ``[1 / (1 + clip_range), 1 + clip_range]``; steps with a lag of ``max_policy_lag`` versions or more are masked out.

    **Decoupled loss** (arXiv:2110.00641): the ratio is taken to a proximal policy with the newest weights at the
    batch's start, so that the clip range bounds the change made by this batch, however old the batch is:

        J_clip  =  mean w min( r A, clip(r, ...) A ),   r = pi / pi_prox,   w = min( pi_prox / mu, rho_proximal )
    """

    Config: ClassVar[type[Config]] = APPOConfig
    config: APPOConfig
    repeatable_updates = True

    def __init__(self, config: APPOConfig, observation: ObservationSpec, action: ActionSpec) -> None:
        if config.num_epochs == config.num_minibatches == 1:  # the update evaluates the network anyway
            self.targets_for = ("update",)
        elif config.advantage_estimator == "gae":
            self.targets_for = ("batch",)
        else:  # running moments need the returns of the whole batch
            is_early = config.normalize_returns or config.loss == "decoupled"
            self.targets_for = ("batch", "update") if is_early else ("update",)
        super().__init__(config, observation, action)

    @property
    def ratio_bounds(self) -> tuple[float, float]:
        """Bounds to which probability ratios are clipped, symmetric in log scale."""
        return 1.0 / (1.0 + self.config.clip_range), 1.0 + self.config.clip_range

    def targets(self, model: ActorCritic, batch: Batch, policy: Distribution, values: Tensor) -> dict[str, Tensor]:
        """Return advantages and value targets, by GAE, or by V-trace from the ratio to the policy that acted.

        With the decoupled loss, also "proximal": log-probabilities of the actions by the policy at the batch's start.
        """
        c, log_prob, proximal = self.config, policy.log_prob(batch.action), {}
        if c.loss == "decoupled":
            proximal = {"proximal": batch.targets.get("proximal", log_prob)}
        if c.advantage_estimator == "gae":
            return self.estimate_advantages(model, batch, values, c.gae_lambda) | proximal
        target, advantage = vtrace(
            batch.reward, model.denormalize_value(values), batch.terminated, batch.truncated,
            log_importance_ratio(log_prob, batch.log_prob),
            gamma=c.gamma, lambda_=c.gae_lambda, rho_bar=c.rho_bar, c_bar=c.c_bar,
            rho_pg_bar=None if proximal else 1.0, valid=batch.valid,
        )  # fmt: skip
        targets = {"advantage": model.normalize_difference(advantage), "return": model.normalize_return(target)}
        return targets | proximal
