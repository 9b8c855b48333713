"""Scoring a policy: every lane plays the same quota of episodes, so that short ones are not favoured."""

from __future__ import annotations

import dataclasses
import math
import os
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from penstock.config import require
from penstock.engine.noise import NoiseStreams
from penstock.engine.policy import load_policy
from penstock.engine.video import film
from penstock.envs.factories import OUTSIDE
from penstock.envs.lanes import Lanes
from penstock.envs.making import make_lanes
from penstock.envs.spec import EnvSpec
from penstock.nn import PolicyNetwork

MAX_LANES = 25
# Lanes are numbered from 0 in training, from here in a run's evaluations, and from there where a policy is scored after
# the event: no seed is trained on and evaluated, and no score comes of the episodes that chose the best weights.
EVALUATION_LANES, SCORING_LANES = 1_000_000, 2_000_000


@dataclass(frozen=True)
class Evaluation:
    """What came of playing some episodes.

    Attributes
    ----------
    returns, lengths
        True, undiscounted return and number of steps of each episode.
    steps
        Steps that the weights had learned from.
    """

    returns: tuple[float, ...]
    lengths: tuple[int, ...]
    steps: int = 0

    @property
    def episodes(self) -> int:
        """Number of episodes."""
        return len(self.returns)

    @property
    def mean_return(self) -> float:
        """Mean of the returns."""
        return float(np.mean(self.returns))

    @property
    def std_return(self) -> float:
        """Standard deviation of the returns."""
        return float(np.std(self.returns))

    @property
    def mean_length(self) -> float:
        """Mean length in steps."""
        return float(np.mean(self.lengths))


def lanes_for(episodes: int) -> int:
    """Number of lanes that play `episodes` in equal quotas: the largest divisor that is at most MAX_LANES."""
    return max(n for n in range(1, min(episodes, MAX_LANES) + 1) if episodes % n == 0)


class Player:
    """A policy playing lanes of its own, outside of any arena.

    Parameters
    ----------
    model
        The policy's network.
    lanes
        What it plays.
    deterministic
        Take the mode of the distribution, not a sample.
    seed
        Seeds the samples.
    """

    def __init__(self, model: PolicyNetwork, lanes: Lanes, *, deterministic: bool, seed: int) -> None:
        self._model = model
        self._lanes = lanes
        self._deterministic = deterministic
        self._device = next(model.parameters()).device
        self._rows = np.arange(lanes.num_lanes, dtype=np.int64)
        self._obs = np.empty((lanes.num_lanes, *lanes.observation.shape), lanes.observation.dtype)
        self._noise = NoiseStreams(
            lanes.action.noise, lanes.action.noise_size,
            range(lanes.first_lane, lanes.first_lane + lanes.num_lanes), seed=seed, incarnation=0,
        )  # fmt: skip

    @torch.inference_mode()
    def play(self, episodes: int, on_step: Callable[[], object] = lambda: None) -> Evaluation:
        """Play `episodes` from fresh resets, an equal number in every lane; a multiple of the number of lanes."""
        lanes, quota = self._lanes, math.ceil(episodes / self._lanes.num_lanes)
        played: list[list[tuple[float, int]]] = [[] for _ in range(lanes.num_lanes)]
        memory = self._model.initial_state(lanes.num_lanes)
        lanes.reset()
        lanes.take_episodes()
        missing = lanes.num_lanes
        while missing:
            lanes.write_observations(self._obs, self._rows)
            obs, first = self._tensor(self._obs), self._tensor(lanes.first)
            choice, memory = self._model.act(obs, first, memory)
            action = choice.mode() if self._deterministic else choice.sample(self._tensor(self._noise.draw()))
            lanes.step(action.cpu().numpy())
            on_step()
            for lane, episode_return, length in lanes.take_episodes():
                if len(played[lane]) < quota:
                    played[lane].append((episode_return, length))
                    missing -= len(played[lane]) == quota
        returns, lengths = zip(*(episode for lane in played for episode in lane), strict=True)
        return Evaluation(returns, lengths)

    def _tensor(self, array: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(array).to(self._device)


def evaluate_model(
    model: PolicyNetwork,
    env: EnvSpec,
    *,
    episodes: int,
    deterministic: bool = True,
    seed: int = 0,
) -> Evaluation:
    """Play `episodes`, none of which the run's evaluator has played, of an environment made for the purpose."""
    require(episodes > 0, "episodes", episodes, "more than 0")
    lanes = make_lanes(env, lanes_for(episodes), seed=seed, first_lane=SCORING_LANES, worker_index=OUTSIDE)
    try:
        return Player(model, lanes, deterministic=deterministic, seed=seed).play(episodes)
    finally:
        lanes.close()


def evaluate_run(
    path: str | os.PathLike[str],
    *,
    episodes: int = 100,
    deterministic: bool = True,
    video: str | None = None,
    seed: int | None = None,
    **settings: Any,
) -> Evaluation:
    """Score the policy of a run or checkpoint on its environment.

    Parameters
    ----------
    path
        What `load_policy` takes.
    episodes
        How many to play, the same quota in every lane.
    deterministic
        Take the most probable actions, not samples.
    video
        File to write a film of one more episode to (needs the extra "video").
    seed
        Seeds the environments; None: anew every time.
    **settings
        Settings that could not be written to the checkpoint by value, such as ``env=MyEnv``.
    """
    policy = load_policy(path, **settings)
    config = policy.algorithm.config
    env = dataclasses.replace(
        EnvSpec.resolve(config.env, config.env_kwargs, config.vectorize),
        mask_is_in_info=policy.algorithm.observation.mask_is_in_info,
    )
    seed = secrets.randbits(31) if seed is None else seed
    evaluation = evaluate_model(policy.model, env, episodes=episodes, deterministic=deterministic, seed=seed)
    if video is not None:
        film(policy, env, video, deterministic=deterministic, seed=seed)
    return dataclasses.replace(evaluation, steps=policy.meta["steps"])
