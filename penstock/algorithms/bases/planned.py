"""Gradients as native plans: an update is read once as torch computes it, and then computed in one call.

Small tensors cost torch more to dispatch than to compute. The first update from minibatches of a shape runs in torch,
and each of its operations is recorded, forward and backward; the next ones run the recorded plan. An update with an
operation that plans do not have, or with a tensor of unknown origin, stays in torch.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor, nn

from penstock.algorithms.bases.algorithm import Metrics, clip_norm_
from penstock.algorithms.bases.operations import KINDS, MAX_DIMENSIONS, Unplannable
from penstock.algorithms.bases.recording import Recorder
from penstock.experience.batch import Batch, WatchedBatch
from penstock.nn.mlp import in_bfloat16, is_available

MAX_PLANS = 8
"""Plans of one model; minibatches of further shapes are left to torch."""
TOLERANCE = 1e-4
"""Largest relative difference between a new plan and torch."""
PACKAGES = ("penstock", "torch")
"""Packages whose modules compute the same from the same tensors."""


class PlannedGradient:
    """`SegmentAlgorithm.gradient` by plans, one for each shape of minibatches, as far as they can be recorded.

    A plan repeats the operations of its record: ``updates_alike`` of an algorithm declares that every update has the
    same. An update that reads the batch's progress, and a network with modules of other packages, stay in torch.

    Parameters
    ----------
    algorithm, model, autocast, trained
        Arguments of `SegmentAlgorithm.gradient`.
    """

    def __init__(
        self, algorithm: Any, model: Any, autocast: AbstractContextManager[object], trained: Sequence[nn.Parameter]
    ) -> None:
        self._algorithm, self._model, self._autocast, self._trained = algorithm, model, autocast, trained
        is_alike = vars(type(algorithm)).get("updates_alike", False) and algorithm.config.num_learners == 1
        own = {type(module).__module__.partition(".")[0] for module in model.modules()} <= set(PACKAGES)
        on_cpu = all(each.is_cpu and each.is_contiguous() for each in model.parameters())
        self._plans = is_alike and own and on_cpu and is_available()
        self._settings: Any = None
        self._known: dict[Hashable, Planned | None] = {}

    def __call__(self, batch: Batch) -> tuple[Tensor, Metrics]:
        """Compute the gradient of the parameters; return loss and metrics."""
        plan = self._plan_for(batch)
        if plan is None:
            in_torch: tuple[Tensor, Metrics] = self._algorithm.gradient(
                self._model, batch, self._autocast, self._trained
            )
            return in_torch
        loss, metrics = plan.run(batch)
        metrics["grad_norm"] = clip_norm_(self._trained, self._algorithm.config.max_grad_norm)
        return loss, metrics

    def _plan_for(self, batch: Batch) -> Planned | None:
        if not self._plans:
            return None
        if self._settings is not self._algorithm.config:
            self._settings = self._algorithm.config
            self._known.clear()
        shape = tuple(tensor.shape for tensor in tensors_of(batch))
        if shape not in self._known and len(self._known) < MAX_PLANS:
            with self._autocast:
                try:
                    self._known[shape] = None if in_bfloat16() else Planned(self._algorithm, self._model, batch)
                except Unplannable:
                    self._known[shape] = None
        return self._known.get(shape)


class Planned:
    """Gradient of an update as a plan, for minibatches of the shapes that it was recorded with.

    Parameters
    ----------
    algorithm, model, batch
        Arguments of `SegmentAlgorithm.evaluate`.

    Raises
    ------
    Unplannable
        Plans cannot compute it.
    """

    def __init__(self, algorithm: Any, model: Any, batch: Batch) -> None:
        self._parameters: list[nn.Parameter] = [each for each in model.parameters() if each.requires_grad]
        # Copies, because tensors are known by their memory, and two of a batch may share theirs.
        watched = WatchedBatch(**vars(batch.map(lambda _, tensor: tensor.clone(memory_format=torch.contiguous_format))))
        candidates = [*tensors_of(watched), *self._parameters, *model.buffers()]
        usable = [number for number, each in enumerate(candidates) if _is_usable(each)]
        recorder, given = Recorder([candidates[number] for number in usable]), dict(watched.targets)
        with torch.enable_grad(), recorder:
            loss, metrics = algorithm.evaluate(model, watched)
            gradients = torch.autograd.grad(loss, self._parameters, allow_unused=True)
        if watched.progress_was_read:
            raise Unplannable("it depends on how far the run is")
        numbers = [loss, *metrics.values()]
        if any(not isinstance(each, Tensor) or each.ndim for each in numbers):
            raise Unplannable("the loss or a metric is no number")
        self._names = list(metrics)
        self._trained = [each is not None for each in gradients]
        targets = {name: target for name, target in watched.targets.items() if target is not given.get(name)}
        self._targets = {name: target.shape for name, target in targets.items()}
        results = [*numbers, *(each for each in gradients if each is not None), *targets.values()]
        self._plan, read = recorder.plan(results)
        num_of_batch = len(candidates) - len(self._parameters) - len(list(model.buffers()))
        self._read = [usable[number] for number in read if usable[number] < num_of_batch]
        self._weights = [candidates[usable[number]] for number in read if usable[number] >= num_of_batch]
        self._require_same(batch, results)

    def run(self, batch: Batch) -> tuple[Tensor, Metrics]:
        """Write the gradient into the parameters, and targets of the update into the batch; return loss and metrics."""
        for parameter in self._parameters:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        into = [each.grad for each, has in zip(self._parameters, self._trained, strict=True) if has]
        numbers = torch.empty(1 + len(self._names))
        targets = {name: torch.empty(shape) for name, shape in self._targets.items()}
        self._run(batch, numbers, [*into, *targets.values()])
        batch.targets = {**batch.targets, **targets}
        loss, *metrics = numbers.unbind()
        return loss, dict(zip(self._names, metrics, strict=True))

    def _run(self, batch: Batch, numbers: Tensor, tensors: Sequence[Tensor | None]) -> None:
        given = tensors_of(batch)
        read = [given[number].contiguous() for number in self._read]
        first = numbers.data_ptr()
        addresses = [first + 4 * number for number in range(len(numbers))]
        addresses += [each.data_ptr() for each in tensors if each is not None]
        self._plan.run([each.data_ptr() for each in read + self._weights], addresses)

    def _require_same(self, batch: Batch, results: Sequence[Tensor]) -> None:
        numbers = torch.empty(1 + len(self._names))
        tensors = [torch.empty(each.shape) for each in results[len(numbers) :]]
        self._run(batch, numbers, tensors)
        gradients = range(len(numbers), len(numbers) + sum(self._trained))  # small ones matter as much as large ones
        for number, (one, other) in enumerate(zip([*numbers, *tensors], results, strict=True)):
            scale = other.detach().abs().max().clamp(min=1e-12 if number in gradients else 1.0)
            if not torch.allclose(one / scale, other / scale, rtol=0.0, atol=TOLERANCE, equal_nan=True):
                raise Unplannable("its plan computes other numbers than torch")


def tensors_of(batch: Batch) -> list[Tensor]:
    """Return all tensors of a batch, in a fixed order."""
    return list(_tensors(batch))


def _tensors(batch: Batch) -> Iterator[Tensor]:
    for each in fields(batch):
        value = getattr(batch, each.name) if each.name != "progress" else None
        if isinstance(value, Tensor):
            yield value
        elif value is not None:
            yield from value.values()


def _is_usable(tensor: Tensor) -> bool:
    return tensor.numel() > 0 and tensor.dtype in KINDS and tensor.ndim <= MAX_DIMENSIONS and tensor.is_contiguous()
