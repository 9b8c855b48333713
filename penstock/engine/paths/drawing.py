"""Draws of replayed segments for the next batches, by each store's own rule."""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
import torch
from torch import Tensor

from penstock.algorithms.arithmetic.similarity import Projection, change, remoteness
from penstock.algorithms.bases.segment import SegmentAlgorithm
from penstock.engine.acting.inference import SharedWeights
from penstock.experience.arena import ExperienceArena
from penstock.experience.segment_store import Segments, SegmentStore
from penstock.ipc import Doorbell

REFERENCES = 8  # newest segments, whose ends are the lanes' current states
TRIES = 10  # draws of segments, which may be overwritten before they are read
MOST_AHEAD = 8  # batches
PATIENCE = 64  # draws in a row without a wait, after which one fewer batch is kept ahead

T = TypeVar("T")


def num_candidates(count: int, multiplier: float, anneal: float, progress: float, size: int) -> int:
    """Return the number of candidates to examine in order to take `count` segments.

    The multiplier falls linearly to 1 until a fraction `anneal` of ``total_steps``: from then on all candidates are
    taken, which is a uniform choice.

    Parameters
    ----------
    count
        Segments to take.
    multiplier
        Initial multiplier.
    anneal
        Fraction of ``total_steps`` over which it falls; it may exceed 1.
    progress
        Fraction of ``total_steps`` learned from.
    size
        Segments in the store.
    """
    now = max(1.0, multiplier - (multiplier - 1.0) * progress / anneal)
    return min(size, max(count, math.floor(now * count)))


