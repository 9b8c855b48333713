"""The weights block of a run: a model's bytes and, behind them, the number of steps it has learned from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from penstock.experience.arena import ExperienceArena
from penstock.ipc import WeightsBlock
from penstock.nn import WeightsLayout, flatten_

STEPS_NBYTES = 8


def weights_nbytes(model: torch.nn.Module) -> int:
    """Size of the weights block's payload for this model."""
    return WeightsLayout(model).nbytes + STEPS_NBYTES


class SharedWeights:
    """One model at one end of the weights block: the learner publishes, everyone else refreshes.

    Parameters
    ----------
    model
        The model whose tensors are sent or overwritten. They are moved into one stretch of memory, and must stay there.
    block
        The arena's weights block.
    """

    def __init__(self, model: torch.nn.Module, block: WeightsBlock) -> None:
        self._block = block
        self._model_bytes = flatten_(model)
        nbytes = len(self._model_bytes)
        payload = torch.zeros(nbytes + STEPS_NBYTES, dtype=torch.uint8, pin_memory=self._model_bytes.is_cuda)
        self._payload = payload.numpy()
        self._weights = payload[:nbytes]
        self._steps = self._payload[nbytes:].view(np.int64)
        self.version = -1

    @property
    def steps(self) -> int:
        """Steps that the weights held have learned from."""
        return int(self._steps[0])

    def publish(self, version: int, steps: int) -> None:
        """Show the model's weights to everyone."""
        self._weights.copy_(self._model_bytes)
        self._steps[0] = steps
        self._block.publish(self._payload, version)
        self.version = version

    def show(self) -> None:
        """See to it that whoever hears of what was published finds it in the block; it lies there already."""

    def refresh(self) -> None:
        """Load the newest weights into the model, if it does not hold them yet."""
        if self._block.version != self.version:
            self.version = self._block.read_into(self._payload)
            self._model_bytes.copy_(self._weights)


MakeWeights = Callable[[Any, ExperienceArena], Any]
"""Made of a model and the arena: one end of a way that weights take, used as `SharedWeights` are."""


def through_block(model: torch.nn.Module, arena: ExperienceArena) -> SharedWeights:
    """By the arena's weights block: the way between processes."""
    return SharedWeights(model, arena.weights)
