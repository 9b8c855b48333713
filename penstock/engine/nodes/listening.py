"""The listener: accepts connections that prove to have the run's token, at home and at gateways."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

from penstock.ipc.acceptor import Acceptor, wake
from penstock.ipc.stream import SILENCE, Frame, Stream, welcome

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
        self._acceptor = Acceptor(ip, self._welcome, MOST_UNPROVEN, self._refuse)
        self.address = self._acceptor.address
        self._acceptor.start()

    def refusals(self) -> Iterator[str]:
        """Yield the reasons of refused connections, once each; end those whose proof is late."""
        for connection, accepted_at in list(self._acceptor.unproven.items()):
            if time.monotonic() > accepted_at + SILENCE:  # bytes sent at intervals do not extend the deadline
                wake(connection)
        while self._refusals:
            yield self._refusals.popitem()[0]

    def close(self) -> None:
        """Accept nothing more."""
        self._acceptor.end()

    def _refuse(self, why: str) -> None:
        if not self._acceptor.is_over and len(self._refusals) < MOST_UNPROVEN:  # strangers cannot fill the log
            self._refusals[why] = None

    def _welcome(self, connection: socket.socket) -> None:
        try:
            try:
                found = welcome(connection, self._token, self._run)
            finally:
                if not self._acceptor.take_proof(connection):
                    raise ConnectionAbortedError(f"another came, and {MOST_UNPROVEN} had not proven to have the token")
            self._admit(*found)
        except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
            connection.close()
            self._refuse(str(error))
