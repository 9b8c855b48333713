"""The pool in shared memory: frequencies of draws, free places, and counted results."""

import numpy as np
import pytest

from penstock.experience.arena import ExperienceArena
from penstock.self_play import arenas
from penstock.self_play.arenas import NOBODY, GuestSeats
from penstock.self_play.matchmaking import Matchmaking
from tests.experience.writing import run_shape


def arena(places=4, games=2, workers=1, agents=2):
    numbers = {"segment_length": 0, "slots_per_lane": 1, "segments_per_batch": 1, "num_workers": workers}
    return ExperienceArena.create(
        run_shape(
            **numbers, num_envs_per_worker=games, num_agents=agents, plays=0,
            split=GuestSeats((agents - 1,) * games, places),
        )
    )


def matchmaking(of, **more):
    return Matchmaking({0: of.pool}, of.shape.num_agents, **{"group": 0, "seed": 1, "incarnation": 0, **more})


def test_versions_are_drawn_by_their_odds():
    pool = arena().pool
    pool.set_odds(np.array([1.0, 0.0, 3.0, 4.0]))
    drawn = [pool.draw(0, (number + 0.5) / 800) for number in range(800)]
    assert np.bincount(drawn, minlength=4).tolist() == [100, 0, 300, 400]
    assert pool.draw(0, 1.0) == 3


def test_a_place_is_free_when_nobody_plays_it_and_nobody_can_draw_it():
    pool = arena().pool
    pool.playing[:] = NOBODY
    pool.set_odds(np.array([1.0, 1.0, 0.0, 0.0]))
    pool.draw(0, 0.9)
    assert [pool.is_free(place) for place in range(4)] == [False, False, True, True]
    pool.set_odds(np.array([1.0, 0.0, 0.0, 0.0]))
    assert not pool.is_free(1)
    pool.draw(0, 0.9)
    assert pool.is_free(1)


def test_who_is_withdrawn_in_the_midst_of_a_draw_is_not_played(monkeypatch):
    pool = arena().pool
    pool.set_odds(np.array([1.0, 1.0, 0.0, 0.0]))
    fences = []

    def withdraw():
        fences.append(True)
        pool.odds[1] = 0.0

    monkeypatch.setattr(arenas, "fence", withdraw)
    assert pool.draw(0, 0.9) == 0 and pool.playing[0] == 0 and len(fences) == 2


def test_somebody_can_be_drawn_at_every_moment_of_a_change(monkeypatch):
    pool = arena().pool
    pool.set_odds(np.array([1.0, 0.0, 0.0, 0.0]))
    seen = []
    monkeypatch.setattr(arenas, "fence", lambda: seen.append(pool.odds.tolist()))
    pool.set_odds(np.array([0.0, 2.0, 0.0, 0.0]))
    assert seen == [[1.0, 2.0, 0.0, 0.0]] and pool.odds.tolist() == [0.0, 2.0, 0.0, 0.0]


def test_games_are_counted_for_the_version_that_was_played_when_they_are_over():
    of = arena(workers=2)
    of.pool.set_odds(np.array([0.0, 1.0, 0.0, 0.0]))
    games = matchmaking(of, group=1)
    seat = games.begin(1)
    assert of.pool.playing.tolist()[2:] == [NOBODY, 1] and not of.pool.results.any()
    of.pool.set_odds(np.array([1.0, 0.0, 0.0, 0.0]))  # the one drawn next
    for own, other in ((1.0, -1.0), (0.0, 0.0), (-1.0, 1.0), (2.0, 1.0)):
        returns = [other, other]
        returns[seat] = own
        games.over(1, returns)
    assert of.pool.results[3, 1].tolist() == [2, 1, 1] and of.pool.results.sum() == 4


def test_the_games_of_a_worker_that_died_are_not_counted_and_hold_no_place():
    of = arena()
    of.pool.set_odds(np.array([1.0, 0.0, 0.0, 0.0]))
    first = matchmaking(of)
    seats = [first.begin(0) for _ in range(64)]
    successor = matchmaking(of, incarnation=1)
    assert (of.pool.playing == NOBODY).all() and not of.pool.results.any()
    again = [successor.begin(0) for _ in range(64)]
    assert seats != again and set(seats) == set(again) == {0, 1}


def test_seats_and_opponents_depend_on_the_games_own_numbers_alone():
    def drawn(order):
        of = arena()
        of.pool.set_odds(np.ones(4))
        games = matchmaking(of)
        found = {0: [], 1: []}
        for game in order:
            found[game].append((games.begin(game), int(of.pool.playing[game])))
        return found

    one, other = drawn([0, 1] * 20), drawn([0] * 20 + [1] * 20)
    assert one == other and one[0] != one[1]
    assert len({place for _, place in one[0]}) > 2


def test_policies_learn_by_turns_and_all_others_are_drawn_by_and_counted_in_pools_of_their_own():
    numbers = {"segment_length": 0, "slots_per_lane": 1, "segments_per_batch": 1, "num_envs_per_worker": 4}
    pools = {}
    for policy in range(3):
        seats = tuple(2 * (game % 3 != policy) for game in range(4))
        shape = run_shape(**numbers, num_agents=2, plays=policy, split=GuestSeats(seats, 3))
        pools[policy] = ExperienceArena.create(shape).pool
        pools[policy].set_odds(np.array([0.0, float(policy == 0), float(policy > 0)]))
    games = Matchmaking(pools, 6, group=0, seed=1, incarnation=0)
    assert [games.begin(game) for game in range(4)] == [None] * 4
    playing = [pool.playing.tolist() for pool in pools.values()]
    assert playing == [[NOBODY, 1, 1, NOBODY], [2, NOBODY, 2, 2], [2, 2, NOBODY, 2]]
    games.over(3, [1.0, 0.0, 2.0])  # policy 0 learns
    games.over(1, [5.0, 5.0, 4.0])  # policy 1 does
    found = [pool.results.nonzero() for pool in pools.values()]
    assert [np.stack(where, 1).tolist() for where in found] == [[[1, 1, 1]], [[3, 2, 0]], [[1, 2, 0], [3, 2, 2]]]


@pytest.mark.parametrize(
    ("returns", "expected"), [((1, 0, 0), 1), ((1, 1, 0), 0), ((0, 0, 1), -1), ((0, 0, 0), 0), ((-1, 1, -1), -1)]
)
def test_a_game_is_won_by_more_than_all_others_and_lost_by_less_than_one(returns, expected):
    of = arena(agents=3)
    of.pool.set_odds(np.array([1.0, 0.0, 0.0, 0.0]))
    games = matchmaking(of)
    while games.begin(0) != 0:
        pass
    games.over(0, returns)
    assert of.pool.results[0, 0, [1, 0, 2][expected]] == 1
