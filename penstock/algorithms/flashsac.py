"""FlashSAC: SAC with normalised residual networks and critics of distributions (Kim et al. 2026, arXiv:2604.04539)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from penstock.algorithms.arithmetic.td import linear_schedule
from penstock.algorithms.sac import SAC, SACConfig
from penstock.config import Config, Scheduled, Tunable, require


@dataclass(frozen=True, kw_only=True)
class FlashSACConfig(SACConfig):
    """FlashSAC: weights, features, gradients and rewards are kept at fixed norms, so that large steps stay stable.

    Default widths and batch suit a few cores; the preset "mujoco" has the paper's, for a GPU.
    """

    hidden_sizes: tuple[int, ...] = (64, 64)
    """Widths of the policy's residual blocks (published: two of 128)."""
    critic_hidden_sizes: tuple[int, ...] | None = (128, 128)
    """Widths of the critics' residual blocks (published: two of 256); None: hidden_sizes."""
    network: Literal["mlp", "residual"] = "residual"
    normalization: Literal["batch", "layer", "rms"] | None = "batch"
    unit_weights: bool = True
    distributional: Literal["none", "c51", "hl_gauss"] = "c51"
    num_atoms: int = 101
    v_min: float = -5.0
    v_max: float = 5.0
    batch_size: int = 256
    """Transitions per update (published: 2,048)."""
    learning_rate: Scheduled = 3e-4
    learning_rate_decay: Tunable[float] = 0.5
    """Factor to which all step sizes fall linearly until total_steps, on top of learning_rate_schedule; 1: no decay."""
    policy_delay: int = 2
    tau: Tunable[float] = 0.01
    initial_alpha: float = 0.01
    target_std: Tunable[float | None] = 0.15
    noise_hold: int = 16
    return_bound: float | None = 5.0

    def validate(self) -> None:
        super().validate()
        decay = self.learning_rate_decay
        require(0.0 < decay <= 1.0, "learning_rate_decay", decay, "more than 0, at most 1")


class FlashSAC(SAC):
    """SAC whose critics give distributions of returns, with networks, targets and rewards at fixed scales.

        L_Z = sum_i mean w KL(m || Z_i(o, a))
        m   = projection of r / s + disc (z - alpha log pi(a'|o')) onto the atoms z, with the probabilities of
              Z_j(o', a'; theta^-), where j is the target critic with the smaller mean

    **Networks.** Policy and critics normalise their inputs by the batch, and have residual blocks of layers with unit
    weights and batch normalisation. The critics evaluate both ends of a transition in one batch, as in CrossQ; targets
    come from moving averages of the critics, which normalise by the batch, too.

    **Rewards** are divided by ``s``, the scale of the running discounted return, so that the returns fit the atoms.

    **Exploration.** A lane keeps its noise for several steps, and the temperature keeps the entropy at that of a normal
    distribution with the standard deviation `target_std`.
    """

    Config: ClassVar[type[Config]] = FlashSACConfig
    config: FlashSACConfig
    repeatable_updates = True

    def learning_rate(self, base: Scheduled, progress: float) -> float:
        decay = linear_schedule(1.0, self.config.learning_rate_decay, progress, 1.0)
        return decay * super().learning_rate(base, progress)
