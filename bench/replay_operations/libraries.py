"""The replay libraries, each behind the same few methods.

``adding``, ``sampling`` and ``updating`` return the calls that are timed, with nothing around the library's own.
"""

from __future__ import annotations

import importlib
import logging
import multiprocessing
from collections.abc import Callable
from functools import partial
from itertools import cycle
from typing import Any

import numpy as np
from rows import Transitions

ALPHA, BETA, EPS = 0.6, 0.4, 1e-4
BATCH = 256

Call = Callable[[], Any]


_CPPRB_CLASSES = {
    "uniform": "ReplayBuffer",
    "prioritized": "PrioritizedReplayBuffer",
    "shared": "MPPrioritizedReplayBuffer",
}


class CpprbFace:
    """A buffer with cpprb's interface: cpprb's own, or Penstock's replacement."""

    def __init__(self, library: Any, kind: str, capacity: int, fields: dict[str, Any]) -> None:
        env_dict = {name: {"shape": shape or 1, "dtype": np.dtype(dtype)} for name, (shape, dtype) in fields.items()}
        self.prioritized = kind != "uniform"
        options: dict[str, Any] = {"alpha": ALPHA, "eps": EPS} if self.prioritized else {}
        if kind == "shared":
            options["ctx"] = multiprocessing.get_context("fork")
        self.buffer = getattr(library, _CPPRB_CLASSES[kind])(capacity, env_dict, **options)
        self.sample = partial(self.buffer.sample, beta=BETA) if self.prioritized else self.buffer.sample

    def add(self, rows: dict[str, np.ndarray], priorities: np.ndarray | None = None) -> None:
        if priorities is None:
            self.buffer.add(**rows)
        else:
            self.buffer.add(**rows, priorities=priorities)

    def update(self, indexes: np.ndarray, priorities: np.ndarray) -> None:
        self.buffer.update_priorities(indexes, priorities)

    def max_priority(self) -> float:
        return float(self.buffer.get_max_priority())

    def adding(self, rows: dict[str, Any], single: bool) -> Call:
        return partial(self.buffer.add, **rows)

    def sampling(self, size: int) -> Call:
        return partial(self.buffer.sample, size, BETA) if self.prioritized else partial(self.buffer.sample, size)

    def updating(self, size: int, priorities: np.ndarray) -> Call:
        sample, update = self.buffer.sample, self.buffer.update_priorities
        return lambda: update(sample(size, BETA)["indexes"], priorities)


class NativeFace:
    """Penstock's own interface, with two threads that fill an allocated batch, which cpprb lacks."""

    def __init__(self, library: Any, kind: str, capacity: int, fields: dict[str, Any]) -> None:
        declared = {name: library.Field(shape, dtype) for name, (shape, dtype) in fields.items()}
        self.prioritized = False
        self.buffer = library.ReplayBuffer(capacity, declared, num_threads=2)

    def add(self, rows: dict[str, np.ndarray], priorities: np.ndarray | None = None) -> None:
        self.buffer.add(**rows)

    def sample(self, size: int) -> Any:
        return self.buffer.sample(size, out=self.buffer.allocate(size))

    def adding(self, rows: dict[str, Any], single: bool) -> Call:
        return partial(self.buffer.add, **rows)

    def sampling(self, size: int) -> Call:
        return partial(self.buffer.sample, size, out=self.buffer.allocate(size))


