"""Games in which guests play: the learner has one seat, all others are guests', whose lanes nobody learns from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from penstock.envs.episodes import EpisodeRecord
from penstock.envs.games import Game, Turn
from penstock.envs.seats import Games, SeatLanes


class Seating(Protocol):
    """Decides who plays whom in the games with guests of a group, counted from 0.

    Attributes
    ----------
    num_games
        How many of the group's games have guests: the last ones.
    """

    @property
    def num_games(self) -> int: ...

    def begin(self, game: int) -> int:
        """Say who plays in a game that is about to begin; return the learner's seat."""
        ...

    def over(self, game: int, returns: Sequence[float]) -> None:
        """Hear that a game has been played to its end, and what each seat's agent has got in it."""
        ...


def outcome(returns: Sequence[float], seat: int) -> int:
    """How a game has ended for one seat: 1 if it got more than every other, -1 if less than one of them, else 0."""
    best = max(one for other, one in enumerate(returns) if other != seat)
    return int(returns[seat] > best) - int(returns[seat] < best)


class GuestLanes(SeatLanes):
    """The seats of guests. Their episodes are nobody's."""

    @property
    def shown(self) -> list[Any]:
        """What each lane that is asked shows, as its game has it; of no meaning for others."""
        return self._shown

    def take_episodes(self) -> list[EpisodeRecord]:
        """Forget the episodes that ended."""
        super().take_episodes()
        return []

    def _decoded(self, actions: np.ndarray | list[Any]) -> list[Any]:
        """Actions as the games take them, which a list holds already."""
        return actions if isinstance(actions, list) else super()._decoded(actions)


class GuestGames(Games):
    """Games of one team, in the last of which guests play all seats but one.

    The lanes are those of the learner, which has all seats of the games before, and those of the guests. Who sits where
    is decided before each game, and stays until it is over.

    Parameters
    ----------
    games, seeds
        As for `Games`.
    seating
        Decides it, and hears how games end.
    **given
        As for `Games`.
    """

    def __init__(self, games: Sequence[Game], seeds: Sequence[int], *, seating: Seating, **given: Any) -> None:
        self._seating = seating
        self._first = len(games) - seating.num_games
        self._returns: list[list[float]] = [[] for _ in range(seating.num_games)]
        super().__init__(games, seeds, **given)

    def _seated(self, teams: Sequence[Sequence[str]]) -> list[tuple[type[SeatLanes], list[list[int]]]]:
        ((kind, seated),) = super()._seated(teams)
        alone, shared = seated[: self._first], seated[self._first :]
        return [
            (kind, [*alone, *([first] for first, *_ in shared)]),
            (GuestLanes, [*([] for _ in alone), *(others for _, *others in shared)]),
        ]

    def _seat(self, number: int) -> None:
        game = number - self._first
        if game < 0:
            return
        own = self._seating.begin(game)
        learner, guests = self._teams
        learner.sit(number, [own])
        guests.sit(number, [seat for seat in range(len(self.agents)) if seat != own])
        self._returns[game] = [0.0] * len(self.agents)

    def _take(self, number: int, turn: Turn) -> None:
        super()._take(number, turn)
        game = number - self._first
        if game < 0:
            return
        returns = self._returns[game]
        for seat, reward in turn.rewards.items():
            returns[seat] += float(np.asarray(reward).item())
        if turn.is_over:
            self._seating.over(game, returns)
