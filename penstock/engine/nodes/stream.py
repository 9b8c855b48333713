"""The stream between a node and the home node: one TCP connection, and how its two ends know each other.

Whoever connects proves that it knows the run's token, which travels by Ray alone: home sends random bytes, and is
answered with their HMAC.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import secrets
import socket
from collections.abc import Sequence
from typing import Any

from penstock.engine.nodes.blocks import Frame, Kind, StreamError, Views

SILENCE = 4.0  # seconds without a frame after which the other end is gone
ALIVE_INTERVAL = 0.5  # seconds between frames that say nothing else
NONCE_NBYTES = 32
MOST_HELLO_NBYTES = 4096
MOST_VIEWS = 1024  # that one system call takes (IOV_MAX)


class Stream:
    """One end of a connection. One thread may send while another receives.

    Parameters
    ----------
    connection
        The socket; it is the stream's from now on.

    Attributes
    ----------
    sent, received
        Bytes so far, headers and all.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        connection.settimeout(SILENCE)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._header = bytearray(Frame.NBYTES)
        self.sent = self.received = 0

    def send(self, frame: Frame, views: Views | None = None) -> None:
        """Send a header and what follows it; raises OSError if the other end takes nothing for `SILENCE` seconds."""
        self.send_raw([memoryview(frame.packed()), *(views or [])])

    def send_raw(self, views: Views) -> None:
        """Send bytes as they are."""
        left = [view for view in views if view.nbytes]
        while left:
            sent = self._socket.sendmsg(left[:MOST_VIEWS])
            self.sent += sent
            left = _after(left, sent)

    def receive(self) -> Frame:
        """Wait for the next header.

        Raises
        ------
        StreamError
            It is none.
        OSError
            The other end is gone, or has been silent for `SILENCE` seconds.
        """
        self.receive_into([memoryview(self._header)])
        return Frame.unpacked(self._header)

    def receive_into(self, views: Views) -> None:
        """Wait for as many bytes as there is room for."""
        left = [view for view in views if view.nbytes]
        while left:
            count = self._socket.recvmsg_into(left[:MOST_VIEWS])[0]
            if not count:
                raise ConnectionResetError("the other end has closed the connection")
            self.received += count
            left = _after(left, count)

    def receive_bytes(self, nbytes: int) -> bytearray:
        """Wait for so many bytes."""
        data = bytearray(nbytes)
        self.receive_into([memoryview(data)])
        return data

    def close(self) -> None:
        """End the connection at once, whoever waits for it."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


def connect(address: tuple[str, int], token: bytes, hello: Frame, who: dict[str, Any]) -> Stream:
    """Connect a node to its home, and say who it is.

    Raises
    ------
    OSError
        Nobody listens there, or does not let it in.
    """
    stream = Stream(socket.create_connection(address, timeout=SILENCE))
    try:
        nonce = stream.receive_bytes(NONCE_NBYTES)
        text = json.dumps(who).encode()
        answer = _proof(token, nonce, hello, text) + text
        frame = Frame(Kind.HELLO, hello.run, hello.incarnation, nbytes=len(answer))
        stream.send(frame, [memoryview(answer)])
    except BaseException:
        stream.close()
        raise
    return stream


def welcome(connection: socket.socket, token: bytes, run: int) -> tuple[Stream, Frame, dict[str, Any]]:
    """Let in who knows the token; return what it said.

    Raises
    ------
    StreamError
        It does not know it, or is of another run.
    """
    stream = Stream(connection)
    nonce = secrets.token_bytes(NONCE_NBYTES)
    stream.send_raw([memoryview(nonce)])
    frame = stream.receive()
    if frame.kind is not Kind.HELLO or frame.nbytes > MOST_HELLO_NBYTES:
        raise StreamError(f"expected a hello, found a frame {frame.kind.name} of {frame.nbytes} bytes")
    data = bytes(stream.receive_bytes(frame.nbytes))
    size = hashlib.sha256().digest_size
    if not hmac.compare_digest(data[:size], _proof(token, nonce, frame, data[size:])) or frame.run != run:
        raise StreamError("who connected does not know the run's token")
    who: dict[str, Any] = json.loads(data[size:])
    return stream, frame, who


def free_address(ip: str) -> tuple[str, int]:
    """This address, and a port of it that is free."""
    with socket.socket() as probe:
        probe.bind((ip, 0))
        port: int = probe.getsockname()[1]
        return ip, port


def _proof(token: bytes, nonce: bytes | bytearray, hello: Frame, text: bytes) -> bytes:
    said = b"%s|%d|%d|%s" % (bytes(nonce), hello.run, hello.incarnation, text)
    return hmac.new(token, said, hashlib.sha256).digest()


def _after(views: Sequence[memoryview], count: int) -> Views:
    """Remaining views after the given number of bytes."""
    for place, view in enumerate(views):
        if count < view.nbytes:
            return [view[count:], *views[place + 1 :]]
        count -= view.nbytes
    return []
