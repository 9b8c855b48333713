"""All updates that an algorithm makes of a batch of segments."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial

import torch
from torch import Tensor

from penstock.algorithms.bases.algorithm import NonFiniteUpdate
from penstock.algorithms.bases.segment import SegmentAlgorithm
from penstock.experience.batch import Batch
from penstock.nn import ActorCritic, undisturbed


def _pass_over(*_: object) -> None:
    pass


def learn_batch(
    algorithm: SegmentAlgorithm,
    model: ActorCritic,
    optimizer: torch.optim.Optimizer,
    batch: Batch,
    generator: torch.Generator,
    autocast: AbstractContextManager[object],
    *,
    backward: Callable[[Batch], dict[str, Tensor]] | None = None,
    begin: Callable[[], object] = _pass_over,
    updated: Callable[[], object] = _pass_over,
    skipped: Callable[[str], object] = _pass_over,
) -> dict[str, Tensor]:
    """Make all updates of a batch but those that are not finite; return the means of what the loss reports.

    Parameters
    ----------
    algorithm, model, optimizer
        What learns; the optimiser's learning rate stays as it is.
    batch
        Segments; its ``targets`` are filled.
    generator
        Of the learner's own random numbers.
    autocast
        The arithmetic of the networks.
    backward
        Leaves the gradient of a minibatch with the parameters; None: `SegmentAlgorithm.backward`.
    begin, updated
        Called before each update, and after it.
    skipped
        Called instead of `updated`, with the reason, after one that was left out because it was not finite.
    """
    leave_gradient = backward or (lambda minibatch: algorithm.backward(model, minibatch, autocast))

    def gradient_of(minibatch: Batch) -> dict[str, Tensor]:
        optimizer.zero_grad(set_to_none=False)
        return leave_gradient(minibatch)

    sums, count, is_finite = dict[str, Tensor](), 0, True
    with torch.no_grad(), autocast:
        undisturbed(lambda: algorithm.prepare(model, batch))
    for minibatch in algorithm.updates(batch, generator):
        if not minibatch.learn.any():
            continue  # the optimiser's momentum would still move the weights
        begin()
        try:
            metrics = undisturbed(partial(gradient_of, minibatch))
        except NonFiniteUpdate as problem:
            is_finite = False
            skipped(str(problem))
            continue
        optimizer.step()
        updated()
        for name, value in metrics.items():
            sums[name] = sums[name] + value if name in sums else value
        count += 1
        if algorithm.is_enough(metrics):
            break
    if is_finite:  # what was not would stay in the statistics for good
        with torch.no_grad():
            algorithm.update_statistics(model, batch)
    return {name: value / count for name, value in sums.items()}
