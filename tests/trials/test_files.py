"""Changes of a folder of runs arrive elsewhere as they are there, and checkpoints as a whole or not at all."""

import os
import shutil

import pytest
import torch

from penstock.runs.checkpoint import DamagedCheckpointError, save_checkpoint, verify_checkpoint
from penstock.runs.files import replace_file
from penstock.trials import files
from penstock.trials.files import Changes, Copy, batches
from tests.kept_files import contents, make_damaged


@pytest.fixture
def there(tmp_path, monkeypatch):
    """A folder with a run, and what brings its changes to a copy: all, or a number of pieces."""
    monkeypatch.setattr(files, "PIECE_NBYTES", 100)
    (tmp_path / "there" / "run").mkdir(parents=True)
    changes, copy = Changes(tmp_path / "there"), Copy(tmp_path / "here")

    def bring(most=10**9):
        pieces = changes.pieces()
        taken = [piece for piece, _ in zip(pieces, range(most), strict=False)]
        for piece in taken:
            copy.take(piece)
        return [piece.path for piece in taken]

    return tmp_path / "there" / "run", tmp_path / "here" / "run", bring, copy


def saved(run, steps, value):
    save_checkpoint(run / "checkpoints" / str(steps), meta={"steps": steps}, weights={"w": torch.full((100,), value)})


def test_files_that_grow_are_sent_from_where_they_ended_and_others_as_a_whole(there):
    run, here, bring, _ = there
    (run / "metrics.jsonl").write_bytes(b"a" * 250)
    (run / "run.lock").write_text("of this process")
    replace_file(run / "status.json", b"one")
    assert bring() == ["run/metrics.jsonl"] * 3 + ["run/status.json"]
    with open(run / "metrics.jsonl", "ab") as file:
        file.write(b"b")
    for content in (b"two", b"six"):  # the third may have the first one's inode
        replace_file(run / "status.json", content)
    assert bring() == ["run/metrics.jsonl", "run/status.json"]
    assert (here / "metrics.jsonl").read_bytes() == b"a" * 250 + b"b"
    assert contents(here) == contents(run) - contents(run / "..") | contents(here)
    assert (here / "status.json").read_bytes() == b"six" and not (here / "run.lock").exists()
    assert bring() == []


def test_a_checkpoint_appears_when_it_is_whole_and_goes_when_it_is_gone(there):
    run, here, bring, copy = there
    (run / "status.json").write_text("after 100")
    saved(run, 100, 1.0)
    bring(most=4)
    assert not (here / "checkpoints" / "100").exists() and not (here / "status.json").exists()
    copy.close()  # the node is lost
    assert list((here / "checkpoints").iterdir()) == []
    fresh = Changes(run.parent)
    for batch in batches(fresh.pieces()):
        for piece in batch:
            copy.take(piece)
    assert contents(here) == contents(run)
    shutil.rmtree(run / "checkpoints" / "100")
    saved(run, 200, 2.0)
    for piece in fresh.pieces():
        copy.take(piece)
    assert [path.name for path in (here / "checkpoints").iterdir()] == ["200"]


def test_a_checkpoint_that_is_replaced_while_it_is_read_arrives_as_it_was(there):
    run, here, _, copy = there
    saved(run, 100, 1.0)
    changes = Changes(run.parent)
    pieces = changes.pieces()
    copy.take(next(pieces))
    before = contents(run)
    saved(run, 100, 2.0)
    for piece in pieces:
        copy.take(piece)
    assert contents(here) == before
    for piece in changes.pieces():
        copy.take(piece)
    assert contents(here) == contents(run) != before


def test_a_damaged_checkpoint_does_not_replace_an_intact_one(there):
    run, here, bring, copy = there
    saved(run, 100, 1.0)
    bring()
    make_damaged(run / "checkpoints" / "100")
    os.utime(run / "checkpoints" / "100")
    with pytest.raises(DamagedCheckpointError):
        bring()
    copy.close()
    verify_checkpoint(here / "checkpoints" / "100")
    assert [path.name for path in (here / "checkpoints").iterdir()] == ["100"]


def test_notes_of_the_user_beside_the_copy_stay(there):
    run, here, bring, _ = there
    saved(run, 100, 1.0)
    bring()
    (here / "checkpoints" / "100" / "notes.txt").write_text("mine")
    shutil.rmtree(run / "checkpoints" / "100")
    bring()
    assert (here / "checkpoints" / "100" / "notes.txt").read_text() == "mine"
