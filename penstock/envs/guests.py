"""Games in which guests play: they have lanes that nobody learns from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from penstock.envs.episodes import EpisodeRecord
from penstock.envs.failures import UnsupportedSpaceError
from penstock.envs.game_group import Games
from penstock.envs.games import Game
from penstock.envs.seats import SeatLanes


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


class GuestLanes(SeatLanes):
    """The seats of guests. Their episodes are nobody's."""

    def take_episodes(self) -> list[EpisodeRecord]:
        """Forget the episodes that ended."""
        super().take_episodes()
        return []


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

    Attributes
    ----------
    learner, guests
        Whose lanes they are.

    Raises
    ------
    UnsupportedSpaceError
        Games have no end, or as for `Games`.
    """

    def __init__(self, games: Sequence[Game], seeds: Sequence[int], *, seating: Seating, **given: Any) -> None:
        if not games[0].ends:
            raise UnsupportedSpaceError(
                "opponents stay for a game, and this environment has no games that end: each agent goes on by itself "
                "with its next episode; use opponents='none' and no eval_against"
            )
        self._seating = seating
        self._first = len(games) - seating.num_games
        super().__init__(games, seeds, over=self._hear, **given)
        self.learner, self.guests = self.teams

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
        self.learner.sit(number, [own])
        self.guests.sit(number, [seat for seat in range(len(self.agents)) if seat != own])

    def _hear(self, number: int, returns: Sequence[float]) -> None:
        if number >= self._first:
            self._seating.over(number - self._first, returns)


class LiveGuestGames(Games):
    """Games of several teams, in the last of which guests play the agents of one team: their lanes are the last ones.

    Parameters
    ----------
    games, seeds
        As for `Games`.
    team
        Number of that team.
    count
        In how many games; in the others the team plays its agents itself.
    **given
        As for `Games`.
    """

    def __init__(self, games: Sequence[Game], seeds: Sequence[int], *, team: int, count: int, **given: Any) -> None:
        self._team = team
        self._first = len(games) - count
        super().__init__(games, seeds, **given)

    def _seated(self, teams: Sequence[Sequence[str]]) -> list[tuple[type[SeatLanes], list[list[int]]]]:
        seated = super()._seated(teams)
        kind, seats = seated[self._team]
        own, others = seats[: self._first], seats[self._first :]
        seated[self._team] = kind, [*own, *([] for _ in others)]
        return [*seated, (GuestLanes, [*([] for _ in own), *others])]
