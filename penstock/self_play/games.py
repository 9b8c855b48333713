"""Games with guests, whose lanes are not learned from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from penstock.envs.failures import UnsupportedSpaceError
from penstock.envs.game_group import Games
from penstock.envs.games import Game
from penstock.envs.lanes import EpisodeRecord
from penstock.envs.seats import SeatLanes


class Seating(Protocol):
    """Pairings in the games with guests of a group, counted from 0."""

    def begin(self, game: int) -> int | None:
        """Pair the players of a game that is about to begin; return the learner's seat, or None if it is fixed."""
        ...

    def over(self, game: int, returns: Sequence[float]) -> None:
        """Record the end of a game, with the return of each seat's agent, or of each team."""
        ...


class GuestLanes(SeatLanes):
    """The seats of guests, whose episodes are not counted."""

    def take_episodes(self) -> list[EpisodeRecord]:
        """Drop the episodes that ended; return none."""
        super().take_episodes()
        return []


class GuestGames(Games):
    """Games with guests in some seats of the last games; lanes of guests come after those of the teams.

    In a game of one team, guests have all seats but the learner's, which is drawn before each game. In a game of
    several teams, they have all seats of a team, or none. Players stay until the game is over.

    Parameters
    ----------
    games, seeds
        As for `Games`.
    guests
        For each team with guests, by its number: whether guests play it in each of the last games.
    seating
        Pairings of the games with guests, which also get their results; None: seats are fixed.
    **given
        As for `Games`.

    Raises
    ------
    UnsupportedSpaceError
        There are pairings, but games do not end; or as for `Games`.
    """

    def __init__(
        self, games: Sequence[Game], seeds: Sequence[int], *, guests: Mapping[int, Sequence[bool]],
        seating: Seating | None = None, **given: Any,
    ) -> None:  # fmt: skip
        if seating is not None and not games[0].ends:
            raise UnsupportedSpaceError(
                "opponents stay for a game, and this environment has no games that end: each agent starts its next "
                "episode on its own; use opponents='none' and no eval_against"
            )
        self._guests = guests
        self._seating = seating
        self._first = len(games) - max(map(len, guests.values()))
        super().__init__(games, seeds, over=None if seating is None else self._record, **given)

    def _seated(self, teams: Sequence[Sequence[str]]) -> list[tuple[type[SeatLanes], list[list[int]]]]:
        seated = super()._seated(teams)
        self._num_teams = len(seated)
        left = 1 if len(seated) == 1 and self._seating is not None else 0
        for team, has_guests in self._guests.items():
            kind, seats = seated[team]
            is_taken = [False] * self._first + [*has_guests]
            own = [each[:left] if taken else each for each, taken in zip(seats, is_taken, strict=True)]
            seated[team] = kind, own
            seated.append((GuestLanes, [each[len(its) :] for each, its in zip(seats, own, strict=True)]))
        return seated

    def _seat(self, number: int) -> None:
        super()._seat(number)
        if self._seating is None or number < self._first:
            return
        own = self._seating.begin(number - self._first)
        if own is not None:
            learner, guests = self.teams
            learner.sit(number, [own])
            guests.sit(number, [seat for seat in range(len(self.agents)) if seat != own])

    def _record(self, number: int, returns: Sequence[float]) -> None:
        """Pass the result of a game with guests on to the pairings."""
        if self._seating is None or number < self._first:
            return
        if self._num_teams == 1:
            self._seating.over(number - self._first, returns)
        elif self.have_winners:
            self._seating.over(number - self._first, self.means(number, returns))

    def _seats_by_team(self, number: int) -> list[list[int]]:
        seats = super()._seats_by_team(number)
        for team, guests in zip(self._guests, seats[self._num_teams :], strict=True):
            seats[team] += guests
        return seats[: self._num_teams]
