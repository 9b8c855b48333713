"""Return distributions of a Q-network: probabilities of fixed returns, or quantiles.

Each converts the head's numbers for an action into the mean return, by which actions are chosen.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import relu

NUM_COSINES = 64


class ReturnDistribution(nn.Module):
    """Distribution of the return after an action.

    Attributes
    ----------
    num_outputs : int
        Outputs of the head per action and row of features.
    """

    num_outputs: int

    def mean(self, outputs: Tensor) -> Tensor:
        """Return mean returns ``[...]`` of each action's numbers ``[..., M]``."""
        raise NotImplementedError


class CategoricalReturns(ReturnDistribution):
    """Logits of returns spaced evenly between two bounds (C51, arXiv:1707.06887).

    Parameters
    ----------
    num_atoms : int
        Number of returns.
    v_min, v_max : float
        Smallest and largest return.

    Attributes
    ----------
    atoms : Tensor
        Returns ``z``, float32 ``[num_atoms]``.
    """

    atoms: Tensor

    def __init__(self, num_atoms: int, v_min: float, v_max: float) -> None:
        super().__init__()
        self.num_outputs = num_atoms
        self.register_buffer("atoms", torch.linspace(v_min, v_max, num_atoms), persistent=False)

    def mean(self, outputs: Tensor) -> Tensor:
        """Return ``sum_i z_i p_i`` with ``p = softmax(outputs)``."""
        return (outputs.softmax(-1) * self.atoms).sum(-1)  # a product would be rounded within autocast


class QuantileReturns(ReturnDistribution):
    """Quantiles of the return at the midpoints of equal fractions (QR-DQN, arXiv:1710.10044).

    Parameters
    ----------
    num_quantiles : int
        Number of quantiles.
    """

    def __init__(self, num_quantiles: int) -> None:
        super().__init__()
        self.num_outputs = num_quantiles

    def mean(self, outputs: Tensor) -> Tensor:
        return outputs.mean(-1)


class ImplicitQuantileReturns(QuantileReturns):
    """Quantiles of the return at any fractions, an input of the network (IQN, arXiv:1806.06923, equation 4).

        features * relu( sum_{i<64} cos(pi i tau) w_i + b )

    Parameters
    ----------
    num_features : int
        Width ``F`` of the features.
    num_acting : int
        Number of fractions if none are given, as in acting.
    """

    def __init__(self, num_features: int, num_acting: int = 32) -> None:
        super().__init__(1)
        self.num_acting = num_acting
        self.embedding = nn.Linear(NUM_COSINES, num_features)

    def at(self, features: Tensor, fractions: Tensor | None) -> Tensor:
        """Return the features ``[..., F]`` at each of K fractions, ``[..., K, F]``.

        Parameters
        ----------
        features : Tensor
            float32 ``[..., F]``.
        fractions : Tensor, optional
            ``tau`` in [0, 1], float32 broadcast to ``[..., K]``; default: the midpoints of ``num_acting``
            equal parts.
        """
        if fractions is None:
            fractions = midpoints(self.num_acting, features.device)
        frequency = torch.arange(NUM_COSINES, device=features.device) * math.pi
        return features.unsqueeze(-2) * relu(self.embedding(torch.cos(fractions.unsqueeze(-1) * frequency)))


def midpoints(number: int, device: torch.device) -> Tensor:
    """Return the midpoints of equal fractions of [0, 1], ``(2 i + 1) / (2 number)``, float32 ``[number]``."""
    return (torch.arange(number, device=device) + 0.5) / number
