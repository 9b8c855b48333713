"""Whole updates from replay as native plans: read once as torch computes them, then computed in a few calls.

An update may take several steps of optimisers. A part of the plan ends at each of them, and wherever else the update
changes networks: the algorithm's own methods do that, as in torch.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from penstock.algorithms.bases.algorithm import Metrics
from penstock.algorithms.bases.operations import Unplannable
from penstock.algorithms.bases.planned import MAX_PLANS, can_be_planned, is_usable, require_close, tensors_of
from penstock.algorithms.bases.recording import Recorder
from penstock.experience.batch import watched
from penstock.nn.mlp import in_bfloat16
from penstock.nn.norms import BatchNorm

SMALL = 1e-2
"""Share of the largest gradient below which smaller ones are compared with it."""


class PlannedUpdate:
    """`ReplayAlgorithm.update` by plans, one for each kind of update and shape of batches, as far as they can be
    recorded.

    ``updates_alike`` of an algorithm declares that updates of a kind are the same computation. An update with an
    operation that plans do not have, or that reads the run's progress, stays in torch, as do those of networks with
    modules of other packages and of several learners.

    Parameters
    ----------
    algorithm, model
        Algorithm that has begun, and the network that learns.
    """

    def __init__(self, algorithm: Any, model: nn.Module) -> None:
        self._algorithm, self._model = algorithm, model
        self._has_any = algorithm.reason_not_to_repeat() is None and can_be_planned([model, algorithm.target])
        self._settings: Any = None
        self._known: dict[Hashable, RecordedUpdate | None] = {}

    def __call__(self, batch: Any) -> tuple[Tensor, Metrics]:
        """Make an update; return TD errors and metrics, as `ReplayAlgorithm.update` does."""
        plan = self.plan_for(batch)
        if plan is None:
            in_torch: tuple[Tensor, Metrics] = self._algorithm.update(self._model, batch)
            return in_torch
        td_error, metrics = plan.run(batch)
        self._algorithm.updated(self._model, batch, metrics)
        return td_error, metrics

    def plan_for(self, batch: Any) -> RecordedUpdate | None:
        """Return the plan for updates of this kind, recorded now if they are new; None: torch has to compute them."""
        if not self._has_any:
            return None
        if self._settings is not self._algorithm.config:
            self._settings = self._algorithm.config
            self._known.clear()
        kind = self._algorithm.kind_of_update(batch.number), in_bfloat16(), *(each.shape for each in tensors_of(batch))
        if kind not in self._known and len(self._known) < MAX_PLANS:
            self._known[kind] = self._recorded(batch)
        return self._known.get(kind)

    def _recorded(self, batch: Any) -> RecordedUpdate | None:
        """Record an update, and compare the plan with torch. Networks and optimisers are then as before."""
        algorithm = self._algorithm
        weights, learning = copy.deepcopy((self._model.state_dict(), algorithm.learning_state()))

        def go_back() -> None:
            self._model.load_state_dict(weights)
            algorithm.inherit(copy.deepcopy(learning))
            algorithm.generator.set_state(learning["generator"])

        try:
            plan = RecordedUpdate(algorithm, self._model, batch)
            go_back()
            plan.require_same(batch)
        except Unplannable:
            return None
        finally:
            go_back()
        return plan


@dataclass
class Effect:
    """Change of networks between two parts of an update's plan.

    Attributes
    ----------
    apply
        Function that makes it; for a step of an optimiser, of the loss whose gradient the parameters have.
    trained
        Those parameters.
    loss, gradients
        Loss and gradients as torch computed them, while the plan is compared.
    answer
        Norm of the gradient, as the rest of the plan reads it.
    read
        Tensors that the plan writes for it, beside the gradients.
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
        Arguments of `PlannedUpdate`.
    batch
        Batch of these shapes, from which the algorithm learns while it is recorded.

    Raises
    ------
    Unplannable
        Plans cannot compute it.
    """

    def __init__(self, algorithm: Any, model: nn.Module, batch: Any) -> None:
        copied = watched(batch)  # tensors are known by their memory, and two of a batch may share theirs
        given = [(number, each) for number, each in enumerate(tensors_of(copied)) if is_usable(each)]
        networks = [each for net in (model, algorithm.target) for each in (*net.parameters(), *net.buffers())]
        self._networks = [each for each in dict.fromkeys(networks) if is_usable(each)]
        self._generator = algorithm.generator
        self._effects: list[Effect] = []
        self._recorder = Recorder([*(each for _, each in given), *self._networks], has_generator=True)
        algorithm.recording = self
        try:
            with self._recorder:
                td_error, metrics = algorithm.update(model, copied)
                if "progress" in copied.points_read:
                    raise Unplannable("it depends on how far the run is")
                if not all(isinstance(each, Tensor) for each in metrics.values()):
                    raise Unplannable("a metric is no tensor")
                self._names, self._found = list(metrics), [each.detach() for each in (td_error, *metrics.values())]
                self._recorder.give_out(self._found)
        finally:
            algorithm.recording = None
        self._plan, read = self._recorder.plan()
        inputs, numbers = self._recorder.inputs, [number for number, _ in given]
        self._inputs = [numbers[place] if place < len(numbers) else inputs[place] for place in read]
        self._drawn = self._recorder.drawn
        del self._recorder

    def minimize(self, loss: Tensor, trained: Sequence[Tensor], step: Callable[[Tensor], Tensor]) -> Tensor:
        """Record the gradient of a loss, and take the optimiser's step down it. See `ReplayAlgorithm.minimize`."""
        recorder, gradients = self._recorder, [_gradient(each) for each in trained]
        recorder.set_zero(gradients)
        loss.backward(inputs=list(trained))
        recorder.give_out([loss, *gradients])
        with recorder.between_parts(self._networks):
            expected = [each.clone() for each in gradients]
            norm = step(loss)
        recorder.take_in(norm)
        self._effects.append(Effect(step, trained, loss.detach(), expected, norm))
        return norm

    def change(self, apply: Callable[[], Any]) -> None:
        """Have something done to networks, now and in each update."""
        with self._recorder.between_parts(self._networks):
            apply()
        self._effects.append(Effect(apply))

    def follow(self, network: nn.Module) -> None:
        """Have running moments follow those of each update's batch. See `penstock.nn.follow`."""
        layers = [module for module in network.modules() if isinstance(module, BatchNorm)]
        seen = [layer.seen for layer in layers if layer.seen is not None]

        def apply() -> None:
            for layer, moments in zip(layers, seen, strict=True):
                layer.seen = moments
                layer.follow()

        if layers:
            moments = list(chain(*seen))
            self._recorder.give_out(moments)
            with self._recorder.between_parts(self._networks):
                apply()
            self._effects.append(Effect(apply, read=moments))

    def run(self, batch: Any, *, compares: bool = False) -> tuple[Tensor, Metrics]:
        """Make an update; return TD errors and metrics."""
        given = tensors_of(batch)
        read = [given[each].contiguous() if isinstance(each, int) else each for each in self._inputs]
        losses, results = list[Tensor](), [torch.empty_like(each) for each in self._found]
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
            if compares:
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
        td_error, metrics = self.run(batch, compares=True)
        for found, expected in zip([td_error, *metrics.values()], self._found, strict=True):
            require_close(found, expected)
        for effect in self._effects:
            effect.gradients = ()


def _compare(effect: Effect, loss: Tensor) -> None:
    """Compare loss and gradients with torch's, and go on with the latter: a step may turn what is next to 0."""
    assert effect.loss is not None
    require_close(loss, effect.loss)
    # Behind a normalisation gradients may be what rounding leaves of sums that cancel.
    largest = max((each.abs().max().item() for each in effect.gradients), default=0.0)
    for parameter, expected in zip(effect.trained, effect.gradients, strict=True):
        require_close(_gradient(parameter), expected, smallest=max(SMALL * largest, 1e-12))
        _gradient(parameter).copy_(expected)


def _gradient(parameter: Tensor) -> Tensor:
    assert parameter.grad is not None
    return parameter.grad
