"""Drawing the replayed segments of the batches to come, from each store in its own way."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor

from penstock.algorithms.arithmetic.likeness import Projection, change, remoteness
from penstock.algorithms.bases.segment import SegmentAlgorithm
from penstock.engine.acting.weights import SharedWeights
from penstock.experience.arena import ExperienceArena
from penstock.experience.choosing import Uses, choose, num_candidates
from penstock.experience.segment_store import Segments, SegmentStore
from penstock.ipc import Doorbell

REFERENCES = 8  # of the newest segments: where they end is where the lanes are
TRIES = 10  # to read segments that are overwritten meanwhile
MOST_AHEAD = 8
PATIENCE = 64  # so many draws that were not waited for, one after another, and one fewer is kept ahead

T = TypeVar("T")


class Draw(Protocol):
    """Draws the segments of one store for one batch."""

    num_uniform: int
    """Draws that were to be of other segments, and were uniform."""

    def __call__(self, progress: float) -> Segments: ...


class PlainDraw:
    """Draws by the store's own sampler."""

    num_uniform = 0

    def __init__(self, store: SegmentStore) -> None:
        self._store = store

    def __call__(self, progress: float) -> Segments:
        """Draw."""
        return self._store.sample()


def make_draws(algorithm: SegmentAlgorithm, arena: ExperienceArena, stores: Sequence[SegmentStore]) -> list[Draw]:
    """Make what draws from each store."""
    eye = FeatureEncoder(algorithm, arena) if any(store.source.compares for store in stores) else None

    def draw_of(store: SegmentStore) -> Draw:
        if eye is not None and store.source.compares:
            return ComparingDraw(algorithm, store, eye)
        return PlainDraw(store)

    return [draw_of(store) for store in stores]


class FeatureEncoder:
    """The newest published network, as it sees segments.

    Parameters
    ----------
    algorithm
        Builds the network.
    arena
        Where its weights are published.
    """

    def __init__(self, algorithm: SegmentAlgorithm, arena: ExperienceArena) -> None:
        self._device = torch.device(algorithm.config.device)
        self._model = algorithm.make_model(self._device)
        self._weights = SharedWeights(self._model, arena.weights)
        self._autocast = algorithm.autocast(self._device)

    def look(self, segments: Segments) -> Tensor:
        """Features of all but the last observations of N segments, float32 ``[T, N, F]``."""
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
    """Segments that may be drawn: where they lie, how far they are, and how often they were used."""

    rows: np.ndarray
    ids: np.ndarray
    distance: np.ndarray
    uses: np.ndarray

    def without(self, places: np.ndarray) -> Candidates:
        """Leave some out."""
        return Candidates(*(np.delete(each, places) for each in (self.rows, self.ids, self.distance, self.uses)))


