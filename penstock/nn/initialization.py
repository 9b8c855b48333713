"""Initialisation of layers: orthogonal weights and zero biases."""

import math
from typing import TypeVar

from torch import nn

HIDDEN_GAIN = math.sqrt(2.0)
POLICY_GAIN = 0.01
VALUE_GAIN = 1.0

Layer = TypeVar("Layer", nn.Linear, nn.Conv2d)


def orthogonal(layer: Layer, gain: float = HIDDEN_GAIN) -> Layer:
    """Initialise a layer in place and return it: orthogonal weight (arXiv:1312.6120) times ``gain``, zero bias.

    The gain is sqrt(2) in hidden layers; 0.01 in a policy head, so that training starts from a nearly uniform
    policy; 1 in a value head.
    """
    nn.init.orthogonal_(layer.weight, gain)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
    return layer
