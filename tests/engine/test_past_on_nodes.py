"""Past versions on nodes, over loopback in one process: each travels once, and results of games come home."""

import numpy as np
import pytest

from penstock.engine.nodes import dispatcher
from penstock.engine.nodes.past import pool_of, receive_results
from penstock.ipc.stream import HEADER, Frame, Kind, StreamError
from penstock.self_play.arenas import NOBODY, GuestSeats
from tests.engine.trees import LARGE, SMALL, trees

SIZE, PLACES = 1 << 12, 3


class Pools:
    """The pools of home, of a gateway and of its two nodes, with one game in each of their workers' groups."""

    def __init__(self, make) -> None:
        self.tree = make([range(3)], split=GuestSeats((1, 1), PLACES))
        self.gateway = self.tree.add(range(3), [SMALL, LARGE], (self.tree.home, 0, 1))
        self.nodes = [self.tree.add(SMALL, (), (self.gateway, 0, 1)), self.tree.add(LARGE, (), (self.gateway, 1, 1))]
        self.home, self.small, self.large = (pool_of(end.arena) for end in (self.tree.home, *self.nodes))

    def enter(self, place: int, number: int, *odds: float) -> None:
        """Publish a version and odds at home, as the supervisor."""
        self.home.places[place].publish(np.full(SIZE, number, np.uint8), number)
        self.home.set_odds(np.array(odds))
        self.tree.home.arena.ring_rollout_workers()

    def until(self, *expected) -> None:
        """Wait until both nodes have such numbers of versions and odds."""
        self.tree.until(lambda: all(shown(pool) == expected for pool in (self.small, self.large)))


def shown(pool):
    return [place.version for place in pool.places], pool.odds.tolist()


@pytest.fixture
def pools(monkeypatch):
    monkeypatch.setattr(dispatcher, "ALIVE_INTERVAL", 60.0)  # what is sent is sent because it is there
    for make in trees():
        yield Pools(make)


def test_a_version_travels_once_to_a_gateway_and_from_there_to_each_node_with_its_odds(pools):
    pools.enter(0, 7, 1.0, 0.0, 0.0)
    pools.until([7, -1, -1], [1.0, 0.0, 0.0])
    pools.enter(1, 8, 0.5, 2.0, 0.0)
    pools.until([7, 8, -1], [0.5, 2.0, 0.0])
    pools.home.set_odds(np.array([0.0, 1.0, 0.0]))  # odds alone
    pools.tree.home.arena.ring_rollout_workers()
    pools.until([7, 8, -1], [0.0, 1.0, 0.0])
    found = np.zeros(SIZE, np.uint8)
    assert pools.large.places[1].read_into(found) == 8 and (found == 8).all()
    sent = lambda: pools.tree.home.seen()[0].weights_nbytes  # noqa: E731 - the newest weights, and two versions
    pools.tree.until(lambda: sent() == 3 * (SIZE + HEADER.size))


def test_results_come_home_for_the_games_and_the_versions_that_they_are_of(pools):
    pools.enter(0, 7, 1.0, 0.0, 0.0)
    pools.enter(1, 8, 1.0, 1.0, 0.0)
    pools.until([7, 8, -1], [1.0, 1.0, 0.0])
    pools.small.results[1, 0] += [2, 1, 0]
    pools.large.results[3, 1] += [0, 0, 5]
    pools.tree.until(lambda: pools.home.results.sum() == 8)
    pools.large.results[3, 1] += [1, 0, 0]
    pools.tree.until(lambda: pools.home.results.sum() == 9)
    assert pools.home.results[1, 0].tolist() == [2, 1, 0]
    assert pools.home.results[2 + 3, 1].tolist() == [1, 0, 5]  # the small node has the first two games


def test_a_frame_of_more_results_than_its_bytes_can_hold_is_none(pools):
    with pytest.raises(StreamError, match="4294967295 results came with 100 bytes, expected "):
        next(receive_results(pools.home, range(2), None, Frame(Kind.RESULTS, 1, 1, count=2**32 - 1, nbytes=100)))


