"""Algorithms that learn from replay, with linear networks, and batches of transitions given by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from penstock.algorithms.bases.algorithm import Request
from penstock.algorithms.bases.replay import ReplayAlgorithm
from penstock.config import make_config
from penstock.engine.contracts import Start
from penstock.engine.paths.replay import make_replay
from penstock.envs.spaces import ActionSpec, ObservationSpec
from penstock.experience.batch import TransitionBatch
from penstock.nn import flatten_

STATE = ObservationSpec((), "int64", num_values=2)
VECTOR = ObservationSpec((2,), "float32")
TORQUE = ActionSpec((1,), "float32", low=(-2.0,), high=(2.0,))
LINEAR = {"env": "none", "num_workers": 1, "num_envs_per_worker": 1, "hidden_sizes": (), "batch_size": 2,
          "learning_starts": 10, "buffer_size": 100}  # fmt: skip


ZERO = (0.0, 0.0, 0.0, 0.0)
"""The critic that gives 0, as `set_critics` takes it."""


def constant(value: float) -> tuple[float, float, float, float]:
    """The critic that gives this, as `set_critics` takes it."""
    return (0.0, 0.0, 0.0, value)


def make(algorithm: type[ReplayAlgorithm], observation: ObservationSpec, action: ActionSpec, **settings: object) -> Any:
    """An algorithm whose network has no hidden layer by default."""
    return algorithm(make_config(algorithm.Config, {**LINEAR, **settings}), observation, action)  # type: ignore[arg-type]


def begin(algorithm: ReplayAlgorithm, seed: int = 0) -> Any:
    """The algorithm's network, and a learner's state beside it in the algorithm."""
    torch.manual_seed(seed)
    model = algorithm.build_model()
    flatten_(model)
    algorithm.begin(model)
    return model


def descend_plainly(algorithm: ReplayAlgorithm) -> None:
    """Let every optimiser step by the gradient itself, so that a step shows it."""
    for name, optimizer in algorithm.optimizers.items():
        algorithm.optimizers[name] = torch.optim.SGD(optimizer.param_groups[0]["params"], lr=1.0)


def transitions(
    obs: Sequence[Any],
    action: Sequence[Any],
    reward: Sequence[float],
    discount: Sequence[float],
    next_obs: Sequence[Any],
    weights: Sequence[float] | None = None,
    number: int = 1,
) -> TransitionBatch:
    """A batch of these; numbers without a point are states or discrete actions."""
    return TransitionBatch(
        obs=torch.tensor(obs), next_obs=torch.tensor(next_obs), action=torch.tensor(action),
        reward=torch.tensor(reward), discount=torch.tensor(discount),
        weights=torch.ones(len(reward)) if weights is None else torch.tensor(weights), number=number, progress=0.0,
    )  # fmt: skip


def random_transitions(action: ActionSpec, size: int = 16, seed: int = 0, number: int = 1) -> TransitionBatch:
    """A batch of random ones over `VECTOR`; one in four terminated."""
    generator = torch.Generator().manual_seed(seed)
    if action.is_discrete:
        chosen = torch.randint(action.num_actions or 0, (size,), generator=generator)
    else:
        chosen = 2.0 * torch.rand(size, action.noise_size, generator=generator) - 1.0
    discount = 0.99 * (torch.rand(size, generator=generator) > 0.25)
    obs, next_obs = torch.randn(2, size, 2, generator=generator)
    return TransitionBatch(
        obs=obs, next_obs=next_obs, action=chosen, reward=torch.randn(size, generator=generator), discount=discount,
        weights=torch.ones(size), number=number, progress=0.0,
    )  # fmt: skip


def replayed_episode(algorithm: ReplayAlgorithm, ending: str, length: int, action: Any) -> TransitionBatch:
    """What a run's replay makes of an episode of rewards 1 and observations (t, 1) that has such an end and length."""
    replay, _ = make_replay(algorithm, Start(), None)
    for t in range(length):
        is_last = t == length - 1
        replay.buffer.add(
            obs=np.float32([t, 1]), next_obs=np.float32([t + 1, 1]), action=action, reward=1.0,
            terminated=is_last and ending == "terminated", truncated=is_last and ending == "truncated",
        )  # fmt: skip
    rows = replay.buffer.get_all()
    tensors = {name: torch.from_numpy(rows[name]) for name in ("obs", "next_obs", "action", "reward", "discount")}
    return TransitionBatch(**tensors, weights=torch.ones(len(rows["ids"])), number=1, progress=0.0)


