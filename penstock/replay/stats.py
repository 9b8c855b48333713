"""Counts of a buffer's operations."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Stats:
    """Counts since the buffer was made, over all its processes.

    Attributes
    ----------
    rows_added : int
        Rows ever added; a reservoir has not kept all.
    rows_skipped : int
        Rows given up because other writers were in every row that was tried.
    rows_redrawn : int
        Sampled rows that could not be read any more, and were drawn again: overwritten meanwhile, or without frames.
    rows_without_frames : int
        Of these, rows whose frames were overwritten before them: give the buffer a larger ``frame_capacity``.
    updates_late : int
        Priority updates for rows that were overwritten, and dropped.
    frames_stored : int
        Frames written to the stores of stacked and shared fields.
    """

    rows_added: int
    rows_skipped: int
    rows_redrawn: int
    rows_without_frames: int
    updates_late: int
    frames_stored: int