class TorchRLFace:
    """TorchRL's prioritized buffer over preallocated tensors."""

    prioritized = True

    def __init__(self, library: Any, kind: str, capacity: int, fields: dict[str, Any]) -> None:
        import tensordict
        import torch
        from torchrl.data import LazyTensorStorage, TensorDictPrioritizedReplayBuffer

        torch.set_num_threads(1)  # as for the others, and because spinning threads wait long on a busy machine
        logging.getLogger("torchrl").setLevel(logging.WARNING)
        self._torch, self._tensordict = torch, tensordict.TensorDict
        self.buffer = TensorDictPrioritizedReplayBuffer(
            alpha=ALPHA, beta=BETA, eps=EPS, storage=LazyTensorStorage(capacity), batch_size=BATCH
        )

    def add(self, rows: dict[str, np.ndarray], priorities: np.ndarray | None = None) -> None:
        places = self.buffer.extend(self._tensors(rows, [len(rows["obs"])]))
        if priorities is not None:
            self.buffer.update_priority(places, self._torch.as_tensor(priorities))

    def sample(self, size: int) -> dict[str, np.ndarray]:
        drawn = self.buffer.sample(size)
        batch = {name: drawn[name].numpy() for name in Transitions.fields}
        return {**batch, "indexes": drawn["index"].numpy().ravel(), "weights": drawn["priority_weight"].numpy()}

    def update(self, indexes: np.ndarray, priorities: np.ndarray) -> None:
        self.buffer.update_priority(self._torch.as_tensor(indexes), self._torch.as_tensor(priorities))

    def adding(self, rows: dict[str, Any], single: bool) -> Call:
        if single:
            return partial(self.buffer.add, self._tensors(rows, []))
        return partial(self.buffer.extend, self._tensors(rows, [len(rows["obs"])]))

    def sampling(self, size: int) -> Call:
        return partial(self.buffer.sample, size)

    def updating(self, size: int, priorities: np.ndarray) -> Call:
        sample, update, values = self.buffer.sample, self.buffer.update_priority, self._torch.as_tensor(priorities)
        return lambda: update(sample(size)["index"], values)

    def _tensors(self, rows: dict[str, Any], batch_size: list[int]) -> Any:
        tensors = {name: self._torch.as_tensor(value, dtype=self._torch.float32) for name, value in rows.items()}
        return self._tensordict(tensors, batch_size=batch_size)


class CopyFace:
    """No library: one array of records, and copying of the same bytes, which no library can avoid."""

    prioritized = False

    def __init__(self, library: Any, kind: str, capacity: int, fields: dict[str, Any]) -> None:
        self._record = np.dtype([(name, dtype, shape) for name, (shape, dtype) in fields.items()])
        self._records = np.zeros(capacity, self._record)
        self._next = 0
        # Drawn in advance, because drawing is no part of the copy, and so many that the rows do not stay in a cache.
        self._draws = cycle(np.random.default_rng(0).integers(0, capacity, (4096, BATCH)))

    def add(self, rows: dict[str, np.ndarray], priorities: np.ndarray | None = None) -> None:
        self._put(self._packed(rows, len(rows["obs"])))

    def sample(self, size: int) -> Any:
        return self._records[np.random.default_rng().integers(0, len(self._records), size)]

    def adding(self, rows: dict[str, Any], single: bool) -> Call:
        return partial(self._put, self._packed(rows, 1 if single else len(rows["obs"])))

    def sampling(self, size: int) -> Call:
        raw = self._records.view(np.dtype((np.void, self._record.itemsize)))
        out = np.empty(size, raw.dtype)
        return lambda: raw.take(next(self._draws), None, out, "clip")

    def updating(self, size: int, priorities: np.ndarray) -> Call:
        return self.sampling(size)

    def _packed(self, rows: dict[str, Any], size: int) -> np.ndarray:
        records = np.empty(size, self._record)
        for name in rows:
            records[name] = rows[name]
        return records.view(np.dtype((np.void, self._record.itemsize)))

    def _put(self, records: np.ndarray) -> None:
        if self._next + len(records) > len(self._records):
            self._next = 0
        self._records.view(records.dtype)[self._next : self._next + len(records)] = records
        self._next += len(records)


_FACES: dict[str, Any] = {"penstock.replay": NativeFace, "torchrl": TorchRLFace, "copy": CopyFace}


def face_of(library: str) -> Callable[[str, int, dict[str, Any]], Any]:
    """Return the constructor of a library's buffers: kind "uniform", "prioritized" or "shared", capacity and fields."""
    return partial(_FACES.get(library, CpprbFace), None if library == "copy" else importlib.import_module(library))