def request(noise: Tensor, steps: int = 10**9, obs: Tensor | None = None) -> Request:
    """A request of as many lanes as there are rows of noise ``[N, K]``."""
    num_lanes = len(noise)
    return Request(
        obs=torch.zeros(num_lanes, 2) if obs is None else obs, first=torch.zeros(num_lanes, dtype=torch.bool),
        memory=torch.zeros(num_lanes, 0), noise=noise, lane=torch.arange(num_lanes), steps=steps,
    )  # fmt: skip


def copied(network: nn.Module) -> dict[str, Tensor]:
    """The weights as they are now."""
    return {name: tensor.clone() for name, tensor in network.state_dict().items()}


def changed(network: nn.Module, before: dict[str, Tensor]) -> set[str]:
    """Names of the weights that are not what they were."""
    return {name for name, tensor in network.state_dict().items() if not torch.equal(tensor, before[name])}


def steps_taken(algorithm: ReplayAlgorithm, network: nn.Module) -> dict[str, set[str]]:
    """A dict that fills with what each loss of an update has changed, by the loss's name."""
    moved: dict[str, set[str]] = {}
    minimize = algorithm.minimize

    def watched(name: str, *arguments: Any, **settings: Any) -> Tensor:
        before = copied(network)
        norm = minimize(name, *arguments, **settings)
        moved[name] = changed(network, before)
        return norm

    algorithm.minimize = watched  # type: ignore[method-assign]
    return moved


def set_outputs(network: Any, table: Sequence[Any]) -> None:
    """Let the outputs of a linear network over `STATE` be ``table[state][action]``, a number or a list of them each."""
    with torch.no_grad():
        network.head.weight.copy_(torch.tensor(table).flatten(1).T)
        network.head.bias.zero_()


def tables(size: int, seed: int) -> list[Any]:
    """Random outputs of two networks over `STATE` and three actions, ``[2][state][action][size]``."""
    generator = torch.Generator().manual_seed(seed)
    drawn: list[Any] = (2.0 * torch.randn(2, 2, 3, size, generator=generator)).tolist()
    return drawn


def set_actor(network: Any, weight: Sequence[Sequence[float]], bias: Sequence[float]) -> None:
    """Let the actor of a linear network give ``weight @ obs + bias``."""
    with torch.no_grad():
        network.actor_head.weight.copy_(torch.tensor(weight))
        network.actor_head.bias.copy_(torch.tensor(bias))


def set_critics(network: Any, *critics: tuple[float, float, float, float]) -> None:
    """Let each critic of a linear network over `VECTOR` and `TORQUE` be ``w0 * o0 + w1 * o1 + w2 * a + b``."""
    with torch.no_grad():
        for number, (*weights, bias) in enumerate(critics):
            network.critics.head.weight[number, :, 0] = torch.tensor(weights)
            network.critics.head.bias[number] = bias


def critics_of(network: Any) -> Tensor:
    """What `set_critics` sets, ``[C, 4]``."""
    head = network.critics.head
    return torch.cat((head.weight.squeeze(-1), head.bias.squeeze(-1)), 1).detach().clone()


def distance_from_uniform(actions: Tensor) -> float:
    """Kolmogorov's distance of numbers ``[N]`` from the uniform distribution over [-1, 1], times the root of N.

    More than 1.63 has a chance of 1 percent.
    """
    share = (actions.detach().double().sort().values + 1.0) / 2.0
    rank = torch.arange(len(share) + 1, dtype=torch.float64) / len(share)
    distance = torch.maximum(rank[1:] - share, share - rank[:-1]).max()
    return float(distance * len(share) ** 0.5)


CHAIN = transitions([0, 0, 1, 1], [0, 1, 0, 1], [0.0, 1.0, 0.0, 2.0], [0.5, 0.5, 0.5, 0.0], [0, 1, 0, 0])
"""State 0: action 0 stays for 0, action 1 goes to state 1 for 1. State 1: action 0 goes back for 0, action 1 terminates
with 2. With gamma 0.5, Q*(1, 1) = 2; Q*(0, 1) = 1 + 0.5 * 2 = 2; Q*(0, 0) = Q*(1, 0) = 0.5 * 2 = 1."""