def choose(distance: np.ndarray, uses: np.ndarray, count: int, strategy: int) -> np.ndarray:
    """Choose among candidates by their distances and uses.

    1. The nearest.
    2. The nearest of each of `count` stretches of equal length, in the order of distance.
    3. The least used; among equals the nearest.
    4. The least used of each of these stretches; among equals the nearest.

    (The strategies of elite experience replay, github.com/parralplex/elite_buffer_vtrace.)

    Parameters
    ----------
    distance
        Float ``[M]``; values that are not finite count as farthest.
    uses
        int64 ``[M]``.
    count
        Number to choose, at most M.
    strategy
        1 to 4.

    Returns
    -------
    ndarray
        int64 ``[count]``: positions among the candidates, each at most once.
    """
    order = np.argsort(np.nan_to_num(distance, nan=np.inf), kind="stable")
    if strategy == 1:
        return order[:count]
    if strategy == 2:
        return order[:: len(order) // count][:count]
    if strategy == 3:
        return order[np.argsort(uses[order], kind="stable")][:count]
    return np.array([stretch[np.argmin(uses[stretch])] for stretch in np.array_split(order, count)], np.int64)


class Uses:
    """Uses of the segment in each row of a store, counted from 1.

    Parameters
    ----------
    capacity
        Rows of the store.
    """

    def __init__(self, capacity: int) -> None:
        self._ids = np.full(capacity, -1, np.int64)
        self._counts = np.ones(capacity, np.int64)

    def of(self, rows: np.ndarray, ids: np.ndarray) -> np.ndarray:
        """Return the uses of the segments with these ids in these rows, int64 ``[n]``."""
        return np.where(self._ids[rows] == ids, self._counts[rows], 1)

    def add(self, rows: np.ndarray, ids: np.ndarray) -> None:
        """Count one use of each segment."""
        self._counts[rows] = self.of(rows, ids) + 1
        self._ids[rows] = ids


class Draw:
    """Draw of one store's segments for a batch, by the store's sampler."""

    num_uniform = 0
    """Draws that fell back to uniform ones."""

    def __init__(self, store: SegmentStore) -> None:
        self._store = store

    def __call__(self, progress: float) -> Segments:
        """Return the segments of a batch, at a fraction `progress` of ``total_steps``."""
        return self._store.sample()


def make_draws(algorithm: SegmentAlgorithm, arena: ExperienceArena, stores: Sequence[SegmentStore]) -> list[Draw]:
    """Make the draw of each store."""
    encoder = FeatureEncoder(algorithm, arena) if any(store.source.compares for store in stores) else None

    def draw_of(store: SegmentStore) -> Draw:
        if encoder is not None and store.source.compares:
            return ComparingDraw(algorithm, store, encoder)
        return Draw(store)

    return [draw_of(store) for store in stores]


class FeatureEncoder:
    """Encoder of segments into features, by the newest published network.

    Parameters
    ----------
    algorithm
        Algorithm, which builds the network.
    arena
        Arena in which weights are published.
    """

    def __init__(self, algorithm: SegmentAlgorithm, arena: ExperienceArena) -> None:
        self._device = torch.device(algorithm.config.device)
        self._model = algorithm.make_model(self._device)
        self._weights = SharedWeights(self._model, arena.weights)
        self._autocast = algorithm.autocast(self._device)

    def features(self, segments: Segments) -> Tensor:
        """Return the features of all but the last observations of N segments, float32 ``[T, N, F]``."""
        self._weights.refresh()
        count = len(segments["first"])
        obs = segments["obs"][:, :-1]
        memory = segments.get("memory", np.zeros((count, 0), np.float32))
        with torch.no_grad(), self._autocast:
            return self._model.features(
                self._tensor(obs.swapaxes(0, 1)), self._tensor(segments["first"][:, :-1].swapaxes(0, 1)),
                self._tensor(memory),
            )  # fmt: skip

    def _tensor(self, array: np.ndarray) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(self._device)


@dataclass(frozen=True)
class Candidates:
    """Segments that may be drawn: rows, ids, distances and uses, each ``[M]``."""

    rows: np.ndarray
    ids: np.ndarray
    distance: np.ndarray
    uses: np.ndarray

    def without(self, places: np.ndarray) -> Candidates:
        """Return the candidates without those at `places`."""
        return Candidates(*(np.delete(each, places) for each in (self.rows, self.ids, self.distance, self.uses)))


class ComparingDraw(Draw):
    """Draw of the best among more candidates than are needed: attentive and elite replay.

    Attentive replay (Sun et al. 2020, doi 10.1609/aaai.v34i04.6049) prefers segments whose states are closest to the
    lanes' current states. Elite replay (github.com/parralplex/elite_buffer_vtrace) prefers those whose features have
    changed least since they were collected, by one of four strategies. A draw is uniform if segments were overwritten
    before they were compared.

    Parameters
    ----------
    algorithm
        Algorithm; its seed is used for the projection and for the draws.
    store, encoder
        Store and encoder of the segments.
    """

    def __init__(self, algorithm: SegmentAlgorithm, store: SegmentStore, encoder: FeatureEncoder) -> None:
        super().__init__(store)
        self._encoder = encoder
        self._source, self._buffer = store.source, store.buffer
        self._projected = Projection(store.source.projection, algorithm.config.seed)
        self._is_elite = store.source.kind == "elite"
        self._fields = tuple(
            name for name in ("obs", "first", "valid", "memory", "features")
            if name == "obs" or (name in self._buffer.fields and (name != "features" or self._is_elite))
        )  # fmt: skip
        self._uses = Uses(self._buffer.capacity)
        self._random = np.random.default_rng((algorithm.config.seed, 1))

    def __call__(self, progress: float) -> Segments:
        """Return the segments of a batch, at a fraction `progress` of ``total_steps``."""
        source, count = self._source, self._store.count
        for _ in range(TRIES):
            rows, ids = self._buffer.live()
            if len(rows) < count:
                break
            size = num_candidates(count, source.candidates, source.anneal, progress, len(rows))
            picked = self._random.choice(len(rows), size, replace=False)
            if size > count:
                candidates = self._compared(rows[picked], ids[picked], rows, ids)
            else:  # all are taken, whatever their distance
                candidates = Candidates(rows[picked], ids[picked], np.zeros(size), np.ones(size, np.int64))
            while len(candidates.rows) >= count:
                chosen = choose(candidates.distance, candidates.uses, count, source.strategy if self._is_elite else 1)
                segments, is_there = self._store.read(candidates.rows[chosen], candidates.ids[chosen])
                if is_there.all():
                    self._uses.add(candidates.rows[chosen], candidates.ids[chosen])
                    return segments
                candidates = candidates.without(chosen[~is_there])  # overwritten meanwhile
        self.num_uniform += 1
        return self._store.sample()

    def _compared(self, rows: np.ndarray, ids: np.ndarray, all_rows: np.ndarray, all_ids: np.ndarray) -> Candidates:
        """Return segments with distances and uses; those overwritten meanwhile are left out."""
        seen, is_there = self._store.read(rows, ids, fields=self._fields)
        seen = {name: array[is_there] for name, array in seen.items()}
        rows, ids = rows[is_there], ids[is_there]
        now = self._projected(self._encoder.features(seen))
        valid = torch.from_numpy(seen["valid"][:, :-1].swapaxes(0, 1)).to(now.device)
        c = self._source
        if self._is_elite:
            then = torch.from_numpy(seen["features"][:, :-1].swapaxes(0, 1)).to(now.device)
            found = change(now, then, valid, c.distance, c.p)
        else:
            found = remoteness(now, valid, self._current_states(all_rows, all_ids), c.distance, c.p)
        distance = found.cpu().numpy()
        if c.insertion == "elite":
            self._buffer.update_scores(rows, ids, np.nan_to_num(distance, nan=np.inf))
        return Candidates(rows, ids, distance, self._uses.of(rows, ids))

    def _current_states(self, rows: np.ndarray, ids: np.ndarray) -> Tensor:
        """Return the features of the last valid states of the newest segments, float32 ``[K, F]``."""
        newest, is_there = self._store.read(rows[-REFERENCES:], ids[-REFERENCES:], fields=self._fields)
        newest = {name: array[is_there] for name, array in newest.items()}
        states = self._projected(self._encoder.features(newest))
        valid = newest["valid"][:, :-1]
        last = valid.shape[1] - 1 - np.argmax(valid[:, ::-1], axis=1)
        return states[torch.from_numpy(last), torch.arange(len(last))]


class DrawOnRequest(Generic[T]):
    """Draws on request, and so reproducibly."""

    depth = 0

    def __init__(self, draw: Callable[[], T]) -> None:
        self._draw = draw

    def take(self) -> T | None:
        """Return a new draw."""
        return self._draw()

    def close(self) -> None:
        """Do nothing."""


class DrawAhead(Generic[T]):
    """Draws in a thread, enough batches ahead that the learner hardly waits for one.

    Each wait raises the number of batches ahead by 1, up to `MOST_AHEAD`; `PATIENCE` draws without a wait lower it.

    Parameters
    ----------
    draw
        Function that draws for a batch.
    bell
        Bell to ring when a draw is ready.

    Attributes
    ----------
    depth
        Number of batches kept ahead.
    """

    def __init__(self, draw: Callable[[], T], bell: Doorbell) -> None:
        self._draw, self._bell = draw, bell
        self._ready = deque[T]()
        self._has_room = threading.Condition()
        self._is_closed = self._is_waited_for = False
        self._error: BaseException | None = None
        self._unhindered = 0
        self.depth = 1
        self._thread: threading.Thread | None = None

    def take(self) -> T | None:
        """Return the next draw; None while it is not ready.

        Raises
        ------
        Exception
            An exception of the draw.
        """
        with self._has_room:
            if self._error is not None:
                raise self._error
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="drawing", daemon=True)
                self._thread.start()
                return None
            if not self._ready:
                if not self._is_waited_for:
                    self._is_waited_for, self._unhindered = True, 0
                    self.depth = min(MOST_AHEAD, self.depth + 1)
                    self._has_room.notify()
                return None
            self._unhindered = 0 if self._is_waited_for else self._unhindered + 1
            self._is_waited_for = False
            if self._unhindered >= PATIENCE:
                self.depth, self._unhindered = max(1, self.depth - 1), 0
            taken = self._ready.popleft()
            self._has_room.notify()
            return taken

    def close(self) -> None:
        """End the thread."""
        with self._has_room:
            self._is_closed = True
            self._has_room.notify()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        try:
            while True:
                with self._has_room:
                    self._has_room.wait_for(lambda: self._is_closed or len(self._ready) < self.depth)
                    if self._is_closed:
                        return
                drawn = self._draw()
                with self._has_room:
                    self._ready.append(drawn)
                self._bell.ring()
        except BaseException as error:
            self._error = error
            self._bell.ring()
