"""Rainbow: six extensions of DQN in one agent (Hessel et al. 2018, arXiv:1710.02298)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from penstock.algorithms.dqn import DQN, DQNConfig
from penstock.config import Config, Scheduled


@dataclass(frozen=True, kw_only=True)
class RainbowConfig(DQNConfig):
    """Rainbow. Default sizes and rates suit classic control; the preset "atari" has the paper's."""

    batch_size: int = 64
    double: bool = True
    dueling: bool = True
    """Dueling network (arXiv:1511.06581): separate streams for value and advantages of every atom."""
    prioritized: bool = True
    """Prioritized replay (arXiv:1511.05952); priorities are the loss, a KL divergence."""
    n_step: int = 3
    """Length n of n-step returns, shorter at the end of an episode (table 1)."""
    distributional: Literal["none", "c51", "quantile", "iqn"] = "c51"
    noisy: bool = True

    normalize_returns: bool = False
    max_grad_norm: float | None = 10.0
    learning_rate: Scheduled = 1e-3
    learning_rate_schedule: Literal["constant", "linear"] = "constant"
    priority_alpha: float = 0.5
    """Exponent of the priorities: 0, uniform; 1, proportional (table 1)."""


class Rainbow(DQN):
    """DQN with double Q-learning, dueling streams, priorities, n-step returns, C51 and noisy layers.

    **The network** has dueling streams of noisy layers after the encoder. For each action it predicts the
    probabilities of ``num_atoms`` fixed returns between ``v_min`` and ``v_max``:

        p_i(o, a) = softmax_i( v_i(o) + adv_i(o, a) - mean_b adv_i(o, b) )

    **Learning** moves these towards the projected distribution of n-step targets:

        L   = w D_KL( Phi( R + gamma^n z, p(o', a*; theta^-) ) || p(o, a; theta) )
        a*  = argmax_a sum_i z_i p_i(o', a; theta)

    and the divergence is the transition's priority.

    **Acting** takes the action with the largest mean, under noise on the weights, separate for every lane and step.

    The parts are settings of `DQN`, so that each can be left out, as in the paper's ablations.
    """

    Config: ClassVar[type[Config]] = RainbowConfig
    config: RainbowConfig
    repeatable_updates = True
