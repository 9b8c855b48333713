"""A small reference recorder: it lays the steps of lanes into segments as the engine does."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from penstock.envs import Lanes


@dataclass
class Segment:
    """T transitions and T + 1 observations of one lane."""

    observation: np.ndarray
    first: np.ndarray
    action: np.ndarray
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    valid: np.ndarray


class Recorder:
    """Plays lanes and keeps a row cursor for each; a finished segment's last row begins the next segment.

    A lane in ``finals`` gets two rows in one step: the final observation, whose transition is invalid, and after it
    the first observation of the next episode. If the segment is full with the final row, the next one begins with
    the new episode.
    """

    def __init__(self, lanes: Lanes, length: int, num_slots: int = 1000) -> None:
        self.lanes = lanes
        self.length = length
        self.finished: list[list[Segment]] = [[] for _ in range(lanes.num_lanes)]
        rows = num_slots * (length + 1)
        self.observation = np.full((rows, *lanes.observation.shape), 77, lanes.observation.dtype)
        self.first = np.zeros(rows, np.bool_)
        self.action = np.full(rows, -1, np.int64)
        self.reward = np.full(rows, 77.0, np.float32)
        self.terminated = np.zeros(rows, np.bool_)
        self.truncated = np.zeros(rows, np.bool_)
        self.valid = np.zeros(rows, np.bool_)
        self.num_slots_used = 0
        self.start = np.array([self._new_segment() for _ in range(lanes.num_lanes)])
        self.row = self.start.copy()
        lanes.reset()
        self._show(np.arange(lanes.num_lanes))

    def play(self, num_steps: int) -> None:
        for number in range(num_steps):
            lanes, row = self.lanes, self.row
            actions = np.full(lanes.num_lanes, number % 2, np.int64)
            lanes.step(actions)
            self.action[row] = actions
            self.reward[row] = lanes.reward
            self.terminated[row] = lanes.terminated
            self.truncated[row] = lanes.truncated
            self.valid[row] = lanes.valid
            row += 1
            if len(lanes.finals):
                final_rows = row[lanes.finals]
                lanes.write_finals(self.observation, final_rows)
                self.first[final_rows] = False
                self.reward[final_rows] = 0.0
                for lane in lanes.finals.tolist():
                    if row[lane] == self.start[lane] + self.length:
                        self._finish_segment(lane)
                    else:
                        row[lane] += 1
            self._show(np.arange(lanes.num_lanes))
            for lane in range(lanes.num_lanes):
                if row[lane] == self.start[lane] + self.length:
                    last = row[lane]
                    self._finish_segment(lane)
                    self.observation[row[lane]] = self.observation[last]
                    self.first[row[lane]] = self.first[last]

    def _show(self, lanes: np.ndarray) -> None:
        self.lanes.write_observations(self.observation, self.row[lanes])
        self.first[self.row] = self.lanes.first

    def _new_segment(self) -> int:
        self.num_slots_used += 1
        return (self.num_slots_used - 1) * (self.length + 1)

    def _finish_segment(self, lane: int) -> None:
        rows = slice(self.start[lane], self.start[lane] + self.length + 1)
        steps = slice(rows.start, rows.stop - 1)
        self.finished[lane].append(
            Segment(
                self.observation[rows].copy(),
                self.first[rows].copy(),
                self.action[steps].copy(),
                self.reward[steps].copy(),
                self.terminated[steps].copy(),
                self.truncated[steps].copy(),
                self.valid[steps].copy(),
            )
        )
        self.row[lane] = self.start[lane] = self._new_segment()
