"""CUDA graphs without a GPU: a graph is played by a computation that is done again."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from penstock.engine.paths.captured import CapturedWork, Results


class Capturing(TorchDispatchMode):
    """Refuses what CUDA refuses in a capture: numbers for the host, of which torch's overloads ask silently."""

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is torch.ops.aten._local_scalar_dense.default:
            raise RuntimeError("operation not permitted when stream is capturing: a number for the host")
        return function(*args, **(kwargs or {}))


class Replayed:
    """A graph that does its computation again, in the memory of the first time."""

    def __init__(self, compute: Callable[[], Results], results: Results) -> None:
        self._compute, self._results = compute, results

    def replay(self) -> None:
        again = self._compute()
        self._results.numbers.copy_(again.numbers)
        for name, tensor in again.tensors.items():
            self._results.tensors[name].copy_(tensor)


def refused(*_: Any, **__: Any) -> None:
    raise RuntimeError("operation would make the legacy stream depend on a capturing blocking stream")


def recorded(tensors: Callable[[], Iterable[Tensor]], generator: torch.Generator | None = None) -> type[Any]:
    """A class of graphs that record without a GPU; recording leaves these tensors and random numbers as they were.

    With a generator, of whole updates, gradients of an update before may be alive, whose nodes belong to its stream.
    """

    class Recorded(CapturedWork):
        num_recorded = 0

        def _record(self, compute: Any) -> Any:
            before = [(tensor, tensor.detach().clone()) for tensor in tensors()]
            state = None if generator is None else generator.get_state()
            adds = contextlib.nullcontext() if generator is None else mock.patch.object(Tensor, "backward", refused)
            with Capturing(), adds:
                results = compute()
            with torch.no_grad():
                for tensor, was in before:
                    tensor.copy_(was)
            if generator is not None:
                generator.set_state(state)
            type(self).num_recorded += 1
            return Replayed(compute, results), results

    return Recorded
