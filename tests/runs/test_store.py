"""The store keeps the last checkpoints and the best, and finds the newest that is intact."""

import os
import signal
from pathlib import Path

import pytest
import torch

from penstock.runs.checkpoint import (
    CheckpointError,
    DamagedCheckpointError,
    MissingCheckpointError,
    NewerCheckpointError,
    UnreadableCheckpointError,
    save_checkpoint,
    verify_checkpoint,
)
from penstock.runs.store import CheckpointStore
from tests.kept_files import contents, make_newer, make_unreadable
from tests.runs.limits import files_no_larger_than


def save(store: CheckpointStore, *steps: int) -> None:
    for number in steps:
        store.save(number, meta={"env": "e"}, weights={"w": torch.tensor([float(number)])}, state={"steps": number})


def save_best(store: CheckpointStore, steps: int) -> None:
    store.save_best(steps, meta={"env": "e"}, weights={"w": torch.tensor([float(steps)])})


def damage(path: Path) -> None:
    file = path / "weights.safetensors"
    file.write_bytes(file.read_bytes()[:-1])


def test_the_last_ones_are_kept_and_the_best_beside_them(tmp_path):
    store = CheckpointStore(tmp_path / "checkpoints", keep=2)
    save(store, 5, 10)
    save_best(store, 10)
    save(store, 100, 20, 1000)
    assert store.steps() == [100, 1000]
    assert store.best().meta["steps"] == 10
    assert store.latest().meta["steps"] == 1000
    assert store.latest().state == {"steps": 1000}


def test_a_better_one_replaces_the_best(tmp_path):
    store = CheckpointStore(tmp_path, keep=1)
    assert not store.has_best()
    save_best(store, 10)
    save_best(store, 20)
    assert store.has_best()
    assert store.best().meta["steps"] == 20
    assert store.best().state is None


def test_a_damaged_one_is_reported_and_the_one_before_used(tmp_path):
    store = CheckpointStore(tmp_path, keep=3)
    save(store, 10, 20, 30)
    damage(tmp_path / "30")
    told: list[str] = []
    assert store.latest(told.append).meta["steps"] == 20
    assert len(told) == 1
    assert "30 is damaged: weights.safetensors has" in told[0]


@pytest.mark.parametrize(
    ("name", "content"), [("meta.json", b'{"album": 1}'), ("meta.json", b"photo"), ("state.pt", b"")]
)
def test_a_folder_of_another_program_is_passed_over_and_left_alone(tmp_path, name, content):
    store = CheckpointStore(tmp_path, keep=1)
    save(store, 10, 20)
    (tmp_path / "30").mkdir()
    (tmp_path / "30" / name).write_bytes(content)
    told: list[str] = []
    assert store.latest(told.append).meta["steps"] == 20
    assert len(told) == 1 and told[0].endswith("; using the previous one") and "30" in told[0]
    with pytest.raises(CheckpointError, match="30 is not replaced"):
        save(store, 30)
    save(store, 40)
    assert (tmp_path / "30" / name).read_bytes() == content and store.steps() == [30, 40]


def test_a_resumed_run_saves_beside_and_over_damaged_ones(tmp_path):
    store = CheckpointStore(tmp_path, keep=1)
    save(store, 10)
    save(CheckpointStore(tmp_path, keep=2), 30)
    damage(tmp_path / "30")
    save(store, 20)
    assert store.latest().meta["steps"] == 20
    assert store.steps() == [20, 30]
    save(store, 30)
    assert store.latest().meta["steps"] == 30
    assert store.steps() == [30]


def test_without_an_intact_one_it_says_which_are_damaged(tmp_path):
    store = CheckpointStore(tmp_path, keep=3)
    with pytest.raises(CheckpointError, match="holds no checkpoint"):
        store.latest()
    save(store, 10, 20)
    damage(tmp_path / "10")
    damage(tmp_path / "20")
    with pytest.raises(CheckpointError, match="20, 10 are damaged"):
        store.latest()


def test_a_damaged_best_is_named(tmp_path):
    store = CheckpointStore(tmp_path)
    save_best(store, 10)
    damage(tmp_path / "best")
    with pytest.raises(DamagedCheckpointError, match="best is damaged"):
        store.best()


