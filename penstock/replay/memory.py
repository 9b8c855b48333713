"""Memory of a replay buffer: two arenas shared between processes, their layout, and counts."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from penstock._native import ReplayCore
from penstock.ipc import Arena, require_memory
from penstock.replay.plan import Plan
from penstock.replay.sharing import ArenaHandle, arena_handle, attach


@dataclass(frozen=True)
class Stats:
    """Counts over all processes since the buffer was made.

    Attributes
    ----------
    rows_added : int
        Rows added, including rows that a reservoir has not kept.
    rows_skipped : int
        Rows given up because other writers held every row that was tried.
    rows_redrawn : int
        Sampled rows that were drawn again because they were overwritten or had lost their frames.
    rows_without_frames : int
        Of these, rows whose frames were overwritten first: give the buffer a larger ``frame_capacity``.
    updates_late : int
        Priority updates dropped because their rows were overwritten.
    frames_stored : int
        Frames written to the stores of stacked and shared fields.
    """

    rows_added: int
    rows_skipped: int
    rows_redrawn: int
    rows_without_frames: int
    updates_late: int
    frames_stored: int


@dataclass
class Memory:
    """Memory of the rows; pickled as handles, for other processes of this machine.

    Attributes
    ----------
    plan
        Layout of rows, frames and words in the arenas.
    control
        Words and trees.
    data
        Records.
    """

    plan: Plan
    control: Arena
    data: Arena

    @classmethod
    def create(cls, plan: Plan, disk: str | Path | None = None) -> Memory:
        """Reserve memory; with `disk`, a directory, records are in a file without a name on its disk.

        Raises
        ------
        MemoryError
            The machine or container has too little memory; the message shows the arithmetic.
        OSError
            The disk is full (ENOSPC), or the directory does not exist.
        """
        control_nbytes, data_nbytes = ReplayCore.sizes(plan)
        what = f"a replay buffer of {plan.capacity:,} rows"
        require_memory(control_nbytes + (0 if disk is not None else data_nbytes), what)
        control = Arena.create(control_nbytes)
        data = Arena.create(data_nbytes) if disk is None else Arena.create_on_disk(os.fspath(disk), data_nbytes)
        return cls(plan, control, data)

    def open(self, num_threads: int, seed: int, *, is_new: bool = False) -> ReplayCore:
        """Open the memory for writing and reading; initialise new memory as an empty buffer."""
        return ReplayCore(self.control, self.data, self.plan, is_new, num_threads, seed)

    def __getstate__(self) -> tuple[Plan, ArenaHandle, ArenaHandle]:
        return self.plan, arena_handle(self.control), arena_handle(self.data)

    def __setstate__(self, state: tuple[Plan, ArenaHandle, ArenaHandle]) -> None:
        self.plan, control, data = state
        self.control, self.data = attach(control), attach(data)
