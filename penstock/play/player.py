"""Playing of episodes to score policies, with the same quota for every lane, so that short episodes are not favoured.

An episode that is given up does not count for its lane's quota: when the other lanes have met theirs, all environments
are reset, and lanes below their quota continue. Playing stops when as many episodes were given up as requested.
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from penstock.envs.columns import NoiseStreams
from penstock.envs.lanes import EpisodeRecord, Group, Lanes
from penstock.nn import PolicyNetwork
from penstock.play.evaluation import Evaluation, Match
from penstock.self_play.fixed_opponents import Opponent

MAX_LANES = 25
DRAWS = 1_000_000  # distance between the seeds of evaluators that share the games

Outcomes = Sequence[list[int | None]]
"""Outcomes of the games played in each place, as from `outcome`; None: no winner is defined."""


def lanes_for(episodes: int) -> int:
    """Return the number of lanes for `episodes` in equal quotas: the largest divisor that is at most MAX_LANES."""
    return max(n for n in range(1, min(episodes, MAX_LANES) + 1) if episodes % n == 0)


def ignored_episode(lane: int, is_whole: bool) -> None:
    """Do nothing: default of `on_episode`."""


class Player(ABC):
    """Base of players: policies that play their own environments, outside any arena.

    Parameters
    ----------
    group
        Environments to play.
    """

    def __init__(self, group: Group) -> None:
        self.group = group

    @torch.inference_mode()
    def play(
        self, episodes: int, *, max_steps: float = math.inf, deadline: float = math.inf,
        on_step: Callable[[], object] = lambda: None, on_episode: Callable[[int, bool], object] = ignored_episode,
    ) -> tuple[Evaluation, ...]:  # fmt: skip
        """Play from fresh resets, an equal number of episodes in every lane; return each policy's evaluation.

        Parameters
        ----------
        episodes
            Number of whole episodes over all environments, a multiple of the number of environments; every agent plays
            in each. Against opponents, number of games against each, from each seat. An episode that is given up is
            replaced, until as many were given up as requested.
        max_steps
            Steps after which an episode is given up; in a game, after which an agent gives up the whole game.
        deadline
            Time at which all running episodes are given up (monotonic seconds), after at least one step of each lane.
        on_step
            Called after every step of the lanes.
        on_episode
            Called for every episode that counts, with its lane and whether it is whole rather than given up; its last
            step is the one just made.
        """
        return self._evaluations(PlaySession(self.group, episodes, max_steps, deadline, on_step, on_episode))

    @abstractmethod
    def _evaluations(self, session: PlaySession) -> tuple[Evaluation, ...]:
        """Play, and return each policy's evaluation."""


class EpisodePlayer(Player):
    """Player of policies that play together, each scored by its own returns.

    Parameters
    ----------
    models
        Network of each policy.
    group
        Environments, with the lanes of each policy.
    deterministic
        Whether to take the mode of the distribution instead of a sample.
    seed
        Seed of the samples.
    """

    def __init__(self, models: Sequence[PolicyNetwork], group: Group, *, deterministic: bool, seed: int) -> None:
        super().__init__(group)
        self._parts = [
            Part(model, lanes, deterministic=deterministic, seed=seed + policy)
            for policy, (model, lanes) in enumerate(zip(models, group.lanes, strict=True))
        ]

    def _evaluations(self, session: PlaySession) -> tuple[Evaluation, ...]:
        session.play(self._parts, self._parts)
        return tuple(part.evaluation() for part in self._parts)


@dataclass(frozen=True)
class PlaySession:
    """Episodes played from fresh resets, with the parameters of `Player.play`."""

    group: Group
    episodes: int
    max_steps: float
    deadline: float
    on_step: Callable[[], object] = lambda: None
    on_episode: Callable[[int, bool], object] = ignored_episode

    def play(self, actors: Sequence[Opponent], parts: Sequence[Part], outcomes: Sequence[Outcomes] = ()) -> None:
        """Play until each part has its requested episodes, as many were given up, or time is up.

        Parameters
        ----------
        actors
            Actor of each team's lanes.
        parts
            Actors to be scored.
        outcomes
            Outcomes of each part's games, appended to during play. A part whose agents have ended waits for the end of
            its last games, at most `max_steps` steps.
        """
        for part in parts:
            part.set_quota(self.episodes)
        while True:
            self.group.reset()
            for actor in actors:
                actor.begin()
            self._play_on(actors, parts)
            self._await_outcomes(actors, parts, outcomes)
            for part, of_part in zip(parts, outcomes, strict=False):
                part.align_outcomes(of_part)
            if not any(part.falls_short for part in parts) or time.monotonic() >= self.deadline:
                return

    def _play_on(self, actors: Sequence[Opponent], parts: Sequence[Part]) -> None:
        """Play until each lane has met its quota or given an episode up."""
        while any([part.plays_on for part in parts]):
            self._step(actors)
            is_late = time.monotonic() >= self.deadline
            for part in parts:
                part.record(self.max_steps, is_late=is_late, on_episode=self.on_episode)

    def _await_outcomes(self, actors: Sequence[Opponent], parts: Sequence[Part], outcomes: Sequence[Outcomes]) -> None:
        """Play the last games to their end."""
        waited = 0
        while (
            any(part.awaits(of_part) for part, of_part in zip(parts, outcomes, strict=False))
            and waited < self.max_steps
            and time.monotonic() < self.deadline
        ):
            self._step(actors)
            waited += 1

    def _step(self, actors: Sequence[Opponent]) -> None:
        self.group.step([actor.act() for actor in actors])
        self.on_step()


