"""Connect four for two agents in turn, with masks of legal moves: a lightweight environment of PettingZoo's AEC kind.

    penstock train ppo --env bench/environments/connect_four.py:ConnectFour \\
        --encoder bench/environments/connect_four_network.py:Fours --total-steps 1000000
    python bench/self_play.py connect-four RUN
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary

COLUMNS, ROWS = 7, 6
STRIDE = ROWS + 1  # bits per column: one above the highest cell stays empty
Board = tuple[int, int]
"""Discs of the agent to move and of the other agent: bit ``7 column + row`` of each, rows counted from the bottom."""
START: Board = (0, 0)


def has_lost(board: Board) -> bool:
    """Return whether the agent to move has lost: the other agent has four in a line."""
    for distance in (1, STRIDE - 1, STRIDE, STRIDE + 1):
        pairs = board[1] & (board[1] >> distance)
        if pairs & (pairs >> 2 * distance):
            return True
    return False


def legal(board: Board) -> list[int]:
    """Return the columns that are not full; none after the end of the game."""
    discs = board[0] | board[1]
    if has_lost(board):
        return []
    return [column for column in range(COLUMNS) if not discs >> (STRIDE * column + ROWS - 1) & 1]


def after(board: Board, column: int) -> Board:
    """Return the board after a move, as observed by the other agent."""
    own, other = board
    lowest = 1 << STRIDE * column
    return other, own | ((own | other) + lowest) & ((1 << STRIDE * (column + 1)) - lowest)


def shown(board: Board) -> dict[str, np.ndarray]:
    """Return the observation of the agent to move: its discs, the other's discs, and the mask of legal moves."""
    bits = np.unpackbits(np.array(board, "<u8").view(np.uint8).reshape(2, 8), axis=1, bitorder="little")
    discs = bits[:, : COLUMNS * STRIDE].reshape(2, COLUMNS, STRIDE)[:, :, :ROWS]
    mask = np.zeros(COLUMNS, np.int8)
    mask[legal(board)] = 1
    return {"board": discs.reshape(-1).astype(np.float32), "action_mask": mask}


def seen(observation: dict[str, np.ndarray]) -> Board:
    """Return the board of an observation: the inverse of `shown`."""
    cells = np.pad(observation["board"].reshape(2, COLUMNS, ROWS), ((0, 0), (0, 0), (0, STRIDE - ROWS)))
    own, other = (sum(1 << int(bit) for bit in player.reshape(-1).nonzero()[0]) for player in cells)
    return own, other


class ConnectFour:
    """Red begins. The winner gets 1, the loser -1, both 0 for a draw."""

    possible_agents = ("red", "yellow")
    render_mode = None

    def __init__(self) -> None:
        self.agents: list[str] = []

    def observation_space(self, agent: str) -> Dict:
        """Eighty-four zeros and ones, with the mask."""
        board = Box(0.0, 1.0, (2 * COLUMNS * ROWS,), np.float32)
        return Dict({"board": board, "action_mask": MultiBinary(COLUMNS)})

    def action_space(self, agent: str) -> Discrete:
        """The seven columns."""
        return Discrete(COLUMNS)

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
        """Drop a disc; after the end of the game, remove the selected agent."""
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