def test_a_full_disk_leaves_every_older_checkpoint(tmp_path):
    store = CheckpointStore(tmp_path, keep=1)
    save(store, 10)
    with files_no_larger_than(4096), pytest.raises(OSError):
        store.save(20, meta={}, weights={"w": torch.zeros(10_000)})
    assert store.latest().meta["steps"] == 10
    assert [p.name for p in tmp_path.iterdir()] == ["10"]


def test_checkpoints_saved_by_another_process_are_pruned_as_well(tmp_path):
    store = CheckpointStore(tmp_path, keep=2)
    for steps in (10, 20, 30):
        save_checkpoint(store.path_of(steps), meta={"steps": steps}, weights={})
    save_checkpoint(store.best_path, meta={"steps": 10}, weights={})
    store.prune(30)
    assert store.steps() == [20, 30]
    assert store.best().meta["steps"] == 10


def test_an_older_one_is_not_taken_in_place_of_one_that_cannot_be_used_now(tmp_path, monkeypatch):
    store = CheckpointStore(tmp_path)
    with pytest.raises(MissingCheckpointError):
        store.latest()
    save(store, 10, 20)
    with monkeypatch.context() as context:
        make_unreadable(tmp_path / "20", context)
        with pytest.raises(UnreadableCheckpointError, match=r"20 cannot be read: Input/output error .*permissions"):
            store.latest()
    make_newer(tmp_path / "20")
    with pytest.raises(NewerCheckpointError, match="as new as the one that wrote it"):
        store.latest()
    monkeypatch.setattr(Path, "iterdir", _denied)
    with pytest.raises(UnreadableCheckpointError, match="Permission denied"):
        store.steps()


def _denied(path: Path):
    raise PermissionError(13, "Permission denied", str(path))


def test_what_the_run_did_not_write_is_not_pruned(tmp_path):
    store = CheckpointStore(tmp_path, keep=1)
    store.save(10, meta={"run": "another"}, weights={})
    store.save(20, meta={"run": "mine"}, weights={})
    store.save(30, meta={"run": "mine"}, weights={})
    make_newer(tmp_path / "30")
    (tmp_path / "40").mkdir()
    (tmp_path / "40" / "notes.txt").write_text("of my fortieth attempt")
    (tmp_path / "notes.txt").write_text("mine")
    store.save(50, meta={"run": "mine"}, weights={})
    (tmp_path / "50" / "notes.txt").write_text("the best so far")
    (tmp_path / "60").symlink_to(tmp_path / "10")
    before = contents(tmp_path)
    store.save(70, meta={"run": "mine"}, weights={})
    assert store.steps() == [10, 30, 50, 60, 70], "20 was the run's own, and one is kept"
    assert not before - contents(tmp_path)
    with pytest.raises(NewerCheckpointError, match="30 is not replaced"):
        store.save(30, meta={"run": "mine"}, weights={})


def test_a_folder_beside_a_checkpoint_is_not_removed_for_bearing_the_name_of_an_old_one(tmp_path):
    (tmp_path / ".best.previous").mkdir()
    (tmp_path / ".best.previous" / "notes.txt").write_text("mine")
    with pytest.raises(CheckpointError, match=r"best is not replaced: .*\.best\.previous.* holds notes.txt"):
        save_best(CheckpointStore(tmp_path), 10)
    assert (tmp_path / ".best.previous" / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize("files_removed", range(3))
def test_a_kill_while_an_old_one_is_removed_leaves_none_that_looks_damaged(tmp_path, files_removed):
    store = CheckpointStore(tmp_path, keep=2)
    save(store, 10, 20)
    pid = os.fork()
    if pid == 0:
        unlink, removed = os.unlink, []

        def die_at_one(path, **kwargs):
            if len(removed) == files_removed and path in ("meta.json", "state.pt", "weights.safetensors"):
                os.kill(os.getpid(), signal.SIGKILL)
            unlink(path, **kwargs)
            removed.append(path)

        os.unlink = die_at_one
        save(store, 30)
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == signal.SIGKILL
    for steps in store.steps():
        assert verify_checkpoint(store.path_of(steps))["steps"] == steps
    assert 20 in store.steps() and 30 in store.steps()
    save(store, 40)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["30", "40"]


def test_what_a_dead_process_left_is_cleared_at_the_next_save(tmp_path):
    store = CheckpointStore(tmp_path, keep=1)
    (tmp_path / ".10.4194305-0a1b.aside").mkdir()  # above the highest process id that Linux gives
    save(store, 20)
    assert [p.name for p in tmp_path.iterdir()] == ["20"]
