"""The memory of a replay buffer: two arenas that processes share, and the plan by which they read them."""

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
        How rows, frames and words lie in the arenas.
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
        """Reserve memory, or for records a file without a name on the disk of a directory.

        Raises
        ------
        MemoryError
            The machine or container has too little memory; the message shows the arithmetic.
        OSError
            The disk is full (ENOSPC), or has no such directory.
        """
        control_nbytes, data_nbytes = ReplayCore.sizes(plan)
        what = f"a replay buffer of {plan.capacity:,} rows"
        require_memory(control_nbytes + (0 if disk is not None else data_nbytes), what)
        control = Arena.create(control_nbytes)
        data = Arena.create(data_nbytes) if disk is None else Arena.create_on_disk(os.fspath(disk), data_nbytes)
        return cls(plan, control, data)

    def open(self, num_threads: int, seed: int, *, is_new: bool = False) -> ReplayCore:
        """Open the memory for writing and reading; new memory becomes an empty buffer first."""
        return ReplayCore(self.control, self.data, self.plan, is_new, num_threads, seed)

    def __getstate__(self) -> tuple[Plan, ArenaHandle, ArenaHandle]:
        return self.plan, arena_handle(self.control), arena_handle(self.data)

    def __setstate__(self, state: tuple[Plan, ArenaHandle, ArenaHandle]) -> None:
        self.plan, control, data = state
        self.control, self.data = attach(control), attach(data)
