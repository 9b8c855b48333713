"""One connection of a node for one policy, at home. It has no thread: a `Poller` serves all connections."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from penstock.ipc.stream import (
    HEADER,
    SILENCE,
    BlockCounter,
    Frame,
    Kind,
    Stream,
    StreamError,
    Views,
    nbytes_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from penstock.engine.nodes.poller import Poller, Rung
    from penstock.ipc import Doorbell


class Link:
    """One connection of a node for one policy.

    The policy's `Dispatcher` sends, and never waits for a node: the `Poller` sends the bytes that a connection does not
    take at once, and receives.

    Parameters
    ----------
    stream
        The connection.
    poller
        Thread that serves it.
    receive
        `NodeLanes.receive_any` of the node and policy.
    bell
        Bell of the dispatcher.
    run, incarnation
        As in the node's hello.

    Attributes
    ----------
    version, control
        Version of the weights, and control words, that were sent last.
    places, odds
        Number of the past version sent last for each place of the pool, and odds sent last.
    failure
        Error that ended the connection, other than its loss; None: there is none.
    """

    def __init__(
        self, stream: Stream, poller: Poller,
        receive: Callable[[Stream, Frame, BlockCounter], Generator[None, None, Rung]],
        bell: Doorbell, run: int, incarnation: int,
    ) -> None:  # fmt: skip
        self.incarnation = incarnation
        self.version, self.control = -1, b""
        self.places: dict[int, int] = {}
        self.odds = b""
        self.failure: Exception | None = None
        self._stream, self._poller, self._bell = stream, poller, bell
        self._blocks = BlockCounter(run, incarnation)
        self._frames = self._receive(receive)
        self._unsent: Views = []  # bytes that the connection has not taken
        self._weights_nbytes = 0
        self._lock = threading.Lock()  # of the stream
        self._is_over = False
        self._received_at = self._sent_at = 0.0

    def fileno(self) -> int:
        """Return the descriptor of the connection."""
        return self._stream.fileno()

    @property
    def is_connected(self) -> bool:
        """Whether the node is connected."""
        return not self._is_over

    @property
    def is_clear(self) -> bool:
        """Whether the node is connected, and has been sent everything."""
        return not self._is_over and not self._unsent

    def begin(self) -> None:
        """Begin to receive, and have the dispatcher send the weights."""
        self._received_at = time.monotonic()
        try:
            self._poller.add(self)
        except OSError:  # no memory for it
            self.end()
            raise
        self._bell.ring()

    def end(self) -> None:
        """End the connection; nothing is written into slots any more."""
        with self._lock:
            self._end()

    def counts(self) -> dict[str, int]:
        """Traffic counts, by the names of `NodeStatus`."""
        blocks = self._blocks
        return {
            "nbytes": self._stream.received, "weights_nbytes": self._weights_nbytes,
            "stale": blocks.stale, "duplicates": blocks.duplicates, "missing": blocks.missing,
        }  # fmt: skip

    # -- called by the dispatcher ----------------------------------------------------------------------------------

    def frame(
        self, kind: Kind, epoch: int, version: int, *, number: int = 0, count: int = 0, nbytes: int = 0
    ) -> memoryview:
        """Return the header of a frame to the node."""
        if kind in (Kind.WEIGHTS, Kind.VERSION):
            self._weights_nbytes += nbytes + HEADER.size
        blocks = self._blocks
        return memoryview(Frame(kind, blocks.run, blocks.incarnation, epoch, version, number, count, nbytes).packed())

    def send(self, views: Views) -> None:
        """Send bytes; the poller sends those that the connection does not take at once. Requires `is_clear`."""
        with self._lock:
            if self._is_over:  # since the dispatcher checked
                return
            self._sent_at = time.monotonic()
            self._unsent = views
            self._send_unsent()
            if self._unsent:
                self._poller.watch(self, sends=True)

    # -- called by the poller --------------------------------------------------------------------------------------

    def resume(self) -> Rung:
        """Send and receive as much as is possible without waiting; return bells to ring."""
        with self._lock:
            if self._unsent:
                self._send_unsent()
                if not self._unsent and not self._is_over:
                    self._poller.watch(self, sends=False)
                    self._bell.ring()  # newer weights may be there
            if self._is_over:
                return None
            before, bells = self._stream.received, None
            try:
                bells = next(self._frames)
            except OSError:  # the node is gone
                self._end()
            except Exception as error:
                self.failure = error
                self._end()
            if self._stream.received != before:
                self._received_at = time.monotonic()
            return bells

    def end_if_silent(self, now: float) -> None:
        """End the connection of a node that has sent, or taken, nothing in the `SILENCE` seconds before `now`."""
        with self._lock:
            if now - self._received_at > SILENCE or (self._unsent and now - self._sent_at > SILENCE):
                self._end()

    def _receive(self, receive: Callable[[Stream, Frame, BlockCounter], Generator[None, None, Rung]]) -> Iterator[Rung]:
        """Receive frames; yield after each, and where bytes are missing."""
        while True:
            frame = yield from self._stream.arriving_frame()
            bells: Rung = None
            if frame.kind in (Kind.BLOCK, Kind.TAKEN, Kind.RESULTS):
                bells = yield from receive(self._stream, frame, self._blocks)
            elif frame.kind is not Kind.ALIVE:
                raise StreamError(f"a node has sent an unexpected frame: {frame.kind.name}")
            yield bells  # let other nodes have their turn

    def _send_unsent(self) -> None:
        if self._is_over:
            return
        try:
            left = self._stream.send_at_once(self._unsent)
        except OSError:  # the node is gone
            self._end()
            return
        if nbytes_of(left) < nbytes_of(self._unsent):
            self._sent_at = time.monotonic()
        self._unsent = left

    def _end(self) -> None:
        if not self._is_over:
            self._is_over, self._unsent = True, []
            self._poller.remove(self)
            self._stream.close()
            self._bell.ring()
