"""Base of deep Q-learning: a Q-network, its settings, and the loss of DQN."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from penstock.algorithms.arithmetic.optimizers import AdamW, TorchRMSProp, fused_adam
from penstock.algorithms.arithmetic.td import double_q_value, max_q_value, soft_q_value, td_target
from penstock.algorithms.bases.algorithm import Metrics, Request
from penstock.algorithms.bases.q_losses import (
    TD_LOSSES,
    UPDATES_BETWEEN_LOOKS,
    DistributionalLoss,
    QLoss,
    RewardWatch,
    SequenceLoss,
    SupportWatch,
    bonus_of,
    distribution_of,
)
from penstock.algorithms.bases.replay import ReplayAlgorithm
from penstock.config import (
    NETWORK,
    STATE,
    STORED,
    Config,
    ConfigError,
    PrioritizedReplayConfig,
    Scheduled,
    Tunable,
    require,
)
from penstock.envs.spaces import ActionKind, ActionSpec, ObservationSpec
from penstock.experience.layout import Column
from penstock.nn import PolicyNetwork, QNetwork, ResNetShape
from penstock.nn.memory import state_size_of
from penstock.nn.noisy import draw_noise


@dataclass(frozen=True, kw_only=True)
class QLearningConfig(PrioritizedReplayConfig):
    """Settings of deep Q-learning. Default sizes and rates suit classic control; presets have the papers' for Atari.

    With memory, a row of the replay buffer is a sequence of successive steps of one episode: ``burn_in`` steps, then
    ``sequence_length`` steps to learn from. A batch has ``batch_size`` sequences. ``buffer_size`` and
    ``updates_per_step`` still count steps; an episode shorter than a sequence occupies a whole row.
    """

    fixed: ClassVar[Mapping[str, str]] = {
        "memory": NETWORK, "memory_size": NETWORK, "memory_span": NETWORK,
        "sequence_length": STORED, "burn_in": STORED, "sequence_overlap": STORED,
        "dueling": NETWORK, "distributional": NETWORK, "num_atoms": NETWORK, "v_min": NETWORK, "v_max": NETWORK,
        "num_quantiles": NETWORK, "noisy": NETWORK, "noisy_sigma": NETWORK, "rescale_values": NETWORK,
        "normalize_returns": NETWORK,
        "num_acting_quantiles": NETWORK, "resnet_width": NETWORK, "resnet_pool": NETWORK, "spectral_norm": NETWORK,
        "optimizer": STATE,
    }  # fmt: skip

    memory: Literal["none", "gru", "lstm"] = "none"
    """Memory core after the encoder; with one, sequences are replayed instead of transitions, as in R2D2."""
    memory_size: int = 128
    """Width of the memory core."""
    memory_span: int | None = None
    """Steps over which an untrained memory core remembers (chrono initialisation, arXiv:1804.11188); None: default
    initialisation."""
    sequence_length: int = 20
    """Learned steps per sequence; without memory, the settings of sequences have no effect."""
    burn_in: int = 10
    """Steps before the learned ones that only warm up the stored memory state: no loss, no gradient."""
    sequence_overlap: int = 10
    """Learned steps shared by successive sequences of an episode."""
    priority_eta: float = 0.9
    """Weight of the largest error in a sequence's priority; the mean error has the rest."""

    hidden_sizes: tuple[int, ...] = (128, 128)
    batch_size: int = 64
    """Transitions per update, drawn from the replay buffer; with memory, sequences."""
    buffer_size: int = 100_000
    updates_per_step: float = 0.5
    """Updates per step (published: one per four steps)."""
    learning_rate: Scheduled = 2e-3
    optimizer: Literal["adam", "adamw", "rmsprop"] = "adam"
    """"rmsprop": centred, decay 0.95, as published; "adam": as in most current implementations; "adamw": with decoupled
    weight decay (arXiv:1711.05101)."""
    weight_decay: Tunable[float] = 1e-4
    """Weight decay of "adamw" alone: each update multiplies weights by 1 - learning_rate * weight_decay."""
    optimizer_eps: Tunable[float] = 1e-8
    """Constant that the optimiser adds to the root of the mean square."""
    max_grad_norm: Tunable[float | None] = 10.0
    """Global norm to which gradients are clipped (arXiv:1511.06581); None: no clipping."""

    double: bool = False
    """Double DQN (arXiv:1509.06461): the online network selects the action, the target network evaluates it."""
    dueling: bool = False
    """Dueling network (arXiv:1511.06581): separate streams for value and advantages."""
    td_loss: Literal["squared", "huber"] = "squared"
    """Loss of a TD error if distributional="none": "squared", half its square (arXiv:1803.00933); "huber", linear
    beyond 1, which bounds the weight of rare large errors (doi:10.1038/nature14236)."""
    target_period: int = 100
    """Updates between copies of the network to the target network."""
    munchausen: bool = False
    """Munchausen reinforcement learning (M-DQN, arXiv:2007.14430): add the scaled logarithm of the target network's
    soft policy to the reward, and bootstrap from that policy's value with its entropy."""
    munchausen_alpha: float = 0.9
    """Weight of the logarithm added to the reward (arXiv:2007.14430, section 4)."""
    munchausen_temperature: float = 0.03
    """Temperature tau of the soft policy, in units of returns (arXiv:2007.14430, section 4)."""
    munchausen_floor: float = -1.0
    """Lower bound of tau log pi (arXiv:2007.14430, section 4: l_0)."""
    rescale_values: bool = False
    """Learn values of rescaled returns, h(x) = sign(x) (sqrt(|x| + 1) - 1) + x / 1000 (arXiv:1805.11593)."""

    normalize_returns: bool = False
    """Running normalisation of value targets (PopArt, arXiv:1602.07714); its statistics are part of the weights. No
    effect with "c51", whose returns are fixed by v_min and v_max."""

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
    num_acting_quantiles: int = 32
    """Number of fractions, the midpoints of equal parts, whose quantiles "iqn" averages to choose an action
    (arXiv:1806.06923, section 3.1: K)."""
    resnet_width: int = 1
    """Multiple of the published channels and units of encoder="impala_resnet" (BTR, arXiv:2411.03820: 2)."""
    resnet_pool: int | None = None
    """Side to which encoder="impala_resnet" reduces its last maps, by adaptive max pooling (BTR, arXiv:2411.03820: 6);
    None: no pooling."""
    spectral_norm: bool = False
    """Divide the residual convolutions of encoder="impala_resnet" by their largest singular value (arXiv:1802.05957, as
    in BTR, arXiv:2411.03820)."""
    noisy: bool = False
    """NoisyNets (arXiv:1706.10295): noise on the head's weights replaces random actions; exploration is ignored."""
    noisy_sigma: float = 0.5
    """Initial scale of the noise on weights, sigma_0 (arXiv:1706.10295, section 3.2)."""
    noisy_epsilon: bool = False
    """With noisy, take random actions, too, as often as without it (BTR, arXiv:2411.03820)."""

    def validate(self) -> None:
        super().validate()
        length, span = self.sequence_length, self.memory_span
        require(span is None or span > 1, "memory_span", span, "2 or more, or None")
        for name in ("memory_size", "sequence_length"):
            require(getattr(self, name) > 0, name, getattr(self, name), "1 or more")
        require(0.0 <= self.priority_eta <= 1.0, "priority_eta", self.priority_eta, "from 0 to 1")
        is_within = 0 <= self.burn_in <= length
        require(is_within, "burn_in", self.burn_in, f"0 or more, and at most sequence_length={length}")
        overlap = self.sequence_overlap
        is_less = 0 <= overlap < length
        require(is_less, "sequence_overlap", overlap, f"0 or more, and less than sequence_length={length}")
        if self.memory != "none" and self.buffer_size < self.num_lanes * length:
            raise ConfigError(
                f"buffer_size={self.buffer_size} is too small for {self.lanes_in_words} of "
                f"sequence_length={length}: use at least {self.num_lanes * length}"
            )
        require(0.0 < self.optimizer_eps < math.inf, "optimizer_eps", self.optimizer_eps, "more than 0, and finite")
        require(self.target_period > 0, "target_period", self.target_period, "1 or more")
        decay = self.weight_decay
        require(0.0 <= decay < math.inf, "weight_decay", decay, "0 or more, and finite")
        norm = self.max_grad_norm
        require(norm is None or norm > 0, "max_grad_norm", norm, "more than 0, or None")
        require(self.num_atoms > 1, "num_atoms", self.num_atoms, "2 or more")
        for name in ("num_quantiles", "num_acting_quantiles", "resnet_width"):
            require(getattr(self, name) > 0, name, getattr(self, name), "1 or more")
        pool = self.resnet_pool
        require(pool is None or pool > 0, "resnet_pool", pool, "1 or more, or None")
        sigma = self.noisy_sigma
        require(0.0 < sigma < math.inf, "noisy_sigma", sigma, "more than 0, and finite; noisy=False is without noise")
        for name in ("v_min", "v_max"):
            require(math.isfinite(getattr(self, name)), name, getattr(self, name), "finite")
        require(self.v_min < self.v_max, "v_min", self.v_min, f"less than v_max={self.v_max}")
        self._validate_munchausen()
        if self.distributional != "none" and self.memory != "none":
            raise ConfigError(
                f"distributional={self.distributional!r} cannot be combined with memory={self.memory!r}: distributions "
                'are learned from single transitions, but a memory needs sequences; use memory="none" or '
                'distributional="none"'
            )

    def _validate_munchausen(self) -> None:
        alpha, temperature, floor = self.munchausen_alpha, self.munchausen_temperature, self.munchausen_floor
        require(0.0 <= alpha <= 1.0, "munchausen_alpha", alpha, "from 0 to 1")
        is_warm = 0.0 < temperature < math.inf
        require(is_warm, "munchausen_temperature", temperature, "more than 0, and finite")
        require(-math.inf < floor < 0.0, "munchausen_floor", floor, "less than 0, and finite")
        if not self.munchausen:
            return
        if self.double:
            raise ConfigError(
                "double=True cannot be combined with munchausen=True: the target is a mean over all next actions, none "
                "of which is selected; use double=False"
            )
        if self.rescale_values:
            raise ConfigError(
                "rescale_values=True cannot be combined with munchausen=True: munchausen_temperature is in units of "
                "returns, and rescaled values have no constant unit; use rescale_values=False"
            )

    def _require_hindsight(self) -> None:
        super()._require_hindsight()
        if self.memory != "none":
            raise ConfigError(
                f"memory={self.memory!r} is not possible with hindsight={self.hindsight!r}: with memory, sequences are "
                "replayed, but hindsight gives the steps of a sequence different goals; use "
                'memory="none" (R2D2 without memory is "dqn")'
            )

    def final_rewards(self) -> str | None:
        if self.memory == "none" or self.hindsight is not None:
            return super().final_rewards()
        return (
            f"memory={self.memory!r}: with memory, sequences are replayed, and written before their episode is over; "
            'use memory="none" (R2D2 without memory is "dqn")'
        )

    @property
    def explores_by_noise(self) -> bool:
        """Whether noisy layers are the only exploration: no action is drawn at random."""
        return self.noisy and not self.noisy_epsilon

    @property
    def steps_of_a_row(self) -> int:
        """Largest number of steps that a lane needs to finish a row of the replay buffer."""
        return super().steps_of_a_row if self.memory == "none" else self.sequence_length + 1

    @property
    def sequence_period(self) -> int:
        """Steps from the beginning of a sequence to that of the next one in its episode."""
        return self.sequence_length - self.sequence_overlap


