"""XQC: SAC with batch normalisation, unit weights and distributions (Palenicek et al. 2025, arXiv:2509.25174)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from penstock.algorithms.sac import SAC, SACConfig
from penstock.config import Config


@dataclass(frozen=True, kw_only=True)
class XQCConfig(SACConfig):
    """XQC: layers, loss and rewards that keep the critics' optimisation well conditioned.

    Networks are small, for runs on few cores; sizes near the paper's are in the preset "mujoco".
    """

    learning_rate_schedule: Literal["constant", "linear"] = "linear"
    critic_hidden_sizes: tuple[int, ...] | None = (256, 256)
    normalization: Literal["batch", "layer", "rms"] | None = "batch"
    """Normalisation of each hidden layer before its activation; "batch" also normalises the input."""
    unit_weights: bool = True
    """Keep the weights of each hidden unit at norm 1, and scale and shift of each normalisation at the norm
    sqrt(units), after every update."""
    distributional: Literal["none", "c51", "hl_gauss"] = "c51"
    """Critics that give distributions of returns, as for SAC; "none": critics give values."""
    num_atoms: int = 101
    v_min: float = -5.0
    v_max: float = 5.0
    return_bound: float | None = 5.0
    """Divide rewards by the standard deviation of the running discounted return, or by more, so that no such return or
    reward exceeds this bound, the largest atom; None: no scaling."""
    policy_delay: int = 3
    """Critic updates per update of policy and temperature, as in CrossQ."""
    initial_alpha: float = 0.01
    """Initial value of a learned temperature; small, because scaled rewards are small."""


class XQC(SAC):
    """SAC whose critics classify returns, with normalised layers.

        L_Z = sum_i mean w KL(m || Z_i(o, a))
        m   = projection of r / s + disc (z - alpha log pi(a'|o')) onto the atoms z, with the probabilities of
              Z_j(o', a'; theta^-), where j is the target critic with the smaller mean

    **Layers.** A layer is normalised by the batch before its activation. The weights of each unit are projected to norm
    1 after every step of the optimiser: their size has no effect on a normalised output, but larger weights would
    change less by the same step.

    **Loss.** Cross-entropy has a bounded gradient. Rewards are divided by ``s``, the scale of the running discounted
    return, so that returns fit the atoms.

    **Batches.** Each critic evaluates both ends of a transition in one batch, as in CrossQ.
    """

    Config: ClassVar[type[Config]] = XQCConfig
    config: XQCConfig
    repeatable_updates = True
