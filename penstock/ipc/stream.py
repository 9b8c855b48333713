"""The connection between a node and home: frames over one TCP stream, and the proof of the run's token.

A frame is a header of fixed size, followed by raw bytes. A block is a frame of full segments: a table with a row for
each segment, and then one stretch of bytes for each column. Nothing that is received is executed or unpickled.

The connecting end proves that it has the run's token, which is only sent through Ray: home sends random bytes, and the
answer is their HMAC.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import secrets
import socket
import struct
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum, auto
from typing import Any

import numpy as np

from penstock._native import SegmentMemory, read_now, write_now

MAGIC = b"PsN1"
HEADER = struct.Struct("<4sIQIIqqQQ")
MOST_NBYTES = 1 << 34  # of a frame: more is a damaged header
SILENCE = 4.0  # seconds without a frame after which the other end is gone
FRESH_SECONDS = 3.0  # after its last bytes, an end counts as connected for so long: it sends every second
ALIVE_INTERVAL = 1.0  # seconds between frames that carry nothing else
FADING = 0.9  # factor on a process's delay from one observation to the next
MOST_DELAY = 30.0  # most seconds that are added to a limit of silence
NONCE_NBYTES = 32
MOST_HELLO_NBYTES = 4096
MOST_VIEWS = 1024  # of one system call (IOV_MAX)
Views = list[memoryview]


class Kind(IntEnum):
    """Kinds of frames."""

    HELLO = auto()
    """Identity of the connecting node, as JSON: from a node, once."""
    ALIVE = auto()
    """Sign of life, from both ends, without content; its number is the sender's recent delay in milliseconds."""
    BLOCK = auto()
    """Full segments, or transitions: from a node."""
    WEIGHTS = auto()
    """The newest weights: to a node."""
    CONTROL = auto()
    """Control words of the run, int64: to a node."""
    GRANT = auto()
    """Numbers of further slots that a node may fill, int64, or an entry per step that it may take: to a node."""
    TAKEN = auto()
    """Taken steps; its number counts all steps that the connection has granted: from a node."""
    DRAW = auto()
    """Request for rows of a shard: largest priority of all (float64), then ids (int64) and new priorities (float64)."""
    ROWS = auto()
    """Rows of a shard: its number of rows, mass, least mass and largest priority, masses of the rows (all float64), and
    their columns."""
    VERSION = auto()
    """A past version of the policy; its number is that of its place in the pool: to a node."""
    ODDS = auto()
    """Odds by which games draw past versions, float64: to a node."""
    RESULTS = auto()
    """Results of games against past versions: from a node."""


KINDS = {int(kind): kind for kind in Kind}


class StreamError(ConnectionError):
    """The received bytes are not a frame of this program."""


def rounded(weights: np.ndarray, nbytes: int) -> np.ndarray:
    """Return a weights block, uint8, whose first bytes, finite float32 numbers, are rounded to bfloat16."""
    if not nbytes:
        return weights
    bits = weights[:nbytes].view(np.uint32)
    to_even = 0x7FFF + (bits >> 16 & 1)
    return np.concatenate([(bits + to_even >> 16).astype(np.uint16).view(np.uint8), weights[nbytes:]])


