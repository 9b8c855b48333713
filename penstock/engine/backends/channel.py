"""Connection between the supervisor and a role: whole messages, received in pieces.

The supervisor never waits for a role: an incomplete report is kept until the rest arrives, and commands to a role that
reads nothing stay queued. A role waits until its report is sent.
"""

from __future__ import annotations

import contextlib
import pickle
import select
import socket
import struct
import threading
from collections import deque
from multiprocessing.reduction import ForkingPickler
from typing import Any

_LENGTH = struct.Struct("!Q")  # bytes of the message that follows


class Channel:
    """One end of a connection; the other end is in another process.

    Parameters
    ----------
    connection
        Stream socket, which the channel owns.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._sending = threading.Lock()  # of `send`: roles in threads of one process share a channel
        self._queued: deque[memoryview] = deque()
        self._incoming, self._filled, self._is_header = bytearray(_LENGTH.size), 0, True

    @classmethod
    def pair(cls) -> tuple[Channel, Channel]:
        """Return both ends of a new connection."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        return cls(ours), cls(theirs)

    def fileno(self) -> int:
        """Descriptor that is readable when `receive` may find something."""
        return self._socket.fileno()

    def close(self) -> None:
        """Close this end; queued messages are not sent."""
        self._queued.clear()
        self._socket.close()

    def send(self, message: Any) -> None:
        """Send a message, waiting for room; may be called from any thread.

        Raises
        ------
        OSError
            The other end is gone.
        """
        with self._sending:
            for part in _framed(message):
                self._socket.sendall(part)

    def post(self, message: Any) -> None:
        """Queue a message, and `flush`."""
        self._queued.extend(_framed(message))
        self.flush()

    @property
    def has_queued(self) -> bool:
        """Whether bytes are queued."""
        return bool(self._queued)

    def flush(self) -> None:
        """Send queued bytes without waiting, as many as there is room for.

        Raises
        ------
        OSError
            The other end is gone.
        """
        while self._queued:
            try:
                sent = self._socket.send(self._queued[0], socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            if sent == len(self._queued[0]):
                self._queued.popleft()
            else:
                self._queued[0] = self._queued[0][sent:]

    def receive(self) -> Any:
        """Return the next message without waiting; None while it is incomplete.

        Raises
        ------
        EOFError, OSError
            The other end is gone.
        """
        while True:
            while self._filled < len(self._incoming):
                try:
                    count = self._socket.recv_into(memoryview(self._incoming)[self._filled :], 0, socket.MSG_DONTWAIT)
                except BlockingIOError:
                    return None
                if not count:
                    raise EOFError("the other end of the channel is closed")
                self._filled += count
            whole, was_header = self._incoming, self._is_header
            self._is_header, self._filled = not was_header, 0
            self._incoming = bytearray(_LENGTH.unpack(whole)[0] if was_header else _LENGTH.size)
            if not was_header:
                return pickle.loads(whole)

    def wait(self, timeout: float | None = None) -> Any:
        """Return the next message; None if no piece of it arrives for `timeout` seconds.

        Raises
        ------
        EOFError, OSError
            The other end is gone.
        """
        while (message := self.receive()) is None:
            if not _is_readable(self, timeout):
                return None
        return message

    def drain(self) -> bool:
        """Discard received bytes; return False if the other end is gone."""
        with contextlib.suppress(BlockingIOError):
            return bool(self._socket.recv(1 << 16, socket.MSG_DONTWAIT))
        return True


def _is_readable(channel: Channel, timeout: float | None) -> bool:
    poll = select.poll()  # select() takes no descriptor above 1023
    poll.register(channel, select.POLLIN)
    return bool(poll.poll(None if timeout is None else timeout * 1000))


def _framed(message: Any) -> list[memoryview]:
    data = ForkingPickler.dumps(message)
    return [memoryview(_LENGTH.pack(len(data))), memoryview(data)]
