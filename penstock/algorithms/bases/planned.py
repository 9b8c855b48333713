"""Gradients as native plans: an update is read once as torch computes it, and then computed in one call.

Small tensors cost torch more to dispatch than to compute. The first update from minibatches of a shape runs in torch,
and each of its operations is recorded, forward and backward; the next ones run the recorded plan. An update with an
operation that plans do not have, or with a tensor of unknown origin, stays in torch.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor, nn

from penstock.algorithms.bases.algorithm import Metrics, clip_norm_
from penstock.algorithms.bases.operations import KINDS, MAX_DIMENSIONS, Unplannable
from penstock.algorithms.bases.recording import Recorder
from penstock.experience.batch import POINTS_IN_TIME, Batch, watched
from penstock.nn.mlp import in_bfloat16, is_available

MAX_PLANS = 8
"""Plans of one model; minibatches of further shapes are left to torch."""
TOLERANCE = 1e-4
"""Largest relative difference between a new plan and torch."""
PACKAGES = ("penstock", "torch")
"""Packages whose modules compute the same from the same tensors."""

Compute = Callable[[Any], tuple[Tensor, Metrics]]


class Plans:
    """Plans of one computation, one for each shape of its batches, as far as they can be recorded.

    A plan repeats the operations of its record: ``updates_alike`` of an algorithm declares that every update has the
    same. A computation that reads the batch's point in the run, a network with modules of other packages, several
    learners and bfloat16 stay in torch.

    Parameters
    ----------
    algorithm
        Algorithm of the computation.
    compute
        Loss and metrics of a batch: 0-dimensional, or of any shape a plan has.
    models
        Networks that it reads, the trained one first.
    autocast
        Context of the computation.
    """

    def __init__(
        self, algorithm: Any, compute: Compute, models: Sequence[nn.Module], autocast: AbstractContextManager[object]
    ) -> None:
        self._algorithm, self._compute, self._models, self._autocast = algorithm, compute, models, autocast
        is_alike = vars(type(algorithm)).get("updates_alike", False) and algorithm.config.num_learners == 1
        self._has_any = is_alike and can_be_planned(models)
        self._settings: Any = None
        self._known: dict[Hashable, Planned | None] = {}

    def plan_for(self, batch: Any) -> Planned | None:
        """Return the plan for batches of these shapes, recorded now if they are new; None: torch has to compute it."""
        if not self._has_any:
            return None
        if self._settings is not self._algorithm.config:
            self._settings = self._algorithm.config
            self._known.clear()
        shape = tuple(tensor.shape for tensor in tensors_of(batch))
        if shape not in self._known and len(self._known) < MAX_PLANS:
            with self._autocast:
                try:
                    self._known[shape] = None if in_bfloat16() else Planned(self._compute, self._models, batch)
                except Unplannable:
                    self._known[shape] = None
        return self._known.get(shape)


class PlannedGradient:
    """`SegmentAlgorithm.gradient` by `Plans`.

    Parameters
    ----------
    algorithm, model, autocast, trained
        Arguments of `SegmentAlgorithm.gradient`.
    """

    def __init__(
        self, algorithm: Any, model: Any, autocast: AbstractContextManager[object], trained: Sequence[nn.Parameter]
    ) -> None:
        self._algorithm, self._model, self._autocast, self._trained = algorithm, model, autocast, trained
        self._plans = Plans(algorithm, lambda batch: algorithm.evaluate(model, batch), [model], autocast)

    def __call__(self, batch: Batch) -> tuple[Tensor, Metrics]:
        """Compute the gradient of the parameters; return loss and metrics."""
        plan = self._plans.plan_for(batch)
        if plan is None:
            in_torch: tuple[Tensor, Metrics] = self._algorithm.gradient(
                self._model, batch, self._autocast, self._trained
            )
            return in_torch
        loss, metrics = plan.run(batch)
        metrics["grad_norm"] = clip_norm_(self._trained, self._algorithm.config.max_grad_norm)
        return loss, metrics


class Planned:
    """Loss, metrics and gradient of an update as a plan, for batches of the shapes that it was recorded with.

    Parameters
    ----------
    compute, models
        Arguments of `Plans`.
    batch
        Batch of these shapes.

    Raises
    ------
    Unplannable
        Plans cannot compute it.
    """

    def __init__(self, compute: Compute, models: Sequence[nn.Module], batch: Any) -> None:
        self._parameters = [each for each in models[0].parameters() if each.requires_grad]
        copied = watched(batch)  # tensors are known by their memory, and two of a batch may share theirs
        of_batch = tensors_of(copied)
        of_models = [each for model in models for each in (*model.parameters(), *model.buffers())]
        candidates = [*of_batch, *of_models]
        usable = [number for number, each in enumerate(candidates) if is_usable(each)]
        recorder, given = Recorder([candidates[number] for number in usable]), _targets_of(copied)
        with torch.enable_grad(), recorder:
            loss, metrics = compute(copied)
            gradients = torch.autograd.grad(loss, self._parameters, allow_unused=True)
        if copied.points_read:
            raise Unplannable("it depends on how far the run is")
        if not all(isinstance(each, Tensor) for each in (loss, *metrics.values())):
            raise Unplannable("a metric is no tensor")
        self._names = [name for name in metrics if not metrics[name].ndim]
        self._shapes = {name: each.shape for name, each in metrics.items() if each.ndim}
        self._trained = [each is not None for each in gradients]
        targets = {name: each for name, each in _targets_of(copied).items() if each is not given.get(name)}
        self._targets = {name: target.shape for name, target in targets.items()}
        numbers = [loss, *(metrics[name] for name in self._names)]
        known = [each for each in gradients if each is not None]
        tensors = [*known, *(metrics[name] for name in self._shapes), *targets.values()]
        recorder.give_out([*numbers, *tensors])
        self._plan, read = recorder.plan()
        count = sum(number < len(of_batch) for number in usable)
        self._read = [usable[place] for place in read if place < count]
        self._kept = [recorder.inputs[place] for place in read if place >= count]
        self._require_same(batch, numbers, tensors, num_gradients=len(known))

    def run(self, batch: Any) -> tuple[Tensor, Metrics]:
        """Write the gradient into the parameters, and targets of the update into the batch; return loss and metrics."""
        for parameter in self._parameters:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        into = [each.grad for each, has in zip(self._parameters, self._trained, strict=True) if has]
        numbers = torch.empty(1 + len(self._names))
        others = {name: torch.empty(shape) for name, shape in self._shapes.items()}
        targets = {name: torch.empty(shape) for name, shape in self._targets.items()}
        self._run(batch, numbers, [*into, *others.values(), *targets.values()])
        if targets:
            batch.targets = {**batch.targets, **targets}
        loss, *metrics = numbers.unbind()
        return loss, dict(zip(self._names, metrics, strict=True)) | others

    def _run(self, batch: Any, numbers: Tensor, tensors: Sequence[Tensor | None]) -> None:
        given = tensors_of(batch)
        read = [given[number].contiguous() for number in self._read]
        first = numbers.data_ptr()
        addresses = [first + 4 * number for number in range(len(numbers))]
        addresses += [each.data_ptr() for each in tensors if each is not None]
        self._plan.begin([each.data_ptr() for each in read + self._kept], addresses, torch.get_num_threads())
        self._plan.run(0)

    def _require_same(
        self, batch: Any, numbers: Sequence[Tensor], tensors: Sequence[Tensor], *, num_gradients: int
    ) -> None:
        found_numbers, found = torch.empty(len(numbers)), [torch.empty(each.shape) for each in tensors]
        self._run(batch, found_numbers, found)
        pairs = zip([*found, *found_numbers], [*tensors, *numbers], strict=True)
        for number, (one, other) in enumerate(pairs):
            # small gradients matter as much as large ones
            require_close(one, other, smallest=1e-12 if number < num_gradients else 1.0)


def require_close(found: Tensor, expected: Tensor, *, smallest: float = 1.0) -> None:
    """Raise `Unplannable` unless numbers are those of torch: to a share of the largest, or of `smallest`."""
    scale = expected.detach().abs().max().clamp(min=smallest)
    if not torch.allclose(found / scale, expected / scale, rtol=0.0, atol=TOLERANCE, equal_nan=True):
        raise Unplannable("its plan computes other numbers than torch")


def can_be_planned(models: Sequence[nn.Module]) -> bool:
    """Return whether plans may compute with networks: they lie on the CPU, and have no modules of other packages."""
    modules = {type(module).__module__.partition(".")[0] for model in models for module in model.modules()}
    tensors = [each for model in models for each in model.parameters()]
    on_cpu = all(each.is_cpu and each.is_contiguous() for each in tensors)
    return modules <= set(PACKAGES) and on_cpu and is_available()


def tensors_of(batch: Any) -> list[Tensor]:
    """Return all tensors of a batch, in a fixed order."""
    return list(_tensors(batch))


def _tensors(batch: Any) -> Iterator[Tensor]:
    for each in fields(batch):
        value = getattr(batch, each.name) if each.name not in POINTS_IN_TIME else None
        if isinstance(value, Tensor):
            yield value
        elif value is not None:
            yield from value.values()


def _targets_of(batch: Any) -> dict[str, Tensor]:
    return dict(getattr(batch, "targets", {}))


def is_usable(tensor: Tensor) -> bool:
    """Return whether a plan can read a tensor."""
    return tensor.numel() > 0 and tensor.dtype in KINDS and tensor.ndim <= MAX_DIMENSIONS and tensor.is_contiguous()
