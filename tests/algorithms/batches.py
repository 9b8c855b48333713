"""Algorithms with tiny networks, and batches as they would have collected them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from penstock.algorithms.bases.segment import Metrics, SegmentAlgorithm
from penstock.config import make_config
from penstock.envs.spaces import ActionSpec, ObservationSpec
from penstock.experience.batch import Batch
from penstock.nn import ActorCritic
from tests.nn.plain import CHOICE

T, B = 6, 4
MEMORIES = ["none", "gru", "lstm"]
VECTOR = ObservationSpec((3,), "float32")
TINY = {"num_workers": 1, "num_envs_per_worker": B, "segment_length": T, "batch_size": 12, "hidden_sizes": (8,),
        "memory_size": 5, "normalize_returns": False}  # fmt: skip


def make(algorithm: type[SegmentAlgorithm], action: ActionSpec = CHOICE, **settings: object) -> SegmentAlgorithm:
    """An algorithm with small numbers (those of `TINY` that it has), for batches of B segments of T steps."""
    tiny = {name: value for name, value in TINY.items() if hasattr(algorithm.Config, name)}
    config = make_config(algorithm.Config, {"env": "none", **tiny, **settings})
    return algorithm(config, VECTOR, action)


def make_model(algorithm: SegmentAlgorithm, seed: int = 0) -> ActorCritic:
    """Its network, with a policy far enough from uniform for differences to show."""
    torch.manual_seed(seed)
    model = algorithm.build_model()
    with torch.no_grad():
        model.policy_head.weight.mul_(50.0)
        model.value_head.weight.mul_(2.0)
    return model


def collect(algorithm: SegmentAlgorithm, model: ActorCritic, seed: int = 0, valid: Tensor | None = None) -> Batch:
    """A batch as `model` would have collected it: the log-probabilities are its own, boundaries of all kinds occur."""
    generator = torch.Generator().manual_seed(seed)

    def chance(share: float) -> Tensor:
        return torch.rand(T, B, generator=generator) < share

    valid = torch.ones(T, B, dtype=torch.bool) if valid is None else valid
    obs = torch.randn(T + 1, B, 3, generator=generator)
    terminated = chance(0.2) & valid
    truncated = chance(0.2) & valid & ~terminated
    first = torch.cat((torch.ones(1, B, dtype=torch.bool), terminated | truncated))
    memory = torch.randn(B, model.state_size, generator=generator)
    action = algorithm.action
    noise = torch.rand if action.is_discrete else torch.randn
    with torch.no_grad():
        policy, _ = model.evaluate(obs, first, memory)
        chosen = policy[:-1].sample(noise(T, B, action.noise_size, generator=generator))
        log_prob = policy[:-1].log_prob(chosen)
    return Batch(
        obs=obs, first=first, action=chosen, reward=torch.randn(T, B, generator=generator) * valid,
        terminated=terminated, truncated=truncated, valid=valid, learn=valid.float(), log_prob=log_prob, memory=memory,
        lane=torch.arange(B), replayed=torch.zeros(B, dtype=torch.bool),
    )  # fmt: skip


def prepared(algorithm: SegmentAlgorithm, model: ActorCritic, **arguments: Any) -> Batch:
    """A batch as `model` would have collected it, with its targets."""
    batch = collect(algorithm, model, **arguments)
    algorithm.prepare(model, batch)
    return batch


def learn(algorithm: SegmentAlgorithm, model: ActorCritic, batch: Batch) -> tuple[Tensor, Metrics]:
    """Prepare a batch and return the loss of its one update."""
    algorithm.prepare(model, batch)
    (update,) = algorithm.minibatches(batch, torch.Generator())
    return algorithm.evaluate(model, update)


def whole(algorithm: SegmentAlgorithm, batch: Batch) -> Batch:
    """The batch as one minibatch, of the form that the algorithm's loss wants."""
    return batch if algorithm.needs_segments else batch.flatten()


def gradients(loss: Tensor, model: ActorCritic) -> dict[str, Tensor]:
    """Gradient of the loss by the name of its parameter; zeros where the loss does not reach."""
    names, parameters = zip(*model.named_parameters(), strict=True)
    found = torch.autograd.grad(loss, parameters, allow_unused=True)
    return {
        name: torch.zeros_like(parameter) if gradient is None else gradient
        for name, parameter, gradient in zip(names, parameters, found, strict=True)
    }


def settings_alone(**weights: float) -> dict[str, float]:
    """Settings under which the loss is the policy's objective alone, but for what is given."""
    return {"value_coef": 0.0, "entropy_coef": 0.0, **weights}
