"""The listener: accepts connections that prove to have the run's token, at home and at gateways."""

from __future__ import annotations

import contextlib
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from penstock.ipc.stream import SILENCE, Frame, Stream, welcome

ACCEPT_PAUSE = 0.1  # seconds after a connection could not be accepted
MOST_UNPROVEN = 64  # connections at a time without a proof of the token; a further one ends a random one

Admit = Callable[[Stream, Frame, dict[str, Any]], None]


class Listener:
    """Listener on a free port, which admits each connection in a thread of its own.

    Parameters
    ----------
    ip
        Address of this machine to listen at.
    token, run
        Token of the run, and its random number.
    admit
        Called with the stream, hello and identity of a connection that has proven the token. Its OSError, ValueError,
        LookupError or TypeError refuses the connection.

    Attributes
    ----------
    address
        Address at which it listens.
    """

    def __init__(self, ip: str, token: bytes, run: int, admit: Admit) -> None:
        self._token, self._run, self._admit = token, run, admit
        self._refusals: dict[str, None] = {}
        self._unproven: dict[socket.socket, float] = {}  # deadline of each proof
        self._is_over = False
        self._listener = socket.create_server((ip, 0))
        self.address: tuple[str, int] = self._listener.getsockname()[:2]
        self._thread = threading.Thread(target=self._accept, name="accepting", daemon=True)
        self._thread.start()

    def refusals(self) -> Iterator[str]:
        """Yield the reasons of refused connections, once each; end those whose proof is late."""
        for connection, end in list(self._unproven.items()):
            if time.monotonic() > end:  # bytes sent at intervals do not extend the deadline
                _wake(connection)
        while self._refusals:
            yield self._refusals.popitem()[0]

    def close(self) -> None:
        """Accept nothing more."""
        self._is_over = True
        _wake(self._listener)
        self._listener.close()
        self._thread.join()

    def _refuse(self, why: str) -> None:
        if not self._is_over and len(self._refusals) < MOST_UNPROVEN:  # strangers cannot fill the log
            self._refusals[why] = None

    def _accept(self) -> None:
        has_failed = False
        while not self._is_over:
            try:
                connection, _ = self._listener.accept()
            except OSError as error:  # too many open files, or no memory: connections wait until some are free
                if not has_failed:
                    self._refuse(f"{error.strerror}; connections wait until they can be accepted")
                has_failed = True
                time.sleep(ACCEPT_PAUSE)
                continue
            has_failed = False
            strangers = list(self._unproven)  # idle strangers must not keep nodes out
            if len(strangers) >= MOST_UNPROVEN and self._unproven.pop(stranger := secrets.choice(strangers), 0.0):
                _wake(stranger)
            self._unproven[connection] = time.monotonic() + SILENCE
            try:
                threading.Thread(target=self._welcome, args=(connection,), daemon=True).start()
            except RuntimeError as error:  # as many threads as the system allows
                del self._unproven[connection]
                connection.close()
                self._refuse(str(error))

    def _welcome(self, connection: socket.socket) -> None:
        try:
            try:
                found = welcome(connection, self._token, self._run)
            finally:
                if self._unproven.pop(connection, None) is None:
                    raise ConnectionAbortedError(f"another came, and {MOST_UNPROVEN} had not proven to have the token")
            self._admit(*found)
        except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
            connection.close()
            self._refuse(str(error))


def _wake(connection: socket.socket) -> None:
    """Wake the thread that waits for a connection, with an error."""
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
