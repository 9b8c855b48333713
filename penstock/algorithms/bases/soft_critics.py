"""Networks and critics of SAC's family: kinds of hidden layers, and critics of values or of return distributions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from penstock.algorithms.arithmetic.distributional import (
    categorical_kl,
    categorical_projection,
    gaussian_histogram,
    of_smaller_mean,
)
from penstock.algorithms.arithmetic.td import squared_td_error, td_target
from penstock.algorithms.bases.continuous import ControlAlgorithm, ControlConfig, require_critics
from penstock.algorithms.bases.q_losses import share_outside
from penstock.config import NETWORK, Config, ConfigError
from penstock.experience.batch import TransitionBatch
from penstock.nn import BodyActorCritic, BodyConfig, CategoricalReturns, StochasticActorCritic, update_moments


@dataclass(frozen=True, kw_only=True)
class SoftCriticConfig(ControlConfig):
    """Settings of the networks of SAC's family."""

    fixed: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("network", "normalization", "unit_weights", "critic_hidden_sizes", "distributional", "num_atoms", "v_min",
         "v_max"), NETWORK,
    )  # fmt: skip

    network: Literal["mlp", "residual"] = "mlp"
    """Hidden layers of policy and critics over vectors: "mlp", layers of `hidden_sizes`; "residual", a residual block
    of two layers for each of `hidden_sizes`, which are equal (arXiv:2604.04539)."""
    normalization: Literal["batch", "layer", "rms"] | None = None
    """Normalisation of each hidden layer before its activation: "batch", which also normalises the input; "layer" or
    "rms", each row by itself; None: no normalisation."""
    unit_weights: bool = False
    """Keep the weights of each hidden unit at norm 1, and scale and shift of each normalisation at the norm
    sqrt(units), after every update (arXiv:2604.04539)."""
    critic_hidden_sizes: tuple[int, ...] | None = None
    """Widths of the critics' hidden layers; None: hidden_sizes, or 256 after an image encoder or a custom one."""
    distributional: Literal["none", "c51", "hl_gauss"] = "none"
    """Critics that give distributions of returns: "c51", whose target is the distribution of the critic with the
    smaller mean (arXiv:1707.06887); "hl_gauss", a normal distribution around the smaller mean (arXiv:2403.03950);
    "none": critics give values."""
    num_atoms: int = 101
    """Number of returns in a distribution."""
    v_min: float = -5.0
    """Smallest return in a distribution."""
    v_max: float = 5.0
    """Largest return in a distribution."""

    def validate(self) -> None:
        super().validate()
        require_critics(self)
        for name in ("hidden_sizes", "critic_hidden_sizes") if self.network == "residual" else ():
            widths = getattr(self, name)
            if widths is not None and len(set(widths)) != 1:
                raise ConfigError(
                    f'{name}={widths} is not possible with network="residual", whose blocks have one width: give the '
                    "same width for every block, such as (128, 128) for two"
                )

    @property
    def has_own_body(self) -> bool:
        """Whether hidden layers or critics differ from the plain ones."""
        plain = ("mlp", None, False, "none")
        return (self.network, self.normalization, self.unit_weights, self.distributional) != plain


class SoftCritics(ControlAlgorithm):
    """Base of SAC's family: networks as the settings describe them, and the losses of their critics."""

    Config: ClassVar[type[Config]] = SoftCriticConfig
    config: SoftCriticConfig

    def begin(self, model: Any, learning: dict[str, Any] | None = None) -> None:
        """Create the learner's own state; target critics normalise by the batch, too."""
        super().begin(model, learning)
        if self.has_target and self.normalizes_by_batch:
            self.target.critics.train()

    @property
    def normalizes_by_batch(self) -> bool:
        """Whether critics normalise by the batch; both ends of a transition are then evaluated in one batch."""
        return self.config.normalization == "batch"

    def build_network_of_kind(self, **fields: Any) -> StochasticActorCritic:
        """Make the network that the settings describe; parameters as for `StochasticActorCritic`."""
        c = self.config
        fields["critic_sizes"] = c.critic_hidden_sizes
        if not c.has_own_body:
            return self.build_network(StochasticActorCritic, **fields)
        returns = None if c.distributional == "none" else CategoricalReturns(c.num_atoms, c.v_min, c.v_max)
        body = BodyConfig(c.network, c.normalization, c.unit_weights)
        return self.build_network(BodyActorCritic, body=body, returns=returns, **fields)

    def update_moments(self, network: nn.Module) -> None:
        """Update the running moments of a network's normalisations from the batch, after an update of the network."""
        if self.recording is not None:
            self.recording.update_moments(network)
        else:
            update_moments(network, self.nonfinite)

    def both_ends(self, model: Any, batch: TransitionBatch, next_action: Tensor) -> tuple[Tensor, Tensor]:
        """Return the critics' outputs at both ends of transitions: the network's at the start, the target's at the end.

        Returns
        -------
        q, next_q : Tensor
            Values, float32 ``[C, B]``, or logits ``[C, B, M]``; the latter without gradient.
        """
        ends, is_joint = (batch.obs, batch.action, batch.next_obs, next_action), self.normalizes_by_batch
        if not self.has_target:
            q, next_q = model.joint_q(*ends) if is_joint else (model.q(*ends[:2]), model.q(*ends[2:]))
            return q, next_q.detach()
        q = model.joint_q(*ends, end=0)[0] if is_joint else model.q(*ends[:2])
        with torch.no_grad():
            return q, self.target.joint_q(*ends, end=1)[0] if is_joint else self.target.q(*ends[2:])

    def critic_loss(
        self, model: Any, q: Tensor, next_q: Tensor, next_bonus: Tensor, batch: TransitionBatch
    ) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """Return the loss of the critics' outputs against their targets.

        Parameters
        ----------
        model
            Network, which has the atoms of distributions.
        q, next_q
            As from `both_ends`.
        next_bonus
            Entropy bonus ``-alpha log pi(a'|o')``, float32 ``[B]``.
        batch
            Transitions.

        Returns
        -------
        loss : Tensor
            Sum over critics, 0-dimensional: squared errors (arXiv:1812.05905, equation 5), or cross-entropies minus the
            entropy of their targets (arXiv:1707.06887, algorithm 1).
        error : Tensor
            Errors or divergences, without gradient, float32 ``[C, B]``.
        metrics : dict of str to Tensor
            Values of the critics "q", float32 ``[C, B]``; with distributions, the share "outside_support" of targets.
        """
        c, returns = self.config, model.returns
        if returns is None:
            y = td_target(batch.reward, batch.discount, next_q.amin(0) + next_bonus)
            return *squared_td_error(q, y, batch.weights), {"q": q}
        if c.distributional == "c51":
            next_returns = td_target(
                batch.reward.unsqueeze(1), batch.discount.unsqueeze(1), returns.atoms + next_bonus.unsqueeze(1)
            )
            probability = of_smaller_mean(next_q.softmax(-1), returns.atoms)
            y, m = (next_returns * probability).sum(1), categorical_projection(next_returns, probability, returns.atoms)
        else:
            y = td_target(batch.reward, batch.discount, returns.mean(next_q).amin(0) + next_bonus)
            m = gaussian_histogram(y, returns.atoms)
        error = categorical_kl(m, q.log_softmax(-1))
        metrics = {"q": returns.mean(q.detach()), "outside_support": share_outside(y, c.v_min, c.v_max)}
        return (batch.weights * error).mean(1).sum(), error.detach(), metrics
