"""Updates as native plans: recorded once while torch computes them, and then run in a few calls.

Small tensors cost torch more to dispatch than to compute. The first update from minibatches of a shape runs in torch,
and each of its operations is recorded, forward and backward; later updates run the recorded plan. An update with an
operation that plans do not have, or with a tensor of unknown origin, stays in torch.

For updates from segments, the plan computes the gradient. For updates from replay, it is the whole update, with any
number of optimiser steps. Such a plan is split into parts at each optimiser step and wherever else networks change;
methods of the algorithm make these changes, as in torch.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields, replace
from functools import cache
from itertools import chain
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn

from penstock.algorithms.bases.algorithm import Metrics, NonFiniteUpdate, clip_norm_
from penstock.algorithms.bases.operations import KINDS, MAX_DIMENSIONS, Unplannable
from penstock.algorithms.bases.recording import Recorder
from penstock.experience.batch import POINTS_IN_TIME, Batch, watched
from penstock.nn import flatten_
from penstock.nn.mlp import in_bfloat16, is_available, without_autocast
from penstock.nn.norms import BatchNorm

MAX_PLANS = 8
"""Largest number of plans per model; minibatches of further shapes are left to torch."""
TOLERANCE = {False: 1e-4, True: 1e-2}
"""Largest relative difference between a new plan and torch, in float32 and in bfloat16."""
TRIES = 5
"""Number of comparisons of a new plan with torch; one without a difference is enough."""
PACKAGES = ("penstock", "torch")
"""Packages whose modules compute the same from the same tensors."""
RANDOM = ("obs", "next_obs", "reward")
"""Tensors of a batch of transitions that are replaced by random numbers when a plan is compared with torch."""
SMALL = {False: 1e-2, True: 1.0}
"""Smallest scale of a comparison of gradients, as a share of the largest one, in float32 and in bfloat16."""

Compute = Callable[[Any], tuple[Tensor, Metrics]]
AnyPlan = TypeVar("AnyPlan")


class PlanCache(Generic[AnyPlan]):
    """Plans of updates, one for each kind of update and shape of batches, as far as they can be recorded.

    A plan repeats recorded operations: by ``repeatable_updates``, an algorithm declares updates of a kind to be the
    same computation. An update with an operation that plans do not have, or that reads the run's progress, stays in
    torch, as do updates of networks with modules of other packages, and of several learners.

    Parameters
    ----------
    algorithm
        Algorithm of the updates.
    models
        Networks that the updates read, the trained one first.
    """

    def __init__(self, algorithm: Any, models: Sequence[nn.Module]) -> None:
        self._algorithm = algorithm
        self._has_any = algorithm.reason_not_to_repeat() is None and can_be_planned(models)
        self._settings: Any = None
        self._known: dict[Hashable, AnyPlan | None] = {}

    def plan_for(self, batch: Any) -> AnyPlan | None:
        """Return the plan for the update with a batch, recorded now if there is none; None: torch must compute it."""
        if not self._has_any:
            return None
        if self._settings is not self._algorithm.config:
            self._settings = self._algorithm.config
            self._known.clear()
        kind = self._kind_of(batch), *((tensor.shape, tensor.dtype) for tensor in tensors_of(batch))
        if kind not in self._known and len(self._known) < MAX_PLANS:
            try:
                self._known[kind] = self._record(batch)
            except NonFiniteUpdate:  # torch raises it, too, and the next update is recorded
                return None
            except Unplannable:
                self._known[kind] = None
        return self._known.get(kind)

    def _kind_of(self, batch: Any) -> Hashable:
        """Return the kind of the update with a batch; by default there is only one."""
        return None

    def _record(self, batch: Any) -> AnyPlan:
        """Record the update with a batch, without its effects."""
        raise NotImplementedError


class PlannedGradient(PlanCache["Planned"]):
    """`SegmentAlgorithm.gradient` by plans, one for each shape of batches.

    Parameters
    ----------
    algorithm, model, autocast, trained
        Arguments of `SegmentAlgorithm.gradient`.
    """

    def __init__(
        self, algorithm: Any, model: Any, autocast: AbstractContextManager[object], trained: Sequence[nn.Parameter]
    ) -> None:
        self._networks = [model, *algorithm.auxiliary_networks()]
        super().__init__(algorithm, self._networks)
        self._model, self._autocast, self._trained = model, autocast, trained

    def __call__(self, batch: Batch) -> tuple[Tensor, Metrics]:
        """Compute the gradient of the parameters; return loss and metrics."""
        plan = self.plan_for(batch)
        if plan is None:
            in_torch: tuple[Tensor, Metrics] = self._algorithm.gradient(
                self._model, batch, self._autocast, self._trained
            )
            return in_torch
        loss, metrics = plan.run(batch)
        metrics["grad_norm"] = clip_norm_(self._trained, self._algorithm.config.max_grad_norm)
        return loss, metrics

    def _record(self, batch: Any) -> Planned:
        with self._autocast:
            return Planned(lambda given: self._algorithm.evaluate(self._model, given), self._networks, batch)


class Planned:
    """Loss, metrics and gradient of an update as a plan, for batches of the shapes that it was recorded with.

    Parameters
    ----------
    compute
        Function that returns loss and metrics of a batch: 0-dimensional, or of any shape that plans have.
    models
        Networks that `compute` reads, the trained one first.
    batch
        Batch with the shapes of the plan.

    Raises
    ------
    Unplannable
        Plans cannot compute it.
    """

    def __init__(self, compute: Compute, models: Sequence[nn.Module], batch: Any) -> None:
        self._parameters = [each for each in models[0].parameters() if each.requires_grad]
        copied = watched(batch)  # the recorder identifies tensors by their memory, and two of a batch may share it
        of_batch = tensors_of(copied)
        of_models = [each for model in models for each in (*model.parameters(), *model.buffers())]
        candidates = [*of_batch, *of_models]
        usable = [number for number, each in enumerate(candidates) if is_usable(each)]
        recorder, given = Recorder([candidates[number] for number in usable]), _targets_of(copied)
        with torch.enable_grad(), recorder:
            loss, metrics = compute(copied)
            gradients = torch.autograd.grad(loss, self._parameters, allow_unused=True)
        if copied.points_read:
            raise Unplannable("it reads the run's progress")
        if not all(isinstance(each, Tensor) for each in (loss, *metrics.values())):
            raise Unplannable("a metric is not a tensor")
        self._names = [name for name in metrics if not metrics[name].ndim]
        self._shapes = {name: each.shape for name, each in metrics.items() if each.ndim}
        self._trained = [each is not None for each in gradients]
        targets = {name: each for name, each in _targets_of(copied).items() if each is not given.get(name)}
        if not all(each.is_floating_point() for each in targets.values()):
            raise Unplannable("a target is not floating-point")
        self._targets = {name: target.shape for name, target in targets.items()}
        numbers = [loss, *(metrics[name] for name in self._names)]
        known = [each for each in gradients if each is not None]
        tensors = [*known, *(metrics[name] for name in self._shapes), *targets.values()]
        recorder.add_outputs([*numbers, *tensors])
        self._plan, read = recorder.plan()
        count = sum(number < len(of_batch) for number in usable)
        self._read = [usable[place] for place in read if place < count]
        self._kept = [recorder.inputs[place] for place in read if place >= count]
        self._require_same(batch, numbers, tensors, num_gradients=len(known))

    def run(self, batch: Any) -> tuple[Tensor, Metrics]:
        """Write the gradient to the parameters, and the update's targets to the batch; return loss and metrics."""
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


