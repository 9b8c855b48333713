"""The board of a learner group: a key-value store in the supervisor's process, for learners that have its secret.

Both ends prove that they have the secret before either reads anything else: each answers random bytes with their HMAC.
Requests are lists of byte strings; nothing is unpickled.

Connections between machines break when the kernel of the other machine no longer answers, such as when a cable is cut;
torch.distributed alone would wait for as long as an update may take.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import secrets
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from torch.distributed import DistNetworkError, DistStoreError, Store

from penstock.ipc.acceptor import Acceptor, wake
from penstock.ipc.ownership import Owned, owner_only

HERE = "127.0.0.1"
ANSWER_SECONDS = 60.0
"""Time for a value on the board, and for all learners to reach the same point of an update."""
SILENCE_SECONDS = 4  # without an answer from the other machine's kernel, until a connection breaks
ASK_INTERVAL = 1  # seconds between keep-alive probes
SECRET_NBYTES = NONCE_NBYTES = 32
PROOF_NBYTES = hashlib.sha256().digest_size
PROOF_SECONDS = 4.0
"""Time for a proof; then the connection is closed."""
MOST_UNPROVEN = 16
"""Most connections without a proof; see `penstock.ipc.acceptor.Acceptor`."""
_MOST_NBYTES, _MOST_PARTS = 1 << 22, 1 << 12  # of a message
_FOUND, _NOTHING = b"found", b"nothing"


@dataclass(frozen=True)
class GroupSpec:
    """Description of a learner group; plain data.

    Attributes
    ----------
    size
        Number of learners.
    port, address
        Port and address of the board.
    is_spread
        Whether some learners are on other nodes.
    is_successor
        Whether this first learner replaces one that has died, and gets its state from other learners.
    secret
        Secret that members prove to have. It is sent to them over the pipes of their parent, or by Ray.
    """

    size: int
    port: int
    address: str = HERE
    is_spread: bool = False
    is_successor: bool = False
    secret: bytes = field(default=b"", repr=False)


class Board(Owned):
    """The board, which answers each connection in a thread. It outlives the learners.

    Parameters
    ----------
    size
        Number of learners of the group.
    address
        Address of this machine for other nodes; None: the board can be reached only from this machine.

    Attributes
    ----------
    spec
        Description of the group.
    """

    def __init__(self, size: int, address: str | None = None) -> None:
        self._values: dict[bytes, bytes] = {}
        self._changed = threading.Condition()
        self._connections: set[socket.socket] = set()  # of learners that have proven to have the secret
        self._is_closed = False
        self._acceptor = Acceptor(address or HERE, self._serve, MOST_UNPROVEN)
        port = self._acceptor.address[1]
        secret = secrets.token_bytes(SECRET_NBYTES)
        self.spec = GroupSpec(size, port, address or HERE, is_spread=address is not None, secret=secret)
        self._acceptor.start()

    @owner_only
    def close(self) -> None:
        """End all connections; may be called again."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self._acceptor.end()
        for connection in list(self._connections):
            wake(connection)

    def _serve(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError, ValueError):
            prove(connection, self.spec.secret, is_board=True)
            connection.settimeout(None)
            is_there = self._acceptor.take_proof(connection)
            self._connections.add(connection)
            try:
                while is_there and not self._is_closed:
                    _send(connection, self._answer(_receive(connection)))
            finally:
                self._connections.discard(connection)

    def _answer(self, request: Sequence[bytes]) -> list[bytes]:
        operation, *parts = request
        with self._changed:
            match operation, parts:
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
                    raise ValueError(f"{operation!r} is no request of a learner")
        return [_FOUND]

    def _put(self, name: bytes, value: bytes) -> None:
        self._values[name] = value
        self._changed.notify_all()

    def _has(self, names: Sequence[bytes]) -> bool:
        return all(name in self._values for name in names)


