"""Games with guests: seats, lanes of policies, and ends of games."""

from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.envs.failures import EnvironmentFailure, UnsupportedSpaceError
from penstock.envs.game_group import Games
from penstock.envs.games import game_of
from penstock.self_play.games import GuestGames
from tests.envs.counting import CountingEnv
from tests.envs.playing import AtOnce, InTurn, Part, parts
from tests.envs.two_sides import TwoSides

ENDS = ("terminated", "truncated", "both")


class Lists(CountingEnv):
    """Two agents, as Sample Factory has them."""

    num_agents, is_multiagent = 2, True


class Drawn:
    """Random seats; requests and results, by game."""

    def __init__(self, num_games, num_agents, seed=0):
        self.num_games = num_games
        self.random = np.random.default_rng(seed)
        self.num_agents = num_agents
        self.seats = [[] for _ in range(num_games)]
        self.ended = [[] for _ in range(num_games)]

    def begin(self, game):
        self.seats[game].append(int(self.random.integers(self.num_agents)))
        return self.seats[game][-1]

    def over(self, game, returns):
        self.ended[game].append(returns)


def a_group(envs, seating):
    games, guests = [game_of(env) for env in envs], {0: [True] * seating.num_games}
    return GuestGames(games, list(range(len(envs))), guests=guests, seating=seating, name="game")


def step(group):
    group.step([np.zeros(lanes.num_lanes, np.int64) for lanes in group.lanes])


def seen(lanes):
    column = np.full((lanes.num_lanes, 3), -1.0, np.float32)
    lanes.write_observations(column, np.arange(lanes.num_lanes))
    return column


@given(st.lists(parts, min_size=2, max_size=3), st.integers(0, 2), st.integers(0, 9))
def test_whoever_begins_a_game_at_a_seat_stays_there_until_it_is_over(agents, alone, seed):
    seating, count = Drawn(2, len(agents), seed), len(agents)
    group = a_group([AtOnce(agents) for _ in range(alone + 2)], seating)
    learner, guests = group.lanes
    assert (learner.num_lanes, guests.num_lanes) == (alone * count + 2, 2 * (count - 1))
    group.reset()
    for _ in range(40):
        own, others = seen(learner), seen(guests)
        for game in range(2):
            number, seat = len(seating.ended[game]), seating.seats[game][-1]
            lane, lanes = alone * count + game, slice(game * (count - 1), (game + 1) * (count - 1))
            assert len(seating.seats[game]) == number + 1
            if learner.asked[lane]:
                assert own[lane, :2].tolist() == [seat, number]
            shown = others[lanes][guests.asked[lanes]]
            assert seat not in shown[:, 0] and len(set(shown[:, 0])) == len(shown) and set(shown[:, 1]) <= {number}
        step(group)


def test_a_game_tells_what_every_seat_has_got_and_guests_have_no_episodes():
    seating = Drawn(1, 3)
    group = a_group([InTurn(3, 4, ENDS), InTurn(3, 4, ENDS)], seating)
    group.reset()
    for _ in range(12):
        step(group)
    assert seating.ended == [[[10.0, 100.0, 1000.0]] * 3] and len(seating.seats[0]) == 4
    learner, guests = group.lanes
    of_lane = [[e.episode_return for e in learner.take_episodes() if e.lane == lane] for lane in [3]]
    assert of_lane == [[10.0 * 10.0**seat for seat in seating.seats[0][:3]]]
    assert guests.take_episodes() == [] and learner.take_env_steps() == 24


def test_a_game_that_is_cut_short_is_not_heard_of():
    seating = Drawn(1, 2)
    group = a_group([InTurn(2, 5, ENDS[:2])], seating)
    for _ in range(3):
        group.reset()
        for _ in range(4):
            step(group)
    assert seating.ended == [[]] and len(seating.seats[0]) == 3


def test_agents_that_go_on_by_themselves_have_no_games_for_guests():
    with pytest.raises(UnsupportedSpaceError, match="no games that end"):
        a_group([Lists()], Drawn(1, 2))


def test_actions_may_be_given_as_the_game_takes_them():
    group = a_group([InTurn(2, 4, ENDS[:2])], Drawn(1, 2))
    group.reset()
    for _ in range(4):
        group.step([np.zeros(1, np.int64), np.array([1], object)])
    learner, _ = group.lanes
    assert len(learner.take_episodes()) == 1


@given(st.lists(parts, min_size=3, max_size=3), st.integers(1, 2), st.integers(1, 2))
def test_in_the_last_games_the_agents_of_one_team_are_guests(agents, own, count):
    names, envs = [f"player_{seat}" for seat in range(3)], [AtOnce(agents) for _ in range(own + count)]
    games, seeds = [game_of(env) for env in envs], list(range(len(envs)))
    teams = [[names[1]], [names[0], names[2]]]
    group = GuestGames(games, seeds, guests={1: [True] * count}, teams=teams, name="game", team_reward="sum")
    first, second, guests = group.lanes
    assert [lanes.num_lanes for lanes in group.lanes] == [own + count, 2 * own, 2 * count]
    group.reset()
    for _ in range(20):
        for lanes, seats in ((first, [1] * len(envs)), (second, [0, 2] * own), (guests, [0, 2] * count)):
            shown = seen(lanes)
            assert all(shown[lane, 0] == seats[lane] for lane in lanes.asked.nonzero()[0])
        step(group)
    assert guests.take_episodes() == [] and first.take_env_steps() == 20 * len(envs)


