"""Gradient of an update on a GPU as a CUDA graph: one launch instead of some hundreds."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor

from penstock.algorithms.bases.algorithm import Metrics
from penstock.algorithms.bases.planned import tensors_of
from penstock.algorithms.bases.segment import SegmentAlgorithm
from penstock.engine.acting.device_inference import after_failed_capture
from penstock.experience.batch import Batch, watched
from penstock.nn import ActorCritic

LOSS = "the loss itself"  # no metric has this name
WARM_UP = 3  # updates of a shape before its capture: libraries choose their kernels in the first ones

T = TypeVar("T")


@dataclass
class Captured:
    """A graph, and the memory that it reads and writes.

    Attributes
    ----------
    inputs
        Tensors of the batch, in the order of `tensors_of`.
    batch
        Batch of these tensors, whose targets a replay computes.
    names, numbers
        Names of metrics and loss, and their values, float32 ``[M + 1]``.
    """

    graph: torch.cuda.CUDAGraph
    inputs: list[Tensor]
    batch: Batch
    names: list[str]
    numbers: Tensor


class CapturedGradient:
    """`SegmentAlgorithm.gradient` by CUDA graphs, one for each shape of batches, as far as they can be captured.

    A graph repeats the operations of its capture: ``updates_alike`` of an algorithm declares that every update has the
    same. An update that reads the batch's progress, or that cannot be captured, such as a loss that depends on values,
    runs operation by operation.

    Parameters
    ----------
    algorithm, model, autocast
        Arguments of `SegmentAlgorithm.gradient`.
    note
        Function for a text, if updates cannot be captured.
    """

    def __init__(
        self,
        algorithm: SegmentAlgorithm,
        model: ActorCritic,
        autocast: AbstractContextManager[object],
        note: Callable[[str], object],
    ) -> None:
        self._algorithm, self._model, self._autocast, self._note = algorithm, model, autocast, note
        self._captures = vars(type(algorithm)).get("updates_alike", False)
        self._captured: dict[tuple[Any, ...], Captured] = {}
        self._seen: dict[tuple[Any, ...], int] = {}

    def __call__(self, batch: Batch) -> tuple[Tensor, Metrics]:
        """Compute the gradient of the parameters; return loss and metrics."""
        if not self._captures:
            return self._algorithm.gradient(self._model, batch, self._autocast)
        shape = tuple((tensor.shape, tensor.dtype) for tensor in tensors_of(batch))
        if shape not in self._captured:
            self._seen[shape] = self._seen.get(shape, 0) + 1
            if self._seen[shape] <= WARM_UP or not self._capture(shape, batch):
                return self._algorithm.gradient(self._model, batch, self._autocast)
        captured = self._captured[shape]
        torch._foreach_copy_(captured.inputs, tensors_of(batch))
        captured.graph.replay()
        metrics = dict(zip(captured.names, captured.numbers.clone(), strict=True))
        batch.targets = {name: target.clone() for name, target in captured.batch.targets.items()}
        return metrics.pop(LOSS), metrics

    def _capture(self, shape: tuple[Any, ...], batch: Batch) -> bool:
        """Capture the gradient of batches of a shape, without computing one; return whether it succeeded."""
        copied = watched(batch)
        inputs = tensors_of(copied)

        def compute() -> tuple[list[str], Tensor]:
            loss, metrics = self._algorithm.gradient(self._model, copied, self._autocast)
            metrics[LOSS] = loss
            return list(metrics), torch.stack([number.float() for number in metrics.values()])

        try:
            graph, (names, numbers) = self._record(compute)
        except Exception as error:
            return self._give_up(after_failed_capture(error))
        if copied.point_was_read:
            return self._give_up("they depend on how far the run is, as a schedule of entropy_coef does")
        self._captured[shape] = Captured(graph, inputs, copied, names, numbers)
        return True

    def _record(self, compute: Callable[[], T]) -> tuple[torch.cuda.CUDAGraph, T]:
        """Return the graph of a computation, and the computation's result, which each replay overwrites."""
        graph = torch.cuda.CUDAGraph()
        # Other threads, such as a policy worker's, may do what cannot be captured.
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            result = compute()
        return graph, result

    def _give_up(self, reason: str) -> bool:
        self._captures = False
        self._captured.clear()
        self._note(f"updates run without CUDA graphs: {reason}")
        return False

