"""The board of a learner group: texts by name, kept by the supervisor's process for learners that share its secret.

Both ends prove that they have the secret before either reads anything else: each answers random bytes with their HMAC.
Requests are lists of byte strings; nothing is unpickled.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import secrets
import socket
import struct
import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from torch.distributed import DistNetworkError, DistStoreError, Store

SECRET_NBYTES = NONCE_NBYTES = 32
PROOF_NBYTES = hashlib.sha256().digest_size
PROOF_SECONDS = 4.0
"""Time for a proof; then the connection is closed."""
MOST_UNPROVEN = 16
"""Connections without a proof at a time; further ones are closed at once."""
_MOST_NBYTES, _MOST_PARTS = 1 << 22, 1 << 12  # of a message
_FOUND, _NOTHING = b"found", b"nothing"


class BoardServer:
    """Answers learners, with a thread for each connection.

    Parameters
    ----------
    address
        Address of this machine to listen at.
    secret
        What learners prove to have.
    """

    def __init__(self, address: str, secret: bytes) -> None:
        self._secret = secret
        self._values: dict[bytes, bytes] = {}
        self._changed = threading.Condition()
        self._unproven = threading.Semaphore(MOST_UNPROVEN)
        self._connections: set[socket.socket] = set()
        self._is_closed = False
        self._listener = socket.create_server((address, 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, name="board", daemon=True).start()

    def close(self) -> None:
        """End all connections; it may be called again."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
            connections = list(self._connections)
        for each in (self._listener, *connections):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits for it
            each.close()

    def _accept(self) -> None:
        while not self._is_closed:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                if self._is_closed:
                    return
                time.sleep(0.1)  # too many open files: one may be closed by then
                continue
            if self._unproven.acquire(blocking=False):
                threading.Thread(target=self._serve, args=(connection,), name="board", daemon=True).start()
            else:
                connection.close()

    def _serve(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError, ValueError):
            try:
                prove(connection, self._secret, is_board=True)
            finally:
                self._unproven.release()
            with self._changed:
                if self._is_closed:
                    return
                self._connections.add(connection)
            try:
                connection.settimeout(None)
                while not self._is_closed:
                    _send(connection, self._answer(_receive(connection)))
            finally:
                with self._changed:
                    self._connections.discard(connection)

    def _answer(self, request: Sequence[bytes]) -> list[bytes]:
        what, *parts = request
        with self._changed:
            match what, parts:
                case b"set", [name, value]:
                    self._put(name, value)
                case b"add", [name, amount]:
                    self._put(name, b"%d" % (int(self._values.get(name, b"0")) + int(amount)))
                    return [_FOUND, self._values[name]]
                case b"compare", [name, expected, desired]:
                    if self._values.get(name, b"") == expected:
                        self._put(name, desired)
                    return [_FOUND, self._values.get(name, expected)]
                case b"delete", [name]:
                    return [_FOUND if self._values.pop(name, None) is not None else _NOTHING]
                case b"check", names:
                    return [_FOUND if self._has(names) else _NOTHING]
                case b"wait", [seconds, *names]:
                    has_all = self._changed.wait_for(lambda: self._is_closed or self._has(names), float(seconds))
                    return [_FOUND if has_all and not self._is_closed else _NOTHING]
                case b"get", [seconds, name]:
                    self._changed.wait_for(lambda: self._is_closed or name in self._values, float(seconds))
                    return [_FOUND, self._values[name]] if name in self._values else [_NOTHING]
                case b"count", []:
                    return [_FOUND, b"%d" % len(self._values)]
                case _:
                    raise ValueError(f"a learner has asked for {what!r}")
        return [_FOUND]

    def _put(self, name: bytes, value: bytes) -> None:
        self._values[name] = value
        self._changed.notify_all()

    def _has(self, names: Sequence[bytes]) -> bool:
        return all(name in self._values for name in names)


