"""Stacks of successive frames in a segment, as their distinct frames and where each stack finds its own."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class FrameStacks:
    """Storage of a segment's stacked observations ``[R, k, ...]``, where the whole segment lies in one place.

    Each row brings one frame that was not there before, and the first row k. A row that begins an episode is padded
    with repetitions of its frame, or with one other, such as zeros. So ``R + k`` frames are enough.

    Attributes
    ----------
    num_rows, depth
        R and k.
    """

    num_rows: int
    depth: int

    @property
    def num_frames(self) -> int:
        """Distinct frames that a segment has at most."""
        return self.num_rows + self.depth

    def pack(self, obs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Take the stacks of N segments apart.

        Parameters
        ----------
        obs
            ``[N, R, k, ...]``.

        Returns
        -------
        frames : ndarray
            ``[N, R + k, ...]``: the distinct frames, in the order in which they come; what is left over is zeros.
        places : ndarray
            int64 ``[N, R, k]``: where among them each frame of each stack lies.

        Raises
        ------
        ValueError
            A segment has more distinct frames: its rows are no stacks of successive frames.
        """
        frames = np.zeros((len(obs), self.num_frames, *obs.shape[3:]), obs.dtype)
        places = np.empty((len(obs), self.num_rows, self.depth), np.int64)
        pixels = _as_words(obs.reshape(*obs.shape[:3], -1))
        follows = (pixels[:, 1:, :-1] == pixels[:, :-1, 1:]).all((2, 3))
        for number, stacks in enumerate(obs):
            self._pack_one(stacks, follows[number], frames[number], places[number])
        return frames, places

    def unpack(self, frames: np.ndarray, places: np.ndarray) -> np.ndarray:
        """Put the stacks of N segments together again: what `pack` was given."""
        return frames[np.arange(len(frames))[:, None, None], places]

    def _pack_one(self, stacks: np.ndarray, follows: np.ndarray, frames: np.ndarray, places: np.ndarray) -> None:
        count = 0

        def keep(frame: np.ndarray) -> int:
            nonlocal count
            if count == len(frames):
                raise ValueError(
                    f"{self.num_rows} rows have more than {len(frames)} distinct frames: they are not stacks of "
                    f"{self.depth} successive ones"
                )
            frames[count] = frame
            count += 1
            return count - 1

        def find_or_keep(frame: np.ndarray) -> int:
            same = (place for place in range(count) if np.array_equal(frames[place], frame))
            found = next(same, None)
            return keep(frame) if found is None else found

        for row, stack in enumerate(stacks):
            if row and follows[row - 1]:
                places[row] = [*places[row - 1, 1:], keep(stack[-1])]
            else:
                places[row] = [find_or_keep(frame) for frame in stack]


def _as_words(array: np.ndarray) -> np.ndarray:
    """The same bytes, compared eight at a time where that divides them."""
    array = np.ascontiguousarray(array)
    return array.view(np.uint64) if array.shape[-1] * array.itemsize % 8 == 0 else array
