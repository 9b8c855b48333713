"""Losses by hand: a network whose parameters are its log-probabilities, entropies and values.

The gradient of a summed loss is then a table: that of a log-probability is minus the step's advantage, that of a value
is the value less its target (times value_coef), that of an entropy is minus the weight of the bonus.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from penstock.algorithms.bases.segment import SegmentAlgorithm
from penstock.experience.batch import Batch


@dataclass
class GivenPolicy:
    """A distribution over nothing: its numbers are given, ``[T + 1, B]``."""

    log_probs: Tensor
    entropies: Tensor

    def __getitem__(self, rows: slice) -> GivenPolicy:
        return GivenPolicy(self.log_probs[rows], self.entropies[rows])

    def log_prob(self, action: Tensor) -> Tensor:
        return self.log_probs

    def entropy(self) -> Tensor:
        return self.entropies


class GivenModel(nn.Module):
    """A network with given outputs for any input; returns are not normalised."""

    def __init__(self, values: Tensor) -> None:
        super().__init__()
        self.values = values.clone().requires_grad_()
        self.log_probs = torch.full_like(values, -1.0).requires_grad_()
        self.entropies = torch.full_like(values, 0.5).requires_grad_()

    def evaluate(self, obs: Tensor, first: Tensor, memory: Tensor) -> tuple[GivenPolicy, Tensor]:
        return GivenPolicy(self.log_probs, self.entropies), self.values

    def denormalize_value(self, value: Tensor) -> Tensor:
        return value

    normalize_return = normalize_difference = denormalize_value


def a_segment(
    rewards: list[float], *, terminated: int | None = None, truncated: int | None = None,
    ratios: list[float] | None = None, lanes: int = 1,
) -> Batch:  # fmt: skip
    """Equal segments of these rewards; a truncated step is followed by its final row, which is no step.

    The ratios are those of a policy whose log-probabilities are all -1, as `GivenModel`'s.
    """
    length = len(rewards)

    def flags(*rows: int | None) -> Tensor:
        return torch.tensor([[row in rows] for row in range(length)]).expand(length, lanes)

    final = None if truncated is None else truncated + 1
    valid = ~flags(final)
    ratio = torch.tensor(ratios or [1.0] * length).unsqueeze(1).expand(length, lanes)
    return Batch(
        obs=torch.zeros(length + 1, lanes, 3), first=torch.zeros(length + 1, lanes, dtype=torch.bool),
        action=torch.zeros(length, lanes, dtype=torch.int64),
        reward=torch.tensor(rewards).unsqueeze(1).expand(length, lanes),
        terminated=flags(terminated), truncated=flags(truncated), valid=valid, learn=valid.float(),
        log_prob=-1.0 - ratio.log(), memory=torch.zeros(lanes, 0), lane=torch.arange(lanes),
        replayed=torch.zeros(lanes, dtype=torch.bool),
    )  # fmt: skip


def learned_from(algorithm: SegmentAlgorithm, values: list[float], batch: Batch) -> tuple[list[float], list[float]]:
    """Advantages and value targets of the first lane's steps, read off the gradients of a summed loss.

    The algorithm has ``value_coef=1``; of a mean, the advantages and errors are divided by the number of steps.
    """
    algorithm.needs_segments = True  # rows are to stay rows
    model = GivenModel(torch.tensor(values).unsqueeze(1).expand(len(values), batch.num_segments).contiguous())
    algorithm.prepare(model, batch)  # type: ignore[arg-type]
    (update,) = algorithm.minibatches(batch, torch.Generator())
    loss, _ = algorithm.evaluate(model, update)  # type: ignore[arg-type]
    scale = batch.learn.sum() if getattr(algorithm.config, "reduction", "mean") == "mean" else 1.0
    loss.backward()
    assert model.log_probs.grad is not None and model.values.grad is not None
    assert not model.values.grad[-1].any(), "no gradient goes through what a target is made of"
    steps = batch.valid[:, 0]
    advantage = -scale * model.log_probs.grad[:-1, 0]
    target = model.values.detach()[:-1, 0] - scale * model.values.grad[:-1, 0]
    assert not advantage[~steps].any(), "a row that is no step moves nothing"
    return advantage[steps].tolist(), target[steps].tolist()
