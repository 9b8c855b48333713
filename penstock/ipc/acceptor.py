"""Acceptor: a listening socket whose connections are each served in a thread of their own."""

from __future__ import annotations

import contextlib
import secrets
import socket
import threading
import time
from collections.abc import Callable

PAUSE = 0.1  # seconds after a connection could not be accepted


class Acceptor(threading.Thread):
    """Thread that accepts connections on a free port.

    Parameters
    ----------
    ip
        Address of this machine to listen at.
    serve
        Called with each connection, in a thread of its own; it closes the connection.
    most_unproven
        Most connections at a time that have not proven to belong here; a further one ends a random one, so that idle
        strangers keep nobody out.
    refuse
        Called with the reason why connections cannot be accepted or served.

    Attributes
    ----------
    address
        Address at which it listens.
    unproven
        Connections without a proof, each with the time (monotonic seconds) at which it was accepted.
    is_over
        Whether nothing more is accepted.
    """

    def __init__(
        self, ip: str, serve: Callable[[socket.socket], object], most_unproven: int,
        refuse: Callable[[str], object] = lambda why: None,
    ) -> None:  # fmt: skip
        super().__init__(name="accepting", daemon=True)
        self._serve, self._most_unproven, self._refuse = serve, most_unproven, refuse
        self.unproven: dict[socket.socket, float] = {}
        self.is_over = False
        self._listener = socket.create_server((ip, 0))
        self.address: tuple[str, int] = self._listener.getsockname()[:2]

    def take_proof(self, connection: socket.socket) -> bool:
        """Record that a connection has proven to belong here; False: it has been ended for another one."""
        return self.unproven.pop(connection, None) is not None

    def run(self) -> None:
        """Accept connections."""
        has_failed = False
        while not self.is_over:
            try:
                connection, _ = self._listener.accept()
            except OSError as error:  # too many open files, or no memory: connections wait until some are free
                if self.is_over:
                    return
                if not has_failed:
                    self._refuse(f"{error.strerror}; connections wait until they can be accepted")
                has_failed = True
                time.sleep(PAUSE)
                continue
            has_failed = False
            strangers = list(self.unproven)
            if len(strangers) >= self._most_unproven and self.take_proof(stranger := secrets.choice(strangers)):
                wake(stranger)
            self.unproven[connection] = time.monotonic()
            try:
                threading.Thread(target=self._serve_one, args=(connection,), daemon=True).start()
            except RuntimeError as error:  # as many threads as the system allows
                del self.unproven[connection]
                connection.close()
                self._refuse(str(error))

    def end(self) -> None:
        """Accept nothing more, and end connections without a proof."""
        self.is_over = True
        wake(self._listener)
        self._listener.close()
        self.join()
        for connection in list(self.unproven):
            wake(connection)

    def _serve_one(self, connection: socket.socket) -> None:
        try:
            self._serve(connection)
        finally:
            self.unproven.pop(connection, None)


def wake(connection: socket.socket) -> None:
    """Wake the thread that waits for a connection, with an error."""
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
