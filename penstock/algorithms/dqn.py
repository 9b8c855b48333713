"""DQN: deep Q-learning (Mnih et al. 2015, doi:10.1038/nature14236), and its published extensions as switches."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from penstock.algorithms.arithmetic.distributional import categorical_kl, categorical_projection
from penstock.algorithms.arithmetic.optimizers import TorchRMSProp, fused_adam
from penstock.algorithms.arithmetic.quantiles import quantile_huber
from penstock.algorithms.arithmetic.rescaling import inverse_rescale, rescale
from penstock.algorithms.arithmetic.td import (
    double_q_value,
    huber,
    linear_schedule,
    max_q_value,
    n_step_targets,
    sequence_priority,
    td_target,
)
from penstock.algorithms.bases.algorithm import Metrics, Request
from penstock.algorithms.bases.replay import ReplayAlgorithm
from penstock.algorithms.bases.support import SupportWatch
from penstock.config import NETWORK, STATE, Config, ConfigError, Scheduled, SequenceConfig, Tunable, require
from penstock.envs.spaces import ActionKind, ActionSpec, ObservationSpec
from penstock.experience.layout import Column
from penstock.experience.sequence_batch import SequenceBatch
from penstock.experience.transition_batch import TransitionBatch
from penstock.nn import CategoricalReturns, ImplicitQuantileReturns, PolicyNetwork, QNetwork, QuantileReturns
from penstock.nn.memory import state_size_of
from penstock.nn.noisy import draw_noise
from penstock.nn.return_distributions import ReturnDistribution, midpoints


@dataclass(frozen=True, kw_only=True)
class QLearningConfig(SequenceConfig):
    """Settings of deep Q-learning. Sizes and rates are for classic control; the papers', for Atari, are a preset."""

    fixed: ClassVar[Mapping[str, str]] = {
        "dueling": NETWORK, "distributional": NETWORK, "num_atoms": NETWORK, "v_min": NETWORK, "v_max": NETWORK,
        "num_quantiles": NETWORK, "noisy": NETWORK, "noisy_sigma": NETWORK, "rescale_values": NETWORK,
        "optimizer": STATE,
    }  # fmt: skip

    hidden_sizes: tuple[int, ...] = (128, 128)
    batch_size: int = 64
    """Transitions per update, drawn from the replay buffer; with memory, sequences."""
    buffer_size: int = 100_000
    updates_per_step: float = 0.5
    """Updates per step (published: one per four steps)."""
    learning_rate: Scheduled = 2e-3
    optimizer: Literal["adam", "rmsprop"] = "adam"
    """"rmsprop": centred, decay 0.95, as published; "adam": as in most current implementations."""
    optimizer_eps: Tunable[float] = 1e-8
    """Constant that the optimiser adds to the root of the mean square."""
    max_grad_norm: Tunable[float | None] = 10.0
    """Global norm to which gradients are clipped (arXiv:1511.06581); None: no clipping."""

    double: bool = False
    """Double DQN (arXiv:1509.06461): the online network selects the action, the target network evaluates it."""
    dueling: bool = False
    """Dueling network (arXiv:1511.06581): separate streams for value and advantages."""
    target_period: int = 100
    """Updates between two copies of the network to the target network."""
    rescale_values: bool = False
    """Learn values of rescaled returns, h(x) = sign(x) (sqrt(|x| + 1) - 1) + x / 1000 (arXiv:1805.11593)."""

    distributional: Literal["none", "c51", "quantile", "iqn"] = "none"
    """Distribution of returns to learn: "none", the mean alone; "c51", probabilities of fixed returns
    (arXiv:1707.06887); "quantile", fixed quantiles, QR-DQN (arXiv:1710.10044); "iqn", quantiles at sampled fractions
    (arXiv:1806.06923)."""
    num_atoms: int = 51
    """Number of fixed returns of "c51" (arXiv:1707.06887, section 5)."""
    v_min: float = -100.0
    """Smallest return of the c51 support (published, for clipped rewards: -10); with rescale_values, a rescaled
    return."""
    v_max: float = 100.0
    """Largest return of the c51 support (published, for clipped rewards: 10); with rescale_values, a rescaled
    return."""
    num_quantiles: int = 32
    """Number of quantiles of "quantile" (published: 200), and of fractions that "iqn" samples for a value and for its
    target."""
    noisy: bool = False
    """NoisyNets (arXiv:1706.10295): noise on the head's weights replaces random actions; exploration is ignored."""
    noisy_sigma: float = 0.5
    """Initial scale of this noise, sigma_0 (arXiv:1706.10295, section 3.2)."""

    def validate(self) -> None:
        """Raise `ConfigError` where a value is outside what is legal."""
        super().validate()
        require(0.0 < self.optimizer_eps < math.inf, "optimizer_eps", self.optimizer_eps, "more than 0, and finite")
        require(self.target_period > 0, "target_period", self.target_period, "1 or more")
        norm = self.max_grad_norm
        require(norm is None or norm > 0, "max_grad_norm", norm, "more than 0, or None")
        require(self.num_atoms > 1, "num_atoms", self.num_atoms, "2 or more")
        require(self.num_quantiles > 0, "num_quantiles", self.num_quantiles, "1 or more")
        sigma = self.noisy_sigma
        require(0.0 < sigma < math.inf, "noisy_sigma", sigma, "more than 0, and finite; noisy=False is without noise")
        for name in ("v_min", "v_max"):
            require(math.isfinite(getattr(self, name)), name, getattr(self, name), "finite")
        require(self.v_min < self.v_max, "v_min", self.v_min, f"less than v_max={self.v_max}")
        if self.distributional != "none" and self.memory != "none":
            raise ConfigError(
                f"distributional={self.distributional!r} cannot be combined with memory={self.memory!r}: distributions "
                'are learned from single transitions, and a memory needs sequences; use memory="none" or '
                'distributional="none"'
            )


