"""Weights that stay on the device: a learner hands them to the inference that runs in the same process."""

from __future__ import annotations

import threading

import torch
from torch import Tensor

from penstock.engine.acting.weights import SharedWeights
from penstock.experience.arena import ExperienceArena


class WeightsExchange:
    """The newest weights on the device: left by one thread, taken by another, each on a stream of its own.

    Neither waits for the other on the host. The streams do on the device, for the length of a copy: what is taken is
    whole, and what is being taken is not overwritten.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()  # held while copies are asked for, not while they are made
        self._left: tuple[Tensor, int, int] | None = None
        self._copied_in: torch.cuda.Event | None = None
        self._copied_out: torch.cuda.Event | None = None

    @property
    def version(self) -> int:
        """Version of the weights that lie here; -1: none."""
        return -1 if self._left is None else self._left[1]

    def leave(self, model_bytes: Tensor, version: int, steps: int) -> None:
        """Put weights here, uint8 ``[nbytes]``, in place of those before; on the current stream."""
        with self._lock:
            place = torch.empty_like(model_bytes) if self._left is None else self._left[0]
            if self._copied_out is not None:
                self._copied_out.wait()
            place.copy_(model_bytes)
            self._left = place, version, steps
            self._copied_in = _event_behind(place)

    def take(self, model_bytes: Tensor) -> tuple[int, int]:
        """Copy the weights that lie here, on the current stream; return their version, and the steps learned from."""
        with self._lock:
            assert self._left is not None, "the learner leaves weights before anyone takes them"
            place, version, steps = self._left
            if self._copied_in is not None:
                self._copied_in.wait()
            model_bytes.copy_(place)
            self._copied_out = _event_behind(place)
        return version, steps


def _event_behind(tensor: Tensor) -> torch.cuda.Event | None:
    """An event behind what the current stream has been asked for; None where there are no streams."""
    if not tensor.is_cuda:
        return None
    event = torch.cuda.Event()
    event.record()
    return event


class LearnerWeights(SharedWeights):
    """The learner's end: it leaves every version in the exchange, and in the weights block what it reports.

    Parameters
    ----------
    model
        The model that learns.
    arena
        The run's arena, whose block the evaluator and the user read.
    exchange
        Where the inference takes them from.
    """

    def __init__(self, model: torch.nn.Module, arena: ExperienceArena, exchange: WeightsExchange) -> None:
        super().__init__(model, arena.weights)
        self._exchange = exchange
        self._is_shown = True

    def publish(self, version: int, steps: int) -> None:
        """Give the model's weights to the inference."""
        self._exchange.leave(self._model_bytes, version, steps)
        self.version, self._steps[0] = version, steps
        self._is_shown = False

    def show(self) -> None:
        """Copy to the block what was published last, if it does not lie there yet."""
        if not self._is_shown:
            super().publish(self.version, self.steps)
            self._is_shown = True

    def refresh(self) -> None:
        """Load what lies in the block, and give it to the inference."""
        super().refresh()
        self.publish(self.version, self.steps)
        self._is_shown = True


class InferenceWeights(SharedWeights):
    """The inference's end.

    Parameters
    ----------
    model
        The model that acts, on the learner's device.
    arena
        The run's arena.
    exchange
        Where the learner leaves them.
    """

    def __init__(self, model: torch.nn.Module, arena: ExperienceArena, exchange: WeightsExchange) -> None:
        super().__init__(model, arena.weights)
        self._exchange = exchange

    def refresh(self) -> None:
        """Take the learner's newest weights, if the model does not hold them yet."""
        if self._exchange.version != self.version:
            self.version, self._steps[0] = self._exchange.take(self._model_bytes)