class BoardStore(Store):
    """A learner's connection to the board, as torch.distributed takes it.

    Parameters
    ----------
    address, port, secret
        Where the board is, and what proves that this is a learner of the group.
    patience
        Seconds to wait for a value.

    Raises
    ------
    DistNetworkError
        As every method does: the board cannot be reached, or does not have the secret.
    """

    def __init__(self, address: str, port: int, secret: bytes, patience: float) -> None:
        super().__init__()
        self._patience = patience
        self._lock = threading.Lock()

        def connect() -> socket.socket:
            connection = socket.create_connection((address, port), timeout=PROOF_SECONDS)
            try:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                prove(connection, secret, is_board=False)
            except BaseException:
                connection.close()
                raise
            connection.settimeout(None)
            return connection

        self._connection = _reached(connect)

    def set(self, key: str, value: str | bytes) -> None:
        """Put a value up."""
        self._ask(b"set", key, value)

    def get(self, key: str) -> bytes:
        """Wait for a value; raises `DistStoreError` where none comes in time."""
        found, *value = self._ask(b"get", str(self._patience), key)
        if found != _FOUND:
            raise DistStoreError(f"nothing called {key!r} has come to the board within {self._patience:g} s")
        return value[0]

    def add(self, key: str, amount: int) -> int:
        """Add to a number, 0 where there is none; return the sum."""
        return int(self._ask(b"add", key, str(amount))[1])

    def compare_set(self, key: str, expected: str | bytes, desired: str | bytes) -> bytes:
        """Replace a value that is as expected; return what is there then."""
        return self._ask(b"compare", key, expected, desired)[1]

    def check(self, keys: list[str]) -> bool:
        """Whether all these values are there."""
        return self._ask(b"check", *keys)[0] == _FOUND

    def wait(self, keys: list[str], timeout: timedelta | None = None) -> None:
        """Wait for values; raises `DistStoreError` where they do not come in time."""
        seconds = self._patience if timeout is None else timeout.total_seconds()
        if self._ask(b"wait", str(seconds), *keys)[0] != _FOUND:
            raise DistStoreError(f"{keys} have not come to the board within {seconds:g} s")

    def delete_key(self, key: str) -> bool:
        """Take a value away; return whether it was there."""
        return self._ask(b"delete", key)[0] == _FOUND

    def num_keys(self) -> int:
        """Number of values."""
        return int(self._ask(b"count")[1])

    def has_extended_api(self) -> bool:
        """Whether there are operations of several values."""
        return False

    deleteKey, getNumKeys, hasExtendedApi = delete_key, num_keys, has_extended_api

    def _ask(self, what: bytes, *parts: str | bytes) -> list[bytes]:
        request = [what, *(part.encode() if isinstance(part, str) else bytes(part) for part in parts)]

        def ask() -> list[bytes]:
            with self._lock:
                _send(self._connection, request)
                return _receive(self._connection)

        return _reached(ask)


def prove(connection: socket.socket, secret: bytes, *, is_board: bool) -> None:
    """Prove to the other end to have a secret, and have it proven; in `PROOF_SECONDS`.

    Raises
    ------
    ConnectionError, TimeoutError
        The other end does not have it.
    """
    end, mine = time.monotonic() + PROOF_SECONDS, secrets.token_bytes(NONCE_NBYTES)
    names = (b"board", b"learner") if is_board else (b"learner", b"board")
    connection.settimeout(PROOF_SECONDS)
    connection.sendall(mine)
    theirs = _exactly(connection, NONCE_NBYTES, end)
    if not is_board:  # who connects proves first: a stranger gets no proof to carry elsewhere
        connection.sendall(proof(secret, names[0], mine, theirs))
    if not hmac.compare_digest(_exactly(connection, PROOF_NBYTES, end), proof(secret, names[1], theirs, mine)):
        raise ConnectionRefusedError("the other end does not have the secret of the learner group")
    if is_board:
        connection.sendall(proof(secret, names[0], mine, theirs))


def proof(secret: bytes, *said: bytes) -> bytes:
    """HMAC of what was said, all parts of known lengths."""
    return hmac.new(secret, b"|".join(said), hashlib.sha256).digest()


def _exactly(connection: socket.socket, nbytes: int, end: float | None = None) -> bytes:
    data = bytearray()
    while len(data) < nbytes:
        if end is not None:
            connection.settimeout(max(0.001, end - time.monotonic()))
        if not (piece := connection.recv(min(nbytes - len(data), 1 << 16))):
            raise ConnectionResetError("the other end has closed the connection")
        data += piece
    return bytes(data)


def _send(connection: socket.socket, parts: Sequence[bytes]) -> None:
    lengths = struct.pack(f"<I{len(parts)}I", len(parts), *map(len, parts))
    connection.sendall(b"".join([lengths, *parts]))


def _receive(connection: socket.socket) -> list[bytes]:
    (count,) = struct.unpack("<I", _exactly(connection, 4))
    if not 0 < count <= _MOST_PARTS:
        raise ValueError(f"a message of {count} parts")
    lengths = struct.unpack(f"<{count}I", _exactly(connection, 4 * count))
    if sum(lengths) > _MOST_NBYTES:
        raise ValueError(f"a message of {sum(lengths):,} bytes")
    return [_exactly(connection, length) for length in lengths]


def _reached(do: Callable[[], Any]) -> Any:
    try:
        return do()
    except (OSError, ValueError) as error:
        raise DistNetworkError(f"the board of the learner group cannot be reached: {error}") from error
