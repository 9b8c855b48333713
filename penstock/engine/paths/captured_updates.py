"""Updates on a GPU as CUDA graphs: gradients of segment updates, and whole updates from replay."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch import Tensor

from penstock.algorithms.arithmetic.optimizers import OnDevice
from penstock.algorithms.bases.algorithm import Metrics, NonFiniteUpdate
from penstock.algorithms.bases.replay import ReplayAlgorithm
from penstock.algorithms.bases.segment import SegmentAlgorithm
from penstock.engine.paths.captured import CapturedWork, Results
from penstock.experience.batch import Batch
from penstock.nn import ActorCritic

LOSS = "the loss itself"  # no metric has this name
TD_ERROR = "TD errors"


class CapturedGradient:
    """`SegmentAlgorithm.gradient` by CUDA graphs, one for each shape of batches, as far as they can be captured.

    A graph repeats the operations of its capture: an algorithm declares by ``repeatable_updates`` that they
    are the same for every update. An update that reads the batch's progress, or that cannot be captured, such as one
    with a loss that branches on values, runs operation by operation.

    Parameters
    ----------
    algorithm, model, autocast
        Arguments of `SegmentAlgorithm.gradient`.
    note
        Called with a text if updates cannot be captured.
    graphs
        Class of the graphs.
    """

    def __init__(
        self, algorithm: SegmentAlgorithm, model: ActorCritic, autocast: AbstractContextManager[object],
        note: Callable[[str], object], graphs: type[CapturedWork] = CapturedWork,
    ) -> None:  # fmt: skip
        self._algorithm, self._model, self._autocast = algorithm, model, autocast
        self._graphs = graphs(note)
        self._graphs.captures = algorithm.reason_not_to_repeat() is None

    def __call__(self, batch: Batch) -> tuple[Tensor, Metrics]:
        """Compute the gradient of the parameters; return loss and metrics."""
        results = self._graphs.replay("gradient", batch, self._results)
        if results is None:
            return self._algorithm.gradient(self._model, batch, self._autocast)
        metrics, batch.targets = results.copies()
        return metrics.pop(LOSS), metrics

    def _results(self, batch: Any) -> Results:
        loss, metrics = self._algorithm.gradient(self._model, batch, self._autocast)
        return Results.of({**metrics, LOSS: loss}, batch.targets)


class CapturedUpdate:
    """`ReplayAlgorithm.update` by CUDA graphs, one for each kind of update and shape of batches.

    An algorithm declares by ``repeatable_updates`` that updates of a kind are one computation. Nothing waits for the
    device: an update whose loss or gradient is not finite changes nothing there, and the next update raises the error
    and counts as skipped instead. With priorities, which wait for the TD errors anyway, it is raised at once.

    Parameters
    ----------
    algorithm, model
        Algorithm that has begun, and the network that learns.
    note
        Called with a text if updates cannot be captured.
    waits
        Whether to wait for the result of each update.
    graphs
        Class of the graphs.
    """

    def __init__(
        self, algorithm: ReplayAlgorithm, model: Any, note: Callable[[str], object], *, waits: bool,
        graphs: type[CapturedWork] = CapturedWork,
    ) -> None:  # fmt: skip
        self._algorithm, self._model, self._waits = algorithm, model, waits
        device = next(model.parameters()).device
        self._lost = torch.zeros((), device=device)
        self._rates = {name: torch.zeros((), device=device) for name in algorithm.optimizers}
        self._rates_there: dict[str, float] = {}
        self._lost_before = torch.zeros((), pin_memory=device.type == "cuda")
        self._copied = torch.cuda.Event(blocking=True) if device.type == "cuda" else None
        self._settings: Any = None
        self._moments: list[int] = []
        self._graphs = graphs(note, [algorithm.generator], may_read=["number"])
        if (reason := algorithm.reason_not_to_capture()) is not None:
            self._graphs.give_up(reason)

    def __call__(self, batch: Any) -> tuple[Tensor, Metrics]:
        """Make an update; return TD errors and metrics, as `ReplayAlgorithm.update` does.

        Raises
        ------
        NonFiniteUpdate
            This update, or the previous one, changed nothing.
        """
        if self._is_replaced():
            self._graphs.forget()
        self._set_rates()
        results = self._graphs.replay(self._algorithm.update_kind(batch.number), batch, self._results)
        if results is None:
            td_error, metrics = self._algorithm.update(self._model, batch)
            # Nodes that add to gradients belong to this stream: a later capture fails if results keep them alive.
            return td_error, {name: value.detach() for name, value in metrics.items()}
        metrics, tensors = results.copies()
        if not self._waits:
            self._raise_if_lost()
        self._lost_before.copy_(self._lost, non_blocking=True)
        if self._copied is not None:
            self._copied.record()
        if self._waits:
            self._raise_if_lost()
        self._algorithm.after_update(self._model, batch, metrics)
        return tensors[TD_ERROR], metrics

    def _results(self, batch: Any) -> Results:
        self._lost.zero_()
        with self._on_device():
            td_error, metrics = self._algorithm.update(self._model, batch)
        return Results.of(dict(metrics), {TD_ERROR: td_error})

    @contextmanager
    def _on_device(self) -> Iterator[None]:
        """Within the block, updates read learning rates from the device, and record there whether they are lost."""
        algorithm = self._algorithm
        algorithm.nonfinite = self._lost
        for name, optimizer in algorithm.optimizers.items():
            vars(optimizer)["on_device"] = OnDevice(self._rates[name], self._lost)
        try:
            yield
        finally:
            algorithm.nonfinite = None
            for optimizer in algorithm.optimizers.values():
                del vars(optimizer)["on_device"]

    def _is_replaced(self) -> bool:
        """Return whether settings or memory of optimisers were replaced since the last update."""
        optimizers = self._algorithm.optimizers.values()
        moments = [
            tensor.data_ptr() for optimizer in optimizers for state in optimizer.state.values()
            for tensor in state.values() if isinstance(tensor, Tensor)
        ]  # fmt: skip
        before = self._settings, self._moments
        self._settings, self._moments = self._algorithm.config, moments
        return before[0] is not self._settings or before[1] != moments

    def _set_rates(self) -> None:
        for name, optimizer in self._algorithm.optimizers.items():
            rate = optimizer.param_groups[0]["lr"]
            if self._rates_there.get(name) != rate:
                self._rates[name].fill_(rate)
                self._rates_there[name] = rate

    def _raise_if_lost(self) -> None:
        if self._copied is not None:
            self._copied.synchronize()
        if self._lost_before.item():
            self._lost_before.zero_()
            raise NonFiniteUpdate("loss or gradient of a captured update")
