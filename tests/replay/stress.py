"""Rows that prove themselves whole, and the processes that write and sample them as fast as they can."""

import os
from collections.abc import Iterator
from typing import Any

import numpy as np

from penstock.replay import Field, ReplayBuffer
from tests.starting import Start

NUMBERS, VECTOR, PICTURE = 4096, 61, (18, 21)

FIELDS = {
    "number": Field((), "int64"),
    "vector": Field((VECTOR,), "float32"),
    "pixels": Field((257,), "uint8"),
    "third": Field((3,), "float64"),
}

PICTURES = {
    "number": Field((), "int64"),
    "obs": Field(PICTURE, "uint8", shared=True),
    "next_obs": Field(PICTURE, "uint8", shared=True, next_of="obs"),
}


def _all_rows() -> dict[str, np.ndarray]:
    column = np.arange(NUMBERS)[:, None]
    return {
        "number": column[:, 0],
        "vector": ((column + 7 * np.arange(VECTOR)) % 8191).astype(np.float32),
        "pixels": ((column * 3 + np.arange(257) * (column % 11)) % 251).astype(np.uint8),
        "third": column / np.array([3.0, 7.0, 11.0]),
    }


def _all_pictures() -> dict[str, np.ndarray]:
    number, pixel = np.arange(NUMBERS + 1)[:, None, None], np.arange(PICTURE[0] * PICTURE[1]).reshape(PICTURE)
    picture = ((number * 5 + pixel * (number % 13 + 1)) % 251).astype(np.uint8)
    return {"number": number[:-1, 0, 0], "obs": picture[:-1], "next_obs": picture[1:]}


ROWS, PICTURE_ROWS = _all_rows(), _all_pictures()


def content(buffer: ReplayBuffer, numbers: Any) -> dict[str, np.ndarray]:
    """The rows with these numbers: every byte of a row follows from its number."""
    table = PICTURE_ROWS if "obs" in buffer.fields else ROWS
    return {name: values[np.asarray(numbers) % NUMBERS] for name, values in table.items()}


def assert_whole(batch: dict[str, np.ndarray]) -> None:
    """Every row of the batch has the values of its number."""
    for name, values in (PICTURE_ROWS if "obs" in batch else ROWS).items():
        assert (batch[name] == values[batch["number"]]).all(), f"torn rows: {name} is not that of the row's number"


def while_wanted() -> Iterator[None]:
    """For ever, but not longer than the process that started this one."""
    starter = os.getppid()
    while os.getppid() == starter:
        yield


def write_for_ever(buffer: ReplayBuffer, first: int, chunk: int) -> None:
    """Write rows of successive numbers, `chunk` of them in each call."""
    chunks = [content(buffer, first + start + np.arange(chunk)) for start in range(0, 20 * chunk, chunk)]
    for _ in while_wanted():
        for steps in chunks:
            buffer.add(**steps)


def sample_for_ever(buffer: ReplayBuffer, batch_size: int) -> None:
    """Sample, check and, if it has any, update priorities."""
    for _ in while_wanted():
        batch = buffer.sample(batch_size, timeout=None)
        assert_whole(batch)
        if "weights" in batch:
            buffer.update_priorities(batch["ids"], batch["number"] % 5 + 0.5)


def fill(buffer: ReplayBuffer) -> None:
    """Overwrite every row, those that dead writers left behind too."""
    for start in range(0, 2 * buffer.capacity, 50):
        buffer.add(**content(buffer, start + np.arange(50)))


def sample_under_writers(fork: Start, buffer: ReplayBuffer, writers: int, samples: int, batch_size: int = 256) -> None:
    """Sample rows while several processes overwrite them all the time; every one must be whole."""
    processes = [fork(write_for_ever, buffer, 1000 * number, 20) for number in range(writers)]
    out = None
    for _ in range(-(-samples // batch_size)):
        out = buffer.sample(batch_size, out=out, timeout=None)
        assert_whole(out)
    for process in processes:
        process.kill()
        process.join()
