"""Arenas of guests: their seats in games, and the pool of past versions that play there."""

from __future__ import annotations

import time
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
"""Place of a game that has not begun."""
WAIT_SECONDS = 0.01  # between checks for the first version


class Pool:
    """Places for past versions, their odds, and the place that each game plays against.

    Only the supervisor puts versions into places and sets odds; a game draws a place when it begins, and plays against
    it to its end. A place with odds 0 is not drawn. Games write `playing` before they read odds, and the supervisor
    writes odds before it reads `playing`, so that it never overwrites a version that a game plays against.

    Parameters
    ----------
    guest_seats, num_places
        Number of guests' seats in each of a group's games with guests, and number of places.
    array, block
        Functions that return an array and a weights block of the guests' arena by name.

    Attributes
    ----------
    places : list of WeightsBlock
        Weights, with the number of the pool's entry as version; written by the supervisor.
    odds : ndarray
        Relative probability of each place, float64 ``[places]``; written by the supervisor.
    playing : ndarray
        Place that each game with guests plays against, or `NOBODY`, int64 ``[games]``; written by its rollout worker,
        and by the supervisor before there is one.
    results : ndarray
        Wins, draws and losses of the learner of each game, int64 ``[games, places, 3]``; written by its rollout worker.
    guest_seats : tuple of int
        As in the parameters.
    """

    def __init__(
        self, guest_seats: tuple[int, ...], num_places: int, array: Callable[[str], np.ndarray],
        block: Callable[[str], WeightsBlock],
    ) -> None:  # fmt: skip
        self.guest_seats = guest_seats
        self.places = [block(f"place_{number}") for number in range(num_places)]
        self.odds = array("odds")
        self.playing = array("playing")
        self.results = array("results")

    def draw(self, game: int, chance: float) -> int:
        """Draw the place that a game plays against, and return it; on a node, wait until there is a first version.

        Parameters
        ----------
        game
            Number of the game among all games with guests.
        chance
            Random number from 0 to 1.
        """
        while True:
            possible = self.odds.nonzero()[0]
            if not len(possible):
                time.sleep(WAIT_SECONDS)
                continue
            shares = self.odds[possible].cumsum()
            drawn = int(shares.searchsorted(chance * shares[-1], side="right"))
            place = int(possible[min(drawn, len(possible) - 1)])
            self.playing[game] = place
            fence()
            if self.odds[place] > 0.0:
                return place

    def set_odds(self, odds: np.ndarray) -> None:
        """Set all odds, float64 ``[places]``; zeros are set last, so that a draw is possible at every moment."""
        self.odds[odds > 0.0] = odds[odds > 0.0]
        fence()
        self.odds[odds <= 0.0] = 0.0

    def is_free(self, place: int) -> bool:
        """Whether a place may be written: no game plays against it, and none can draw it."""
        if self.odds[place] > 0.0:
            return False
        fence()  # from here on, games that drew the place before show it in `playing`
        return not (self.playing == place).any()

    def state(self) -> dict[str, Any]:
        """Return all past versions for a checkpoint: uint8 ``[weights_nbytes]`` by the number of the entry."""
        import torch  # here, because rollout workers do not load it

        found = {}
        for block in self.places:
            payload = np.zeros(block.size, np.uint8)
            if (entry := block.read_into(payload)) >= 0:
                found[str(entry)] = torch.from_numpy(payload)
        return {"opponents": found}


@dataclass(frozen=True)
class GuestSeats:
    """Seats of a policy that guests take; a `penstock.experience.layout.SeatSplit`.

    Attributes
    ----------
    seats
        Number of guests' seats in each of a group's games with guests, which are the group's last games.
    num_places
        Number of places for past versions; 0: guests act by the policy's newest weights.
    """

    seats: tuple[int, ...]
    num_places: int = 0

    def lanes(self, shape: RunShape) -> int:
        """Return the number of a group's lanes in an arena: those of guests, or all others of the policy."""
        guests = sum(self.seats)
        return guests if shape.plays is not None else shape.envs_per_group * (shape.num_agents or 1) - guests

    def columns(self, shape: RunShape) -> Iterator[Column]:
        """Yield the arrays of the pool, if there is one."""
        if self.num_places:
            for place in range(self.num_places):
                yield Column(f"place_{place}", (WeightsBlock.nbytes(shape.weights_nbytes),), "uint8")
            games = shape.all_groups * len(self.seats)
            yield Column("odds", (self.num_places,), "float64")
            yield Column("playing", (games,), "int64")
            yield Column("results", (games, self.num_places, 3), "int64")

    def pool(self, array: Callable[[str], np.ndarray], block: Callable[[str], WeightsBlock]) -> Pool | None:
        """Return the pool of an arena, from its arrays and weights blocks by name; None: there is none."""
        return Pool(self.seats, self.num_places, array, block) if self.num_places else None

    def label(self, policy: str) -> str:
        """Return the name of the arena of a policy's guests, for messages."""
        return f"guests of {policy}"


def seats_in(shape: RunShape) -> tuple[int, ...]:
    """Return the number of guests' seats in each of a group's games with guests."""
    assert isinstance(shape.split, GuestSeats)
    return shape.split.seats


def pool_in(arena: ExperienceArena) -> Pool | None:
    """Return the pool of an arena of guests; None: guests act by the newest weights."""
    assert arena.pool is None or isinstance(arena.pool, Pool)
    return arena.pool


def arena_shapes(config: SelfPlaySettings, policies: Sequence[str], shapes: Sequence[RunShape]) -> list[RunShape]:
    """Return the shapes of the policies' arenas, followed by those of their guests' arenas.

    An arena of guests has a row for each guest and, for past versions, one place more than the pool holds.

    Parameters
    ----------
    config
        Settings of the run.
    policies, shapes
        Names of the policies, and the shapes of their arenas without guests.
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
            guests.append(replace(
                shape, segment_length=0, slots_per_lane=1, segments_per_batch=1, records=(), shared_nbytes=0,
                path_memory=PathMemory(), num_policy_workers=1, plays=number, split=GuestSeats(seats, num_places),
            ))  # fmt: skip
    return own + guests
