"""Playing episodes to score policies: every lane plays the same quota of them, so that short ones are not favoured.

An episode that is given up is no part of its lane's quota: when the other lanes have played theirs, all environments
begin anew, and lanes that fall short play on. It ends when as many episodes were given up as were asked for.
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from penstock.envs.episodes import EpisodeRecord
from penstock.envs.lanes import Group, Lanes
from penstock.nn import PolicyNetwork
from penstock.play.evaluation import Evaluation
from penstock.play.match import Match
from penstock.play.noise import NoiseStreams
from penstock.self_play.fixed_opponents import Opponent

MAX_LANES = 25

Outcomes = Sequence[list[int | None]]
"""Of each game that is played at once, how those played in its place have ended, as `outcome` says; None: not seen."""


def lanes_for(episodes: int) -> int:
    """Number of lanes that play `episodes` in equal quotas: the largest divisor that is at most MAX_LANES."""
    return max(n for n in range(1, min(episodes, MAX_LANES) + 1) if episodes % n == 0)


class Player(ABC):
    """Policies playing environments of their own, outside of any arena.

    Parameters
    ----------
    group
        What is played.
    """

    def __init__(self, group: Group) -> None:
        self.group = group

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
            agents, each of them has so many. Against opponents, so many games against each, from each seat.
            So many whole ones: in place of one that is given up another is played, until as many were given up.
        max_steps
            Steps after which an episode is given up. The whole game of an agent is given up.
        deadline
            When all that are under way are given up (monotonic seconds), one step of each lane later at the earliest.
        on_step
            Called after every step of the lanes.
        """
        return self._evaluations(PlaySession(self.group, episodes, max_steps, deadline, on_step))

    @abstractmethod
    def _evaluations(self, bout: PlaySession) -> tuple[Evaluation, ...]:
        """Play bouts; say what came of them for each policy."""


class EpisodePlayer(Player):
    """Policies that play among themselves, each for its own returns.

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

    def __init__(self, models: Sequence[PolicyNetwork], group: Group, *, deterministic: bool, seed: int) -> None:
        super().__init__(group)
        self._parts = [
            Part(model, lanes, deterministic=deterministic, seed=seed + policy)
            for policy, (model, lanes) in enumerate(zip(models, group.lanes, strict=True))
        ]

    def _evaluations(self, bout: PlaySession) -> tuple[Evaluation, ...]:
        bout.play(self._parts, self._parts)
        return tuple(part.evaluation() for part in self._parts)


@dataclass(frozen=True)
class PlaySession:
    """Episodes that are played from fresh resets on: parameters of `Player.play`, and what is played."""

    group: Group
    episodes: int
    max_steps: float
    deadline: float
    on_step: Callable[[], object]

    def play(
        self, actors: Sequence[Opponent], parts: Sequence[Part], outcomes: Sequence[Outcomes] = ()
    ) -> None:
        """Play until each part has what is asked for, as many were given up, or time is up.

        Parameters
        ----------
        actors
            Who plays the lanes of each team.
        parts
            Those of them that are scored.
        outcomes
            Of each part how its games have ended, to which more are added while they are played. A part whose agents
            are out waits for the end of its last games, but no more than `max_steps` steps.
        """
        for part in parts:
            part.ask(self.episodes)
        while True:
            self.group.reset()
            for actor in actors:
                actor.begin()
            self._play_on(actors, parts)
            self._await_outcomes(actors, parts, outcomes)
            for part, of_part in zip(parts, outcomes, strict=False):
                part.settle(of_part)
            if not any(part.falls_short for part in parts) or time.monotonic() >= self.deadline:
                return

    def _play_on(self, actors: Sequence[Opponent], parts: Sequence[Part]) -> None:
        """Play until each lane has its quota, or has given an episode up."""
        while any([part.plays_on for part in parts]):
            self._step(actors)
            is_late = time.monotonic() >= self.deadline
            for part in parts:
                part.hear(self.max_steps, is_late=is_late)

    def _await_outcomes(
        self, actors: Sequence[Opponent], parts: Sequence[Part], outcomes: Sequence[Outcomes]
    ) -> None:
        """Play the last games to their ends."""
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
        self.ask(0)

    def ask(self, episodes: int) -> None:
        """Set how many environments' episodes are to be played from now on; those played before are forgotten."""
        lanes = self._lanes
        self._quota = math.ceil(episodes * max(1, len(lanes.agents)) / lanes.num_lanes)
        self.played: list[list[EpisodeRecord]] = [[] for _ in range(lanes.num_lanes)]
        self.given_up: list[EpisodeRecord] = []

    def begin(self) -> None:
        """Begin with lanes that were reset: those short of their quota play."""
        lanes = self._lanes
        self._plays_on = np.array([len(played) < self._quota for played in self.played])
        self._memory = self._model.initial_state(lanes.num_lanes)
        lanes.take_episodes()

    @property
    def asked(self) -> int:
        """Whole episodes that are asked for, of all lanes."""
        return self._quota * self._lanes.num_lanes

    @property
    def plays_on(self) -> bool:
        """Whether a lane has episodes to play before the next reset."""
        return bool(self._plays_on.any())

    @property
    def falls_short(self) -> bool:
        """Whether a lane has less than its quota, and may have more: fewer were given up than are asked for."""
        return len(self.given_up) < self.asked and any(len(played) < self._quota for played in self.played)

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
        """Evaluation of the episodes; games in which an agent had no part do not count among them."""
        whole = [episode for lane in self.played for episode in lane]
        whole = [episode for episode in whole if episode.length] or whole
        given_up = [episode for episode in self.given_up if episode.length]
        counted = [*whole, *given_up] or [self._lanes.running_episode(0)]
        _, returns, lengths, successes = zip(*counted, strict=True)
        unfinished = len(counted) - len(whole)
        return Evaluation(returns, lengths, unfinished=unfinished, asked=self.asked, successes=successes)

    def games(self) -> list[list[bool]]:
        """Of each game in which all its agents have ended: whether one of them had a part in it. By game."""
        seats = max(1, len(self._lanes.agents))
        lanes = [self.played[first : first + seats] for first in range(0, len(self.played), seats)]
        return [[any(each.length for each in ended) for ended in zip(*of_game, strict=False)] for of_game in lanes]

    def awaits(self, outcomes: Outcomes) -> bool:
        """Whether the end of a game is not seen yet, in which all its agents have ended."""
        return any(len(ended) < len(took) for ended, took in zip(outcomes, self.games(), strict=False))

    def settle(self, outcomes: Outcomes) -> None:
        """Leave one outcome for each of the `games`, before others are played in their places."""
        for ended, took in zip(outcomes, self.games(), strict=False):
            ended[:] = [*ended, *[None] * len(took)][: len(took)]

    def match(self, opponent: str, seat: str, outcomes: Outcomes) -> Match:
        """Result against an opponent; outcomes are those of the games in which the policy took part."""
        known = tuple(
            result
            for results, took_part in zip(outcomes, self.games(), strict=False)
            for result, is_its in zip(results, took_part, strict=False)
            if is_its and result is not None
        )
        found = self.evaluation()
        return Match(
            opponent, seat, found.returns, found.lengths, known, found.unfinished, found.successes, found.asked
        )

    def _in_games_of(self, lanes: np.ndarray) -> np.ndarray:
        """Whether a lane's game is that of one of these lanes, bool ``[N]``."""
        seats = max(1, len(self._lanes.agents))
        return lanes.reshape(-1, seats).any(axis=1).repeat(seats)

    def _tensor(self, array: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(array).to(self._device)
