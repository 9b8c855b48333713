"""Networks as flat bytes: parameters and buffers in sequence.

The weights block carries these bytes from the learner to all acting roles.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import chain

import torch
from torch import Tensor, nn

ALIGNMENT = 64


class WeightsLayout:
    """Places of a module's parameters and buffers in one row of bytes: parameters first, both in the module's order.

    A tensor shared within the module has one place.

    Parameters
    ----------
    module : nn.Module
        Network to describe.

    Attributes
    ----------
    offsets : tuple of int
        First byte of each tensor, a multiple of 64.
    nbytes, parameters_nbytes : int
        Total size, and that of the parameters, multiples of 64.
    """

    def __init__(self, module: nn.Module) -> None:
        offsets, end = [], 0
        for tensor in _tensors(module):
            offsets.append(end)
            end += -(-tensor.nbytes // ALIGNMENT) * ALIGNMENT
        self.offsets = tuple(offsets)
        self.nbytes = end
        self.parameters_nbytes = [*offsets, end][len(list(module.parameters()))]


def flatten_(module: nn.Module, tail: int = 0) -> Tensor:
    """Move a module's parameters and buffers into one row of bytes, which a single copy can transfer.

    The tensors stay the same objects with the same values; only their memory moves. Moving the module to another device
    afterwards undoes it.

    Parameters
    ----------
    module : nn.Module
        Network, all on one device.
    tail : int
        Additional bytes after the tensors.

    Returns
    -------
    Tensor
        Memory in the layout of ``WeightsLayout(module)``, followed by the zeroed tail: uint8 ``[nbytes + tail]``, on
        the module's device.
    """
    device = next(_tensors(module)).device
    flat = torch.zeros(WeightsLayout(module).nbytes + tail, dtype=torch.uint8, device=device)
    values = [tensor.detach().clone() for tensor in _tensors(module)]
    place_(module, flat)
    for tensor, value in zip(_tensors(module), values, strict=True):
        tensor.data.copy_(value)
    return flat


def place_(module: nn.Module, memory: Tensor) -> None:
    """Make a module's parameters and buffers views of a row of bytes in the layout of ``WeightsLayout(module)``.

    Parameters
    ----------
    module : nn.Module
        Network; its own values are discarded.
    memory : Tensor
        uint8 ``[nbytes]``, which other modules, also in other processes, may share.
    """
    for tensor, place in zip(_tensors(module), places_in(module, memory), strict=True):
        tensor.data = place


def places_in(module: nn.Module, memory: Tensor) -> list[Tensor]:
    """Return views of a row of bytes in the layout of ``WeightsLayout(module)``, like its tensors, in order."""
    return [
        memory[offset : offset + tensor.nbytes].view(tensor.dtype).view(tensor.shape)
        for offset, tensor in zip(WeightsLayout(module).offsets, _tensors(module), strict=True)
    ]


def stretch_of(parameters: Sequence[Tensor]) -> Tensor:
    """Return the memory of adjacent tensors laid out by `flatten_` as one tensor ``[n]``, without gradient.

    Padding between the tensors is included.

    Parameters
    ----------
    parameters
        Adjacent tensors in their order in memory, all of one dtype.

    Raises
    ------
    ValueError
        The tensors are not adjacent.
    """
    first, last = parameters[0], parameters[-1]
    places = [parameter.storage_offset() for parameter in parameters]
    length = places[-1] + last.numel() - places[0]
    size = sum(-(-parameter.nbytes // ALIGNMENT) * ALIGNMENT for parameter in parameters[:-1]) + last.nbytes
    storages = {parameter.untyped_storage().data_ptr() for parameter in parameters}
    if len(storages) > 1 or places != sorted(places) or length * first.element_size() != size:
        raise ValueError("these parameters are not adjacent in memory: flatten_ their module first")
    return first.detach().as_strided((length,), (1,), places[0])


def joined(parameters: Sequence[nn.Parameter]) -> nn.Parameter:
    """Return one parameter over the memory of adjacent ones (see `stretch_of`), and over their gradients.

    Their ``backward`` gradients accumulate in its gradient, so that clipping, optimiser steps and the like are one
    operation each for any number of layers. The gradient of the padding is 0.
    """
    whole = nn.Parameter(stretch_of(parameters))
    whole.grad = torch.zeros_like(whole)
    for parameter in parameters:
        place = parameter.storage_offset() - parameters[0].storage_offset()
        parameter.grad = whole.grad.as_strided(parameter.shape, parameter.stride(), place)
    return whole


def joined_if_adjacent(parameters: Sequence[nn.Parameter]) -> list[nn.Parameter]:
    """Return one parameter over all (see `joined`), or the given ones if some are frozen or not adjacent."""
    if all(parameter.requires_grad for parameter in parameters):
        with suppress(ValueError):
            return [joined(parameters)]
    return list(parameters)


def _tensors(module: nn.Module) -> Iterator[Tensor]:
    return chain(module.parameters(), module.buffers())