class Part:
    """One policy's part in the games.

    Attributes
    ----------
    played
        Episodes of the quota played by each lane.
    given_up
        Episodes given up.
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
        self.set_quota(0)

    def set_quota(self, episodes: int) -> None:
        """Set the number of episodes to play and reset all counts."""
        lanes = self._lanes
        self._quota = math.ceil(episodes * max(1, len(lanes.agents)) / lanes.num_lanes)
        self.played: list[list[EpisodeRecord]] = [[] for _ in range(lanes.num_lanes)]
        self.given_up: list[EpisodeRecord] = []

    def begin(self) -> None:
        """Start lanes after a reset: those below their quota play."""
        lanes = self._lanes
        self._plays_on = np.array([len(played) < self._quota for played in self.played])
        self._memory = self._model.initial_state(lanes.num_lanes)
        lanes.take_episodes()

    @property
    def requested(self) -> int:
        """Number of whole episodes requested, over all lanes."""
        return self._quota * self._lanes.num_lanes

    @property
    def plays_on(self) -> bool:
        """Whether a lane has episodes to play before the next reset."""
        return bool(self._plays_on.any())

    @property
    def falls_short(self) -> bool:
        """Whether a lane is below its quota and may play more: fewer episodes were given up than requested."""
        return len(self.given_up) < self.requested and any(len(played) < self._quota for played in self.played)

    def act(self) -> np.ndarray:
        """Choose actions; the memory of waiting lanes stays unchanged."""
        lanes = self._lanes
        lanes.write_observations(self._obs, self._rows)
        obs, first = self._tensor(self._obs), self._tensor(lanes.first)
        choice, memory = self._model.act(obs, first, self._memory)
        if not lanes.asked.all():
            memory = torch.where(self._tensor(lanes.asked)[:, None], memory, self._memory)
        self._memory = memory
        action = choice.mode() if self._deterministic else choice.sample(self._tensor(self._noise.draw()))
        return action.cpu().numpy()

    def record(self, max_steps: float, *, is_late: bool, on_episode: Callable[[int, bool], object]) -> None:
        """Record ended episodes, and give up those that last too long; report both as `Player.play` does."""
        lanes = self._lanes
        for episode in lanes.take_episodes():
            lane = episode.lane
            if self._plays_on[lane]:
                self.played[lane].append(episode)
                on_episode(lane, True)
                self._plays_on[lane] = len(self.played[lane]) < self._quota
        too_long = self._plays_on & (lanes.running_lengths >= (1 if is_late else max_steps))
        too_long |= self._plays_on & self._in_games_of(too_long)
        for lane in too_long.nonzero()[0].tolist():
            self.given_up.append(lanes.running_episode(lane))
            on_episode(lane, False)
        self._plays_on &= ~too_long & (not is_late)

    def evaluation(self) -> Evaluation:
        """Return the evaluation of the episodes, without games in which an agent had no part."""
        whole = [episode for lane in self.played for episode in lane]
        whole = [episode for episode in whole if episode.length] or whole
        given_up = [episode for episode in self.given_up if episode.length]
        counted = [*whole, *given_up] or [self._lanes.running_episode(0)]
        _, returns, lengths, successes = zip(*counted, strict=True)
        unfinished = len(counted) - len(whole)
        return Evaluation(returns, lengths, unfinished=unfinished, requested=self.requested, successes=successes)

    def games(self) -> list[list[bool]]:
        """Return, for each game and each completed round of all its agents, whether one of them took part."""
        seats = max(1, len(self._lanes.agents))
        lanes = [self.played[first : first + seats] for first in range(0, len(self.played), seats)]
        return [[any(each.length for each in ended) for ended in zip(*of_game, strict=False)] for of_game in lanes]

    def awaits(self, outcomes: Outcomes) -> bool:
        """Return whether all agents of a game have ended but its outcome is missing."""
        return any(len(ended) < len(took) for ended, took in zip(outcomes, self.games(), strict=False))

    def align_outcomes(self, outcomes: Outcomes) -> None:
        """Reduce or fill up to one outcome per entry of `games`, before new games start in their places."""
        for ended, took in zip(outcomes, self.games(), strict=False):
            ended[:] = [*ended, *[None] * len(took)][: len(took)]

    def match(self, opponent: str, seat: str, outcomes: Outcomes) -> Match:
        """Return the match against an opponent, with outcomes of the games in which the policy took part."""
        known = tuple(
            result
            for results, took_part in zip(outcomes, self.games(), strict=False)
            for result, is_its in zip(results, took_part, strict=False)
            if is_its and result is not None
        )
        found = self.evaluation()
        return Match(
            opponent, seat, found.returns, found.lengths, known, found.unfinished, found.successes, found.requested
        )

    def _in_games_of(self, lanes: np.ndarray) -> np.ndarray:
        """Return which lanes belong to the games of these lanes, bool ``[N]``."""
        seats = max(1, len(self._lanes.agents))
        return lanes.reshape(-1, seats).any(axis=1).repeat(seats)

    def _tensor(self, array: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(array).to(self._device)
