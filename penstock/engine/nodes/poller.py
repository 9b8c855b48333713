"""The poller: a thread at home that serves the connections of all nodes."""

from __future__ import annotations

import select
import socket
import threading
import time
from typing import TYPE_CHECKING, Protocol

from penstock.ipc.stream import ALIVE_INTERVAL

if TYPE_CHECKING:
    from penstock.ipc import Doorbell

    Rung = tuple[Doorbell, ...] | None  # bells to ring after something has arrived; None: nothing has


class Served(Protocol):
    """A connection that a poller serves."""

    def fileno(self) -> int:
        """Return the descriptor of the connection."""

    def resume(self) -> Rung:
        """Send and receive as much as is possible without waiting; return bells to ring."""

    def end_if_silent(self, now: float) -> None:
        """End the connection if the other end has been silent for too long before `now` (monotonic seconds)."""


class Poller(threading.Thread):
    """Thread that receives from all nodes, and sends what connections have not taken at once; idle ones cost nothing.

    Attributes
    ----------
    failure
        Error that has ended the thread; None: there is none.
    """

    def __init__(self) -> None:
        super().__init__(name="home-receiving", daemon=True)
        self._epoll = select.epoll()
        self._links: dict[int, Served] = {}
        self._waker, self._wake = socket.socketpair()
        self._epoll.register(self._wake, select.EPOLLIN)
        self._is_over = False
        self.failure: Exception | None = None

    def add(self, link: Served) -> None:
        """Serve a connection."""
        self._epoll.register(link.fileno(), select.EPOLLIN)
        self._links[link.fileno()] = link

    def watch(self, link: Served, *, sends: bool) -> None:
        """Resume a link also when its connection takes bytes, while it has some to send."""
        self._epoll.modify(link.fileno(), select.EPOLLIN | (select.EPOLLOUT if sends else 0))

    def remove(self, link: Served) -> None:
        """Stop serving a connection that is about to be closed."""
        if self._links.pop(link.fileno(), None) is not None:
            self._epoll.unregister(link.fileno())

    def run(self) -> None:
        """Resume links whose connections are ready, and end silent ones."""
        next_look = 0.0
        try:
            while not self._is_over:
                self._resume(max(0.0, next_look - time.monotonic()))
                if (now := time.monotonic()) >= next_look:
                    next_look = now + ALIVE_INTERVAL
                    self._resume(0.0)  # after a delay of this process, what has arrived meanwhile counts
                    for link in list(self._links.values()):
                        link.end_if_silent(now)
        except Exception as error:
            self.failure = error

    def end(self) -> None:
        """End the thread, and wait for it; all links have ended."""
        self._is_over = True
        self._waker.send(b"\0")
        if self.is_alive():
            self.join()
        self._epoll.close()
        self._waker.close()
        self._wake.close()

    def _resume(self, timeout: float) -> None:
        rung: set[Doorbell] = set()  # once for all links: a sleeper that wakes costs more than a block
        for number, _ in self._epoll.poll(timeout):
            if (link := self._links.get(number)) is not None:
                rung.update(link.resume() or ())
        for bell in rung:
            bell.ring()