@pytest.mark.long
@given(st.lists(parts, min_size=3, max_size=3), st.integers(0, 9))
def test_shuffled_teams_change_agents_between_games_and_never_within_one(agents, seed):
    def seats_by_game(count):
        """Which agents each lane has shown, by game, in this order."""
        games = [game_of(AtOnce(agents)) for _ in range(2)]
        teams = [["player_1"], ["player_0", "player_2"]]
        group = Games(games, [seed, seed + 1], teams=teams, name="game", is_shuffled=True, team_reward="sum")
        found = [[defaultdict(set) for _ in range(lanes.num_lanes)] for lanes in group.lanes]
        group.reset()
        for _ in range(count):
            for lanes, of_lane in zip(group.lanes, found, strict=True):
                shown = seen(lanes)
                for lane in lanes.asked.nonzero()[0]:
                    of_lane[lane][int(shown[lane, 1])].add(int(shown[lane, 0]))
            step(group)
        return found

    (ones, pairs), again = seats_by_game(80), seats_by_game(80)
    assert [ones, pairs] == again, "a seed decides"
    for number in range(2):
        lanes = ones[number], *pairs[2 * number : 2 * number + 2]
        assert all(len(seats) == 1 for lane in lanes for seats in lane.values())
        for game in set.intersection(*(set(lane) for lane in lanes)):
            assert {seat for lane in lanes for seat in lane[game]} == {0, 1, 2}
    if not any(part.joins for part in agents):  # an agent that joins late is not in every game
        first, second = ([min(seats) for seats in lane.values()] for lane in ones)
        assert first != second and len(set(first)) > 1 < len(set(second))


@pytest.mark.parametrize(
    ("env", "message"),
    [
        (Lists, "no games that end.*use seats='fixed'"),
        (TwoSides, "'hunter_0' sees .* 'prey' sees .*; use seats='fixed'"),
    ],
)
def test_agents_that_are_not_alike_or_never_done_are_not_shuffled(env, message):
    with pytest.raises(UnsupportedSpaceError, match=message):
        Games([game_of(env())], [0], name="game", is_shuffled=True)


def test_of_several_teams_guests_have_all_seats_or_none_and_a_game_tells_what_each_team_has_got_in_the_mean():
    seating, games = Drawn(2, 4), [game_of(InTurn(4, 8, [ENDS[0]] * 4)) for _ in range(3)]
    seating.begin = lambda game: None
    teams, guests = [["player_0", "player_3"], ["player_1", "player_2"]], {0: [False, True], 1: [True, False]}
    group = GuestGames(games, [0, 1, 2], guests=guests, seating=seating, teams=teams, name="game")
    assert [lanes.num_lanes for lanes in group.lanes] == [4, 4, 2, 2]
    group.reset()
    of_lanes = {0: [0, 3, 0, 3], 1: [1, 2, 1, 2], 2: [0, 3], 3: [1, 2]}
    for _ in range(8):
        for number, seats in of_lanes.items():
            shown, asked = seen(group.lanes[number]), group.lanes[number].asked.nonzero()[0]
            assert all(shown[lane, 0] == seats[lane] for lane in asked)
        step(group)
    got = [36.0 * 10.0**seat for seat in range(4)]
    assert seating.ended == [[[(got[0] + got[3]) / 2, (got[1] + got[2]) / 2]]] * 2


def test_where_no_team_could_be_in_the_others_place_nobody_wins():
    seating, games = Drawn(1, 3), [game_of(InTurn(3, 6, ENDS)) for _ in range(2)]
    seating.begin = lambda game: None
    teams = [["player_0"], ["player_1", "player_2"]]
    group = GuestGames(games, [0, 1], guests={1: [True]}, seating=seating, teams=teams, name="game")
    group.reset()
    for _ in range(12):
        step(group)
    assert seating.ended == [[]]


class SpoilsEnds(AtOnce):
    """The final observation of the second agent, which is truncated first, is none."""

    def step(self, actions):
        shown, *rest = super().step(actions)
        return {**shown, **({"player_1": "none"} if rest[2].get("player_1") else {})}, *rest


@pytest.mark.parametrize("seed", range(8))
def test_a_bad_final_observation_is_said_to_be_of_who_played_then(seed):
    game = game_of(SpoilsEnds([Part(0, 2, "truncated"), Part(0, 2, "truncated")]))
    group = Games([game], [seed], name="game", teams=[["player_0"], ["player_1"]], is_shuffled=True)
    group.reset()
    step(group)
    step(group)
    with pytest.raises(EnvironmentFailure, match="agent 'player_1'"):
        for lanes in group.lanes:
            lanes.write_finals(np.zeros((1, 3), np.float32), np.array([0]))
