"""Ownership between processes: states of a slot, turns at shared memory, objects that only their maker may close.

A child that user code forks has copies of a trainer, of its sockets and of the files that it writes. However the child
goes on (it leaves ``with Trainer``, collects garbage, raises, exits), it closes, stops and deletes nothing of these.
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
    """State of a slot; the numbers are those of ``SlotTable``.

    A segment passes through ``FREE -> WRITING -> FULL -> READING -> FREE``.
    """

    FREE = 0  # unowned
    WRITING = 1  # a rollout worker writes experience
    FULL = 2  # a whole segment waits for the learner
    READING = 3  # the learner reads it


@contextmanager
def taking_turns(arena: Arena) -> Iterator[None]:
    """Let one process at a time into the block; the others wait.

    The kernel holds the lock, on the arena's memory: it ends with a process that dies in the block. Threads of one
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
    """Base of objects that only the process that made them may close.

    Attributes
    ----------
    is_foreign : bool
        Whether this process is a forked child of the one that made the object.
    """

    is_foreign = False
    _maker: int

    def __new__(cls, *_: object, **__: object) -> Owned:
        made = super().__new__(cls)
        made._maker = os.getpid()
        _owned.add(made)
        return made

    def require_owner(self) -> None:
        """Raise RuntimeError in a forked child of the process that made the object."""
        if self.is_foreign:
            raise RuntimeError(
                f"process {os.getpid()} was forked from process {self._maker}, whose training this is: let the child "
                "end without it, or make a trainer of its own there"
            )


def owner_only(close: Callable[Concatenate[O, P], None]) -> Callable[Concatenate[O, P], None]:
    """Let a method do nothing in a forked child of the process that made the object."""

    @functools.wraps(close)
    def closes(self: O, *args: P.args, **kwargs: P.kwargs) -> None:
        if not self.is_foreign:
            close(self, *args, **kwargs)

    return closes


def _disown() -> None:
    for each in list(_owned):
        each.is_foreign = True
        # Never destroyed here either: a destructor would end what is the parent's, or join a thread that is not here.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(each))


os.register_at_fork(after_in_child=_disown)
