"""Strength of a policy that learned a board game in self-play, against a best response and fixed players.

    python bench/self_play.py tic-tac-toe RUN [--checkpoint latest] [--games 500]
    python bench/self_play.py connect-four RUN

A policy plays its most probable moves; each policy of a run is judged. For tic-tac-toe all results are computed from
its 5,478 boards: the score of the best opponent against the policy, and the policy's wins less losses against random
moves. Connect four is played: equally many games from either seat against random moves, and against a player that looks
one move ahead (wins, or blocks, or moves at random).
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent / "environments"))
import connect_four
import tic_tac_toe
from players import one_ply_move, random_move

from penstock.play.policy import Policy, load_policy
from penstock.runs.lookup import resolve_checkpoint
from penstock.runs.run_directory import RunDirectory

Board = Any
Move = Callable[[Board], int]


def moves_of(policy: Policy, game: ModuleType, boards: Sequence[Board]) -> list[int]:
    """Return the policy's moves on unfinished boards."""
    observations = [game.shown(board) for board in boards]
    batch = {name: np.stack([observation[name] for observation in observations]) for name in observations[0]}
    return [int(move) for move in policy.act(batch)]


def all_boards(game: ModuleType) -> list[Board]:
    """Return every reachable board, as observed by the agent to move."""
    seen, waiting = set(), [game.START]
    while waiting:
        board = waiting.pop()
        if board not in seen:
            seen.add(board)
            waiting += [game.after(board, move) for move in game.legal(board)]
    return list(seen)


def exact(move: Move, game: ModuleType) -> dict[str, tuple[float, float]]:
    """Results of a player's games, by game theory.

    Parameters
    ----------
    move
        The player's move on a board.
    game
        Game with few enough boards to enumerate.

    Returns
    -------
    dict
        "best response": score of the best opponent that moves first, and second. "random": expected score of the
        player against random moves of an opponent that moves first, and second.
    """

    @cache
    def of_opponent(board: Board, is_random: bool, players_turn: bool) -> float:
        """The opponent's expected score."""
        moves = game.legal(board)
        if not moves:
            return (1.0 if players_turn else -1.0) if game.has_lost(board) else 0.0
        if players_turn:
            return of_opponent(game.after(board, move(board)), is_random, False)
        scores = [of_opponent(game.after(board, one), is_random, True) for one in moves]
        return sum(scores) / len(scores) if is_random else max(scores)

    best = of_opponent(game.START, False, False), of_opponent(game.START, False, True)
    by_chance = -of_opponent(game.START, True, True), -of_opponent(game.START, True, False)
    return {"best response": best, "random": by_chance}


def played(policy: Policy, game: ModuleType, opponent: Callable[..., int], games: int, *, begins: bool) -> list[float]:
    """Return scores of parallel games against an opponent: 1 for a win, -1 for a loss, 0 for a draw."""
    chance, boards, scores = random.Random(1), [game.START] * games, [0.0] * games
    is_ours, running = begins, list(range(games))
    while running:
        if is_ours:
            moves = moves_of(policy, game, [boards[i] for i in running])
        else:
            moves = [opponent(game, boards[i], chance) for i in running]
        for i, move in zip(running, moves, strict=True):
            boards[i] = game.after(boards[i], move)
            if game.has_lost(boards[i]):
                scores[i] = 1.0 if is_ours else -1.0
        running = [i for i in running if game.legal(boards[i])]
        is_ours = not is_ours
    return scores


def judged_tic_tac_toe(policy: Policy) -> str:
    """Return a line about a policy of tic-tac-toe."""
    boards = [board for board in all_boards(tic_tac_toe) if tic_tac_toe.legal(board)]
    table = dict(zip(boards, moves_of(policy, tic_tac_toe, boards), strict=True))
    found = exact(table.__getitem__, tic_tac_toe)
    best, by_chance = found["best response"], found["random"]
    return (
        f"a best response scores {best[0]:+.0f} moving first and {best[1]:+.0f} moving second; wins less losses "
        f"against random {by_chance[0]:.3f} moving first and {by_chance[1]:.3f} moving second"
    )


def judged_connect_four(policy: Policy, games: int) -> str:
    """Return a line about a policy of connect four."""
    told = []
    for name, opponent in (("random", random_move), ("one-ply", one_ply_move)):
        wins = [np.mean(np.array(played(policy, connect_four, opponent, games, begins=b)) > 0) for b in (True, False)]
        told.append(f"wins against {name} {wins[0]:.3f} moving first and {wins[1]:.3f} moving second")
    return "; ".join(told) + f" ({games} games each)"


def main() -> None:
    """Judge a run's policy."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("game", choices=("tic-tac-toe", "connect-four"))
    parser.add_argument("run", type=Path)
    parser.add_argument("--checkpoint", default="latest")
    parser.add_argument("--games", type=int, default=500)
    arguments = parser.parse_args()
    is_small, told = arguments.game == "tic-tac-toe", []
    for name in RunDirectory.open(arguments.run).policies or [None]:
        policy = load_policy(resolve_checkpoint(arguments.run, arguments.checkpoint, policy=name))
        judged = judged_tic_tac_toe(policy) if is_small else judged_connect_four(policy, arguments.games)
        told.append(judged if name is None else f"{name}: {judged}")
    print("; ".join(told))


if __name__ == "__main__":
    main()