class ComparingDraw:
    """Looks at more segments than are needed, each at most once, and takes the best: attentive and elite replay.

    Attentive replay (Sun et al. 2020, doi 10.1609/aaai.v34i04.6049) takes the segments whose states are most like those
    that the lanes are in. Elite replay (github.com/parralplex/elite_buffer_vtrace) takes those that the network sees
    most as it did when they were collected, by one of four strategies.

    Parameters
    ----------
    algorithm
        Its seed is that of the projection, and of the draws.
    store
        Where segments come from.
    eye
        Looks at them.

    Attributes
    ----------
    num_uniform
        Draws that were uniform instead, because segments were overwritten faster than they could be compared.
    """

    def __init__(self, algorithm: SegmentAlgorithm, store: SegmentStore, eye: FeatureEncoder) -> None:
        self._store, self._eye = store, eye
        self._source, self._buffer = store.source, store.buffer
        self._projected = Projection(store.source.projection, algorithm.config.seed)
        self._is_elite = store.source.kind == "elite"
        self._fields = tuple(
            name for name in ("obs", "first", "valid", "memory", "features")
            if name == "obs" or (name in self._buffer.fields and (name != "features" or self._is_elite))
        )  # fmt: skip
        self._uses = Uses(self._buffer.capacity)
        self._random = np.random.default_rng((algorithm.config.seed, 1))
        self.num_uniform = 0

    def __call__(self, progress: float) -> Segments:
        """Draw, when the learner has made such a fraction of its way."""
        source, count = self._source, self._store.count
        for _ in range(TRIES):
            rows, ids = self._buffer.live()
            if len(rows) < count:
                break
            size = num_candidates(count, source.candidates, source.anneal, progress, len(rows))
            picked = self._random.choice(len(rows), size, replace=False)
            if size > count:
                candidates = self._compared(rows[picked], ids[picked], rows, ids)
            else:  # all of them are taken, whatever they are like
                candidates = Candidates(rows[picked], ids[picked], np.zeros(size), np.ones(size, np.int64))
            while len(candidates.rows) >= count:
                chosen = choose(candidates.distance, candidates.uses, count, source.strategy if self._is_elite else 1)
                segments, is_there = self._store.read(candidates.rows[chosen], candidates.ids[chosen])
                if is_there.all():
                    self._uses.add(candidates.rows[chosen], candidates.ids[chosen])
                    return segments
                candidates = candidates.without(chosen[~is_there])  # overwritten meanwhile: the others still do
        self.num_uniform += 1
        return self._store.sample()

    def _compared(
        self, rows: np.ndarray, ids: np.ndarray, all_rows: np.ndarray, all_ids: np.ndarray
    ) -> Candidates:
        """Find how far segments are, and how often they were used; those that are gone are left out."""
        seen, is_there = self._store.read(rows, ids, fields=self._fields)
        seen = {name: array[is_there] for name, array in seen.items()}
        rows, ids = rows[is_there], ids[is_there]
        now = self._projected(self._eye.look(seen))
        valid = torch.from_numpy(seen["valid"][:, :-1].swapaxes(0, 1)).to(now.device)
        c = self._source
        if self._is_elite:
            then = torch.from_numpy(seen["features"][:, :-1].swapaxes(0, 1)).to(now.device)
            found = change(now, then, valid, c.distance, c.p)
        else:
            found = remoteness(now, valid, self._here(all_rows, all_ids), c.distance, c.p)
        distance = found.cpu().numpy()
        if c.insertion == "elite":
            self._buffer.update_scores(rows, ids, np.nan_to_num(distance, nan=np.inf))
        return Candidates(rows, ids, distance, self._uses.of(rows, ids))

    def _here(self, rows: np.ndarray, ids: np.ndarray) -> Tensor:
        """Features of the last real states of the newest segments, float32 ``[K, F]``."""
        newest, is_there = self._store.read(rows[-REFERENCES:], ids[-REFERENCES:], fields=self._fields)
        newest = {name: array[is_there] for name, array in newest.items()}
        states = self._projected(self._eye.look(newest))
        valid = newest["valid"][:, :-1]
        last = valid.shape[1] - 1 - np.argmax(valid[:, ::-1], axis=1)
        return states[torch.from_numpy(last), torch.arange(len(last))]


class InTurn(Generic[T]):
    """Draws when it is asked: reproducible."""

    depth = 0

    def __init__(self, draw: Callable[[], T]) -> None:
        self._draw = draw

    def take(self) -> T | None:
        """Draw for the next batch."""
        return self._draw()

    def close(self) -> None:
        """Nothing goes on."""


class Ahead(Generic[T]):
    """Draws in a thread of its own, as many batches ahead as it takes for nobody to wait.

    Each time that a batch is wanted and none is there, one more is kept ahead, `MOST_AHEAD` at most; when none was
    waited for many times in a row, one fewer.

    Parameters
    ----------
    draw
        Draws for a batch.
    bell
        Rung when a batch is there.

    Attributes
    ----------
    depth
        Batches that are kept ahead now.
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
        """Take what was drawn for the next batch; None: it is not there yet.

        Raises
        ------
        Exception
            Whatever drawing raised.
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
