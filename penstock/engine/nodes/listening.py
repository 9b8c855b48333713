"""The listener: accepts connections that prove to have the run's token, at home and at gateways."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from penstock.ipc.stream import SILENCE, Frame, Stream, welcome

ACCEPT_PAUSE = 0.1  # seconds after a connection could not be accepted
MOST_UNPROVEN = 64  # connections at a time without a proof of the token

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
        self._refusals: deque[str] = deque()
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
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
        while self._refusals:
            yield self._refusals.popleft()

    def close(self) -> None:
        """Accept nothing more."""
        self._is_over = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        self._listener.close()
        self._thread.join()

    def _refuse(self, why: str) -> None:
        if not self._is_over and len(self._refusals) < MOST_UNPROVEN:  # strangers cannot fill the log
            self._refusals.append(why)

    def _accept(self) -> None:
        has_failed = False
        while not self._is_over:
            try:
                connection, _ = self._listener.accept()
            except OSError as error:  # too many open files, or no memory: until some are free, others wait
                if not has_failed:
                    self._refuse(f"{error.strerror}; connections wait until they can be accepted")
                has_failed = True
                time.sleep(ACCEPT_PAUSE)
                continue
            has_failed = False
            why = f"{MOST_UNPROVEN} other connections have not yet proven to have the run's token"
            if len(self._unproven) < MOST_UNPROVEN:
                self._unproven[connection] = time.monotonic() + SILENCE
                try:
                    threading.Thread(target=self._welcome, args=(connection,), daemon=True).start()
                    continue
                except RuntimeError as error:  # as many threads as the system allows
                    del self._unproven[connection]
                    why = str(error)
            connection.close()
            self._refuse(why)

    def _welcome(self, connection: socket.socket) -> None:
        try:
            try:
                found = welcome(connection, self._token, self._run)
            finally:
                del self._unproven[connection]
            self._admit(*found)
        except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
            connection.close()
            self._refuse(str(error))
