"""Heads of Q-networks: from features to action values."""

from __future__ import annotations

import math

from torch import Tensor, nn

from penstock.nn.layers import ACTIVATIONS
from penstock.nn.noisy import NoisyLinear

TRUNK_GRADIENT_SCALE = math.sqrt(0.5)


class DuelingHead(nn.Module):
    """Values of all actions, ``Q = V + A - mean A``, over two hidden layers as wide as the features.

    Parameters
    ----------
    num_features : int
        Width ``F`` of the features.
    num_actions : int
        Number ``A`` of actions.
    activation : str
        Activation of the hidden layers.
    num_outputs : int
        Numbers ``M`` per action, each with its own value and advantage (arXiv:1710.02298).
    """

    def __init__(self, num_features: int, num_actions: int, activation: str, num_outputs: int = 1) -> None:
        super().__init__()
        # Both streams' hidden layers are one, the value's first: one matrix product instead of two.
        self.hidden = nn.Sequential(nn.Linear(num_features, 2 * num_features), ACTIVATIONS[activation]())
        self.value = nn.Linear(num_features, num_outputs)
        self.advantage = nn.Linear(num_features, num_actions * num_outputs)

    def forward(self, features: Tensor) -> Tensor:
        """Return values ``[..., A * M]`` of features ``[..., F]``; the gradient back to the features is scaled."""
        value_features, advantage_features = self.hidden(scale_gradient(features)).chunk(2, -1)
        return joined_streams(self.value(value_features), self.advantage(advantage_features))


class NoisyDuelingHead(nn.Module):
    """A :class:`DuelingHead` with four noisy layers, each with its own noise (arXiv:1710.02298).

    Parameters
    ----------
    num_features, num_actions, activation, num_outputs
        As for :class:`DuelingHead`.
    sigma : float
        ``sigma_0`` of the layers.

    Attributes
    ----------
    noise_size : int
        Random numbers ``f(e)`` per pass.
    """

    def __init__(self, num_features: int, num_actions: int, activation: str, num_outputs: int, sigma: float) -> None:
        super().__init__()
        self.activation = ACTIVATIONS[activation]()
        self.value_hidden = NoisyLinear(num_features, num_features, sigma)
        self.value = NoisyLinear(num_features, num_outputs, sigma)
        self.advantage_hidden = NoisyLinear(num_features, num_features, sigma)
        self.advantage = NoisyLinear(num_features, num_actions * num_outputs, sigma)
        layers = (self.value_hidden, self.value, self.advantage_hidden, self.advantage)
        self._noise_sizes = tuple(layer.noise_size for layer in layers)
        self.noise_size = sum(self._noise_sizes)

    def forward(self, features: Tensor, noise: Tensor | None = None) -> Tensor:
        """Return values ``[..., A * M]`` of features ``[..., F]``; noise as for :class:`NoisyLinear`."""
        features = scale_gradient(features)
        of_layers = (None,) * 4 if noise is None else noise.split(self._noise_sizes, -1)
        value_features = self.activation(self.value_hidden(features, of_layers[0]))
        advantage_features = self.activation(self.advantage_hidden(features, of_layers[2]))
        return joined_streams(
            self.value(value_features, of_layers[1]), self.advantage(advantage_features, of_layers[3])
        )


def joined_streams(value: Tensor, advantage: Tensor) -> Tensor:
    """Join dueling streams, ``Q(o, a) = V(o) + A(o, a) - mean_b A(o, b)`` (arXiv:1511.06581, equation 9).

    Parameters
    ----------
    value : Tensor
        float32 ``[..., M]``: numbers are joined separately.
    advantage : Tensor
        float32 ``[..., A * M]``, action by action.

    Returns
    -------
    Tensor
        float32 ``[..., A * M]``.
    """
    num_outputs = value.shape[-1]
    if num_outputs == 1:
        return value + advantage - advantage.mean(-1, keepdim=True)
    of_actions = advantage.unflatten(-1, (-1, num_outputs))
    return (value.unsqueeze(-2) + of_actions - of_actions.mean(-2, keepdim=True)).flatten(-2)


def scale_gradient(features: Tensor) -> Tensor:
    """Return the features unchanged; their gradient is scaled by 1/sqrt(2) (arXiv:1511.06581, section 4.2)."""
    if features.requires_grad:
        # A new view, so that the hook scales only gradients through it.
        features = features.view_as(features)
        features.register_hook(_scale_trunk_gradient)
    return features


def _scale_trunk_gradient(gradient: Tensor) -> Tensor:
    return gradient * TRUNK_GRADIENT_SCALE
