"""R2D2: recurrent replay distributed DQN (Kapturowski et al. 2019, OpenReview r1lyTjAqYX)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from penstock.algorithms.apex import ApeX, ApeXConfig
from penstock.config import Config, Scheduled, require


@dataclass(frozen=True, kw_only=True)
class R2D2Config(ApeXConfig):
    """R2D2: Ape-X with memory. Default sizes and rates suit classic control; the preset "atari" has the paper's.

    A batch has ``batch_size`` sequences. ``buffer_size`` and ``updates_per_step`` count steps.
    """

    hidden_sizes: tuple[int, ...] = (64,)
    memory: Literal["none", "gru", "lstm"] = "lstm"
    """Memory core after the encoder."""
    memory_size: int = 64
    sequence_length: int = 20
    """Learned steps per sequence (section 2.3: 80)."""
    burn_in: int = 10
    """Steps before the learned ones that only warm up the stored memory state: no loss, no gradient (section 3: 40)."""
    sequence_overlap: int = 10
    """Learned steps shared by successive sequences of an episode (section 2.3: 40)."""

    batch_size: int = 32
    """Sequences per update, drawn from the replay buffer."""
    updates_per_step: float = 0.1
    """Updates per step; each learns from batch_size * sequence_length steps."""
    learning_rate: Scheduled = 1e-3
    learning_rate_schedule: Literal["constant", "linear"] = "linear"
    optimizer_eps: float = 1e-3
    max_grad_norm: float | None = 40.0
    """Global norm to which gradients are clipped; None: no clipping."""
    n_step: int = 5
    """Length n of n-step returns, shorter at the end of a sequence or an episode (section 2.3)."""
    gamma: float = 0.99
    """Discount per step (section 2.3: 0.997)."""
    rescale_values: bool = True
    """Learn values of rescaled returns, h(x) = sign(x) (sqrt(|x| + 1) - 1) + x / 1000 (section 2.3)."""
    priority_alpha: float = 0.9
    """Exponent of the priorities: 0, uniform; 1, proportional (section 2.3)."""
    priority_beta: float = 0.6
    """Exponent of the importance weights at the start (section 2.3)."""
    priority_beta_final: float = 0.6

    def validate(self) -> None:
        require(self.memory != "none", "memory", self.memory, '"gru" or "lstm": R2D2 without memory is "apex"')
        super().validate()


class R2D2(ApeX):
    """Ape-X with a memory in the network, which replays sequences.

    **Acting** (section 2.3) is Ape-X's, with a memory state in every lane. Each step is stored with the state before.

    **Sequences** are ``burn_in`` steps, then ``sequence_length`` steps to learn from. Successive ones share
    ``sequence_overlap`` steps, and none crosses the end of an episode.

    **Learning** (section 3) unrolls the network and its target from the stored state. The burn-in lets both states
    recover from having been computed by older weights; no gradient goes through it. The targets of the other steps:

        y_t      = h( sum_{k<n} gamma^k r_{t+k} + gamma^n h^-1( Q(o_{t+n}, a*; theta^-) ) )
        a*       = argmax_a Q(o_{t+n}, a; theta)
        h(x)     = sign(x) (sqrt(|x| + 1) - 1) + epsilon x,  epsilon = 1e-3

    **Priorities** of sequences are ``eta max_t |delta_t| + (1 - eta) mean_t |delta_t|``. Rollout workers compute the
    first ones by the same formula, from the values of the acting network.

    The loss is `SequenceLoss`, which ``memory`` switches on; R2D2 itself consists of settings. One difference from the
    paper: the network does not receive the last action and reward.
    """

    Config: ClassVar[type[Config]] = R2D2Config
    config: R2D2Config
    repeatable_updates = True
    data_path = "sequences"
