"""Taking turns: what shared memory holds is changed, or read, by one process at a time."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager

from penstock._native import Arena


@contextmanager
def taking_turns(arena: Arena) -> Iterator[None]:
    """Let one process at a time into the block; the others wait.

    A lock of the kernel's on the arena's memory: a process that dies in the block gives it back. Within one process it
    excludes nobody, and it is not to be nested.

    Parameters
    ----------
    arena : Arena
        The memory that the processes share.
    """
    fcntl.lockf(arena.fd, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.lockf(arena.fd, fcntl.LOCK_UN)
