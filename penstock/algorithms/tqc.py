"""TQC: truncated quantile critics (Kuznetsov et al. 2020, arXiv:2005.04269)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from penstock.algorithms.arithmetic.quantiles import quantile_huber, truncated_mixture
from penstock.algorithms.arithmetic.td import td_target
from penstock.algorithms.sac import SAC, SACConfig
from penstock.config import NETWORK, Config, ConfigError, require
from penstock.experience.batch import TransitionBatch
from penstock.nn import StochasticActorCritic, evaluating
from penstock.nn.return_distributions import midpoints


@dataclass(frozen=True, kw_only=True)
class TQCConfig(SACConfig):
    """TQC: critics predict distributions of returns; targets are their mixture without its largest atoms.

    The critics have the policy's widths unless ``critic_hidden_sizes`` are given (published: three layers of 512).
    """

    fixed: ClassVar[Mapping[str, str]] = dict.fromkeys(("num_critics", "num_quantiles"), NETWORK)

    num_critics: int = 5
    """Number of critics (N)."""
    num_quantiles: int = 25
    """Quantiles per critic (M)."""
    dropped_quantiles: int = 2
    """Largest atoms dropped from the targets, per critic (d); more are more conservative. Published: 2 for most tasks,
    0 for HalfCheetah, 5 for Hopper."""

    def validate(self) -> None:
        super().validate()
        require(self.num_critics > 0, "num_critics", self.num_critics, "1 or more")
        require(self.num_quantiles > 1, "num_quantiles", self.num_quantiles, "2 or more")
        require(self.dropped_quantiles >= 0, "dropped_quantiles", self.dropped_quantiles, "0 or more")
        if self.distributional != "none":
            raise ConfigError(
                f"distributional={self.distributional!r} is not possible: critics of TQC give quantiles; "
                'use distributional="none", or sac'
            )
        if self.dropped_quantiles >= self.num_quantiles:
            raise ConfigError(
                f"dropped_quantiles={self.dropped_quantiles} leaves no quantile of num_quantiles={self.num_quantiles} "
                f"per critic: use at most {self.num_quantiles - 1}"
            )


class TQC(SAC):
    """SAC whose critics are distributions, with dropped atoms instead of a minimum against overestimation."""

    Config: ClassVar[type[Config]] = TQCConfig
    config: TQCConfig
    repeatable_updates = True

    def build_model(self) -> StochasticActorCritic:
        c = self.config
        return self.build_network_of_kind(
            num_critics=c.num_critics, num_quantiles=c.num_quantiles, **self.network_settings
        )

    def critic_loss(
        self, model: Any, q: Tensor, next_q: Tensor, next_bonus: Tensor, batch: TransitionBatch
    ) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """Return the loss of quantiles against the atoms of all target critics except the largest (section 3).

            L_Z = sum_n mean w QuantileHuber(theta_n(o, a), y)
            y_i = r + disc (z_i - alpha log pi(a'|o')),    z the N M atoms of all target critics but the d N largest

        A transition's errors are the differences between the critics' means and the mean of the targets. Parameters and
        results as for `SoftCritics.critic_loss`, with quantiles for values.
        """
        c = self.config
        atoms = truncated_mixture(next_q, c.dropped_quantiles * c.num_critics) + next_bonus.unsqueeze(1)
        y = td_target(batch.reward.unsqueeze(1), batch.discount.unsqueeze(1), atoms)
        fractions = midpoints(c.num_quantiles, y.device).expand(c.num_critics, -1).flatten()
        distance = quantile_huber(q.transpose(0, 1).flatten(1), fractions, y) / c.num_quantiles
        return (batch.weights * distance).mean(), q.detach().mean(2) - y.mean(1), {"q": q}

    def value(self, model: StochasticActorCritic, obs: Tensor, action: Tensor) -> Tensor:
        """Return the policy's objective: the mean of all critics' quantiles, none dropped, float32 ``[N]``."""
        with evaluating(model.critics):
            return model.q(obs, action).mean((0, 2))
