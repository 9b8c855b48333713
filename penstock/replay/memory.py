"""Memory of a replay buffer: two arenas shared between processes, and the layout by which they are read."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from penstock._native import ReplayCore
from penstock.ipc import Arena, require_memory
from penstock.replay.plan import Plan
from penstock.replay.sharing import ArenaHandle, arena_handle, attach


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
        """Reserve memory, or for records a nameless file on the disk of a directory.

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
