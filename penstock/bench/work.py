"""Real work of a run, each kind alone: stepping environments, choosing actions, learning.

No rows are written, sent or waited for: that is the engine's own cost.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from penstock.algorithms.bases.algorithm import Request
from penstock.bench.rehearsals import HALF_WAY, first_rows, model_on, wait_for
from penstock.config import Config
from penstock.envs.factories import OUTSIDE
from penstock.envs.making import make_lanes
from penstock.envs.spaces import ActionSpec
from penstock.envs.spec import EnvSpec
from penstock.experience.arena import ExperienceArena
from penstock.self_play.fixed_opponents import RandomOpponent

MOST_ACTIONS = 64  # sets of actions drawn in advance


class Stepping:
    """Steps a group of lanes, made as in a rollout worker, with random actions.

    Observations stay in the environment's memory. With masks, finding legal actions is included.
    """

    def __init__(self, arena: ExperienceArena, env: EnvSpec, config: Config, number: int) -> None:
        size = arena.shape.group_size
        self._lanes = make_lanes(
            env, arena.shape.envs_per_group, seed=config.seed, first_lane=number * size, worker_index=number
        )
        self._lanes.reset()
        generator = np.random.default_rng(number)
        self._legal = None if arena.shape.observation.mask is None else RandomOpponent(self._lanes, number)
        drawn = (random_actions(arena.shape.action, size, generator) for _ in range(MOST_ACTIONS))
        self._actions, self._next = list(drawn), 0

    def do(self) -> float:
        self._next = (self._next + 1) % MOST_ACTIONS
        self._lanes.step(self._actions[self._next] if self._legal is None else self._legal.act())
        return float(np.count_nonzero(self._lanes.valid))

    def close(self) -> None:
        self._lanes.close()


class Choosing:
    """Chooses actions for a batch of observations, with all values recorded beside them."""

    def __init__(self, arena: ExperienceArena, algorithm: Any, num_lanes: int, device: str) -> None:
        self._algorithm = algorithm
        self._model, self._autocast = model_on(torch.device(device), algorithm)
        self._request = request_for(arena, algorithm, num_lanes, torch.device(device))

    @torch.inference_mode()
    def do(self) -> float:
        with self._autocast:
            columns, _ = self._algorithm.act(self._model, self._request)
        wait_for(self._request.obs.device)
        for values in columns.values():
            values.cpu()
        return len(self._request.lane)

    def close(self) -> None:
        """Do nothing: there are no resources."""


def random_actions(action: ActionSpec, num_lanes: int, generator: np.random.Generator) -> np.ndarray:
    """Return uniform choices, and uniform numbers in [-1, 1]: ``[num_lanes, *action.column_shape]``."""
    choices = generator.integers(0, action.choices, (num_lanes, len(action.choices)))
    numbers = generator.uniform(-1.0, 1.0, (num_lanes, action.num_numbers))
    actions = np.concatenate([choices, numbers], axis=1).astype(action.column_dtype)
    return actions.reshape(num_lanes, *action.column_shape)


def fill(arena: ExperienceArena, algorithm: Any, env: EnvSpec, first_lane: int) -> None:
    """Fill all rows of an arena with first observations of episodes and an untrained policy's results."""
    lanes = make_lanes(
        env, arena.shape.envs_per_group, seed=algorithm.config.seed, first_lane=first_lane, worker_index=OUTSIDE
    )
    try:
        lanes.reset()
        lanes.write_observations(arena.columns["obs"], np.arange(lanes.num_lanes))
    finally:
        lanes.close()
    with torch.inference_mode():
        request = request_for(arena, algorithm, lanes.num_lanes, torch.device("cpu"))
        chosen, _ = algorithm.act(algorithm.make_model(), request)
    for name, values in chosen.items():
        arena.columns[name][: lanes.num_lanes] = values.numpy()
    arena.columns["reward"][: lanes.num_lanes] = np.random.default_rng(0).normal(size=lanes.num_lanes)
    arena.columns["valid"][: lanes.num_lanes] = True
    for column in arena.columns.values():
        for begin in range(lanes.num_lanes, len(column), lanes.num_lanes):
            rows = column[begin : begin + lanes.num_lanes]
            rows[:] = column[: len(rows)]


def request_for(arena: ExperienceArena, algorithm: Any, num_lanes: int, device: torch.device) -> Request:
    """Return a request for the observations of the first rows."""
    action = arena.shape.action
    generator = np.random.default_rng(0)
    draw = generator.standard_normal if action.noise == "normal" else generator.random
    return Request(
        obs=first_rows(arena, "obs", num_lanes, device),
        first=first_rows(arena, "first", num_lanes, device),
        memory=torch.zeros(num_lanes, arena.shape.state_size, device=device),
        noise=torch.from_numpy(draw((num_lanes, action.noise_size), np.float32)).to(device),
        lane=torch.arange(num_lanes, device=device) % arena.shape.num_lanes,
        steps=int(HALF_WAY * algorithm.config.total_steps),
    )
