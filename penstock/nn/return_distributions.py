"""Return distributions of a Q-network: probabilities of fixed returns, or quantiles.

Each turns the numbers that a head gives for an action into the mean return, by which actions are chosen.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import relu

NUM_COSINES = 64
NUM_ACTING_FRACTIONS = 32


class ReturnDistribution(nn.Module):
    """The distribution of the return after an action.

    Attributes
    ----------
    num_outputs : int
        Numbers that the head gives for each action, of one row of features.
    """

    num_outputs: int

    def mean(self, outputs: Tensor) -> Tensor:
        """Mean returns ``[...]``, of numbers ``[..., M]`` of each action."""
        raise NotImplementedError


class CategoricalReturns(ReturnDistribution):
    """Logits of returns that lie evenly between two bounds (C51, arXiv:1707.06887).

    Parameters
    ----------
    num_atoms : int
        How many returns.
    v_min, v_max : float
        The least and the largest.

    Attributes
    ----------
    atoms : Tensor
        The returns ``z``, float32 ``[num_atoms]``.
    """

    atoms: Tensor

    def __init__(self, num_atoms: int, v_min: float, v_max: float) -> None:
        super().__init__()
        self.num_outputs = num_atoms
        self.register_buffer("atoms", torch.linspace(v_min, v_max, num_atoms), persistent=False)

    def mean(self, outputs: Tensor) -> Tensor:
        """``sum_i z_i p_i`` with ``p = softmax(outputs)``."""
        return outputs.softmax(-1) @ self.atoms


class QuantileReturns(ReturnDistribution):
    """Quantiles of the return at the midpoints of equal fractions (QR-DQN, arXiv:1710.10044).

    Parameters
    ----------
    num_quantiles : int
        How many of them.
    """

    def __init__(self, num_quantiles: int) -> None:
        super().__init__()
        self.num_outputs = num_quantiles

    def mean(self, outputs: Tensor) -> Tensor:
        """Mean of the quantiles."""
        return outputs.mean(-1)


class ImplicitQuantileReturns(QuantileReturns):
    """Quantiles of the return at any fractions: these go into the network (IQN, arXiv:1806.06923, equation 4).

        features * relu( sum_{i<64} cos(pi i tau) w_i + b )

    Parameters
    ----------
    num_features : int
        Width ``F`` of the features.
    """

    def __init__(self, num_features: int) -> None:
        super().__init__(1)
        self.embedding = nn.Linear(NUM_COSINES, num_features)

    def at(self, features: Tensor, fractions: Tensor | None) -> Tensor:
        """Turn features ``[..., F]`` into those at each of K fractions, ``[..., K, F]``.

        Parameters
        ----------
        features : Tensor
            float32 ``[..., F]``.
        fractions : Tensor, optional
            ``tau`` in [0, 1], float32 broadcast to ``[..., K]``; the midpoints of 32 equal ones when left out.
        """
        if fractions is None:
            fractions = midpoints(NUM_ACTING_FRACTIONS, features.device)
        frequency = torch.arange(NUM_COSINES, device=features.device) * math.pi
        return features.unsqueeze(-2) * relu(self.embedding(torch.cos(fractions.unsqueeze(-1) * frequency)))


def midpoints(number: int, device: torch.device) -> Tensor:
    """The midpoints of equal fractions of [0, 1], ``(2 i + 1) / (2 number)``, float32 ``[number]``."""
    return (torch.arange(number, device=device) + 0.5) / number
