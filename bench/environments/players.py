"""Fixed players of board games: for bench/self_play.py, and for connect four also for evaluations of a run.

    penstock train ppo --env bench/environments/connect_four.py:ConnectFour --opponents past \\
        --eval-against random bench/environments/players.py:OnePly
"""

from __future__ import annotations

import random
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
import connect_four

Board = Any


def random_move(game: ModuleType, board: Board, chance: random.Random) -> int:
    """Return a random legal move."""
    move: int = chance.choice(game.legal(board))
    return move


def one_ply_move(game: ModuleType, board: Board, chance: random.Random) -> int:
    """Return a winning move; else one that blocks a win of the other player; else a random legal move."""
    moves: list[int] = game.legal(board)
    for move in moves:
        if game.has_lost(game.after(board, move)):
            return move
    own, other = board
    for move in moves:
        if game.has_lost(game.after((other, own), move)):
            return move
    return chance.choice(moves)


class OnePly:
    """Plays connect four as `one_ply_move` does, from an agent's observations."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)

    def __call__(self, observation: dict[str, np.ndarray]) -> int:
        """Choose a column."""
        return one_ply_move(connect_four, connect_four.seen(observation), self._chance)
