"""A network as flat bytes: parameters and buffers one after the other.

This is what the weights block carries from the learner to everyone who acts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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


def flatten_(module: nn.Module, tail: int = 0) -> Tensor:
    """Move a module's parameters and buffers into one row of bytes, so that copying all of them is one copy.

    The tensors stay the same objects, with the same values; only their memory moves. Moving the module to
    another device afterwards undoes it.

    Parameters
    ----------
    module : nn.Module
        The network, all of it on one device.
    tail : int
        Bytes of one's own behind it.

    Returns
    -------
    Tensor
        The memory, laid out as ``WeightsLayout(module)``, and behind it the tail, zeros: uint8 ``[nbytes + tail]``, on
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
    """Let a module's parameters and buffers be what lies in a row of bytes, laid out as ``WeightsLayout(module)``.

    Parameters
    ----------
    module : nn.Module
        The network; its own values are forgotten.
    memory : Tensor
        uint8 ``[nbytes]``; other modules, in other processes too, may lie in the same.
    """
    for tensor, place in zip(_tensors(module), places_in(module, memory), strict=True):
        tensor.data = place


def places_in(module: nn.Module, memory: Tensor) -> list[Tensor]:
    """A row of bytes laid out as ``WeightsLayout(module)``, seen as tensors like the module's, in its order."""
    return [
        memory[offset : offset + tensor.nbytes].view(tensor.dtype).view(tensor.shape)
        for offset, tensor in zip(WeightsLayout(module).offsets, _tensors(module), strict=True)
    ]


def stretch_of(parameters: Sequence[Tensor]) -> Tensor:
    """The memory of several tensors that `flatten_` has laid one after the other, as one: ``[n]``, with no gradient.

    Between the tensors lies padding.

    Parameters
    ----------
    parameters
        Neighbours, in the order in which they lie, all of one dtype.

    Raises
    ------
    ValueError
        They are no neighbours.
    """
    first, last = parameters[0], parameters[-1]
    places = [parameter.storage_offset() for parameter in parameters]
    length = places[-1] + last.numel() - places[0]
    size = sum(-(-parameter.nbytes // ALIGNMENT) * ALIGNMENT for parameter in parameters[:-1]) + last.nbytes
    storages = {parameter.untyped_storage().data_ptr() for parameter in parameters}
    if len(storages) > 1 or places != sorted(places) or length * first.element_size() != size:
        raise ValueError("these parameters do not lie one after the other: flatten_ their module first")
    return first.detach().as_strided((length,), (1,), places[0])


def joined(parameters: Sequence[nn.Parameter]) -> nn.Parameter:
    """One parameter over the memory of several neighbours (see `stretch_of`), and over their gradients.

    What ``backward`` adds to their gradients lies in its own: clipping, an optimiser's step and the like are then one
    operation each, however many layers there are. The gradient of the padding between them is 0.
    """
    whole = nn.Parameter(stretch_of(parameters))
    whole.grad = torch.zeros_like(whole)
    for parameter in parameters:
        place = parameter.storage_offset() - parameters[0].storage_offset()
        parameter.grad = whole.grad.as_strided(parameter.shape, parameter.stride(), place)
    return whole


def _tensors(module: nn.Module) -> Iterator[Tensor]:
    return chain(module.parameters(), module.buffers())
