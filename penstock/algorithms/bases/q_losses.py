"""Losses of Q-learning other than DQN's: from sequences (R2D2), and of return distributions (C51, QR-DQN, IQN)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from penstock.algorithms.arithmetic.distributional import categorical_kl, categorical_projection
from penstock.algorithms.arithmetic.quantiles import quantile_huber
from penstock.algorithms.arithmetic.rescaling import rescale
from penstock.algorithms.arithmetic.td import (
    double_q_value,
    half_squared,
    huber,
    max_q_value,
    munchausen_bonus,
    n_step_targets,
    scaled_log_policy,
    sequence_priority,
    soft_q_value,
    td_target,
)
from penstock.algorithms.bases.algorithm import Metrics
from penstock.experience.batch import SequenceBatch, TransitionBatch
from penstock.nn import CategoricalReturns, ImplicitQuantileReturns, QNetwork, QuantileReturns, evaluating
from penstock.nn.return_distributions import ReturnDistribution, midpoints

TD_LOSSES = {"squared": half_squared, "huber": huber}
UPDATES_BETWEEN_LOOKS = 100
USUAL_REWARDS = 0.01, 100.0  # magnitudes from which the default settings learn
WORTH_A_REMARK = 0.01  # share of the targets


class QLoss:
    """Loss of Q-learning from batches of one kind.

    Parameters
    ----------
    config
        A `QLearningConfig`.
    target
        Target network.
    draw_noise
        Draws the noise of one pass of a network; None without noisy layers.

    Attributes
    ----------
    targets
        Targets of the last batch, float32; for sequences followed by a mask, float32, that is 1 for steps that count
        and 0 for others. Empty for "c51", which normalises no targets.
    """

    targets: tuple[Tensor, ...] = ()

    def __init__(self, config: Any, target: QNetwork, draw_noise: Callable[[], Tensor | None]) -> None:
        self._config, self._target, self._draw_noise = config, target, draw_noise

    def __call__(self, model: QNetwork, batch: Any) -> tuple[Tensor, Tensor, Metrics]:
        """Return TD errors or priorities ``[B]``, loss and metrics of a batch, among these its values "q"."""
        raise NotImplementedError


def bonus_of(config: Any, q_target: Tensor, action: Tensor) -> Tensor:
    """Return the Munchausen term of each step's reward for a `QLearningConfig`; see `munchausen_bonus`."""
    c = config
    return munchausen_bonus(q_target, action, c.munchausen_alpha, c.munchausen_temperature, c.munchausen_floor)


class SequenceLoss(QLoss):
    """Loss of sequences, for networks with memory (R2D2, OpenReview r1lyTjAqYX, section 2.3).

        L   = mean_b w_b sum_t l((Q(o_t, a_t; theta) - y_t) / s)
        y_t = sum_{k<m} gamma^k r_{t+k} + gamma^m max_a Q(o_{t+m}, a; theta^-)    with m = min(n, steps that follow)

    Both networks are unrolled from the stored state, through the burn-in without gradient. ``l`` is half the square, or
    Huber's loss with ``td_loss="huber"``; ``s`` is the deviation of returns with ``normalize_returns``, else 1. With
    ``munchausen`` each reward has its own Munchausen term, and the target's value is the soft one.
    """

    def __call__(self, model: QNetwork, batch: SequenceBatch) -> tuple[Tensor, Tensor, Metrics]:
        c = self._config
        sequence = batch.obs, batch.first, batch.memory, c.burn_in
        all_q = model.unroll(*sequence, noise=self._draw_noise())
        action, reward, discount, valid = (
            rows[c.burn_in :] for rows in (batch.action, batch.reward, batch.discount, batch.valid)
        )
        with torch.no_grad():
            target_q = self._target.unroll(*sequence, noise=self._draw_noise())
            if c.munchausen:
                value = soft_q_value(target_q, c.munchausen_temperature)
                reward = reward + bonus_of(c, target_q[:-1], action)
            else:
                value = double_q_value(all_q, target_q) if c.double else max_q_value(target_q)
            y = n_step_targets(reward, discount, value, valid, c.n_step, rescaled=c.rescale_values)

        q = all_q[:-1].gather(2, action.unsqueeze(2)).squeeze(2)
        td_error = torch.where(valid, q - y, 0.0)
        self.targets = y, valid.float()
        loss = (batch.weights * TD_LOSSES[c.td_loss](model.normalize_difference(td_error)).sum(0)).mean()
        priority = sequence_priority(td_error.detach(), valid, c.priority_eta)
        return priority, loss, {"q": torch.where(valid, q, 0.0).sum() / valid.sum()}