def widened(weights: np.ndarray, nbytes: int) -> np.ndarray:
    """Return the weights block in the form before `rounded`, with float32 numbers."""
    if not nbytes:
        return weights
    bits = weights[: nbytes // 2].view(np.uint16).astype(np.uint32) << 16
    return np.concatenate([bits.view(np.uint8), weights[nbytes // 2 :]])


@dataclass(slots=True)  # not frozen: creation takes a third of the time
class Frame:
    """The header of a frame.

    Attributes
    ----------
    kind
        Kind of the frame.
    run
        Random number of the run.
    incarnation
        Number, counted from 1, of the node's host that sends or receives the frame.
    epoch, version
        Run epoch, and version of the weights, at the sender's end.
    number
        Number of the frame among the blocks of its incarnation: 1, 2, 3.
    count
        Segments, slots, words or steps in it.
    nbytes
        Bytes that follow.
    """

    kind: Kind
    run: int
    incarnation: int
    epoch: int = 0
    version: int = 0
    number: int = 0
    count: int = 0
    nbytes: int = 0

    def packed(self) -> bytes:
        """Return the header as bytes."""
        return HEADER.pack(
            MAGIC, self.kind, self.run, self.incarnation, self.count, self.epoch, self.version, self.number, self.nbytes
        )

    @classmethod
    def unpacked(cls, data: bytes | bytearray | memoryview) -> Frame:
        """Parse the bytes of a header; raises `StreamError` if they are not one."""
        magic, kind, run, incarnation, count, epoch, version, number, nbytes = HEADER.unpack(data)
        if magic != MAGIC or kind not in KINDS or nbytes > MOST_NBYTES:
            raise StreamError(f"expected a frame's header, found {bytes(data[:16])!r}: another program, or version?")
        return cls(KINDS[kind], run, incarnation, epoch, version, number, count, nbytes)


@dataclass
class BlockCounter:
    """Order of the blocks of one incarnation of a node, as they arrive, and counts of faults in it.

    Attributes
    ----------
    run, incarnation
        Run and incarnation whose blocks are accepted.
    last
        Number of the last block accepted.
    stale
        Blocks of another run or incarnation.
    duplicates
        Blocks that had been accepted already.
    missing
        Numbers that were left out.
    """

    run: int
    incarnation: int
    last: int = 0
    stale: int = 0
    duplicates: int = 0
    missing: int = 0

    def accepts(self, frame: Frame) -> bool:
        """Return whether a block is new and of this incarnation; count any other block as a fault."""
        if (frame.run, frame.incarnation) != (self.run, self.incarnation):
            self.stale += 1
            return False
        if frame.number <= self.last:
            self.duplicates += 1
            return False
        self.missing += frame.number - self.last - 1
        self.last = frame.number
        return True


def nbytes_of(views: Iterable[memoryview]) -> int:
    """Return the number of bytes in all views."""
    return sum(view.nbytes for view in views)


def array_views(*arrays: np.ndarray) -> Views:
    """Return views of whole arrays, without the empty ones."""
    return [array.reshape(-1).view(np.uint8).data for array in arrays if array.size]


class OwnDelay:
    """Longest recent delay of a process, added to its limits of silence, because it may not have read what was sent.

    Attributes
    ----------
    seconds
        The delay; it fades.
    """

    def __init__(self) -> None:
        self.seconds = 0.0

    def observe(self, seconds: float) -> None:
        """Record that something was done `seconds` too late."""
        self.seconds = min(MOST_DELAY, max(seconds, FADING * self.seconds))


class Stream:
    """One end of a connection. One thread may send while another receives.

    Parameters
    ----------
    connection
        The socket, which the stream closes.

    Attributes
    ----------
    sent, received
        Bytes so far, headers included.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        connection.settimeout(SILENCE)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._header = bytearray(HEADER.size)
        self.sent = self.received = 0

    def fileno(self) -> int:
        """Return the descriptor of the socket; -1: it is closed."""
        return self._socket.fileno()

    def allow(self, delay: float) -> None:
        """Let the other end be silent for `SILENCE` seconds and twice its own delay."""
        self.wait_at_most(SILENCE + 2 * delay)

    def wait_at_most(self, seconds: float) -> None:
        """Let the other end be silent for at most `seconds`."""
        self._socket.settimeout(seconds)

    def send(self, frame: Frame, views: Views | None = None) -> None:
        """Send a header and its bytes; raises OSError if the other end takes nothing for `SILENCE` seconds."""
        self.send_raw([memoryview(frame.packed()), *(views or [])])

    def send_raw(self, views: Views) -> None:
        """Send bytes without a header."""
        left = [view for view in views if view.nbytes]
        while left:
            sent = self._socket.sendmsg(left[:MOST_VIEWS])
            self.sent += sent
            left = _after(left, sent)

    def send_segments(self, frame: Frame, memory: SegmentMemory, slots: np.ndarray) -> None:
        """Send a header and a block of the segments in slots, int64 ``[K]``; errors are those of `send`."""
        self.sent += memory.send(self.fileno(), frame.packed(), slots, self._socket.gettimeout() or SILENCE)

    def send_at_once(self, views: Views) -> Views:
        """Send bytes without a header, as many as the connection takes without waiting; return the rest.

        Raises
        ------
        OSError
            The connection is broken, or closed.
        """
        left = [view for view in views if view.nbytes]
        sent = write_now(self._socket.fileno(), left)
        self.sent += sent
        return _after(left, sent)

    def arriving(self, views: Views) -> Iterator[None]:
        """Receive the bytes that fill all views without waiting; yield while some are missing.

        Raises
        ------
        OSError
            The other end is gone.
        """
        left = [view for view in views if view.nbytes]
        while left:
            count = read_now(self._socket.fileno(), left)
            self.received += count
            left = _after(left, count)
            if left:
                yield

    def arriving_frame(self) -> Generator[None, None, Frame]:
        """Receive the next header without waiting; yield while bytes are missing. Errors are those of `receive`."""
        yield from self.arriving([memoryview(self._header)])
        return Frame.unpacked(self._header)

    def receive(self) -> Frame:
        """Wait for the next header.

        Raises
        ------
        StreamError
            The bytes are not a header.
        OSError
            The other end is gone, or has been silent for `SILENCE` seconds.
        """
        self.receive_into([memoryview(self._header)])
        return Frame.unpacked(self._header)

    def receive_into(self, views: Views) -> None:
        """Wait for the bytes that fill all views."""
        left = [view for view in views if view.nbytes]
        while left:
            count = self._socket.recvmsg_into(left[:MOST_VIEWS])[0]
            if not count:
                raise ConnectionResetError("the other end has closed the connection")
            self.received += count
            left = _after(left, count)

    def receive_bytes(self, nbytes: int) -> bytearray:
        """Wait for a number of bytes."""
        data = bytearray(nbytes)
        self.receive_into([memoryview(data)])
        return data

    def close(self) -> None:
        """End the connection at once; a thread that waits for it gets an OSError."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


def connect(address: tuple[str, int], token: bytes, hello: Frame, identity: dict[str, Any]) -> Stream:
    """Connect a node to home, with a proof of the token, and send its identity.

    Raises
    ------
    OSError
        Nothing listens there, or the connection is refused.
    """
    stream = Stream(socket.create_connection(address, timeout=SILENCE))
    try:
        try:
            nonce = stream.receive_bytes(NONCE_NBYTES)
        except TimeoutError:  # the kernel of a machine accepts connections for a process that is stopped
            raise TimeoutError(f"{address[0]} answers, but the run there has not in {SILENCE:.0f} s") from None
        text = json.dumps(identity).encode()
        answer = _proof(token, nonce, hello, text) + text
        frame = Frame(Kind.HELLO, hello.run, hello.incarnation, nbytes=len(answer))
        stream.send(frame, [memoryview(answer)])
    except BaseException:
        stream.close()
        raise
    return stream


def welcome(connection: socket.socket, token: bytes, run: int) -> tuple[Stream, Frame, dict[str, Any]]:
    """Accept the connection of a node that has the token; return its stream, hello and identity.

    Raises
    ------
    StreamError
        The proof is wrong, or of another run.
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
        raise StreamError("the connection has no proof of the run's token")
    identity: dict[str, Any] = json.loads(data[size:])
    return stream, frame, identity


def _proof(token: bytes, nonce: bytes | bytearray, hello: Frame, text: bytes) -> bytes:
    signed = b"%s|%d|%d|%s" % (bytes(nonce), hello.run, hello.incarnation, text)
    return hmac.new(token, signed, hashlib.sha256).digest()


def _after(views: Sequence[memoryview], count: int) -> Views:
    """Return what remains of views after their first `count` bytes."""
    for place, view in enumerate(views):
        if count < view.nbytes:
            return [view[count:], *views[place + 1 :]]
        count -= view.nbytes
    return []
