"""Ownership between processes: slot states, a lock on shared memory, objects that only their creator may close.

A forked child has copies of a trainer, its sockets and its files. Whatever the child does (leave ``with Trainer``,
collect garbage, raise, exit), it closes, stops and deletes none of them.
"""

from __future__ import annotations

import ctypes
import fcntl
import functools
import os
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import IntEnum
from typing import Concatenate, ParamSpec, TypeVar

from penstock._native import Arena

P = ParamSpec("P")
O = TypeVar("O", bound="Owned")  # noqa: E741 - the owned

_owned: weakref.WeakSet[Owned] = weakref.WeakSet()


class SlotState(IntEnum):
    """State of a slot, numbered as in ``SlotTable``.

    A segment passes through ``FREE -> WRITING -> FULL -> READING -> FREE``.
    """

    FREE = 0  # unowned
    WRITING = 1  # a rollout worker writes experience
    FULL = 2  # a complete segment is ready for the learner
    READING = 3  # the learner reads it


@contextmanager
def taking_turns(arena: Arena) -> Iterator[None]:
    """Admit one process at a time to the block; others wait.

    The kernel holds the lock on the arena's memory and releases it when a process dies in the block. Threads of one
    process do not exclude each other, and blocks must not be nested.

    Parameters
    ----------
    arena : Arena
        Memory that the processes share.
    """
    fcntl.lockf(arena.fd, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.lockf(arena.fd, fcntl.LOCK_UN)


class Owned:
    """Base of objects that only their creating process may close.

    Attributes
    ----------
    is_foreign : bool
        Whether this process is a forked child of the creating process.
    """

    is_foreign = False
    _maker: int

    def __new__(cls, *_: object, **__: object) -> Owned:
        made = super().__new__(cls)
        made._maker = os.getpid()
        _owned.add(made)
        return made

    def require_owner(self) -> None:
        """Raise RuntimeError in a forked child of the creating process."""
        if self.is_foreign:
            raise RuntimeError(
                f"process {os.getpid()} was forked from process {self._maker}, which owns this training: let the "
                "child end without using it, or make a trainer of its own there"
            )


def owner_only(close: Callable[Concatenate[O, P], None]) -> Callable[Concatenate[O, P], None]:
    """Make a method a no-op in a forked child of the object's creating process."""

    @functools.wraps(close)
    def closes(self: O, *args: P.args, **kwargs: P.kwargs) -> None:
        if not self.is_foreign:
            close(self, *args, **kwargs)

    return closes


def _disown() -> None:
    for each in list(_owned):
        each.is_foreign = True
        # Never destroyed here: a destructor would end the parent's objects, or join a thread that does not exist here.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(each))


os.register_at_fork(after_in_child=_disown)
