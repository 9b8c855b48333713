"""BTR, Beyond the Rainbow: Rainbow with implicit quantiles, Munchausen rewards and many lanes (arXiv:2411.03820)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from penstock.algorithms.bases.algorithm import Request
from penstock.algorithms.dqn import DQN, DQNConfig
from penstock.config import Config, Scheduled, require


@dataclass(frozen=True, kw_only=True)
class BTRConfig(DQNConfig):
    """BTR. Default sizes and rates suit classic control; the preset "atari" has the paper's."""

    batch_size: int = 64
    num_envs_per_worker: int = 8
    updates_per_step: float = 0.25
    """Updates per step (published: one per step of all lanes, 1/64)."""
    munchausen: bool = True
    dueling: bool = True
    prioritized: bool = True
    priority_alpha: float = 0.2
    """Exponent of the priorities: 0, uniform; 1, proportional (arXiv:2411.03820)."""
    n_step: int = 3
    """Length n of n-step returns, shorter at the end of an episode (arXiv:2411.03820)."""
    distributional: Literal["none", "c51", "quantile", "iqn"] = "iqn"
    num_quantiles: int = 8
    """Number of fractions that "iqn" samples for a value and for its target (arXiv:2411.03820)."""
    num_acting_quantiles: int = 8
    """Number of fractions, the midpoints of equal parts, whose quantiles are averaged to choose an action."""
    noisy: bool = True
    noisy_epsilon: bool = True
    exploration_final: float = 0.01
    """Probability of a random action after exploration_steps (arXiv:2411.03820)."""
    exploration_share: float = 0.5
    """Share of total_steps after which noisy layers alone explore (arXiv:2411.03820: half of the frames)."""
    normalize_returns: bool = False
    max_grad_norm: float | None = 10.0
    learning_rate: Scheduled = 1e-3
    learning_rate_schedule: Literal["constant", "linear"] = "constant"

    def validate(self) -> None:
        super().validate()
        share = self.exploration_share
        require(0.0 <= share <= 1.0, "exploration_share", share, "from 0 to 1")


class BTR(DQN):
    """DQN with dueling streams, priorities, n-step returns, noisy layers, implicit quantiles and Munchausen rewards.

    **The network** is Rainbow's, with quantiles at sampled fractions ``tau`` in place of probabilities. For images the
    paper has IMPALA's residual network, twice as wide, with spectrally normalised residual convolutions and a last
    adaptive max pooling: ``encoder="impala_resnet"`` with ``resnet_width``, ``spectral_norm`` and ``resnet_pool``.

    **Learning** moves the quantiles of the action taken towards those of the soft policy of the target network,
    ``pi = softmax(Q(.; theta^-) / tau_pi)`` with ``Q`` the mean over N' sampled quantiles:

        L    = w sum_{i<=N} mean_{j<=N'} rho_i( y_j - Z_i(o, a; theta) )
        y_j  = R + alpha clip(tau_pi log pi(a|o), l_0, 0)
                 + gamma^n sum_b pi(b|o') ( Z_j(o', b; theta^-) - tau_pi log pi(b|o') )

    ``R`` is the sum of n discounted rewards. The transition's priority is its loss, with the mean over ``i``. The
    target takes no maximum over actions, so there is no double Q-learning.

    **Acting** takes the action with the largest mean, under noise on the weights, separate for every lane and step; in
    the first half of the run also random actions, with a probability that falls linearly like DQN's.

    **Throughput** comes from many lanes, which share one pass of the network at each step, and from one large batch per
    step of all lanes.

    The parts are settings of `DQN`, so that each can be left out, as in the paper's ablations.
    """

    Config: ClassVar[type[Config]] = BTRConfig
    config: BTRConfig
    repeatable_updates = True

    @property
    def final_epsilon(self) -> float:
        return 0.0 if self.config.exploration_share < 1.0 else super().final_epsilon

    def epsilon(self, request: Request) -> float:
        """Probability of a random action: DQN's, and 0 after `exploration_share` of the run."""
        c = self.config
        return super().epsilon(request) if request.steps < c.exploration_share * c.total_steps else 0.0
