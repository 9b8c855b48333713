"""Games of two agents that commands name, and the judges of self-play: known values, and rules checked by hand."""

import random
from functools import cache

import numpy as np
import pytest

from bench import self_play
from bench.environments import connect_four, tic_tac_toe
from bench.environments.two_cartpoles import TwoCartPoles
from penstock.envs.making import make_env


@cache
def value(board):
    """Return the value of best play for the agent to move."""
    moves = tic_tac_toe.legal(board)
    if not moves:
        return -1 if tic_tac_toe.has_lost(board) else 0
    return max(-value(tic_tac_toe.after(board, move)) for move in moves)


@cache
def against_chance(board, is_ours):
    """The most that can be expected against random moves."""
    moves = tic_tac_toe.legal(board)
    if not moves:
        return (-1 if is_ours else 1) if tic_tac_toe.has_lost(board) else 0
    values = [against_chance(tic_tac_toe.after(board, move), not is_ours) for move in moves]
    return max(values) if is_ours else sum(values) / len(values)


def best_move(board):
    return max(tic_tac_toe.legal(board), key=lambda move: -value(tic_tac_toe.after(board, move)))


def first_move(board):
    return tic_tac_toe.legal(board)[0]


def hunting_move(board):
    return max(tic_tac_toe.legal(board), key=lambda move: against_chance(tic_tac_toe.after(board, move), False))


def test_tic_tac_toe_has_as_many_boards_as_is_known_and_is_a_draw():
    assert len(self_play.all_boards(tic_tac_toe)) == 5_478 and value(tic_tac_toe.START) == 0


def test_the_exact_judge_knows_perfect_play_and_beats_what_is_not():
    assert self_play.exact(best_move, tic_tac_toe)["best response"] == (0.0, 0.0)
    assert self_play.exact(first_move, tic_tac_toe)["best response"] == (1.0, 1.0)


def test_against_random_moves_the_best_is_as_good_as_is_known():
    found = self_play.exact(hunting_move, tic_tac_toe)["random"]
    assert found == pytest.approx((0.995, 0.925), abs=1e-3)
    assert found == pytest.approx(
        (against_chance(tic_tac_toe.START, True), against_chance(tic_tac_toe.START, False)), abs=1e-12
    )


def has_four(discs):
    """Whether four of a player's discs are in a line, cell by cell."""
    cells = {(c, r) for c in range(7) for r in range(6) if discs >> (7 * c + r) & 1}
    ways = ((0, 1), (1, 0), (1, 1), (1, -1))
    return any(all((c + k * x, r + k * y) in cells for k in range(4)) for c, r in cells for x, y in ways)


def test_connect_four_is_won_by_four_in_a_line_and_shows_the_discs_where_they_lie():
    chance, wins = random.Random(1), 0
    for _ in range(60):
        board, heights = connect_four.START, [0] * 7
        while moves := connect_four.legal(board):
            assert moves == [column for column in range(7) if heights[column] < 6]
            move = chance.choice(moves)
            board = connect_four.after(board, move)
            heights[move] += 1
            mine, others = connect_four.shown(board)["board"].reshape(2, 7, 6)
            assert others[move, heights[move] - 1] == 1 and (mine + others).sum() == sum(heights)
            assert connect_four.has_lost(board) == has_four(board[1])
        wins += connect_four.has_lost(board)
    assert wins > 50


def test_the_one_ply_player_wins_and_blocks():
    three = sum(1 << 7 * column for column in range(3))
    chance = random.Random(1)
    assert all(self_play.one_ply_move(connect_four, board, chance) == 3 for board in ((three, 0), (0, three)))


@pytest.mark.parametrize("game", [tic_tac_toe.TicTacToe, connect_four.ConnectFour])
def test_both_players_get_the_end_of_their_game(game):
    lanes = make_env(game)
    lanes.reset()
    column = np.zeros((2, *lanes.observation.shape), lanes.observation.dtype)
    mask, chance, ended = lanes.observation.mask, np.random.default_rng(1), []
    while len(ended) < 40:
        lanes.write_observations(column, np.arange(2))
        legal = column[:, mask.offset : mask.offset + mask.spec.shape[0]]
        lanes.step((chance.random(legal.shape) * legal).argmax(1))
        ended += lanes.take_episodes()
    returns = np.array([episode.episode_return for episode in sorted(ended[:40], key=lambda e: e.lane)]).reshape(2, -1)
    assert (returns[0] == -returns[1]).all() and {1.0, -1.0} <= set(returns[0])


def test_each_of_two_cartpoles_falls_when_it_falls():
    lanes = make_env(TwoCartPoles)
    lanes.reset()
    apart = 0
    for _ in range(200):
        lanes.step(np.array([0, 1]))
        apart += lanes.asked.tolist() in ([True, False], [False, True])
    episodes = lanes.take_episodes()
    assert apart > 5 and all(episode.episode_return == episode.length < 15 for episode in episodes)