@dataclass(frozen=True, kw_only=True)
class DQNConfig(QLearningConfig):
    """DQN. Sizes and rates are for classic control; those of the paper, for Atari, are the preset "atari"."""

    exploration: float = 1.0
    """Probability of a random action at the start (doi:10.1038/nature14236)."""
    exploration_final: float = 0.05
    """Probability of a random action after exploration_steps."""
    exploration_steps: int = 10_000
    """Steps over which this probability decays linearly."""

    def validate(self) -> None:
        """Raise `ConfigError` where a value is outside what is legal."""
        super().validate()
        for name in ("exploration", "exploration_final"):
            require(0.0 <= getattr(self, name) <= 1.0, name, getattr(self, name), "from 0 to 1")
        require(self.exploration_steps > 0, "exploration_steps", self.exploration_steps, "1 or more")


class DQN(ReplayAlgorithm):
    """Q-learning with a deep network, from replay, towards a target network. With memory it replays sequences.

    Attributes
    ----------
    state_size
        Width ``S`` of a lane's memory state; 0 without memory.
    """

    Config: ClassVar[type[Config]] = DQNConfig
    config: QLearningConfig
    actions: ClassVar[tuple[ActionKind, ...]] = ("discrete",)

    _support: SupportWatch | None

    def __init__(self, config: QLearningConfig, observation: ObservationSpec, action: ActionSpec) -> None:
        super().__init__(config, observation, action)
        self.state_size = state_size_of(config.memory, config.memory_size)

    @classmethod
    def data_path_of(cls, config: Any) -> str | type:
        """With memory, sequences."""
        is_recurrent = config.memory != "none" and cls.data_path == "replay"
        return "sequences" if is_recurrent else super().data_path_of(config)

    def build_model(self) -> QNetwork:
        """Make the Q-network."""
        c = self.config
        memory = {"memory": c.memory, "memory_size": c.memory_size, "memory_span": c.memory_span}
        return self.build_network(
            QNetwork, memory, dueling=c.dueling, epsilon=0.0 if c.noisy else self.final_epsilon,
            distribution=self._distribution(), noisy_sigma=c.noisy_sigma if c.noisy else None,
        )  # fmt: skip

    def _distribution(self) -> Callable[[int], ReturnDistribution] | None:
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

    def trained_parameters(self, model: Any) -> dict[str, tuple[list[nn.Parameter], Scheduled]]:
        """All of the network."""
        return {"q": (list(model.parameters()), self.config.learning_rate)}

    def build_optimizer(self, parameter: nn.Parameter, learning_rate: float) -> torch.optim.Optimizer:
        """Adam or centred RMSProp."""
        if self.config.optimizer == "adam":
            return fused_adam([parameter], learning_rate, eps=self.config.optimizer_eps)
        return TorchRMSProp([parameter], learning_rate, alpha=0.95, eps=self.config.optimizer_eps, centered=True)

    def record_columns(self) -> tuple[Column, ...]:
        """With memory, the state that it begins a step with: what a sequence is unrolled from."""
        return (Column("memory", (self.state_size,), "float32"),) if self.state_size else ()

    def act(self, model: QNetwork, request: Request) -> tuple[dict[str, Tensor], Tensor]:
        """Choose the best action, or with probability epsilon any; of a noisy network, the best with noise."""
        epsilon = 0.0 if self.config.noisy else self.epsilon(request)
        policy, memory = model.act(request.obs, request.first, request.memory, epsilon)
        return {"action": policy.sample(request.noise)} | self._memory_before(request), memory

    def _memory_before(self, request: Request) -> dict[str, Tensor]:
        """Memory state recorded before a step: zeros where an episode begins."""
        return {"memory": request.memory.masked_fill(request.first.unsqueeze(1), 0.0)} if self.state_size else {}

    @property
    def final_epsilon(self) -> float:
        """Probability of a random action where the trained policy is played with some."""
        assert isinstance(self.config, DQNConfig)
        return self.config.exploration_final

    def epsilon(self, request: Request) -> float | Tensor:
        """Probability of a random action, the same in every lane: it falls with the run's steps."""
        c = self.config
        assert isinstance(c, DQNConfig)
        return linear_schedule(c.exploration, c.exploration_final, request.steps, c.exploration_steps)

    def begin(self, model: PolicyNetwork, learning: dict[str, Any] | None = None) -> None:
        """Make what only the learner has. See `ReplayAlgorithm.begin`."""
        super().begin(model, learning)
        c = self.config
        self._support = None
        if c.distributional == "c51":
            self._support = SupportWatch(c.v_min, c.v_max, self.remarks.append, rescaled=c.rescale_values)
        given = [
            f"{field.name}={getattr(c, field.name)!r}" for field in dataclasses.fields(c)
            if field.name.startswith("exploration") and getattr(c, field.name) != field.default
        ]  # fmt: skip
        if c.noisy and given:
            self.remarks.append(f"noisy=True: no action is drawn at random, and {', '.join(given)} has no effect")

    def update(self, model: QNetwork, batch: TransitionBatch | SequenceBatch) -> tuple[Tensor, Metrics]:
        """``L = mean w Huber(Q(o, a; theta) - y)`` over transitions, or over the steps of sequences.

        With distributions, the mean over transitions of ``w`` times the distance from the target's distribution.
        """
        c = self.config
        if isinstance(batch, SequenceBatch):
            priority, loss, q = self._evaluate_sequences(model, batch)
        elif c.distributional != "none":
            priority, loss, q = self._evaluate_distributions(model, batch)
        else:
            priority, loss, q = self._evaluate_transitions(model, batch)
        grad_norm = self.minimize("q", loss, max_grad_norm=c.max_grad_norm or torch.inf)

        if batch.number % c.target_period == 0:
            self.move_target(1.0)
        metrics = {"loss": loss, "q": q, "grad_norm": grad_norm}
        if self._support is not None:
            metrics["outside_support"] = self._support.last
        return priority.detach(), metrics

    def _evaluate_transitions(self, model: QNetwork, batch: TransitionBatch) -> tuple[Tensor, Tensor, Tensor]:
        """TD errors ``[B]``, loss and values ``[B]``, with ``y = r + discount * max_a Q(o', a; theta^-)``."""
        c = self.config
        with torch.no_grad():
            next_q = self.target.q(batch.next_obs, self._noise())
            next_value = (
                double_q_value(model.q(batch.next_obs, self._noise()), next_q) if c.double else max_q_value(next_q)
            )
            y = self._target(batch.reward, batch.discount, next_value)

        q = model.q(batch.obs, self._noise()).gather(1, batch.action.unsqueeze(1)).squeeze(1)
        td_error = q - y
        return td_error, (batch.weights * huber(td_error)).mean(), q

    def _evaluate_distributions(self, model: QNetwork, batch: TransitionBatch) -> tuple[Tensor, Tensor, Tensor]:
        """Priorities ``[B]``, loss and means ``[B, 1]`` of distributions of returns.

        The target is the distribution of ``r + discount * Z(o', a*; theta^-)``, where ``a*`` has the largest mean by
        the target network, or by the online network with ``double``.

            "c51"               L = mean w D_KL( Phi(target) || Z(o, a; theta) )         (arXiv:1710.02298)
            "quantile", "iqn"   L = mean w sum_i mean_j rho_i( y_j - Z_i(o, a; theta) )  (arXiv:1710.10044, eq. 10)

        Priorities are these distances, of "quantile" and "iqn" the mean over i.
        """
        c = self.config
        distribution = model.distribution
        with torch.no_grad():
            next_outputs, next_q = self.target.distributions(batch.next_obs, self._noise(), self._fractions(batch))
            chooser_q = model.q(batch.next_obs, self._noise()) if c.double else next_q
            of_next = _of_actions(next_outputs, chooser_q.argmax(1))

        fractions = self._fractions(batch)
        outputs, q = model.distributions(batch.obs, self._noise(), fractions)
        of_taken = _of_actions(outputs, batch.action)
        reward, discount = batch.reward.unsqueeze(1), batch.discount.unsqueeze(1)
        if isinstance(distribution, CategoricalReturns):
            with torch.no_grad():
                returns, probability = self._target(reward, discount, distribution.atoms), of_next.softmax(1)
                assert self._support is not None
                self._support.see((returns * probability).sum(1), batch.reward, batch.discount, batch.number)
                target = categorical_projection(returns, probability, distribution.atoms)
            priority = distance = categorical_kl(target, of_taken.log_softmax(1))
        else:
            if fractions is None:
                fractions = midpoints(c.num_quantiles, outputs.device)
            distance = quantile_huber(of_taken, fractions, self._target(reward, discount, of_next))
            priority = distance / c.num_quantiles
        q = q.gather(1, batch.action.unsqueeze(1))
        return priority, (batch.weights * distance).mean(), q

    def _target(self, reward: Tensor, discount: Tensor, next_value: Tensor) -> Tensor:
        """``y = r + discount * next_value``, rescaled if values are."""
        if not self.config.rescale_values:
            return td_target(reward, discount, next_value)
        return rescale(td_target(reward, discount, inverse_rescale(next_value)))

    def _noise(self) -> Tensor | None:
        """Noise of one pass of a network over a batch, the same for all of its rows; None where none is noisy.

        As published, every pass of an update has noise of its own: the online network's over the observations, its
        choice of the next actions, and the target network's.
        """
        return draw_noise(self.target.noise_size, self.generator) if self.config.noisy else None

    def _fractions(self, batch: TransitionBatch) -> Tensor | None:
        """Fractions at which a pass of "iqn" takes quantiles, uniform in [0, 1), float32 ``[B, N]``; else None."""
        c = self.config
        if c.distributional != "iqn":
            return None
        size = len(batch.reward), c.num_quantiles
        return torch.rand(size, generator=self.generator, device=self.generator.device)

    def _evaluate_sequences(self, model: QNetwork, batch: SequenceBatch) -> tuple[Tensor, Tensor, Tensor]:
        """Priorities ``[B]``, loss and mean value (R2D2, OpenReview r1lyTjAqYX, section 2.3).

            L   = mean_b w_b sum_t Huber(Q(o_t, a_t; theta) - y_t)
            y_t = sum_{k<m} gamma^k r_{t+k} + gamma^m max_a Q(o_{t+m}, a; theta^-)    with m = min(n, steps that follow)

        Both networks are unrolled from the stored state, through the burn-in without gradient.
        """
        c = self.config
        sequence = batch.obs, batch.first, batch.memory, c.burn_in
        all_q = model.unroll(*sequence, noise=self._noise())
        action, reward, discount, valid = (
            rows[c.burn_in :] for rows in (batch.action, batch.reward, batch.discount, batch.valid)
        )
        with torch.no_grad():
            target_q = self.target.unroll(*sequence, noise=self._noise())
            value = double_q_value(all_q, target_q) if c.double else max_q_value(target_q)
            if c.rescale_values:
                y = rescale(n_step_targets(reward, discount, inverse_rescale(value), valid, c.n_step))
            else:
                y = n_step_targets(reward, discount, value, valid, c.n_step)

        q = all_q[:-1].gather(2, action.unsqueeze(2)).squeeze(2)
        td_error = torch.where(valid, q - y, 0.0)
        loss = (batch.weights * huber(td_error).sum(0)).mean()
        priority = sequence_priority(td_error.detach(), valid, c.priority_eta)
        return priority, loss, torch.where(valid, q, 0.0).sum() / valid.sum()


def _of_actions(outputs: Tensor, action: Tensor) -> Tensor:
    """Select one action per row, ``[B, M]`` of ``[B, A, M]``."""
    return outputs[torch.arange(len(action), device=action.device), action]
