"""Past versions on their way to nodes, and results of games against them on their way home.

Both go over the connection of their policy. A version is sent once, when it enters the pool, and before the odds by
which it is drawn. On a node it waits until no game there plays against the version that it replaces.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING

import numpy as np

from penstock.experience.arena import ExperienceArena
from penstock.ipc import fence
from penstock.ipc.stream import Frame, Kind, Stream, StreamError, Views, array_views, rounded, widened
from penstock.self_play.arenas import Pool, pool_in

if TYPE_CHECKING:
    from penstock.engine.nodes.link import Link

RESULTS_INTERVAL = 0.1  # seconds between two reports of results


def pool_of(arena: ExperienceArena) -> Pool | None:
    """Return the pool of a policy's past versions; None: no game plays against them."""
    return None if arena.unlearned is None else pool_in(arena.unlearned)


class SentVersions:
    """End of the pool at home, or at a gateway for its nodes: sends each node the changes in the pool.

    `rounded_nbytes` is that of the arena's shape.
    """

    def __init__(self, pool: Pool, rounded_nbytes: int) -> None:
        self._pool, self._rounded_nbytes = pool, rounded_nbytes
        self._odds = np.zeros(len(pool.places))
        self._versions = [(-1, np.empty(0, np.uint8)) for _ in pool.places]  # number and weights in each place

    def read(self) -> None:
        """Read the pool once for all nodes: odds before the versions that they refer to."""
        self._odds = self._pool.odds.copy()
        fence()
        for place, block in enumerate(self._pool.places):
            if block.version != self._versions[place][0]:
                weights = np.empty(block.size, np.uint8)  # links may still be sending the previous array
                number = block.read_into(weights)
                self._versions[place] = number, rounded(weights, self._rounded_nbytes)

    def views(self, link: Link, epoch: int) -> Views:
        """Return the frames of all that a node has not been sent."""
        views: Views = []
        for place, (number, weights) in enumerate(self._versions):
            if link.places.get(place, -1) != number:
                link.places[place] = number
                head = link.frame(Kind.VERSION, epoch, number, number=place, nbytes=weights.nbytes)
                views += [head, *array_views(weights)]
        if link.odds != (odds := self._odds.tobytes()):
            link.odds = odds
            views += [link.frame(Kind.ODDS, epoch, -1, count=len(self._odds), nbytes=len(odds)), memoryview(odds)]
        return views


class HeldVersions:
    """End of the pool on a node, or at a gateway for home: puts versions into their places, and reports results.

    `send` sends the results of a number of games.
    """

    def __init__(self, pool: Pool, rounded_nbytes: int, send: Callable[[int, Views], None]) -> None:
        self._pool, self._rounded_nbytes, self._send = pool, rounded_nbytes, send
        self._odds = np.zeros(len(pool.places))  # of home
        self._waiting: dict[int, tuple[int, np.ndarray]] = {}  # number and weights by the place
        self._has_news = False
        self._lock = threading.Lock()  # one thread receives, another calls `update`
        self._reported = pool.results.copy()
        self._next_report = 0.0

    def receive(self, frame: Frame, stream: Stream) -> None:
        """Receive a version, which replaces one that waits for the same place, or odds."""
        of_version, found = frame.kind is Kind.VERSION, np.empty(frame.nbytes, np.uint8)
        size = self._pool.places[0].size - self._rounded_nbytes // 2 if of_version else self._odds.nbytes
        if frame.nbytes != size or not 0 <= frame.number < len(self._odds):
            raise StreamError(f"a frame {frame.kind.name} came with {frame.nbytes} bytes, expected {size}")
        stream.receive_into([found.data])
        with self._lock:
            self._has_news = True
            if of_version:
                self._waiting[frame.number] = frame.version, widened(found, self._rounded_nbytes)
            else:
                self._odds = found.view(np.float64)

    def update(self) -> bool:
        """Put waiting versions into places that are free, and report results; return whether the pool has changed.

        While no version that home draws from has arrived, games draw from all others that have.
        """
        with self._lock:
            has_changed, self._has_news = self._has_news and self._settle(), False
            while free := [place for place in self._waiting if self._pool.is_free(place)]:
                self._report()  # results against the versions that are replaced
                for place in free:
                    number, weights = self._waiting.pop(place)
                    self._pool.places[place].publish(weights, number)
                has_changed = self._settle()
        if (now := time.monotonic()) >= self._next_report:
            self._next_report = now + RESULTS_INTERVAL
            self._report()
        return has_changed

    def _settle(self) -> bool:
        """Set the odds, 0 for places that a version waits for; return True."""
        is_there = [place.version >= 0 and n not in self._waiting for n, place in enumerate(self._pool.places)]
        odds = np.where(is_there, self._odds, 0.0)
        if self._odds.any() and not odds.any():
            odds[is_there] = 1.0
        if odds.any():
            self._pool.set_odds(odds)
        return True

    def _report(self) -> None:
        """Send the results since the last report, with the numbers of the versions played against."""
        now = self._pool.results.copy()
        new = now - self._reported
        games = new.any((1, 2)).nonzero()[0]
        if len(games):
            self._reported = now
            numbers = np.array([place.version for place in self._pool.places])
            self._send(len(games), array_views(numbers, games, new[games]))


def receive_results(pool: Pool, games: range, stream: Stream, frame: Frame) -> Generator[None, None, None]:
    """Receive results of a node's `games`, and add those against versions that still have their places.

    Yields while bytes are missing.
    """
    shape = pool.results.shape[1:]
    if frame.nbytes != (right := 8 * (len(pool.places) + frame.count * (1 + math.prod(shape)))):
        raise StreamError(f"{frame.count} results came with {frame.nbytes} bytes, expected {right}")
    numbers, which = np.empty(len(pool.places), np.int64), np.empty(frame.count, np.int64)
    new = np.empty((frame.count, *shape), np.int64)
    yield from stream.arriving(array_views(numbers, which, new))
    if len(which) and not 0 <= which.min() <= which.max() < len(games):
        raise StreamError(f"results are of games {which.tolist()}, but a node has {len(games)}")
    new[:, numbers != [place.version for place in pool.places]] = 0
    pool.results[games.start + which] += new
