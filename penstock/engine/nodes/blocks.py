"""Frames between a node and the home node: a header of fixed size, followed by raw bytes.

A block is a frame of full segments: a table with a row for each segment, and then one stretch of bytes for each column.
Nothing that is received is executed or unpickled.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum, auto
from typing import ClassVar

import numpy as np

MAGIC = b"PsN1"
MOST_NBYTES = 1 << 34  # of a frame: more is a damaged header
Views = list[memoryview]


class Kind(IntEnum):
    """Kinds of frames."""

    HELLO = auto()
    """Identity of the connecting node, as JSON: from a node, once."""
    ALIVE = auto()
    """Nothing but that the other end is there; of both ends."""
    BLOCK = auto()
    """Full segments, or transitions: from a node."""
    WEIGHTS = auto()
    """The newest weights: to a node."""
    CONTROL = auto()
    """Words by which the run is steered, int64: to a node."""
    GRANT = auto()
    """Further slots that a node may fill: their numbers, int64; or an entry per step that it may take: to a node."""
    TAKEN = auto()
    """Number of granted steps that were taken: from a node."""


class StreamError(ConnectionError):
    """The received bytes are no frame of this program."""


@dataclass(frozen=True)
class Frame:
    """The header of a frame.

    Attributes
    ----------
    kind
        What it says.
    run
        Of which run: a random number.
    incarnation
        Which of the hosts that have stood for the node one after another sent it, or is to receive it.
    epoch, version
        Run epoch, and version of the weights, at the sender's end.
    number
        Of the frame among the blocks of its incarnation: 1, 2, 3.
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

    FORMAT: ClassVar[struct.Struct] = struct.Struct("<4sIQIIqqQQ")
    NBYTES: ClassVar[int] = FORMAT.size

    def packed(self) -> bytes:
        """The header as bytes."""
        return self.FORMAT.pack(
            MAGIC, self.kind, self.run, self.incarnation, self.count, self.epoch, self.version, self.number, self.nbytes
        )

    @classmethod
    def unpacked(cls, data: bytes | bytearray | memoryview) -> Frame:
        """The header in `NBYTES` bytes; raises `StreamError` where they hold none."""
        magic, kind, run, incarnation, count, epoch, version, number, nbytes = cls.FORMAT.unpack(data)
        if magic != MAGIC or kind not in set(Kind) or nbytes > MOST_NBYTES:
            raise StreamError(f"expected a frame's header, found {bytes(data[:16])!r}: another program, or version?")
        return cls(Kind(kind), run, incarnation, epoch, version, number, count, nbytes)


@dataclass
class Sequence:
    """The blocks of one incarnation of a node, as they arrive: which are taken, and which are counted as faults.

    Attributes
    ----------
    run, incarnation
        Whose blocks are taken.
    last
        Number of the last block taken.
    stale
        Blocks of another run or incarnation.
    doubled
        Blocks that had been taken already.
    missing
        Numbers that were left out.
    """

    run: int
    incarnation: int
    last: int = 0
    stale: int = 0
    doubled: int = 0
    missing: int = 0

    def takes(self, frame: Frame) -> bool:
        """Whether a block is to be taken; one that is not is counted."""
        if (frame.run, frame.incarnation) != (self.run, self.incarnation):
            self.stale += 1
            return False
        if frame.number <= self.last:
            self.doubled += 1
            return False
        self.missing += frame.number - self.last - 1
        self.last = frame.number
        return True


def views_of(columns: Iterable[np.ndarray], num_slots: int, slots: np.ndarray) -> Views:
    """The bytes of slots in each column in turn, where they lie; slots that lie side by side are one view.

    Parameters
    ----------
    columns
        Each ``[num_slots * rows, ...]``, contiguous.
    num_slots
        Slots in each of them.
    slots
        int64 ``[K]``, in the order in which they travel.
    """
    cuts = np.flatnonzero(np.diff(slots) != 1) + 1
    runs = [(int(run[0]), int(run[-1]) + 1) for run in np.split(slots, cuts) if len(run)]
    views = []
    for column in columns:
        if column.size:
            of_slots = column.reshape(num_slots, -1).view(np.uint8)
            views += [of_slots[begin:end].reshape(-1).data for begin, end in runs]
    return views


def nbytes_of(views: Iterable[memoryview]) -> int:
    """Bytes in all of them."""
    return sum(view.nbytes for view in views)


def array_views(*arrays: np.ndarray) -> Views:
    """The bytes of whole arrays, one view for each that holds any."""
    return [array.reshape(-1).view(np.uint8).data for array in arrays if array.size]
