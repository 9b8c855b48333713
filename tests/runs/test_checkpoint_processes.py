"""Checkpoints while processes die and others read."""

import os
import random
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from penstock.runs.checkpoint import load_checkpoint, save_checkpoint
from penstock.runs.files import remove_leftovers


@pytest.fixture(params=["exchange", "two renames"], autouse=True)
def way_of_replacing(request, monkeypatch):
    if request.param == "two renames":
        monkeypatch.setattr("penstock.runs.files._exchange", lambda a, b: False)


@contextmanager
def saving_for_ever(path: Path) -> Iterator[int]:
    """A process that saves checkpoint after checkpoint, number n full of n; it has saved one when the block begins."""
    saved, tell = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            number = 0
            while True:
                number += 1
                weights = {"w": torch.full((20_000,), float(number))}
                save_checkpoint(path, meta={"steps": number}, weights=weights, state={"steps": number})
                os.write(tell, b".") if number == 1 else None
        finally:
            os._exit(1)
    os.close(tell)
    try:
        assert os.read(saved, 1) == b"."
        yield child
    finally:
        os.close(saved)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def load_whole(path: Path) -> int:
    """Number of the checkpoint, after seeing that every part of it is of that number."""
    loaded = load_checkpoint(path)
    number = loaded.meta["steps"]
    assert loaded.state == {"steps": number}
    assert torch.equal(loaded.weights["w"], torch.full((20_000,), float(number)))
    return number


@pytest.mark.long
@pytest.mark.timeout(60)
def test_a_process_killed_while_saving_always_leaves_a_whole_checkpoint(tmp_path):
    moments = random.Random(1)
    for _ in range(25):
        with saving_for_ever(tmp_path / "c") as child:
            time.sleep(moments.uniform(0.0, 0.03))
            os.kill(child, signal.SIGKILL)
        load_whole(tmp_path / "c")
    save_checkpoint(tmp_path / "c", meta={}, weights={})
    assert [p.name for p in tmp_path.iterdir()] == ["c"]


@pytest.mark.timeout(60)
def test_a_reader_never_sees_half_a_replacement(tmp_path):
    seen = set()
    with saving_for_ever(tmp_path / "c"):
        while len(seen) < 20:
            seen.add(load_whole(tmp_path / "c"))


def test_what_a_living_process_writes_aside_is_left_to_it(tmp_path):
    own = tmp_path / f".c.{os.getpid()}-0a1b.aside"
    own.mkdir()
    remove_leftovers(tmp_path)
    assert own.is_dir()
