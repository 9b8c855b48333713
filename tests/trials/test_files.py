"""Changes of a folder of runs arrive elsewhere as they are there, and checkpoints as a whole or not at all."""

import os
import shutil
from types import SimpleNamespace

import pytest
import torch

from penstock.runs.checkpoint import DamagedCheckpointError, save_checkpoint, verify_checkpoint
from penstock.runs.files import replace_file
from penstock.runs.lock import RunLock
from penstock.runs.vacancy import RunInUseError
from penstock.trials import files
from penstock.trials.files import Change, Changes, batches, write
from tests.kept_files import contents, make_damaged


@pytest.fixture
def there(tmp_path):
    """A folder with a run, and what brings its changes to a copy: all, or a number of them."""
    (tmp_path / "there" / "run").mkdir(parents=True)
    changes = Changes(tmp_path / "there")

    def bring(most=10**9):
        found = [change for change, _ in zip(changes.read(), range(most), strict=False)]
        for change in found:
            write(tmp_path / "here", change)
        return [change.path for change in found]

    return tmp_path / "there" / "run", tmp_path / "here" / "run", bring


def saved(run, steps, value):
    save_checkpoint(run / "checkpoints" / str(steps), meta={"steps": steps}, weights={"w": torch.full((100,), value)})


def test_files_that_grow_are_sent_from_where_they_ended_and_others_as_a_whole(there):
    run, here, bring = there
    (run / "metrics.jsonl").write_bytes(b"a" * 250)
    (run / "run.lock").write_text("of this process")
    replace_file(run / "status.json", b"one")
    assert bring() == ["run/metrics.jsonl", "run/status.json"]
    with open(run / "metrics.jsonl", "ab") as file:
        file.write(b"b")
    for content in (b"two", b"six"):  # the third may have the first one's inode
        replace_file(run / "status.json", content)
    assert bring() == ["run/metrics.jsonl", "run/status.json"]
    assert (here / "metrics.jsonl").read_bytes() == b"a" * 250 + b"b"
    assert (here / "status.json").read_bytes() == b"six" and not (here / "run.lock").exists()
    assert bring() == []


def test_only_what_is_new_of_a_file_is_sent(there):
    run, _, _ = there
    changes = Changes(run)
    (run / "log.txt").write_bytes(b"one\n")
    assert [change.content for change in changes.read()] == [b"one\n"]
    with open(run / "log.txt", "ab") as file:
        file.write(b"two\n")
    assert list(changes.read()) == [("log.txt", b"two\n", 4)]


def test_the_state_of_a_run_arrives_after_the_checkpoint_that_it_is_of(there):
    run, here, bring = there
    (run / "status.json").write_text("of 100")
    saved(run, 100, 1.0)
    assert bring(most=1) == ["run/checkpoints/100"] and not (here / "status.json").exists()


def test_a_checkpoint_goes_when_it_is_gone_and_stays_with_a_note_of_the_user(there):
    run, here, bring = there
    for steps in (100, 200):
        saved(run, steps, 1.0)
    bring()
    assert contents(here) == contents(run)
    (here / "checkpoints" / "200" / "notes.txt").write_text("mine")
    shutil.rmtree(run / "checkpoints")
    saved(run, 300, 2.0)
    bring()
    assert {path.name for path in (here / "checkpoints").iterdir()} == {"200", "300"}


def test_a_checkpoint_that_is_replaced_while_it_is_read_is_never_mixed(there, monkeypatch):
    run, here, bring = there
    saved(run, 100, 1.0)
    read = type(run).read_bytes

    def replaced(path):
        data = read(path)
        if path.name == "meta.json" and path.parent == run / "checkpoints" / "100":
            saved(run, 100, 2.0)
        return data

    with monkeypatch.context() as patched:
        patched.setattr(type(run), "read_bytes", replaced)
        assert bring() == []
    assert bring() == ["run/checkpoints/100"] and contents(here) == contents(run)


def test_a_damaged_checkpoint_does_not_replace_an_intact_one(there):
    run, here, bring = there
    saved(run, 100, 1.0)
    bring()
    make_damaged(run / "checkpoints" / "100")
    os.utime(run / "checkpoints" / "100")
    with pytest.raises(DamagedCheckpointError):
        bring()
    verify_checkpoint(here / "checkpoints" / "100")
    assert [path.name for path in (here / "checkpoints").iterdir()] == ["100"]


def test_much_is_sent_in_parts(monkeypatch):
    monkeypatch.setattr(files, "BATCH_NBYTES", 10)
    parts = {"x": b"..", "y": b".."}
    changes = [Change("a", b"." * 6), Change("b", parts), Change("c", None), Change("d", b"." * 30)]
    assert [[change.path for change in batch] for batch in batches(changes)] == [["a", "b"], ["c", "d"]]


def test_the_refusal_of_a_copy_that_another_training_owns_says_what_to_do(tmp_path):
    pytest.importorskip("ray")
    from penstock.trials.cluster import _Remote

    (tmp_path / "run").mkdir()
    remote = object.__new__(_Remote)
    remote._trials, remote._lock = SimpleNamespace(folder=tmp_path), None
    remote._command = SimpleNamespace(run=tmp_path / "run")
    lock = RunLock.take(tmp_path / "run")
    try:
        with pytest.raises(RunInUseError, match=r"is in use: .*Wait until it ends, or stop it"):
            remote._write([Change("run/metrics.jsonl", b"{}")])
    finally:
        lock.release()
