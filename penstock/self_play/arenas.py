"""Arenas of guests: which seats of games they have, and the pool of past versions that play there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.experience.layout import Column, PathMemory, RunShape
from penstock.ipc import WeightsBlock, fence
from penstock.self_play.settings import SelfPlaySettings, games_with_guests, is_guest

if TYPE_CHECKING:
    from penstock.experience.arena import ExperienceArena

NOBODY = -1
"""The place of a game that has not begun."""
class Pool:
    """Places for past versions, with what chance each is drawn, and who plays them.

    The supervisor alone puts versions into places and sets their odds; a game draws one of them when it begins, and
    plays against it until it is over. A place whose odds are 0 is drawn no more. Game and supervisor write their word
    before they read the other's, so that a place that nobody plays then is free to be written.

    Parameters
    ----------
    guest_seats, num_places
        Seats that guests have in each of their games of a group, and number of places.
    array, block
        Return the array and the weights block of a name in the guests' arena.

    Attributes
    ----------
    places : list of WeightsBlock
        The weights, and as their version the number of the pool's entry; written by the supervisor.
    odds : ndarray
        float64 ``[places]``: chances, up to a factor; written by the supervisor.
    playing : ndarray
        int64 ``[games]``: the place that each game with guests plays against, or `NOBODY`; written by its worker, by
        the supervisor before there is one.
    results : ndarray
        int64 ``[games, places, 3]``: wins, draws and losses of who learns in each game; written by its worker.
    guest_seats : tuple of int
        As given.
    """

    def __init__(
        self,
        guest_seats: tuple[int, ...],
        num_places: int,
        array: Callable[[str], np.ndarray],
        block: Callable[[str], WeightsBlock],
    ) -> None:
        self.guest_seats = guest_seats
        self.places = [block(f"place_{number}") for number in range(num_places)]
        self.odds = array("odds")
        self.playing = array("playing")
        self.results = array("results")

    def draw(self, game: int, chance: float) -> int:
        """Draw whom a game plays against from now on.

        Parameters
        ----------
        game
            Its number among all games with guests.
        chance
            From 0 to 1: decides which.
        """
        while True:
            known = self.odds.nonzero()[0]
            shares = self.odds[known].cumsum()
            drawn = int(shares.searchsorted(chance * shares[-1], side="right"))
            place = int(known[min(drawn, len(known) - 1)])
            self.playing[game] = place
            fence()
            if self.odds[place] > 0.0:
                return place

    def set_odds(self, odds: np.ndarray) -> None:
        """Set all chances, float64 ``[places]``, those of 0 last: at no moment is there nobody to be drawn."""
        self.odds[odds > 0.0] = odds[odds > 0.0]
        fence()
        self.odds[odds <= 0.0] = 0.0

    def is_free(self, place: int) -> bool:
        """Whether a place may be written: nobody plays it, and nobody can draw it."""
        if self.odds[place] > 0.0:
            return False
        fence()  # who has drawn it before says so now
        return not (self.playing == place).any()

    def state(self) -> dict[str, Any]:
        """Copy all past versions, as checkpoints hold them: uint8 ``[weights_nbytes]`` by the entry's number."""
        import torch  # here, because rollout workers have none

        found = {}
        for block in self.places:
            payload = np.zeros(block.size, np.uint8)
            if (entry := block.read_into(payload)) >= 0:
                found[str(entry)] = torch.from_numpy(payload)
        return {"opponents": found}


@dataclass(frozen=True)
class GuestSeats:
    """Seats of a policy that its guests have; a `penstock.experience.layout.SeatSplit`.

    Attributes
    ----------
    seats
        Of each game of a group in which guests play, which are the last ones: how many of the policy's seats they have.
    num_places
        Past versions that these guests may play; 0: they act by the policy's newest weights.
    """

    seats: tuple[int, ...]
    num_places: int = 0

    def lanes(self, shape: RunShape) -> int:
        """Return the lanes of an arena in a group: those of guests, or all others of the policy."""
        guests = sum(self.seats)
        return guests if shape.plays is not None else shape.envs_per_group * (shape.num_agents or 1) - guests

    def columns(self, shape: RunShape) -> Iterator[Column]:
        """Yield the arrays of the pool, where there is one."""
        if self.num_places:
            for place in range(self.num_places):
                yield Column(f"place_{place}", (WeightsBlock.nbytes(shape.weights_nbytes),), "uint8")
            games = shape.all_groups * len(self.seats)
            yield Column("odds", (self.num_places,), "float64")
            yield Column("playing", (games,), "int64")
            yield Column("results", (games, self.num_places, 3), "int64")

    def pool(self, array: Callable[[str], np.ndarray], block: Callable[[str], WeightsBlock]) -> Pool | None:
        """Return the pool of an arena, from its arrays and weights blocks by name."""
        return Pool(self.seats, self.num_places, array, block) if self.num_places else None

    def label(self, policy: str) -> str:
        """Name of the arena of a policy's guests, for messages."""
        return f"guests of {policy}"


def seats_in(shape: RunShape) -> tuple[int, ...]:
    """Seats that guests have in each of their games of a group."""
    assert isinstance(shape.split, GuestSeats)
    return shape.split.seats


def pool_in(arena: ExperienceArena) -> Pool | None:
    """Pool of the past versions that play in an arena of guests; None: guests act by the newest weights."""
    assert arena.pool is None or isinstance(arena.pool, Pool)
    return arena.pool


def arena_shapes(config: SelfPlaySettings, policies: Sequence[str], shapes: Sequence[RunShape]) -> list[RunShape]:
    """Return the numbers of the policies' arenas, and behind them those of their guests' arenas.

    An arena of guests has a row for each of them. Where they play past versions, it has a place for each in the pool,
    and one to spare.

    Parameters
    ----------
    config
        Settings of the run.
    policies, shapes
        Names of the policies, and the numbers of their arenas without guests.
    """
    games = games_with_guests(config) // shapes[0].num_groups
    if not games:
        return [*shapes]
    own, guests = [], []
    num_places = config.opponent_pool + 1 if config.opponents == "past" else 0
    for number, (name, shape) in enumerate(zip(policies, shapes, strict=True)):
        agents = shape.num_agents or 1
        if config.opponents == "past" and len(shapes) == 1:
            seats = (agents - 1,) * games
        else:
            seats = tuple(agents * is_guest(config, name, game) for game in range(games))
        shape = replace(shape, num_envs_per_worker=config.num_envs_per_worker, split=GuestSeats(seats))
        own.append(shape)
        if any(seats):
            guests.append(_of_guests(shape, number, GuestSeats(seats, num_places)))
    return own + guests


def _of_guests(shape: RunShape, number: int, seats: GuestSeats) -> RunShape:
    """The numbers of the arena of a policy's guests."""
    return replace(
        shape, segment_length=0, slots_per_lane=1, segments_per_batch=1, records=(), shared_nbytes=0,
        path_memory=PathMemory(), num_policy_workers=1, plays=number, split=seats,
    )  # fmt: skip
