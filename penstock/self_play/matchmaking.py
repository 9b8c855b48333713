"""Pairings in the training games with guests, and their results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from penstock.envs.game_group import Games
from penstock.envs.lanes import outcome
from penstock.self_play.arenas import NOBODY, Pool, pool_in, seats_in
from penstock.self_play.games import GuestGames

if TYPE_CHECKING:
    from penstock.experience.arena import ExperienceArena

WINS, DRAWS, LOSSES = 0, 1, 2
"""Columns of the learner's results."""


def games_of(
    arenas: Sequence[ExperienceArena], num_seats: int, *, group: int, seed: int, incarnation: int
) -> Callable[..., Games]:
    """Return the constructor of a group of games of several agents.

    Parameters
    ----------
    arenas
        Arenas of the group's lanes, in the order of the lanes: arenas of guests come last.
    num_seats, group, seed, incarnation
        Number of seats of a game, number of the group, seed of the run, and restarts of the rollout worker.
    """
    guests = {arena.shape.plays: arena for arena in arenas if arena.shape.plays is not None}
    if not guests:
        return Games
    pools = {policy: pool for policy, arena in guests.items() if (pool := pool_in(arena)) is not None}
    before = arenas[0].shape.first_worker * arenas[0].shape.num_groups
    of_group = {"group": group, "before": before, "seed": seed, "incarnation": incarnation}
    seating = Matchmaking(pools, num_seats, **of_group) if pools else None
    played = {policy: [count > 0 for count in seats_in(arena.shape)] for policy, arena in guests.items()}
    return partial(GuestGames, guests=played, seating=seating)


class Matchmaking:
    """Random pairings in one group's games with guests, and their results.

    Each game has random numbers of its own.

    Parameters
    ----------
    pools
        Pools by the number of the policy whose past versions they hold: a run's only policy, or each of several.
    num_agents
        Number of seats in a game of a run's only policy, which learns in one of them, drawn at random.
    group, seed, incarnation
        Number of the group, seed of the run, and restarts of the rollout worker.
    before
        Number of the run's groups that come before those of this machine.
    """

    def __init__(
        self, pools: Mapping[int, Pool], num_agents: int, *, group: int, seed: int, incarnation: int, before: int = 0
    ) -> None:
        games = range(max(len(pool.guest_seats) for pool in pools.values()))
        self._num_agents = num_agents
        self._is_alone = len(pools) == 1
        self._first = group * len(games)
        self._met = [{p: pool for p, pool in pools.items() if pool.guest_seats[game]} for game in games]
        self._learners = [next((p for p in pools if p not in met), 0) for met in self._met]  # seats, or policies
        # The last number separates these streams from those of environments and of actions.
        first_of_run = self._first + before * len(games)
        keys = [[seed, first_of_run + game, incarnation, 2] for game in games]
        self._random = [np.random.default_rng(np.random.SeedSequence(key)) for key in keys]
        for pool in pools.values():
            pool.playing[self._first : self._first + len(games)] = NOBODY

    def begin(self, game: int) -> int | None:
        """Draw the guests' version of each policy; in a run of one policy, also draw and return the learner's seat."""
        random = self._random[game]
        if self._is_alone:
            self._learners[game] = int(random.integers(self._num_agents))
        for pool in self._met[game].values():
            pool.draw(self._first + game, random.random())
        return self._learners[game] if self._is_alone else None

    def over(self, game: int, returns: Sequence[float]) -> None:
        """Count the result of a game for its learner, against each version that played in it."""
        learner = self._learners[game]
        for policy, pool in self._met[game].items():
            met = [*returns[:learner], *returns[learner + 1 :]] if self._is_alone else [returns[policy]]
            place = pool.playing[self._first + game]
            pool.results[self._first + game, place, (DRAWS, WINS, LOSSES)[outcome([returns[learner], *met], 0)]] += 1
