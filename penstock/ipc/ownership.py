"""Ownership: what a process has made and closes is none of its forked children's.

A child that user code forks has copies of a trainer, of its sockets and of the files that it writes. However the child
goes on (it leaves ``with Trainer``, collects garbage, raises, exits), it closes, stops and deletes nothing of these.
"""

from __future__ import annotations

import ctypes
import functools
import os
import weakref
from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar

P = ParamSpec("P")
O = TypeVar("O", bound="Owned")  # noqa: E741 - the owned

_owned: weakref.WeakSet[Owned] = weakref.WeakSet()


class Owned:
    """Base of what only the process that made it may close.

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