class QLearning(ReplayAlgorithm):
    """Q-learning with a deep network, from replay, with a target network; a subclass defines the exploration.

    The loss is DQN's for transitions, `SequenceLoss` with ``memory``, or `DistributionalLoss` with ``distributional``.

    Attributes
    ----------
    state_size
        Width ``S`` of a lane's memory state; 0 without memory.
    """

    Config: ClassVar[type[Config]] = QLearningConfig
    config: Any  # a QLearningConfig
    actions: ClassVar[tuple[ActionKind, ...]] = ("discrete",)
    _other_loss: QLoss | None = None
    _rewards: RewardWatch | None = None
    _support: SupportWatch | None = None
    _targets: tuple[Tensor, ...] = ()  # of the last batch, like `QLoss.targets`; a subclass's loss may leave it empty

    def __init__(self, config: Any, observation: ObservationSpec, action: ActionSpec) -> None:
        super().__init__(config, observation, action)
        self.state_size = state_size_of(config.memory, config.memory_size)

    @classmethod
    def data_path_of(cls, config: Any) -> str | type:
        """Return "sequences" with memory, else as `ReplayAlgorithm`."""
        is_recurrent = config.memory != "none" and cls.data_path == "replay"
        return "sequences" if is_recurrent else super().data_path_of(config)

    def build_model(self) -> QNetwork:
        c = self.config
        settings = {name: getattr(c, name) for name in ("memory", "memory_size", "memory_span")}
        settings["normalize_returns"] = c.normalize_returns and c.distributional != "c51"
        settings["resnet"] = ResNetShape(c.resnet_width, c.resnet_pool, c.spectral_norm)
        return self.build_network(
            QNetwork, settings, dueling=c.dueling, epsilon=0.0 if c.explores_by_noise else self.final_epsilon,
            distribution=distribution_of(c), noisy_sigma=c.noisy_sigma if c.noisy else None,
        )  # fmt: skip

    def trained_parameters(self, model: Any) -> dict[str, tuple[list[nn.Parameter], Scheduled]]:
        return {"q": (list(model.parameters()), self.config.learning_rate)}

    def build_optimizer(self, parameter: nn.Parameter, learning_rate: float) -> torch.optim.Optimizer:
        """Adam, AdamW or centred RMSProp."""
        c = self.config
        match c.optimizer:
            case "adam":
                return fused_adam([parameter], learning_rate, eps=c.optimizer_eps)
            case "adamw":
                decay = c.weight_decay
                return AdamW([parameter], learning_rate, eps=c.optimizer_eps, weight_decay=decay, fused=True)
        return TorchRMSProp([parameter], learning_rate, alpha=0.95, eps=c.optimizer_eps, centered=True)

    def epsilon(self, request: Request) -> float | Tensor:
        """Probability of a random action: one number, or one for each lane."""
        raise NotImplementedError

    @property
    def final_epsilon(self) -> float:
        """Probability of a random action when the trained policy is played with exploration."""
        raise NotImplementedError

    def record_columns(self) -> tuple[Column, ...]:
        """Return, with memory, a column for the state before each step, from which sequences are unrolled."""
        return (Column("memory", (self.state_size,), "float32"),) if self.state_size else ()

    def act(self, model: QNetwork, request: Request) -> tuple[dict[str, Tensor], Tensor]:
        """Choose the best action, or with probability epsilon a random one; noisy networks add noise to weights."""
        epsilon = 0.0 if self.config.explores_by_noise else self.epsilon(request)
        policy, memory = model.act(request.obs, request.first, request.memory, epsilon)
        return {"action": policy.sample(request.noise)} | self.memory_before(request), memory

    def memory_before(self, request: Request) -> dict[str, Tensor]:
        """Memory state recorded before a step: zeros where an episode begins."""
        return {"memory": request.memory.masked_fill(request.first.unsqueeze(1), 0.0)} if self.state_size else {}

    def begin(self, model: PolicyNetwork, learning: dict[str, Any] | None = None) -> None:
        super().begin(model, learning)
        self.target.return_moments = model.return_moments  # one normalisation of returns for both
        c = self.config
        given = [
            f"{field.name}={getattr(c, field.name)!r}" for field in dataclasses.fields(c)
            if field.name.startswith("exploration") and getattr(c, field.name) != field.default
        ]  # fmt: skip
        if c.explores_by_noise and given:
            self.remarks.append(f"noisy=True: no action is drawn at random, and {', '.join(given)} has no effect")
        if self._model.return_moments is None:
            self._rewards = RewardWatch(self.remarks.append, can_normalize=c.distributional != "c51")
        if c.memory != "none":
            self._other_loss = SequenceLoss(c, self.target, self.draw_noise)
        elif c.distributional != "none":
            self._other_loss = DistributionalLoss(c, self.target, self.draw_noise, self.generator)
            if c.distributional == "c51":
                self._support = SupportWatch(c.v_min, c.v_max, self.remarks.append, rescaled=c.rescale_values)

    @property
    def max_grad_norm(self) -> float:
        norm: float | None = self.config.max_grad_norm
        return norm or math.inf

    def after_update(self, model: QNetwork, batch: Any, metrics: Metrics) -> None:
        """Check the size of rewards, and C51's support, for a remark to the user."""
        if self._rewards is not None and batch.number % UPDATES_BETWEEN_LOOKS == 0:
            self._rewards.see(batch.reward)
        if self._support is not None:
            self._support.see(metrics["outside_support"], batch.reward, batch.discount, batch.number)

    def maybe_update_target(self, number: int) -> None:
        """Copy the network to the target network every ``target_period`` updates; then update the normalisation."""
        if self.update_kind(number):
            self.update_target(1.0)
        targets = self._targets if self._other_loss is None else self._other_loss.targets
        if targets and self.target.return_moments is not None:  # the same moments as the network's
            if self.nonfinite is not None:  # targets of a non-finite update do not count
                target, counted = (*targets, torch.ones_like(targets[0]))[:2]
                targets = target, (1.0 - self.nonfinite) * counted
            self.change(partial(self.target.update_return_statistics, *targets, copies=(self._model,)), targets)

    def update_kind(self, number: int) -> bool:
        """Return whether the update moves the target network."""
        return number % self.config.target_period == 0

    def evaluate(self, model: QNetwork, batch: Any) -> tuple[Tensor, Tensor, Metrics]:
        """Return TD errors or priorities ``[B]``, loss and metrics of a batch, among these its values "q".

            L = mean w l((Q(o, a; theta) - y) / s)    with y = r + discount * max_b Q(o', b; theta^-)

        ``l`` is half the square, or Huber's loss with ``td_loss="huber"``; ``s`` is the deviation of returns with
        ``normalize_returns``, else 1. With ``double`` the online network selects ``b``. With ``munchausen``, for the
        soft policy of the target network ``pi = softmax(Q(.; theta^-) / tau)``,

            y = r + alpha clip(tau log pi(a|o), l_0, 0)
                  + discount * sum_b pi(b|o') (Q(o', b; theta^-) - tau log pi(b|o'))

        Of a transition's ``n_step`` steps, replay keeps only the first observation and action. Only that step has a
        Munchausen term, as in the code published with BTR. With memory, every step of the sequence has one.
        """
        if self._other_loss is not None:
            return self._other_loss(model, batch)
        with torch.no_grad(), self.evaluating:
            next_q = self.target.q(batch.next_obs, self.draw_noise())
            reward, c = batch.reward, self.config
            if c.munchausen:
                next_value = soft_q_value(next_q, c.munchausen_temperature)
                reward = reward + bonus_of(c, self.target.q(batch.obs, self.draw_noise()), batch.action)
            elif c.double:
                next_value = double_q_value(model.q(batch.next_obs, self.draw_noise()), next_q)
            else:
                next_value = max_q_value(next_q)
            y = td_target(reward, batch.discount, next_value, rescaled=c.rescale_values)

        q = model.q(batch.obs, self.draw_noise()).gather(1, batch.action.unsqueeze(1)).squeeze(1)
        td_error = q - y
        self._targets = (y,)
        loss = TD_LOSSES[c.td_loss](model.normalize_difference(td_error))
        return td_error, (batch.weights * loss).mean(), {"q": q}

    def draw_noise(self) -> Tensor | None:
        """Draw the noise of one pass of a network over a batch, shared by its rows; None without noisy layers.

        As published, every pass of an update has its own noise: the online network's pass over the observations, its
        choice of the next actions, and the target network's pass.
        """
        return draw_noise(self.target.noise_size, self.generator) if self.config.noisy else None
