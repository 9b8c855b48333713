"""CUDA graphs without a GPU: a graph is played by a computation that is done again."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from penstock.engine.paths.captured import CapturedWork, Results


class Replayed:
    """A graph that does its computation again, in the memory of the first time."""

    def __init__(self, compute: Callable[[], Results], results: Results) -> None:
        self._compute, self._results = compute, results

    def replay(self) -> None:
        again = self._compute()
        self._results.numbers.copy_(again.numbers)
        for name, tensor in again.tensors.items():
            self._results.tensors[name].copy_(tensor)


def recorded(tensors: Callable[[], Iterable[Tensor]], generator: torch.Generator | None = None) -> type[Any]:
    """A class of graphs that record without a GPU; recording leaves these tensors and random numbers as they were."""

    class Recorded(CapturedWork):
        num_recorded = 0

        def _record(self, compute: Any) -> Any:
            before = [(tensor, tensor.detach().clone()) for tensor in tensors()]
            state = None if generator is None else generator.get_state()
            results = compute()
            with torch.no_grad():
                for tensor, was in before:
                    tensor.copy_(was)
            if generator is not None:
                generator.set_state(state)
            type(self).num_recorded += 1
            return Replayed(compute, results), results

    return Recorded
