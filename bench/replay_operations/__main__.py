"""Operations of one replay library: JSON lines are read from stdin and answered on stdout.

This directory imports nothing from elsewhere: the interpreter that has the library need not have Penstock.

    python replay_operations cpprb | penstock.replay.cpprb | penstock.replay | torchrl | copy

Nothing is timed before its results were checked.
"""

from __future__ import annotations

import contextlib
import gc
import importlib.metadata
import json
import multiprocessing
import os
import platform
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable
from itertools import cycle, islice
from typing import Any

import numpy as np
from checks import check_sampling
from libraries import BATCH, face_of
from rows import CheckFailed, Frames, Transitions, torn, whole_numbers

CHUNK, WRITER_CHUNK = 100, 50

_POOL = 64
"""Inputs prepared for an operation, used in turn."""
_WORKLOADS: dict[str, Any] = {"transitions": Transitions, "frames": Frames}

Call = Callable[[], Any]


class Bench:
    """The commands: each public method is one, with the command's keyword arguments."""

    def __init__(self, library: str) -> None:
        self._name = library
        self._make_face = face_of(library)
        self._random = np.random.default_rng(0)
        self._face: Any = None
        self._calls: dict[str, list[Call]] = {}

    def hello(self) -> dict[str, str]:
        """Return versions of Python, NumPy and the library."""
        versions = {"python": platform.python_version(), "numpy": np.__version__}
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            package = self._name.partition(".")[0]
            versions[package] = importlib.metadata.version(package)
        return versions

    def open(self, kind: str, workload: str, capacity: int) -> None:
        """Make a buffer, fill it to the last row, and check its samples."""
        self._workload = _WORKLOADS[workload]
        if self._name != "copy":
            check_sampling(lambda rows: self._make_face(kind, rows, self._workload.fields), self._workload)
        self._face, self._capacity = self._make_face(kind, capacity, self._workload.fields), capacity
        step = max(1, 2**24 // sum(np.dtype(d).itemsize * int(np.prod(s)) for s, d in self._workload.fields.values()))
        for begin in range(0, capacity, step):
            numbers = np.arange(begin, min(begin + step, capacity))
            self._face.add(self._workload.make(numbers), self._priorities(len(numbers)))
        numbers = self.verify()
        if not (numbers.min() < numbers.max() < min(capacity, self._workload.modulus)):
            raise CheckFailed(f"rows {numbers.min()} to {numbers.max()} sampled of {capacity}")

    def verify(self) -> Any:
        """Check every value of some batches; return the numbers of their rows."""
        return np.concatenate([whole_numbers(self._workload, self._face.sample(BATCH)) for _ in range(20)])

    def warm(self, operation: str, seconds: float) -> int:
        """Warm an operation up; return the number of repetitions that take about `seconds`."""
        calls = self._calls[operation] = self._operations(operation)
        count = 1
        while (took := timed(calls, count)) < seconds / 4:
            count *= 2
        return max(1, round(count * seconds / took))

    def time(self, operation: str, count: int) -> float:
        """Return the seconds per call."""
        return timed(self._calls[operation], count) / count

    def compete(self, writers: int, seconds: float, verify: bool, patience: float = 20.0) -> dict[str, float]:
        """Return the rows per second that writer processes add, and the batches per second that this one samples.

        With `verify`, which takes time, also return the share of sampled rows that mix the values of several. Writers
        may take `patience` seconds to begin, and to end.
        """
        chunks = [self._workload.make(self._random.integers(0, self._capacity, WRITER_CHUNK)) for _ in range(_POOL)]
        priorities = [self._priorities(BATCH) for _ in range(_POOL)]
        with Writers(writers, self._face, chunks, patience) as others:
            batches, mixed, rows, began = 0, 0, others.rows, time.perf_counter()
            while (now := time.perf_counter()) < began + seconds:
                batch = self._face.sample(BATCH)
                if verify:
                    mixed += int(torn(self._workload, batch).sum())
                self._face.update(batch["indexes"], priorities[batches % _POOL])
                batches += 1
            rates = {"rows": (others.rows - rows) / (now - began), "batches": batches / (now - began)}
            return {**rates, "torn": mixed / (BATCH * batches)} if verify else rates

    def close(self) -> None:
        """Drop the buffer."""
        self._face, self._calls = None, {}
        gc.collect()

    def _operations(self, operation: str) -> list[Call]:
        if operation == "sample":
            return [self._face.sampling(BATCH)]
        if operation == "sample_update":
            return [self._face.updating(BATCH, self._priorities(BATCH)) for _ in range(_POOL)]
        chunks = [self._workload.make(np.arange(i * CHUNK, (i + 1) * CHUNK)) for i in range(_POOL)]
        if operation == "add_1":
            return [self._face.adding({name: _plain(v[0]) for name, v in chunk.items()}, True) for chunk in chunks]
        return [self._face.adding(chunk, False) for chunk in chunks]

    def _priorities(self, size: int) -> Any:
        return self._random.uniform(0.1, 2.0, size).astype(np.float32) if self._face.prioritized else None


class Writers:
    """Processes that add rows, from entry to exit."""

    def __init__(self, number: int, face: Any, chunks: list[dict[str, np.ndarray]], patience: float) -> None:
        context = multiprocessing.get_context("fork")
        self._counts, self._running = context.RawArray("q", number), context.RawValue("b", 1)
        self._begun = context.Barrier(number + 1)
        self._face, self._chunks, self._patience = face, chunks, patience
        self._processes = [context.Process(target=self._write, args=(i,), daemon=True) for i in range(number)]

    @property
    def rows(self) -> int:
        return sum(self._counts)

    def __enter__(self) -> Writers:
        for process in self._processes:
            process.start()
        try:
            self._begun.wait(self._patience)
        except threading.BrokenBarrierError:
            self._end()
            raise CheckFailed(f"not all writers began within {self._patience:g} s") from None
        return self

    def __exit__(self, *_: object) -> None:
        if stuck := self._end():
            raise CheckFailed(f"{stuck} writers hung in add for {self._patience:g} s after the learner had stopped")

    def _end(self) -> int:
        """Stop all, wait, and kill those that do not end; return their number."""
        self._running.value = 0
        deadline = time.monotonic() + self._patience
        for process in self._processes:
            process.join(max(0.0, deadline - time.monotonic()))
        stuck = [process for process in self._processes if process.is_alive()]
        for process in stuck:
            process.kill()
            process.join()
        return len(stuck)

    def _write(self, number: int) -> None:
        parent = os.getppid()
        for turn, chunk in enumerate(cycle(self._chunks)):
            self._face.add(chunk)
            self._counts[number] += WRITER_CHUNK
            if turn == 0:
                self._begun.wait(self._patience)
            if not self._running.value or os.getppid() != parent:
                return


def timed(calls: Iterable[Call], count: int) -> float:
    """Return the seconds of `count` calls, in turn."""
    turns = islice(cycle(calls), count)
    began = time.perf_counter()
    for call in turns:
        call()
    return time.perf_counter() - began


def _plain(value: Any) -> Any:
    return value.item() if np.ndim(value) == 0 else value


def main() -> None:
    """Answer every line until there are no more."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # output of a library must not be read as an answer
    gc.disable()
    bench: Bench | None = None
    for line in sys.stdin:
        try:
            bench = bench or Bench(sys.argv[1])
            command = json.loads(line)
            answer = getattr(bench, command.pop("do"))(**command)
            said = {"answer": None if isinstance(answer, np.ndarray) else answer}
        except CheckFailed as error:
            said = {"error": f"check failed: {error}"}
        except Exception as error:
            traceback.print_exc()
            said = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(said), file=answers)


if __name__ == "__main__":
    main()
