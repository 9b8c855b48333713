"""Learners of one group in threads of this process, connected by a barrier instead of sockets."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor

from penstock.algorithms.bases.algorithm import Algorithm
from penstock.nn import Group

PATIENCE = 20.0  # seconds until a learner that never comes is given up


class Done:
    """Work that is done."""

    def wait(self) -> None:
        """Nothing is left to wait for."""


class Hub:
    """What connects them.

    Attributes
    ----------
    breaks_at
        Before which exchange, counted from 0 in every learner, the last of them goes; None: never.
    """

    def __init__(self, size: int, breaks_at: int | None = None) -> None:
        self.size = size
        self.breaks_at = breaks_at
        self._barrier = threading.Barrier(size)
        self._given: list[Any] = [None] * size

    def exchange(self, rank: int, number: int, mine: Any) -> list[Any]:
        """Send this learner's value to all; return the values of all."""
        if number == self.breaks_at and rank == self.size - 1:
            self._barrier.abort()
        self._given[rank] = mine
        self._barrier.wait(PATIENCE)
        found = list(self._given)
        self._barrier.wait(PATIENCE)
        return found


class Processes:
    """One learner's end, used as a process group of torch's."""

    def __init__(self, hub: Hub, rank: int) -> None:
        self._hub, self._rank = hub, rank
        self.num_exchanges = 0

    def allreduce(self, tensors: list[Tensor]) -> Done:
        """Sum."""
        (tensor,) = tensors
        tensor.copy_(torch.stack(self._exchanged(tensor.clone())).sum(0))
        return Done()

    def allgather(self, outputs: list[list[Tensor]], inputs: list[Tensor]) -> Done:
        """Gather."""
        for output, found in zip(outputs[0], self._exchanged(inputs[0].clone()), strict=True):
            output.copy_(found)
        return Done()

    def broadcast(self, tensor: Tensor, root: int) -> Done:
        """Copy."""
        tensor.copy_(self._exchanged(tensor.clone())[root])
        return Done()

    def _exchanged(self, tensor: Tensor) -> list[Tensor]:
        self.num_exchanges += 1
        return self._hub.exchange(self._rank, self.num_exchanges - 1, tensor)


def of_group(algorithm: Algorithm) -> Algorithm:
    """Return a copy of an algorithm that learns in a group."""
    made = copy.deepcopy(algorithm)
    object.__setattr__(made.config, "num_learners", 2)  # unchecked: groups of any size may learn with it
    return made


def in_threads(size: int, work: Callable[[Group], Any], breaks_at: int | None = None) -> list[Any]:
    """Result, or error, of each learner of a group that calls a function at the same time as the others."""
    hub = Hub(size, breaks_at)

    def run(rank: int) -> Any:
        try:
            return work(Group(Processes(hub, rank), rank, size, torch.device("cpu")))
        except Exception as error:
            hub._barrier.abort()
            return error

    with ThreadPoolExecutor(size) as pool:
        found = list(pool.map(run, range(size)))
    return found
