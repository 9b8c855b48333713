"""Layer normalisation of encoders (arXiv:1607.06450)."""

from __future__ import annotations

from torch import nn

from penstock.nn.activations import Tanh

ACTIVATIONS = (Tanh, nn.ReLU, nn.ELU, nn.SiLU)


def normalize_layers_(encoder: nn.Module) -> None:
    """Put a normalisation between each layer of an encoder and the activation behind it, in place.

    Each row is normalised by its own mean and variance: over all outputs of a linear layer, and over all channels and
    pixels of a convolution. A learned scale and shift follow, of each output or channel.

    Parameters
    ----------
    encoder : nn.Module
        Its layers are found in its ``nn.Sequential`` parts, itself among them.
    """
    for block in [module for module in encoder.modules() if isinstance(module, nn.Sequential)]:
        for number in reversed(range(len(block) - 1)):
            layer = block[number]
            if not isinstance(block[number + 1], ACTIVATIONS):
                continue
            if isinstance(layer, nn.Linear):
                block.insert(number + 1, nn.LayerNorm(layer.out_features))
            elif isinstance(layer, nn.Conv2d):
                block.insert(number + 1, nn.GroupNorm(1, layer.out_channels))
