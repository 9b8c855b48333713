"""Rainbow: six extensions of DQN in one agent (Hessel et al. 2018, arXiv:1710.02298)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from penstock.algorithms.dqn import DQN, DQNConfig
from penstock.config import Config, Scheduled


@dataclass(frozen=True, kw_only=True)
class RainbowConfig(DQNConfig):
    """Rainbow. Sizes and rates are for classic control; those of the paper, for Atari, are the preset "atari"."""

    double: bool = True
    """Double DQN (arXiv:1509.06461): the online network chooses the action that the target network values."""
    dueling: bool = True
    """Dueling network (arXiv:1511.06581): a value and advantages, for every atom."""
    prioritized: bool = True
    """Prioritized replay (arXiv:1511.05952), by the KL divergence that is the loss."""
    n_step: int = 3
    """Steps of reward in a transition, fewer at the end of an episode (table 1)."""
    distributional: Literal["none", "c51", "quantile", "iqn"] = "c51"
    """What is learned of returns beside their mean: "c51", probabilities of fixed returns (arXiv:1707.06887);
    "quantile", quantiles, QR-DQN (arXiv:1710.10044); "iqn", quantiles at drawn fractions (arXiv:1806.06923)."""
    noisy: bool = True
    """NoisyNets (arXiv:1706.10295): noise on the head's weights explores; then no action is drawn at random, whatever
    exploration says."""

    learning_rate: Scheduled = 1e-3
    """Step size of the optimiser, or a function of progress: "module:name", "file.py:name", in Python itself."""
    priority_alpha: float = 0.5
    """Exponent of the priorities: 0 uniform, 1 in proportion (table 1)."""


class Rainbow(DQN):
    """DQN with double Q-learning, dueling streams, priorities, n-step returns, C51 and noisy layers.

    **The network** has dueling streams of noisy layers behind the encoder. Of each action's return it gives
    the probabilities of ``num_atoms`` fixed returns between ``v_min`` and ``v_max``:

        p_i(o, a) = softmax_i( v_i(o) + adv_i(o, a) - mean_b adv_i(o, b) )

    **Learning** moves these towards the projected distribution of n-step targets:

        L   = w D_KL( Phi( R + gamma^n z, p(o', a*; theta^-) ) || p(o, a; theta) )
        a*  = argmax_a sum_i z_i p_i(o', a; theta)

    and the divergence is the transition's priority.

    **Acting** takes the action of the largest mean, with noise on the weights; every lane has its own in every step.

    All of it is in `DQN`, as switches; what is Rainbow's is the settings. So each part can be left out, as in the
    paper's ablations.
    """

    Config: ClassVar[type[Config]] = RainbowConfig
    config: RainbowConfig