class PlannedUpdate(PlanCache["RecordedUpdate"]):
    """`ReplayAlgorithm.update` by plans.

    Parameters
    ----------
    algorithm, model
        Algorithm, after `begin`, and the network that learns.
    """

    def __init__(self, algorithm: Any, model: nn.Module) -> None:
        super().__init__(algorithm, [model, algorithm.target])
        self._model = model

    def __call__(self, batch: Any) -> tuple[Tensor, Metrics]:
        """Make an update; return TD errors and metrics, as `ReplayAlgorithm.update` does."""
        plan = self.plan_for(batch)
        if plan is None:
            in_torch: tuple[Tensor, Metrics] = self._algorithm.update(self._model, batch)
            return in_torch
        td_error, metrics = plan.run(batch)
        self._algorithm.after_update(self._model, batch, metrics)
        return td_error, metrics

    def _kind_of(self, batch: Any) -> Hashable:
        return self._algorithm.update_kind(batch.number), in_bfloat16()

    def _record(self, batch: Any) -> RecordedUpdate:
        self._require_same(batch)
        return self._recorded(self._algorithm, self._model, batch)

    def _require_same(self, batch: Any) -> None:
        """Raise `Unplannable` if an update by a plan differs from torch's, or if either fails.

        The comparison uses new networks and random numbers, so that its result does not depend on the run's progress:
        gradients of trained networks may consist of rounding errors. Where rounding decides a rectifier at 0, the
        update differs for a row; other random numbers are then tried.
        """
        algorithm, problem = self._algorithm, Exception()
        for seed in range(TRIES):
            try:
                with torch.random.fork_rng(devices=[]):
                    torch.manual_seed(seed)
                    twin = type(algorithm)(algorithm.config, algorithm.observation, algorithm.action)
                    model = twin.make_model(torch.device("cpu"))
                    flatten_(model)
                    twin.begin(model)
                    drawn = {name: torch.randn(each.shape) for name, each in _random_of(batch).items()}
                    batch = replace(batch, **drawn)
                    with twin.training_mode(model):
                        self._recorded(twin, model, batch, compares=True).require_same(batch)
                return
            except Exception as error:  # a user's own algorithm may fail on random numbers
                problem = error
        raise Unplannable(str(problem)) from problem

    @staticmethod
    def _recorded(algorithm: Any, model: Any, batch: Any, *, compares: bool = False) -> RecordedUpdate:
        """Record an update, and restore networks, optimisers and random numbers."""
        weights, learning = copy.deepcopy((model.state_dict(), algorithm.learning_state()))
        try:
            return RecordedUpdate(algorithm, model, batch, compares=compares)
        finally:
            model.load_state_dict(weights)
            algorithm.inherit(learning)
            algorithm.generator.set_state(learning["generator"])


