"""Connections between machines that break by themselves when nothing is heard any more, as where a cable is cut.

torch.distributed would wait for as long as an update may take. So the kernel asks the other machine's.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator

SILENCE_SECONDS = 4  # without an answer of the other machine's kernel
ASK_INTERVAL = 1  # seconds


@contextlib.contextmanager
def broken_by_silence(is_wanted: bool = True) -> Iterator[None]:
    """Have connections that this process makes within the block break by silence."""
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
    """File descriptors of this process that are sockets, each with the socket's own name."""
    found = set()
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if (name := os.readlink(f"/proc/self/fd/{fd}")).startswith("socket:"):
                found.add((int(fd), name))
    return found
