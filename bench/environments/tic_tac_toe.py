"""Tic-tac-toe for two agents in turn, with masks of legal moves: a lightweight environment of PettingZoo's AEC kind.

    penstock train ppo --env bench/environments/tic_tac_toe.py:TicTacToe --total-steps 1000000
    python bench/self_play.py tic-tac-toe RUN
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary

LINES = (
    (0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6),
)  # fmt: skip
Board = tuple[int, ...]
"""Nine cells, row by row: 1 for a mark of the agent to move, -1 for a mark of the other agent, 0 for an empty cell."""
START: Board = (0,) * 9


def has_lost(board: Board) -> bool:
    """Return whether the agent to move has lost: the other agent has three in a line."""
    return any(board[a] == board[b] == board[c] == -1 for a, b, c in LINES)


def legal(board: Board) -> list[int]:
    """Return the cells that may be marked; none after the end of the game."""
    return [] if has_lost(board) else [cell for cell in range(9) if not board[cell]]


def after(board: Board, cell: int) -> Board:
    """Return the board after a move, as observed by the other agent."""
    return tuple(-1 if other == cell else -mark for other, mark in enumerate(board))


def shown(board: Board) -> dict[str, np.ndarray]:
    """Return the observation of the agent to move: its marks, the other's marks, and the mask of legal moves."""
    marks = np.array(board, np.int8)
    mask = np.zeros(9, np.int8)
    mask[legal(board)] = 1
    return {"board": np.concatenate([marks == 1, marks == -1]).astype(np.float32), "action_mask": mask}


class TicTacToe:
    """Crosses begin. The winner gets 1, the loser -1, both 0 for a draw."""

    possible_agents = ("crosses", "noughts")
    render_mode = None

    def __init__(self) -> None:
        self.agents: list[str] = []

    def observation_space(self, agent: str) -> Dict:
        """Eighteen zeros and ones, with the mask."""
        return Dict({"board": Box(0.0, 1.0, (18,), np.float32), "action_mask": MultiBinary(9)})

    def action_space(self, agent: str) -> Discrete:
        """The nine cells."""
        return Discrete(9)

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        """Clear the board."""
        self.agents = list(self.possible_agents)
        self.agent_selection = self.agents[0]
        self._board = START
        self._is_over, self._outcome = False, 0.0

    def agent_iter(self) -> None:
        """Not used; its presence marks an environment of PettingZoo's AEC kind."""

    def last(self) -> tuple[dict[str, np.ndarray], float, bool, bool, dict]:
        """Return observation, reward since its last move, and ends of the selected agent."""
        return shown(self._board), self._outcome, self._is_over, False, {}

    def step(self, action: int | None) -> None:
        """Mark a cell; after the end of the game, remove the selected agent."""
        if self._is_over:
            self.agents.remove(self.agent_selection)
            self._outcome = -self._outcome
        else:
            assert action is not None
            self._board = after(self._board, int(action))
            self._is_over = not legal(self._board)
            self._outcome = -1.0 if has_lost(self._board) else 0.0
        if self.agents:
            self.agent_selection = next(agent for agent in self.possible_agents if agent != self.agent_selection)

    def close(self) -> None:
        """Do nothing: there are no resources."""