@dataclass
class Effect:
    """Change of networks between two parts of an update's plan.

    Attributes
    ----------
    apply
        Function that applies the change; an optimiser step gets the loss.
    trained
        Parameters that an optimiser step moves.
    loss, gradients
        Loss and gradients as torch computed them, while the plan is compared.
    answer
        Tensor from which the rest of the plan reads the gradient's norm.
    read
        Tensors that the plan writes for the change, in addition to gradients.
    """

    apply: Callable[..., Any]
    trained: Sequence[Tensor] = ()
    loss: Tensor | None = None
    gradients: Sequence[Tensor] = ()
    answer: Tensor | None = None
    read: Sequence[Tensor] = ()


class RecordedUpdate:
    """Update of one kind as a plan, for batches of the shapes that it was recorded with.

    Parameters
    ----------
    algorithm, model
        Algorithm and network that learn.
    batch
        Batch with the shapes of the plan; the algorithm learns from it during the recording.
    compares
        Whether torch's gradients and the state after the update are kept for `require_same`.

    Raises
    ------
    Unplannable
        Plans cannot compute it.
    NonFiniteUpdate
        Loss or gradient of the update is not finite.
    """

    def __init__(self, algorithm: Any, model: nn.Module, batch: Any, *, compares: bool = False) -> None:
        copied = watched(batch)  # the recorder identifies tensors by their memory, and two of a batch may share it
        given = [(number, each) for number, each in enumerate(tensors_of(copied)) if is_usable(each)]
        networks = [each for net in (model, algorithm.target) for each in (*net.parameters(), *net.buffers())]
        self._networks = [each for each in dict.fromkeys(networks) if is_usable(each)]
        self._model, self._generator, self._compares = model, algorithm.generator, compares
        self._effects: list[Effect] = []
        self._recorder = Recorder([*(each for _, each in given), *self._networks], has_generator=True)
        algorithm.recording = self
        try:
            with self._recorder:
                td_error, metrics = algorithm.update(model, copied)
                if "progress" in copied.points_read:
                    raise Unplannable("it reads the run's progress")
                if not all(isinstance(each, Tensor) for each in metrics.values()):
                    raise Unplannable("a metric is not a tensor")
                self._names, self._found = list(metrics), [each.detach() for each in (td_error, *metrics.values())]
                if not all(each.is_floating_point() for each in self._found):
                    raise Unplannable("a result is not floating-point")
                self._recorder.add_outputs(self._found)
        finally:
            algorithm.recording = None
        self._after = {name: each.clone() for name, each in model.state_dict().items()} if compares else {}
        self._plan, read = self._recorder.plan()
        inputs, numbers = self._recorder.inputs, [number for number, _ in given]
        self._inputs = [numbers[place] if place < len(numbers) else inputs[place] for place in read]
        self._drawn = self._recorder.drawn
        del self._recorder

    def minimize(self, loss: Tensor, trained: Sequence[Tensor], step: Callable[[Tensor], Tensor]) -> Tensor:
        """Record the gradient of a loss, and take the optimiser's step. See `ReplayAlgorithm.minimize`."""
        recorder, gradients = self._recorder, [_gradient(each) for each in trained]
        recorder.set_zero(gradients)
        with without_autocast(loss.device):
            loss.backward(inputs=list(trained))
        recorder.add_outputs([loss])
        recorder.add_outputs(gradients, change=True)
        with recorder.between_parts(self._networks):
            expected = [each.clone() for each in gradients] if self._compares else []
            norm = step(loss)
        recorder.add_input(norm)
        self._effects.append(Effect(step, trained, loss.detach(), expected, norm))
        return norm

    def change(self, apply: Callable[[], Any], read: Sequence[Tensor] = ()) -> None:
        """Record a change of the networks that reads the tensors `read`; apply it now and here in each update."""
        self._recorder.add_outputs(read)
        with self._recorder.between_parts(self._networks):
            apply()
        self._effects.append(Effect(apply, read=read))

    def update_moments(self, network: nn.Module) -> None:
        """Record an update of running moments from the batch. See `penstock.nn.update_moments`."""
        layers = [module for module in network.modules() if isinstance(module, BatchNorm)]
        seen = [layer.seen for layer in layers if layer.seen is not None]

        def apply() -> None:
            for layer, moments in zip(layers, seen, strict=True):
                layer.seen = moments
                layer.update_moments()

        if layers:
            self.change(apply, list(chain(*seen)))

    def run(self, batch: Any) -> tuple[Tensor, Metrics]:
        """Make an update; return TD errors and metrics."""
        given = tensors_of(batch)
        read = [given[each].contiguous() if isinstance(each, int) else each for each in self._inputs]
        losses, results = list[Tensor](), [torch.empty(each.shape) for each in self._found]
        written = list[Tensor]()
        for effect in self._effects:
            if effect.loss is not None:
                losses.append(torch.empty(()))
                written += [losses[-1], *map(_gradient, effect.trained)]
            written += effect.read
        addresses = [each.data_ptr() for each in (*written, *results)]
        self._plan.begin([each.data_ptr() for each in read], addresses, torch.get_num_threads())
        for number, effect in enumerate(self._effects):
            self._run_part(number)
            if effect.loss is None:
                effect.apply()
                continue
            loss = losses.pop(0)
            if effect.gradients:
                _compare(effect, loss)
            norm = effect.apply(loss)
            assert effect.answer is not None
            effect.answer.copy_(norm)
        self._run_part(len(self._effects))
        return results[0], dict(zip(self._names, results[1:], strict=True))

    def _run_part(self, number: int) -> None:
        for noise, draw in self._drawn[number]:
            draw(noise, generator=self._generator)
        self._plan.run(number)

    def require_same(self, batch: Any) -> None:
        """Raise `Unplannable` if an update by the plan differs from the recorded one."""
        td_error, metrics = self.run(batch)
        for found, expected in zip([td_error, *metrics.values()], self._found, strict=True):
            require_close(found, expected.float())
        for name, expected in self._model.state_dict().items():
            require_close(expected.float(), self._after[name].float())