def distribution_of(config: Any) -> Callable[[int], ReturnDistribution] | None:
    """Return the constructor of the return distribution of a `QLearningConfig`, called with the features' width."""
    match config.distributional:
        case "c51":
            return lambda num_features: CategoricalReturns(config.num_atoms, config.v_min, config.v_max)
        case "quantile":
            return lambda num_features: QuantileReturns(config.num_quantiles)
        case "iqn":
            return lambda num_features: ImplicitQuantileReturns(num_features, config.num_acting_quantiles)
    return None


class DistributionalLoss(QLoss):
    """Distance of the distribution of ``Z(o, a; theta)`` from that of ``r + discount * Z(o', a*; theta^-)``.

    ``a*`` has the largest mean by the target network, or by the online network with ``double``. With "iqn", the former
    mean is over the target's fractions, where arXiv:1806.06923 draws separate ones, the latter over midpoints.

        "c51"               L = mean w D_KL( Phi(target) || Z(o, a; theta) )         (arXiv:1710.02298)
        "quantile", "iqn"   L = mean w sum_i mean_j rho_i( y_j - Z_i(o, a; theta) )  (arXiv:1710.10044, eq. 10)

    Priorities are these distances; for "quantile" and "iqn" with the mean over i instead of the sum.

    With ``munchausen`` the target is ``r + alpha clip(tau log pi(a|o), l_0, 0) + discount * Z'``, with the soft policy
    ``pi`` of the target network's means and, over its actions ``b``,

        "c51"               Z' = Z(o', b; theta^-) - tau log pi(b|o')  with probability pi(b|o')
        "quantile", "iqn"   Z'_j = sum_b pi(b|o') ( Z_j(o', b; theta^-) - tau log pi(b|o') )  (arXiv:2007.14430, M-IQN)

    Parameters
    ----------
    config, target, draw_noise
        As for `QLoss`.
    generator
        Random numbers for the fractions of "iqn".
    """

    def __init__(
        self, config: Any, target: QNetwork, draw_noise: Callable[[], Tensor | None], generator: torch.Generator
    ) -> None:
        super().__init__(config, target, draw_noise)
        self._generator = generator

    def __call__(self, model: QNetwork, batch: TransitionBatch) -> tuple[Tensor, Tensor, Metrics]:
        c, distribution = self._config, model.distribution
        with torch.no_grad(), evaluating(model):
            noise, fractions = self._draw_noise(), self._fractions(batch)
            next_outputs, next_q = self._target.distributions(batch.next_obs, noise, fractions)
            if c.munchausen:
                log_policy = scaled_log_policy(next_q, c.munchausen_temperature).unsqueeze(2)
                policy = (log_policy / c.munchausen_temperature).exp()
                fractions = self._fractions(batch)
                _, target_q = self._target.distributions(batch.obs, self._draw_noise(), fractions)
                reward = batch.reward + bonus_of(c, target_q, batch.action)
            else:
                chooser_q = model.q(batch.next_obs, self._draw_noise()) if c.double else next_q
                of_next = _of_actions(next_outputs, chooser_q.argmax(1))
                reward = batch.reward

        fractions = self._fractions(batch)
        outputs, q = model.distributions(batch.obs, self._draw_noise(), fractions)
        of_taken = _of_actions(outputs, batch.action)
        reward, discount = reward.unsqueeze(1), batch.discount.unsqueeze(1)
        metrics = {"q": q.gather(1, batch.action.unsqueeze(1))}
        if isinstance(distribution, CategoricalReturns):
            with torch.no_grad():
                atoms = distribution.atoms
                if c.munchausen:
                    next_returns = (atoms - log_policy).flatten(1)
                    probability = (policy * next_outputs.softmax(2)).flatten(1)
                else:
                    next_returns, probability = atoms, of_next.softmax(1)
                returns = td_target(reward, discount, next_returns, rescaled=c.rescale_values)
                metrics["outside_support"] = share_outside((returns * probability).sum(1), c.v_min, c.v_max)
                target = categorical_projection(returns, probability, atoms)
            priority = distance = categorical_kl(target, of_taken.log_softmax(1))
        else:
            if fractions is None:
                fractions = midpoints(c.num_quantiles, outputs.device)
            if c.munchausen:
                of_next = (policy * (next_outputs - log_policy)).sum(1)
            y = td_target(reward, discount, of_next, rescaled=c.rescale_values)
            self.targets = (y,)
            distance = quantile_huber(model.normalize_return(of_taken), fractions, model.normalize_return(y))
            priority = distance / c.num_quantiles
        return priority, (batch.weights * distance).mean(), metrics

    def _fractions(self, batch: TransitionBatch) -> Tensor | None:
        """Draw fractions for a pass of "iqn", uniform in [0, 1), float32 ``[B, N]``; None for other distributions."""
        if self._config.distributional != "iqn":
            return None
        size = len(batch.reward), self._config.num_quantiles
        return torch.rand(size, generator=self._generator, device=self._generator.device)