class BoardStore(Store):
    """A learner's connection to the board, a store of torch.distributed.

    Parameters
    ----------
    spec
        Description of the group.

    Raises
    ------
    DistNetworkError
        In all methods: the board cannot be reached, or does not have the secret.
    """

    def __init__(self, spec: GroupSpec) -> None:
        super().__init__()
        self._lock = threading.Lock()

        def connect() -> socket.socket:
            end = time.monotonic() + 5 * PROOF_SECONDS
            while True:
                connection = socket.create_connection((spec.address, spec.port), timeout=PROOF_SECONDS)
                try:
                    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    prove(connection, spec.secret, is_board=False)
                    connection.settimeout(None)
                    return connection
                except BaseException as error:
                    connection.close()
                    if not isinstance(error, ConnectionResetError | BrokenPipeError) or time.monotonic() > end:
                        raise
                time.sleep(0.02)  # a full board closes a random connection for a new one: try again until `end`

        with broken_by_silence(spec.is_spread):
            self._connection = _reached(connect)

    def set(self, key: str, value: str | bytes) -> None:
        """Set a value."""
        self._request(b"set", key, value)

    def get(self, key: str) -> bytes:
        """Wait for a value; raises `DistStoreError` if it is not set in time."""
        found, *value = self._request(b"get", str(ANSWER_SECONDS), key)
        if found != _FOUND:
            raise DistStoreError(f"{key!r} was not set on the board within {ANSWER_SECONDS:g} s")
        return value[0]

    def add(self, key: str, amount: int) -> int:
        """Add to a number, 0 where there is none; return the sum."""
        return int(self._request(b"add", key, str(amount))[1])

    def compare_set(self, key: str, expected: str | bytes, desired: str | bytes) -> bytes:
        """Replace a value that is as expected; return the value after that."""
        return self._request(b"compare", key, expected, desired)[1]

    def check(self, keys: list[str]) -> bool:
        """Return whether all these values are set."""
        return self._request(b"check", *keys)[0] == _FOUND

    def wait(self, keys: list[str], timeout: timedelta | None = None) -> None:
        """Wait for values; raises `DistStoreError` if they are not set in time."""
        seconds = ANSWER_SECONDS if timeout is None else timeout.total_seconds()
        if self._request(b"wait", str(seconds), *keys)[0] != _FOUND:
            raise DistStoreError(f"{keys} were not set on the board within {seconds:g} s")

    def delete_key(self, key: str) -> bool:
        """Delete a value; return whether it was set."""
        return self._request(b"delete", key)[0] == _FOUND

    def num_keys(self) -> int:
        """Return the number of values."""
        return int(self._request(b"count")[1])

    def has_extended_api(self) -> bool:
        """Return whether the store has operations on several values."""
        return False

    deleteKey, getNumKeys, hasExtendedApi = delete_key, num_keys, has_extended_api

    def _request(self, operation: bytes, *parts: str | bytes) -> list[bytes]:
        request = [operation, *(part.encode() if isinstance(part, str) else bytes(part) for part in parts)]

        def answered() -> list[bytes]:
            with self._lock:
                _send(self._connection, request)
                return _receive(self._connection)

        return _reached(answered)


def prove(connection: socket.socket, secret: bytes, *, is_board: bool) -> None:
    """Prove to the other end that this one has a secret, and verify its proof, within `PROOF_SECONDS`.

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
    if not is_board:  # the learner proves first: a stranger gets no proof that it could relay
        connection.sendall(proof(secret, names[0], mine, theirs))
    if not hmac.compare_digest(_exactly(connection, PROOF_NBYTES, end), proof(secret, names[1], theirs, mine)):
        raise ConnectionRefusedError("the other end does not have the secret of the learner group")
    if is_board:
        connection.sendall(proof(secret, names[0], mine, theirs))


def proof(secret: bytes, *parts: bytes) -> bytes:
    """Return the HMAC of parts of known lengths."""
    return hmac.new(secret, b"|".join(parts), hashlib.sha256).digest()


@contextlib.contextmanager
def broken_by_silence(is_wanted: bool = True) -> Iterator[None]:
    """Make connections that this process opens within the block break when the other machine falls silent."""
    before = _sockets() if is_wanted else set()
    try:
        yield
    finally:
        for fd, _ in _sockets() - before if is_wanted else ():
            with contextlib.suppress(OSError), socket.socket(fileno=os.dup(fd)) as connection:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, ASK_INTERVAL)
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, ASK_INTERVAL)
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1_000 * SILENCE_SECONDS)


def _sockets() -> set[tuple[int, str]]:
    """Return the file descriptors of this process that are sockets, each with the socket's own name."""
    found = set()
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if (name := os.readlink(f"/proc/self/fd/{fd}")).startswith("socket:"):
                found.add((int(fd), name))
    return found


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
        raise ValueError(f"a message of {count} parts (legal: 1 to {_MOST_PARTS})")
    lengths = struct.unpack(f"<{count}I", _exactly(connection, 4 * count))
    if sum(lengths) > _MOST_NBYTES:
        raise ValueError(f"a message of {sum(lengths):,} bytes (legal: up to {_MOST_NBYTES:,})")
    return [_exactly(connection, length) for length in lengths]


def _reached(do: Callable[[], Any]) -> Any:
    try:
        return do()
    except (OSError, ValueError) as error:
        raise DistNetworkError(f"the board of the learner group cannot be reached: {error}") from error
