"""The weights blocks of a run: a model's bytes and, behind them, the number of steps it has learned from.

One block holds the newest weights, another the best that any evaluation has seen, with their mean return.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from penstock.experience.arena import ExperienceArena
from penstock.experience.layout import RETURN_NBYTES
from penstock.ipc import WeightsBlock
from penstock.nn import WeightsLayout, buffer_in, flatten_, foreign_buffers, place_, places_in, put_buffer

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
        memory = flatten_(model, STEPS_NBYTES)
        self._model_bytes = memory[:-STEPS_NBYTES]
        # What a CPU computes with is what is sent; what a GPU computes with goes through memory that it can copy fast.
        self._is_apart = memory.is_cuda
        payload = torch.zeros(len(memory), dtype=torch.uint8, pin_memory=True) if self._is_apart else memory
        self._weights = payload[:-STEPS_NBYTES]
        self._payload = payload.numpy()
        self._steps = self._payload[-STEPS_NBYTES:].view(np.int64)
        self._buffers = [(place, buffer_in(place)) for place in foreign_buffers(model)]
        self.version = -1

    @property
    def steps(self) -> int:
        """Steps that the weights held have learned from."""
        return int(self._steps[0])

    @property
    def payload(self) -> np.ndarray:
        """The weights held and their steps, as they lie in the block: uint8 ``[weights_nbytes]``."""
        return self._payload

    def publish(self, version: int, steps: int) -> None:
        """Show the model's weights to everyone."""
        for place, memory in self._buffers:
            if (buffer := buffer_in(place)) is not memory:  # its module has put another tensor there
                memory.copy_(buffer)
                put_buffer(place, memory)
        if self._is_apart:
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
            if self._is_apart:
                self._model_bytes.copy_(self._weights)


@dataclass(frozen=True)
class Best:
    """The best weights that any evaluation of a run has seen.

    Attributes
    ----------
    parameters
        ``{policy_id: state dict on the CPU}``, copies, as `Trainer.set_parameters` takes them.
    mean_return
        What they scored.
    steps
        Steps that they had learned from.
    version
        Updates behind them.
    """

    parameters: dict[int | str, dict[str, Tensor]]
    mean_return: float
    steps: int
    version: int


class BestWeights:
    """The best weights that any evaluation has seen, in a block of their own: the evaluator writes, the trainer reads.

    Before there is an evaluator, the trainer writes those of the run that it resumes.

    Parameters
    ----------
    block
        The arena's block of the best weights.
    """

    def __init__(self, block: WeightsBlock) -> None:
        self._block = block
        self._payload = np.zeros(block.size, np.uint8)
        self._mean_return = self._payload[-RETURN_NBYTES:].view(np.float64)

    def keep(self, weights: SharedWeights, mean_return: float) -> None:
        """Keep the weights that were refreshed last, in place of the best before."""
        self._payload[:-RETURN_NBYTES] = weights.payload
        self._mean_return[0] = mean_return
        self._block.publish(self._payload, weights.version)

    def put(self, model: torch.nn.Module, version: int, steps: int, mean_return: float) -> None:
        """Keep a model's weights, which a checkpoint has preserved."""
        memory = torch.from_numpy(self._payload[: -RETURN_NBYTES - STEPS_NBYTES])
        state = [*model.parameters(), *model.buffers()]
        for place, tensor in zip(places_in(model, memory), state, strict=True):
            place.copy_(tensor.detach())
        self._payload[-RETURN_NBYTES - STEPS_NBYTES : -RETURN_NBYTES].view(np.int64)[0] = steps
        self._mean_return[0] = mean_return
        self._block.publish(self._payload, version)

    def load(self, build_model: Callable[[], torch.nn.Module], policy: int | str = 0) -> Best | None:
        """Read the best weights; None before there are any.

        Parameters
        ----------
        build_model
            Makes a network for them.
        policy
            By which id of a policy they go.
        """
        version = self._block.read_into(self._payload)
        if version < 0:
            return None
        model = build_model()
        place_(model, torch.from_numpy(self._payload[: -RETURN_NBYTES - STEPS_NBYTES].copy()))
        weights = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        steps = self._payload[-RETURN_NBYTES - STEPS_NBYTES : -RETURN_NBYTES].view(np.int64)
        return Best({policy: weights}, float(self._mean_return[0]), int(steps[0]), version)


MakeWeights = Callable[[Any, ExperienceArena], Any]
"""Made of a model and the arena: one end of a way that weights take, used as `SharedWeights` are."""


def through_block(model: torch.nn.Module, arena: ExperienceArena) -> SharedWeights:
    """By the arena's weights block: the way between processes."""
    return SharedWeights(model, arena.weights)