def test_a_place_is_written_on_a_node_when_no_game_there_plays_it(pools):
    pools.enter(0, 7, 1.0, 0.0, 0.0)
    pools.until([7, -1, -1], [1.0, 0.0, 0.0])
    assert pools.small.playing.tolist() == [NOBODY] * 2 and pools.large.draw(3, 0.5) == 0
    pools.enter(1, 8, 0.0, 1.0, 0.0)
    pools.until([7, 8, -1], [0.0, 1.0, 0.0])
    pools.enter(0, 9, 1.0, 0.0, 0.0)
    small, large = ([9, 8, -1], [1.0, 0.0, 0.0]), ([7, 8, -1], [0.0, 1.0, 0.0])
    pools.tree.until(lambda: shown(pools.small) == small and shown(pools.large) == large)
    for _ in range(20):
        pools.tree.until(lambda: True)
    assert shown(pools.large) == large  # home draws place 0 alone, where a game goes on: others play what there is
    pools.large.results[3, 0] += [1, 0, 0]  # the game ends: its result is none against what lies there now
    pools.large.playing[3] = NOBODY
    pools.until(*small)
    pools.large.results[0, 0] += [0, 1, 0]
    pools.tree.until(lambda: pools.home.results.any())
    assert pools.home.results.sum() == pools.home.results[2, 0, 1] == 1


def test_the_newest_of_several_versions_for_a_place_is_taken_and_draws_are_possible_all_along(pools):
    pools.enter(0, 7, 1.0, 0.0, 0.0)
    pools.until([7, -1, -1], [1.0, 0.0, 0.0])
    pools.large.draw(0, 0.5)  # a game that goes on
    for number in range(8, 20):  # one version at a time is drawn, by turns from the first place and the second
        pools.enter(number % 2, number, *(float(number % 2 == place) for place in range(PLACES)))
        pools.tree.until(lambda: pools.large.odds.any() and pools.small.odds.any())
    pools.tree.until(lambda: shown(pools.small) == ([18, 19, -1], [0.0, 1.0, 0.0]))
    assert pools.large.places[0].version == 7 and pools.large.odds.any()
    pools.large.playing[0] = NOBODY
    pools.until([18, 19, -1], [0.0, 1.0, 0.0])


def test_where_the_only_version_that_is_drawn_has_a_successor_others_are_drawn_until_that_has_its_place(pools):
    pools.enter(0, 7, 1.0, 0.0, 0.0)
    pools.enter(1, 8, 0.0, 1.0, 0.0)
    pools.until([7, 8, -1], [0.0, 1.0, 0.0])
    pools.large.draw(0, 0.5)  # a game against 8, which goes on
    pools.home.set_odds(np.array([1.0, 0.0, 0.0]))
    pools.tree.home.arena.ring_rollout_workers()
    pools.until([7, 8, -1], [1.0, 0.0, 0.0])
    pools.enter(1, 9, 0.0, 1.0, 0.0)
    pools.tree.until(lambda: pools.small.places[1].version == 9)
    pools.enter(0, 10, 1.0, 0.0, 0.0)
    pools.tree.until(lambda: shown(pools.small) == ([10, 9, -1], [1.0, 0.0, 0.0]))
    assert shown(pools.large) == ([7, 8, -1], [1.0, 0.0, 0.0])
    pools.large.playing[0] = NOBODY
    pools.until([10, 9, -1], [1.0, 0.0, 0.0])


def test_the_successor_of_a_lost_node_gets_all_versions_and_adds_its_own_results(pools):
    pools.enter(0, 7, 1.0, 0.0, 0.0)
    pools.until([7, -1, -1], [1.0, 0.0, 0.0])
    pools.small.results[0, 0] += [1, 0, 0]
    pools.tree.until(lambda: pools.home.results[0, 0, 0] == 1)
    pools.tree.lose(pools.nodes[0])
    again = pool_of(pools.tree.add(SMALL, (), (pools.gateway, 0, 2)).arena)
    pools.tree.until(lambda: shown(again) == shown(pools.large))
    again.results[0, 0] += [0, 0, 2]
    pools.tree.until(lambda: pools.home.results[0, 0].tolist() == [1, 0, 2])
    assert pools.home.results.sum() == 3 and shown(again) == ([7, -1, -1], [1.0, 0.0, 0.0])
