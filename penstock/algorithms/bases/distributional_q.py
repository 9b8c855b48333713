"""Distributional Q-learning: C51, QR-DQN and IQN learn the distribution of returns, not its mean alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from penstock.algorithms.arithmetic.distributional import categorical_kl, categorical_projection
from penstock.algorithms.arithmetic.quantiles import quantile_huber
from penstock.algorithms.bases.algorithm import Metrics
from penstock.algorithms.bases.q_learning import QLearning
from penstock.algorithms.bases.support import SupportWatch
from penstock.experience.batch import TransitionBatch
from penstock.nn import (
    CategoricalReturns,
    ImplicitQuantileReturns,
    PolicyNetwork,
    QNetwork,
    QuantileReturns,
    evaluating,
)
from penstock.nn.return_distributions import ReturnDistribution, midpoints


class DistributionalQLearning(QLearning):
    """Q-learning of return distributions, where ``distributional`` names one."""

    _support: SupportWatch | None

    def distribution(self) -> Callable[[int], ReturnDistribution] | None:
        """Constructor of the head for the distribution of returns, called with the width of the features."""
        c = self.config
        match c.distributional:
            case "c51":
                return lambda num_features: CategoricalReturns(c.num_atoms, c.v_min, c.v_max)
            case "quantile":
                return lambda num_features: QuantileReturns(c.num_quantiles)
            case "iqn":
                return ImplicitQuantileReturns
        return None

    def begin(self, model: PolicyNetwork, learning: dict[str, Any] | None = None) -> None:
        """Make what only the learner has. See `ReplayAlgorithm.begin`."""
        super().begin(model, learning)
        c = self.config
        self._support = None
        if c.distributional == "c51":
            self._support = SupportWatch(c.v_min, c.v_max, self.remarks.append, rescaled=c.rescale_values)

    def evaluate(self, model: QNetwork, batch: Any) -> tuple[Tensor, Tensor, Metrics]:
        """Return priorities ``[B]``, loss and metrics of a `TransitionBatch`, among these its means "q".

        The target is the distribution of ``r + discount * Z(o', a*; theta^-)``, where ``a*`` has the largest mean by
        the target network, or by the online network with ``double``.

            "c51"               L = mean w D_KL( Phi(target) || Z(o, a; theta) )         (arXiv:1710.02298)
            "quantile", "iqn"   L = mean w sum_i mean_j rho_i( y_j - Z_i(o, a; theta) )  (arXiv:1710.10044, eq. 10)

        Priorities are these distances, of "quantile" and "iqn" the mean over i.
        """
        c = self.config
        if c.distributional == "none":
            return super().evaluate(model, batch)
        distribution = model.distribution
        with torch.no_grad(), evaluating(model):
            next_outputs, next_q = self.target.distributions(batch.next_obs, self.draw_noise(), self._fractions(batch))
            chooser_q = model.q(batch.next_obs, self.draw_noise()) if c.double else next_q
            of_next = _of_actions(next_outputs, chooser_q.argmax(1))

        fractions = self._fractions(batch)
        outputs, q = model.distributions(batch.obs, self.draw_noise(), fractions)
        of_taken = _of_actions(outputs, batch.action)
        reward, discount = batch.reward.unsqueeze(1), batch.discount.unsqueeze(1)
        if isinstance(distribution, CategoricalReturns):
            with torch.no_grad():
                returns, probability = self.td_target(reward, discount, distribution.atoms), of_next.softmax(1)
                assert self._support is not None
                self._support.see((returns * probability).sum(1), batch.reward, batch.discount, batch.number)
                target = categorical_projection(returns, probability, distribution.atoms)
            priority = distance = categorical_kl(target, of_taken.log_softmax(1))
        else:
            if fractions is None:
                fractions = midpoints(c.num_quantiles, outputs.device)
            distance = quantile_huber(of_taken, fractions, self.td_target(reward, discount, of_next))
            priority = distance / c.num_quantiles
        metrics = {"q": q.gather(1, batch.action.unsqueeze(1))}
        if self._support is not None:
            metrics["outside_support"] = self._support.last
        return priority, (batch.weights * distance).mean(), metrics

    def _fractions(self, batch: TransitionBatch) -> Tensor | None:
        """Fractions at which a pass of "iqn" takes quantiles, uniform in [0, 1), float32 ``[B, N]``; else None."""
        c = self.config
        if c.distributional != "iqn":
            return None
        size = len(batch.reward), c.num_quantiles
        return torch.rand(size, generator=self.generator, device=self.generator.device)


def _of_actions(outputs: Tensor, action: Tensor) -> Tensor:
    """Select one action per row, ``[B, M]`` of ``[B, A, M]``."""
    return outputs[torch.arange(len(action), device=action.device), action]
