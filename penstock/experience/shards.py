"""Replay in shards: each gateway has a part of the replay buffer, and the learner draws its batches from all of them.

The learner connects to the role that serves a shard (`penstock.engine.nodes.shards`), and keeps the sum of its
priorities, its mass, as of the last answer. For a batch it chooses the number of rows of each shard in proportion to
these masses, and asks all of them at once. A request carries the priorities that are new since the last one. As a
result, each row is drawn as often as in a single buffer.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.experience.run_replay import Replay
from penstock.ipc import Arena
from penstock.ipc.stream import SILENCE, Frame, Kind, Stream, StreamError, array_views, connect, nbytes_of
from penstock.replay import NotReady, Prioritized, ReplayBuffer
from penstock.replay.sharing import ArenaHandle, arena_handle, attach

if TYPE_CHECKING:
    from penstock.experience.arena import ExperienceArena

ASK_INTERVAL = 0.1  # seconds after which a shard that gave no rows is asked for its mass
CONNECT_INTERVAL = 1.0  # seconds between two tries to connect
LEAST_PATIENCE = 0.2  # seconds for the answer of a shard after one that was silent
PAUSE = 0.005  # seconds between two tries to draw where no shard has rows
BARE_SECONDS = 1.0  # enough for steps that nodes have taken to arrive
ID_BITS = 40  # of an id at home: those of the row's id in its shard, below those of the connection's number
Batch = dict[str, np.ndarray]


def columns_that_travel(batch: Batch) -> list[np.ndarray]:
    """Return the arrays of a batch that a shard sends, in the same order at both ends."""
    return [batch[name] for name in sorted(batch) if name != "weights"]


@dataclass(frozen=True)
class ShardAddress:
    """Address of a gateway's shard, by the gateway's number.

    Attributes
    ----------
    token, run
        Proof that the learner belongs to the run, and random number of the run.
    incarnation
        Number of the gateway's host; each host holds rows of its own.
    """

    gateway: int
    address: tuple[str, int]
    token: bytes
    run: int
    incarnation: int = 1


@dataclass(eq=False)
class ShardLink:
    """Connection of the learner to a shard.

    Attributes
    ----------
    at
        Address of the shard.
    stream
        The connection.
    number
        Number of the connection, counted from 1: ids of rows have it above `ID_BITS`.
    rows, mass, least
        Rows in the shard, sum of their masses, and least mass of a row of a draw, as of its last answers.
    answered_at
        Time of the last answer (monotonic seconds).
    priorities
        New priorities not sent to it yet: pairs of ids (int64) and priorities (float64), ``[N]`` each.
    """

    at: ShardAddress
    stream: Stream
    number: int
    rows: int = 0
    mass: float = 0.0
    least: float = math.inf
    answered_at: float = 0.0
    priorities: list[tuple[np.ndarray, np.ndarray]] = field(default_factory=list)


@dataclass(frozen=True)
class ShardedReplay(Replay):
    """Replay of a run in shards; attributes are those of `Replay`."""

    def admit(self, num_steps: int, arena: ExperienceArena) -> bool:
        """Count steps as in `Replay.admit`; shards that lost their rows, and got no others, have room."""
        buffer: Any = self.buffer
        return self.limiter.native.try_insert(num_steps) or buffer.is_bare


class ShardedBuffer:
    """Replacement of the replay buffer in the learner of a run whose rows lie in shards.

    The object is pickled to every role at home; only the learner's is connected.

    Parameters
    ----------
    make_buffer
        Constructor of a buffer of all rows.
    num_shards
        Number of shards.

    Attributes
    ----------
    capacity
        Rows that all shards keep.
    remarks
        Texts for the user about shards that came or went.
    """

    def __init__(self, make_buffer: partial[ReplayBuffer], num_shards: int) -> None:
        self._make, self._num_shards = make_buffer, num_shards
        self.capacity = num_shards * self._rows_of_a_shard
        self._memory = Arena.create(16)
        self._begin()

    def _begin(self) -> None:
        self._num_rows = self._memory.array(0, 1, np.int64)
        self._is_bare = self._memory.array(8, 1, np.int64)
        self._layout: ReplayBuffer | None = None
        self._links: dict[int, ShardLink] = {}
        self._known: dict[int, ShardAddress] = {}  # by the gateway's number
        self._num_links = 0
        self._largest = 1.0  # priority so far
        self._random = np.random.default_rng(self._make.keywords["seed"])
        self._exchange, self._news = threading.Lock(), threading.Lock()  # of all streams; of new priorities
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None
        self._is_closed = False
        self._bare_since = 0.0
        self._is_asked = threading.Event()  # for a connection
        self.remarks: deque[str] = deque()

    def __getstate__(self) -> tuple[partial[ReplayBuffer], int, int, ArenaHandle]:
        return self._make, self._num_shards, self.capacity, arena_handle(self._memory)

    def __setstate__(self, state: tuple[partial[ReplayBuffer], int, int, ArenaHandle]) -> None:
        self._make, self._num_shards, self.capacity, handle = state
        self._memory = attach(handle)
        self._begin()

    def __len__(self) -> int:
        """Number of rows in all connected shards, as of their last answers."""
        return int(self._num_rows[0])

    @property
    def is_bare(self) -> bool:
        """Whether all connected shards, one at least, have held nothing for `BARE_SECONDS`."""
        return bool(self._is_bare[0])

    @property
    def _rows_of_a_shard(self) -> int:
        return -(-self._make.keywords["capacity"] // self._num_shards)

    def maker_of(self, number: int) -> partial[ReplayBuffer]:
        """Return the constructor of a shard, by its number among all shards."""
        return partial(self._make, capacity=self._rows_of_a_shard, seed=self._make.keywords["seed"] + number)

    def allocate(self, batch_size: int) -> Batch:
        """Return arrays for `sample`, uninitialised."""
        if self._layout is None:
            self._layout = self._make(capacity=1)
        return self._layout.allocate(batch_size)

    def sample(self, batch_size: int, *, beta: float | None = None, out: Batch) -> Batch:
        """Draw rows from all shards; wait while none of them has rows.

        Parameters
        ----------
        batch_size
            Number of rows.
        beta
            Exponent of the importance weights, divided by the largest as the sampler says; None: no weights.
        out
            Arrays as made by `allocate`, which are filled and returned.

        Raises
        ------
        NotReady
            The buffer was closed meanwhile.
        """
        chances = np.empty(batch_size)  # of each row, in a draw of one row
        begin = 0
        while begin < batch_size:
            with self._exchange:
                found = self._draw(out, chances, begin)
            begin += found
            if self._failure is not None:
                raise self._failure
            if self._is_closed:
                raise NotReady("the run ends")
            if not found:
                time.sleep(PAUSE)
        if beta is not None:
            out["weights"][:] = np.minimum(1.0, (chances / self._least_chance(chances)) ** -beta)
        return out

    def _least_chance(self, chances: np.ndarray) -> float:
        """Return the chance of the row with the largest weight, in the batch or in all shards."""
        least = float(chances.min())
        if self._make.keywords["sampler"].normalize == "batch":
            return least
        with self._exchange:
            links = list(self._links.values())
        mass = sum(link.mass for link in links)
        return min(least, *(link.least / mass for link in links)) if mass else least

    def update_priorities(self, ids: np.ndarray, priorities: np.ndarray) -> None:
        """Set the priorities of rows (float ``[N]``), by their ids (int64 ``[N]``); the next requests carry them.

        Raises
        ------
        ValueError
            A priority is NaN, infinite or negative.
        """
        values = priorities.astype(np.float64)
        if not (np.isfinite(values) & (values >= 0.0)).all():
            raise ValueError("priorities must be finite, and 0 or more")
        numbers = ids >> ID_BITS
        with self._news:
            self._largest = max(self._largest, float(values.max(initial=0.0)))
            for link in self._links.values():
                if (own := numbers == link.number).any():
                    link.priorities.append((ids[own] & ((1 << ID_BITS) - 1), values[own]))

    # -- connections -----------------------------------------------------------------------------------------------

    def connect(self, at: ShardAddress) -> None:
        """Connect to a shard, which replaces the earlier one of the same gateway."""
        self._known[at.gateway] = at
        self._is_asked.set()
        if self._thread is None:
            self._num_rows[0] = self._is_bare[0] = 0  # left by an earlier learner
            self._thread = threading.Thread(target=self._ask, name="shards", daemon=True)
            self._thread.start()
            threading.Thread(target=self._keep_connected, name="connecting", daemon=True).start()

    def close(self) -> None:
        """End all connections."""
        self._is_closed = True
        self._is_asked.set()
        if self._thread is not None:
            self._thread.join()
        with self._exchange:
            for link in self._links.values():
                link.stream.close()

    def _ask(self) -> None:
        """Ask shards that have given no rows for a while for their mass."""
        try:
            while not self._is_closed:
                before = time.monotonic() - ASK_INTERVAL
                with self._exchange:
                    idle = [link for link in self._links.values() if link.answered_at < before]
                    deque(self._answers(dict.fromkeys(idle, 0)), maxlen=0)
                time.sleep(ASK_INTERVAL)
        except BaseException as error:
            self._failure = error

    def _keep_connected(self) -> None:
        """Connect to known shards, and reconnect to those whose connection has ended."""
        while not self._is_closed:
            for at in list(self._known.values()):
                link = self._links.get(at.gateway)
                if link is None or link.at != at:
                    with contextlib.suppress(OSError):
                        self._take(at, connect(at.address, at.token, Frame(Kind.HELLO, at.run, 1), {}))
            self._is_asked.wait(CONNECT_INTERVAL)
            self._is_asked.clear()

    def _take(self, at: ShardAddress, stream: Stream) -> None:
        """Start to draw from a newly connected shard."""
        with self._exchange:
            if self._is_closed:
                stream.close()
                return
            if (before := self._links.get(at.gateway)) is not None:
                self._drop(before, f"gateway-{at.gateway} has another shard: {before.rows:,} rows are lost")
            self._num_links += 1
            with self._news:
                self._links[at.gateway] = ShardLink(at, stream, self._num_links)
            self._bare_since = time.monotonic()

    def _lose(self, link: ShardLink, why: OSError) -> None:
        """Continue without a shard whose connection has ended."""
        self._drop(
            link,
            f"the shard of the replay at gateway-{link.at.gateway} is not connected: {why}. {link.rows:,} rows, of "
            f"{len(self):,}, cannot be drawn until it is; if its gateway is lost, they are lost with it",
        )

    def _drop(self, link: ShardLink, remark: str) -> None:
        link.stream.close()
        with self._news:
            del self._links[link.at.gateway]
        self._count()
        if link.rows:
            self.remarks.append(remark)

    def _count(self) -> None:
        now, rows = time.monotonic(), sum(link.rows for link in self._links.values())
        if rows or not self._links:
            self._bare_since = now
        self._num_rows[0], self._is_bare[0] = rows, now - self._bare_since > BARE_SECONDS

    # -- draws -----------------------------------------------------------------------------------------------------

    def _draw(self, out: Batch, chances: np.ndarray, begin: int) -> int:
        """Draw the rows that are missing from `begin` on; return how many were found."""
        links = [link for link in self._links.values() if link.mass > 0.0]
        if not links:
            return 0
        ends = np.cumsum([link.mass for link in links])
        count = len(chances) - begin
        points = (np.arange(count) + self._random.random(count)) / count * ends[-1]  # one in each of equal parts
        wanted = np.bincount(np.searchsorted(ends, points, side="right").clip(max=len(links) - 1), minlength=len(links))
        shares = {link: link.mass / ends[-1] for link in links}
        found = 0
        for link, came in self._answers(dict(zip(links, wanted.tolist(), strict=True))):
            if not came:
                continue
            place = slice(begin + found, begin + found + came)
            views = [column[place] for column in columns_that_travel(out)]
            masses = np.empty(came)
            try:
                link.stream.receive_into(array_views(masses, *views))
            except OSError as error:
                self._lose(link, error)
                continue
            out["ids"][place] |= link.number << ID_BITS
            chances[place] = masses / link.mass * shares[link]
            found += came
        return found

    def _answers(self, wanted: dict[ShardLink, int]) -> Iterator[tuple[ShardLink, int]]:
        """Ask shards for rows; yield each with the number of rows that follow in its stream."""
        asked = []
        for link, count in wanted.items():
            with self._news:
                given, link.priorities = link.priorities, []
            ids = np.concatenate([np.empty(0, np.int64), *(each for each, _ in given)])
            priorities = np.concatenate([np.empty(0), *(each for _, each in given)])
            views = array_views(np.array([self._largest if self._is_prioritized else 0.0]), ids, priorities)
            frame = Frame(Kind.DRAW, link.at.run, 1, number=len(ids), count=count, nbytes=nbytes_of(views))
            try:
                link.stream.send(frame, views)
                asked.append(link)
            except OSError as error:
                self._lose(link, error)
        end = time.monotonic() + SILENCE
        for link in asked:
            try:
                link.stream.wait_at_most(max(LEAST_PATIENCE, end - time.monotonic()))
                frame, state = link.stream.receive(), np.empty(4)
                if frame.kind is not Kind.ROWS:
                    raise StreamError(f"a shard has sent a frame {frame.kind.name}, which it never does")
                link.stream.receive_into(array_views(state))
                if frame.count not in (0, wanted[link]):
                    raise StreamError(f"a shard has sent {frame.count} rows, but {wanted[link]} were requested")
            except OSError as error:
                self._lose(link, error)
                continue
            link.rows, link.mass, link.answered_at = int(state[0]), float(state[1]), time.monotonic()
            link.least = float(state[2]) or link.least
            with self._news:
                self._largest = max(self._largest, float(state[3]))
            self._count()
            yield link, frame.count

    @property
    def _is_prioritized(self) -> bool:
        return isinstance(self._make.keywords["sampler"], Prioritized)