def require_close(found: Tensor, expected: Tensor, *, smallest: float = 1.0) -> None:
    """Raise `Unplannable` unless numbers equal torch's to `TOLERANCE`, relative to the largest one or to `smallest`."""
    scale = expected.detach().nan_to_num().abs().max().clamp(min=smallest)
    if not torch.allclose(found / scale, expected / scale, rtol=0.0, atol=TOLERANCE[in_bfloat16()], equal_nan=True):
        raise Unplannable("its plan and torch compute different numbers")


def can_be_planned(models: Sequence[nn.Module]) -> bool:
    """Return whether plans can compute networks: on the CPU, and without modules of other packages."""
    modules = {type(module).__module__.partition(".")[0] for model in models for module in model.modules()}
    tensors = [each for model in models for each in model.parameters()]
    on_cpu = all(each.is_cpu and each.is_contiguous() for each in tensors)
    return modules <= set(PACKAGES) and on_cpu and is_available()


def tensors_of(batch: Any) -> list[Tensor]:
    """Return all tensors of a batch, in a fixed order."""
    found: list[Tensor] = []
    for name in _names_of(batch.__class__):
        value = getattr(batch, name)
        if isinstance(value, Tensor):
            found.append(value)
        elif value is not None:
            found.extend(value.values())
    return found


@cache
def _names_of(batches: type) -> tuple[str, ...]:
    return tuple(each.name for each in fields(batches) if each.name not in POINTS_IN_TIME)


def _targets_of(batch: Any) -> dict[str, Tensor]:
    return dict(getattr(batch, "targets", {}))


def is_usable(tensor: Tensor) -> bool:
    """Return whether a plan can read a tensor."""
    return tensor.numel() > 0 and tensor.dtype in KINDS and tensor.ndim <= MAX_DIMENSIONS and tensor.is_contiguous()


def _random_of(batch: Any) -> dict[str, Tensor]:
    found = {name: getattr(batch, name, None) for name in RANDOM}
    return {name: each for name, each in found.items() if each is not None and each.dtype == torch.float32}


def _compare(effect: Effect, loss: Tensor) -> None:
    """Compare loss and gradients with torch's, and continue with torch's: a step may depend on a sign near 0."""
    assert effect.loss is not None
    require_close(loss, effect.loss)
    # With a normalisation, gradients may be just the rounding errors of sums that cancel.
    largest = max((each.abs().max().item() for each in effect.gradients), default=0.0)
    for parameter, expected in zip(effect.trained, effect.gradients, strict=True):
        require_close(_gradient(parameter), expected, smallest=max(SMALL[in_bfloat16()] * largest, 1e-12))
        _gradient(parameter).copy_(expected)


def _gradient(parameter: Tensor) -> Tensor:
    assert parameter.grad is not None
    return parameter.grad
