"""A network as flat bytes: parameters and buffers one after the other.

This is what the weights block carries from the learner to everyone who acts.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

import torch
from torch import Tensor, nn

ALIGNMENT = 64


class WeightsLayout:
    """Where a module's parameters and buffers lie in one row of bytes: those first, each in the module's order.

    A tensor that is shared between places of the module has one place here.

    Parameters
    ----------
    module : nn.Module
        The network to describe.

    Attributes
    ----------
    offsets : tuple of int
        First byte of each tensor, a multiple of 64.
    nbytes : int
        Size of the whole, a multiple of 64.
    """

    def __init__(self, module: nn.Module) -> None:
        offsets, end = [], 0
        for tensor in _tensors(module):
            offsets.append(end)
            end += -(-tensor.nbytes // ALIGNMENT) * ALIGNMENT
        self.offsets = tuple(offsets)
        self.nbytes = end


def flatten_(module: nn.Module) -> Tensor:
    """Move a module's parameters and buffers into one row of bytes, so that copying all of them is one copy.

    The tensors stay the same objects, with the same values; only their memory moves. Moving the module to
    another device afterwards undoes it.

    Parameters
    ----------
    module : nn.Module
        The network, all of it on one device.

    Returns
    -------
    Tensor
        The memory, laid out as ``WeightsLayout(module)``: uint8 ``[nbytes]``, on the module's device.
    """
    layout, tensors = WeightsLayout(module), list(_tensors(module))
    flat = torch.zeros(layout.nbytes, dtype=torch.uint8, device=tensors[0].device)
    for offset, tensor in zip(layout.offsets, tensors, strict=True):
        place = flat[offset : offset + tensor.nbytes].view(tensor.dtype).view(tensor.shape)
        place.copy_(tensor.detach())
        tensor.data = place
    return flat


def _tensors(module: nn.Module) -> Iterator[Tensor]:
    return chain(module.parameters(), module.buffers())