def _of_actions(outputs: Tensor, action: Tensor) -> Tensor:
    """Select one action per row, ``[B, M]`` of ``[B, A, M]``."""
    index = action.view(-1, 1, 1).expand(-1, 1, outputs.shape[2])
    return outputs.gather(1, index).squeeze(1)


def share_outside(target: Tensor, low: float, high: float) -> Tensor:
    """Return the share of targets, float32 ``[B]``, outside a support by more than rounding, 0-dimensional."""
    rounding = 1e-5 * (high - low)
    return ((target < low - rounding) | (target > high + rounding)).float().mean()


class SupportWatch:
    """Makes one remark if 1 % or more of C51's targets over 100 updates lie outside [v_min, v_max].

    Targets outside are clipped to the support, and values beyond the bounds are never learned. Targets computed from
    clipped values lie at most one step outside, and so do not show how wide the support should be. The remark therefore
    names one that is wide enough: from the smallest to the largest ``R / (1 - disc)`` of all transitions, the return if
    one transition repeated forever. No return of these transitions, in any order, lies outside.

    Parameters
    ----------
    v_min, v_max
        Bounds of the support.
    remark
        Called with the remark.
    rescaled
        Whether targets and support are rescaled returns.
    """

    def __init__(self, v_min: float, v_max: float, remark: Callable[[str], object], *, rescaled: bool = False) -> None:
        self._bounds = v_min, v_max
        self._remark = remark
        self._rescaled = rescaled
        self._shares: list[Tensor] = []
        self._least = torch.full((2,), math.inf)
        self._largest = -self._least
        self._has_remarked = False

    def see(self, share: Tensor, reward: Tensor, discount: Tensor, number: int) -> None:
        """Add a batch.

        Parameters
        ----------
        share
            Share of its targets that lie outside, 0-dimensional.
        reward, discount
            ``R`` and ``disc`` of the transitions, float32 ``[B]``.
        number
            Number of the update.
        """
        if self._has_remarked:
            return
        forever = torch.where(reward == 0.0, 0.0, reward / (1.0 - discount))
        of_batch = torch.stack((reward, rescale(forever) if self._rescaled else forever))
        self._least = torch.minimum(self._least.to(of_batch.device), of_batch.amin(1))
        self._largest = torch.maximum(self._largest.to(of_batch.device), of_batch.amax(1))
        self._shares.append(share)
        if number % UPDATES_BETWEEN_LOOKS == 0:
            self._look()

    def _look(self) -> None:
        share = torch.stack(self._shares).mean().item()
        self._shares.clear()
        if share < WORTH_A_REMARK:
            return
        self._has_remarked = True
        (low, high), least, largest = self._bounds, self._least.tolist(), self._largest.tolist()
        rewards, returns = (f"{a:.4g} to {b:.4g}" for a, b in zip(least, largest, strict=True))
        if math.isfinite(largest[1] - least[1]):
            advice = f"no return of such rewards lies outside {returns}; give that"
        else:
            advice = "without a discount, such rewards set no bound on returns; widen the support"
        self._remark(
            f"{share:.0%} of the targets lie outside the support, v_min={low:g} to v_max={high:g}, and are cut off: "
            f"rewards, summed over n_step, range from {rewards}; {advice}, or lower reward_scale or gamma"
        )


class RewardWatch:
    """Makes one remark if the size of the rewards learned from lies outside `USUAL_REWARDS`.

    Parameters
    ----------
    remark
        Called with the remark, which names a fitting ``reward_scale``.
    can_normalize
        Whether ``normalize_returns`` is legal, too.
    """

    def __init__(self, remark: Callable[[str], object], *, can_normalize: bool) -> None:
        self._remark: Callable[[str], object] | None = remark
        self._other = "; or normalize_returns=True" if can_normalize else ""

    def see(self, reward: Tensor) -> None:
        """Check a batch's nonzero rewards.

        Parameters
        ----------
        reward
            Rewards, scaled and clipped for learning, float32 ``[...]``.
        """
        if self._remark is None:
            return
        is_paid = reward != 0.0
        size = (reward.square().sum() / is_paid.sum().clamp(min=1)).sqrt().item()
        low, high = USUAL_REWARDS
        if size == 0.0 or low <= size <= high:
            return
        scale = float(f"{1.0 / size:.1g}")
        self._remark(
            f"nonzero rewards, as learned from, have a root mean square of {size:.4g}, but settings are for "
            f"{low:g} to {high:g}: values may not be learned; use reward_scale={scale:g} in a new run{self._other}"
        )
        self._remark = None
