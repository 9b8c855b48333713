"""The gradient of an update on a GPU, captured as a CUDA graph: one launch instead of some hundreds."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields
from typing import Any, TypeVar

import torch
from torch import Tensor

from penstock.algorithms.bases.algorithm import Metrics
from penstock.algorithms.bases.segment import SegmentAlgorithm
from penstock.engine.acting.device_inference import after_failed_capture
from penstock.experience.batch import Batch
from penstock.nn import ActorCritic

LOSS = "the loss itself"  # no metric goes by this name
WARM_UP = 3  # updates of a shape before it is captured: libraries choose their kernels in the first ones


T = TypeVar("T")


class WatchedBatch(Batch):
    """A batch that notices whether its progress is looked at: what depends on it is another number every time."""

    progress_was_read = False

    def __getattribute__(self, name: str) -> Any:
        if name == "progress":
            object.__setattr__(self, "progress_was_read", True)
        return super().__getattribute__(name)


@dataclass
class Captured:
    """A graph, and the memory that it reads and writes.

    Attributes
    ----------
    inputs
        The tensors of the batch, as `tensors_of` orders them.
    batch
        The batch that they are of; after a replay its targets are those of the update, if it computes any.
    names, numbers
        Of the metrics and the loss: float32 ``[M + 1]``.
    """

    graph: torch.cuda.CUDAGraph
    inputs: list[Tensor]
    batch: Batch
    names: list[str]
    numbers: Tensor


class CapturedGradient:
    """Does what `SegmentAlgorithm.gradient` does, by graphs as far as there can be one.

    Batches of one shape have a graph. What is in it is what the algorithm did when it was captured: an algorithm says
    by ``updates_alike`` that it would do the same again. A schedule that looks at the batch's progress, and whatever
    cannot be captured, such as a loss that looks at values, runs operation by operation.

    Parameters
    ----------
    algorithm, model, autocast
        Arguments of `SegmentAlgorithm.gradient`.
    note
        Called with a sentence if updates cannot be captured.
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
        """Leave the gradient with the parameters; return loss and metrics."""
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
        """Capture the gradient of batches of a shape; nothing is computed by that."""
        watched = WatchedBatch(**{f.name: _cloned(getattr(batch, f.name)) for f in fields(batch)})
        inputs = tensors_of(watched)

        def compute() -> tuple[list[str], Tensor]:
            loss, metrics = self._algorithm.gradient(self._model, watched, self._autocast)
            metrics[LOSS] = loss
            return list(metrics), torch.stack([number.float() for number in metrics.values()])

        try:
            graph, (names, numbers) = self._record(compute)
        except Exception as error:
            return self._give_up(after_failed_capture(error))
        if watched.progress_was_read:
            return self._give_up("they depend on how far the run is, as a schedule of entropy_coef does")
        self._captured[shape] = Captured(graph, inputs, watched, names, numbers)
        return True

    def _record(self, compute: Callable[[], T]) -> tuple[torch.cuda.CUDAGraph, T]:
        """Make a graph of a computation; return it with the computation's result, which each replay writes anew."""
        graph = torch.cuda.CUDAGraph()
        # Only what this thread does has to be capturable: a policy worker may be at work beside it.
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            result = compute()
        return graph, result

    def _give_up(self, reason: str) -> bool:
        self._captures = False
        self._captured.clear()
        self._note(f"updates run without CUDA graphs: {reason}")
        return False


def tensors_of(batch: Batch) -> list[Tensor]:
    """All tensors of a batch, always in one order."""
    return list(_tensors(getattr(batch, f.name) for f in fields(batch) if f.name != "progress"))


def _tensors(values: Iterable[Any]) -> Iterable[Tensor]:
    for value in values:
        if isinstance(value, dict):
            yield from value.values()
        else:
            yield value


def _cloned(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: tensor.clone() for name, tensor in value.items()}
    return value.clone() if isinstance(value, Tensor) else value
