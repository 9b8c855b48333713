"""Computations on a GPU as CUDA graphs: one launch instead of some hundreds."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor

from penstock.algorithms.bases.planned import tensors_of
from penstock.engine.acting.device_inference import after_failed_capture
from penstock.experience.batch import watched

WARM_UP = 3  # computations of a shape before its capture: libraries choose their kernels in the first ones

T = TypeVar("T")


@dataclass
class Results:
    """Results of a computation, in memory that each replay overwrites.

    Attributes
    ----------
    names, numbers
        Names of numbers, and their values, float32 ``[M]``.
    tensors
        Tensors of any shape by name.
    """

    names: list[str]
    numbers: Tensor
    tensors: dict[str, Tensor]

    @classmethod
    def of(cls, numbers: dict[str, Tensor], tensors: dict[str, Tensor]) -> Results:
        """Stack the numbers in one tensor; a number with several elements is replaced by its mean."""
        means = [value.float().mean() if value.ndim else value.float() for value in numbers.values()]
        return cls(list(numbers), torch.stack([mean.detach() for mean in means]), tensors)

    def copies(self) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Return copies of numbers and tensors, which a later replay does not overwrite."""
        numbers = dict(zip(self.names, self.numbers.clone(), strict=True))
        return numbers, {name: tensor.clone() for name, tensor in self.tensors.items()}


@dataclass
class Captured:
    """A graph, the tensors that it reads, in the order of `tensors_of`, and its results."""

    graph: torch.cuda.CUDAGraph
    inputs: list[Tensor]
    results: Results


class CapturedWork:
    """Computations on batches as CUDA graphs, one for each kind and shape, as far as they can be captured.

    A graph repeats the operations of its capture. A computation that waits for the device, such as a loss that branches
    on values, cannot be captured.

    Parameters
    ----------
    note
        Called with a text if a computation cannot be captured.
    generators
        Generators of random numbers that computations draw from, beside torch's default one.
    may_read
        Fields of a batch about its point in the run that a computation may read, because its kind encodes them.

    Attributes
    ----------
    captures
        Whether computations are captured.
    """

    def __init__(
        self, note: Callable[[str], object], generators: Iterable[torch.Generator] = (), may_read: Iterable[str] = ()
    ) -> None:
        self._note, self._generators, self._may_read = note, list(generators), frozenset(may_read)
        self._captured: dict[Hashable, Captured] = {}
        self._seen: dict[Hashable, int] = {}
        self.captures = True

    def replay(self, kind: Hashable, batch: Any, compute: Callable[[Any], Results]) -> Results | None:
        """Replay the computation of a kind with a batch; return its results, or None if there is no graph for it.

        The first computations of a kind and shape are not captured.
        """
        if not self.captures:
            return None
        tensors = tensors_of(batch)
        key = kind, tuple((tensor.shape, tensor.dtype) for tensor in tensors)
        if key not in self._captured:
            self._seen[key] = self._seen.get(key, 0) + 1
            if self._seen[key] <= WARM_UP or not self._capture(key, batch, compute):
                return None
        captured = self._captured[key]
        torch._foreach_copy_(captured.inputs, tensors)
        captured.graph.replay()
        return captured.results

    def forget(self) -> None:
        """Drop all graphs, because tensors that they read or write were replaced."""
        self._captured.clear()
        self._seen.clear()

    def give_up(self, reason: str) -> None:
        """Stop capturing, and report why."""
        self.captures = False
        self.forget()
        self._note(f"updates run without CUDA graphs: {reason}")

    def _capture(self, key: Hashable, batch: Any, compute: Callable[[Any], Results]) -> bool:
        """Capture a computation, without computing it; return whether it succeeded."""
        copied = watched(batch)
        inputs = tensors_of(copied)  # before the computation adds targets
        try:
            graph, results = self._record(lambda: compute(copied))
        except Exception as error:
            self.give_up(after_failed_capture(error, self._generators))
            return False
        if copied.points_read - self._may_read:
            self.give_up("they depend on the progress of the run, as a schedule of entropy_coef does")
            return False
        self._captured[key] = Captured(graph, inputs, results)
        return True

    def _record(self, compute: Callable[[], T]) -> tuple[torch.cuda.CUDAGraph, T]:
        """Return the graph of a computation, and the computation's result, which each replay overwrites."""
        graph = torch.cuda.CUDAGraph()
        for generator in self._generators:
            graph.register_generator_state(generator)
        # Other threads, such as a policy worker's, may run operations that cannot be captured.
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            result = compute()
        return graph, result
