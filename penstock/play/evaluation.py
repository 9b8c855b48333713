"""Scoring a policy: every lane plays the same quota of episodes, so that short ones are not favoured.

An episode need not end: one that lasts too long is given up, and counts with what it has returned by then.
"""

from __future__ import annotations

import dataclasses
import math
import os
import secrets
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from penstock.config import policy_configs, require
from penstock.envs.episodes import EpisodeRecord
from penstock.envs.factories import OUTSIDE
from penstock.envs.group import Group
from penstock.envs.lanes import Lanes
from penstock.envs.making import agents_of
from penstock.envs.spec import EnvSpec
from penstock.nn import PolicyNetwork
from penstock.play.film import film
from penstock.play.match import Match
from penstock.play.noise import NoiseStreams
from penstock.play.policy import environment_of, load_policy

Opponents = Sequence[str | Callable[..., Any]]
"""Fixed opponents, as ``eval_against`` has them."""

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
        True, undiscounted return and number of steps of each episode; of a game, those of each agent.
        Of those that were given up, what they had returned by then.
    steps
        Steps that the weights had learned from.
    version
        Version of the weights, in a run.
    successes
        ``info["is_success"]`` of the last step of each episode of `returns`, None where there is none; or nothing.
    unfinished
        How many of the episodes, the last ones of `returns`, were given up before they ended: after ``eval_max_steps``
        steps, or because time was up. Their lanes play no more, so there may be fewer episodes than were asked for.
    matches
        Games against fixed opponents, where there are any: `returns` are then those against the first one.
    """

    returns: tuple[float, ...]
    lengths: tuple[int, ...]
    steps: int = 0
    unfinished: int = 0
    version: int = 0
    successes: tuple[float | None, ...] = ()
    matches: tuple[Match, ...] = ()

    @property
    def episodes(self) -> int:
        """Number of episodes, those among them that were given up."""
        return len(self.returns)

    @property
    def mean_return(self) -> float:
        """Mean of the returns; see `unfinished`."""
        return float(np.mean(self.returns))

    @property
    def std_return(self) -> float:
        """Standard deviation of the returns."""
        return float(np.std(self.returns))

    @property
    def mean_length(self) -> float:
        """Mean length in steps."""
        return float(np.mean(self.lengths))

    @property
    def success_rate(self) -> float | None:
        """Share of the episodes that were successes, from 0 to 1; None if the environment says nothing of it."""
        return success_rate(self.successes)


def success_rate(successes: Collection[float | None]) -> float | None:
    """Return the mean of what episodes say of their success; silence counts as none unless all are silent."""
    told = [success for success in successes if success is not None]
    return sum(told) / len(successes) if told else None


def lanes_for(episodes: int) -> int:
    """Number of lanes that play `episodes` in equal quotas: the largest divisor that is at most MAX_LANES."""
    return max(n for n in range(1, min(episodes, MAX_LANES) + 1) if episodes % n == 0)


class Player:
    """Policies playing environments of their own, outside of any arena.

    Parameters
    ----------
    models
        The network of each policy.
    group
        What they play, with the lanes of each.
    deterministic
        Take the mode of the distribution, not a sample.
    seed
        Seeds the samples.
    """

    def __init__(
        self, models: Sequence[PolicyNetwork], group: Group, *, deterministic: bool, seed: int
    ) -> None:
        self.group = group
        self._parts = [
            Part(model, lanes, deterministic=deterministic, seed=seed + policy)
            for policy, (model, lanes) in enumerate(zip(models, group.lanes, strict=True))
        ]

    @torch.inference_mode()
    def play(
        self,
        episodes: int,
        *,
        max_steps: float = math.inf,
        deadline: float = math.inf,
        on_step: Callable[[], object] = lambda: None,
    ) -> tuple[Evaluation, ...]:
        """Play from fresh resets, an equal number of episodes in every lane; return what came of it for each policy.

        Parameters
        ----------
        episodes
            How many environments' episodes in all, a multiple of their number; where an environment has several
            agents, each of them has so many.
        max_steps
            Steps after which an episode is given up; its lane plays no other. The whole game of an agent is given up.
        deadline
            When all that are under way are given up (monotonic seconds), one step of each lane later at the earliest.
        on_step
            Called after every step of the lanes.
        """
        self.group.reset()
        for part in self._parts:
            part.begin(episodes)
        while any([part.plays_on for part in self._parts]):
            self.group.step([part.act() for part in self._parts])
            on_step()
            is_late = time.monotonic() >= deadline
            for part in self._parts:
                part.hear(max_steps, is_late=is_late)
        return tuple(part.evaluation() for part in self._parts)


class Part:
    """One policy's part in what is played.

    Attributes
    ----------
    played
        Episodes that each lane has played of its quota.
    given_up
        Those that were given up.
    """

    def __init__(self, model: PolicyNetwork, lanes: Lanes, *, deterministic: bool, seed: int) -> None:
        self._model = model
        self._lanes = lanes
        self._deterministic = deterministic
        self._device = next(model.parameters()).device
        self._rows = np.arange(lanes.num_lanes, dtype=np.int64)
        self._obs = np.zeros((lanes.num_lanes, *lanes.observation.shape), lanes.observation.dtype)
        self._noise = NoiseStreams(
            lanes.action.noise, lanes.action.noise_size,
            range(lanes.first_lane, lanes.first_lane + lanes.num_lanes), seed=seed, incarnation=0,
        )  # fmt: skip

    def begin(self, episodes: int) -> None:
        """Begin with lanes that were reset."""
        lanes = self._lanes
        self._quota = math.ceil(episodes * max(1, len(lanes.agents)) / lanes.num_lanes)
        self.played: list[list[EpisodeRecord]] = [[] for _ in range(lanes.num_lanes)]
        self.given_up: list[EpisodeRecord] = []
        self._plays_on = np.full(lanes.num_lanes, True)
        self._memory = self._model.initial_state(lanes.num_lanes)
        lanes.take_episodes()

    @property
    def plays_on(self) -> bool:
        """Whether a lane has episodes to play."""
        return bool(self._plays_on.any())

    def act(self) -> np.ndarray:
        """Choose actions; memory of lanes that wait for their turn stays as it is."""
        lanes = self._lanes
        lanes.write_observations(self._obs, self._rows)
        obs, first = self._tensor(self._obs), self._tensor(lanes.first)
        choice, memory = self._model.act(obs, first, self._memory)
        if not lanes.asked.all():
            memory = torch.where(self._tensor(lanes.asked)[:, None], memory, self._memory)
        self._memory = memory
        action = choice.mode() if self._deterministic else choice.sample(self._tensor(self._noise.draw()))
        return action.cpu().numpy()

    def hear(self, max_steps: float, *, is_late: bool) -> None:
        """Note what ended, and give up what goes on for too long."""
        lanes = self._lanes
        for episode in lanes.take_episodes():
            lane = episode.lane
            if self._plays_on[lane]:
                self.played[lane].append(episode)
                self._plays_on[lane] = len(self.played[lane]) < self._quota
        too_long = self._plays_on & (lanes.running_lengths >= (1 if is_late else max_steps))
        too_long |= self._plays_on & self._in_games_of(too_long)
        self.given_up += [lanes.running_episode(lane) for lane in too_long.nonzero()[0].tolist()]
        self._plays_on &= ~too_long & (not is_late)

    def evaluation(self) -> Evaluation:
        """What came of it; a game in which an agent had no part is none of its episodes."""
        whole = [episode for lane in self.played for episode in lane]
        whole = [episode for episode in whole if episode.length] or whole
        given_up = [episode for episode in self.given_up if episode.length]
        counted = [*whole, *given_up] or [self._lanes.running_episode(0)]
        _, returns, lengths, successes = zip(*counted, strict=True)
        return Evaluation(returns, lengths, unfinished=len(given_up), successes=successes)

    def _in_games_of(self, lanes: np.ndarray) -> np.ndarray:
        """Whether a lane's game is that of one of these lanes, bool ``[N]``."""
        seats = max(1, len(self._lanes.agents))
        return lanes.reshape(-1, seats).any(axis=1).repeat(seats)

    def _tensor(self, array: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(array).to(self._device)


def evaluate_model(
    model: PolicyNetwork,
    env: EnvSpec,
    *,
    episodes: int,
    deterministic: bool = True,
    seed: int = 0,
    max_steps: float = math.inf,
    opponents: Opponents = (),
) -> Evaluation:
    """Play `episodes`, none of which the run's evaluator has played, of an environment made for the purpose.

    With `opponents`, so many games against each of them, from each seat (see `penstock.play.against.MatchPlayer`).
    """
    (evaluation,) = evaluate_models(
        [model], env, episodes=episodes, deterministic=deterministic, seed=seed, max_steps=max_steps,
        opponents=opponents,
    )  # fmt: skip
    return evaluation


def evaluate_models(
    models: Sequence[PolicyNetwork],
    env: EnvSpec,
    *,
    episodes: int,
    deterministic: bool = True,
    seed: int = 0,
    max_steps: float = math.inf,
    opponents: Opponents = (),
    best: Callable[[], PolicyNetwork | None] = lambda: None,
) -> tuple[Evaluation, ...]:
    """Do what `evaluate_model` does for the policies of an environment of several agents, which play together.

    `best` returns the network that the opponent "best" is played by, which is left out where there is none.
    """
    from penstock.play.against import player_of  # here, because it plays what is defined above

    require(episodes > 0, "episodes", episodes, "more than 0")
    require(max_steps > 0, "max_steps", max_steps, "more than 0")
    player = player_of(
        models, env, opponents, episodes=episodes, deterministic=deterministic, seed=seed, best=best,
        first_lane=SCORING_LANES, worker_index=OUTSIDE,
    )  # fmt: skip
    try:
        return player.play(episodes, max_steps=max_steps)
    finally:
        player.group.close()


def evaluate_together(
    paths: Mapping[str, str | os.PathLike[str]],
    *,
    episodes: int = 100,
    deterministic: bool = True,
    video: str | None = None,
    seed: int | None = None,
    max_steps: int | None = None,
    **settings: Any,
) -> dict[str, Evaluation]:
    """Score the policies of a run of several, which play together.

    Parameters
    ----------
    paths
        The checkpoint of each policy, by its name, in the order of the run.
    episodes, deterministic, video, seed, max_steps, **settings
        As for `evaluate_run`.
    """
    policies = {name: load_policy(path, **settings) for name, path in paths.items()}
    first = next(iter(policies.values()))
    config, env = first.algorithm.config, environment_of(first)
    agents = agents_of(env)
    teams = tuple(each.agents for each in policy_configs(config, agents)) if agents else ()
    env = dataclasses.replace(env, teams=teams, population=1 if agents else len(policies))
    seed = secrets.randbits(31) if seed is None else seed
    evaluations = evaluate_models(
        [policy.model for policy in policies.values()], env, episodes=episodes,
        deterministic=deterministic, seed=seed, max_steps=config.eval_max_steps if max_steps is None else max_steps,
    )  # fmt: skip
    if video is not None:
        played_by = {
            agent: policy for team, policy in zip(teams, policies.values(), strict=False) for agent in team
        }
        film(first, env.of_one, video, deterministic=deterministic, seed=seed, teammates=played_by)
    return {
        name: dataclasses.replace(evaluation, steps=policy.meta["steps"])
        for (name, policy), evaluation in zip(policies.items(), evaluations, strict=True)
    }


def evaluate_run(
    path: str | os.PathLike[str],
    *,
    episodes: int = 100,
    deterministic: bool = True,
    video: str | None = None,
    seed: int | None = None,
    max_steps: int | None = None,
    **settings: Any,
) -> Evaluation:
    """Score the policy of a run or checkpoint on its environment.

    Parameters
    ----------
    path
        What `load_policy` takes.
    episodes
        How many to play, the same quota in every lane; of games, how many of every agent.
    deterministic
        Take the most probable actions, not samples.
    video
        File to write a film of one more episode to (needs the extra "video").
    seed
        Seeds the environments; None: anew every time.
    max_steps
        Steps after which an episode is given up (see `Evaluation.unfinished`); None: the run's ``eval_max_steps``.
    **settings
        Settings that could not be written to the checkpoint by value, such as ``env=MyEnv``.
    """
    policy = load_policy(path, **settings)
    config = policy.algorithm.config
    env = environment_of(policy)
    seed = secrets.randbits(31) if seed is None else seed
    evaluation = evaluate_model(
        policy.model, env, episodes=episodes, deterministic=deterministic, seed=seed,
        max_steps=config.eval_max_steps if max_steps is None else max_steps, opponents=config.eval_against,
    )  # fmt: skip
    if video is not None:
        film(policy, env, video, deterministic=deterministic, seed=seed)
    return dataclasses.replace(evaluation, steps=policy.meta["steps"])
