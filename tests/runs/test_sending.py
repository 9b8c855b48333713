"""A run with a URL is sent there while it is written: complete, verified, newest first; and fetched from there."""

import json
import os
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from penstock.replay import Field, ReplayBuffer
from penstock.replay.manifest import Manifest, read_manifest
from penstock.runs import fetching, sending
from penstock.runs.checkpoint import CheckpointError, load_checkpoint, save_checkpoint, verify_checkpoint
from penstock.runs.fetching import cached_copy, copy_to_resume
from penstock.runs.lookup import resolve_checkpoint
from penstock.runs.reading import find_runs
from penstock.runs.remote import RemoteDirectory, RemoteError
from penstock.runs.run_directory import RunDirectory
from penstock.runs.sending import Sender
from penstock.runs.vacancy import RunDirectoryError, RunInUseError


@pytest.fixture(autouse=True)
def quick(monkeypatch, tmp_path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(sending, "SCAN_SECONDS", 0.01)
    monkeypatch.setattr(sending, "FILE_SECONDS", 0.0)
    monkeypatch.setattr(sending, "MOST_PATIENCE", 0.01)
    monkeypatch.setattr(fetching, "_PAUSES", ())


@pytest.fixture
def far(tmp_path) -> Path:
    return tmp_path / "far" / "run"


@pytest.fixture
def run(far) -> Iterator[RunDirectory]:
    run = RunDirectory.create(f"file://{far}", env_name="e", algorithm="ppo", config={"keep_checkpoints": 2})
    yield run
    run.release()


@pytest.fixture
def sender(run) -> Iterator[Sender]:
    sender = Sender(run)
    yield sender
    sender.close()


def save(run: RunDirectory, steps: int, store=None) -> None:
    """Save a checkpoint of the run, with contents of its steps."""
    weights = {"w": torch.full((100,), float(steps))}
    (store or run.checkpoints).save(steps, meta={"run": run.info["id"]}, weights=weights, state={"steps": steps})


def save_best(run: RunDirectory, steps: int) -> None:
    run.checkpoints.save_best(steps, meta={"run": run.info["id"]}, weights={"w": torch.full((100,), float(steps))})


def files_in(place: Path) -> dict[str, bytes]:
    return {path.relative_to(place).as_posix(): path.read_bytes() for path in place.rglob("*") if path.is_file()}


def sent_names(monkeypatch) -> list[str]:
    """Names of files, as they are sent from now on."""
    names: list[str] = []
    send = RemoteDirectory.send

    def noted(self, name, *args):
        names.append(name)
        send(self, name, *args)

    monkeypatch.setattr(RemoteDirectory, "send", noted)
    return names


def flush(sender: Sender) -> None:
    sender.start()
    assert sender.flush(60) == ()


def test_a_run_is_sent_whole_without_its_lock_and_hidden_files(run, sender, far):
    save(run, 10)
    save_best(run, 10)
    run.log("an event")
    (run.path / "videos").mkdir()
    (run.path / "videos" / "10.mp4").write_bytes(b"film")
    (run.path / ".hidden").write_text("no")
    (run.path / "link").symlink_to("/etc/passwd")
    flush(sender)
    here = files_in(run.path)
    assert files_in(far) == {name: here[name] for name in here.keys() - {"run.lock", ".hidden", "link"}}
    assert sender.status() == {"unsent_files": 0, "unsent_nbytes": 0, "upload_error": ""}


def test_old_checkpoints_go_there_as_they_go_here_and_others_stay(run, sender, far):
    for steps in (10, 20):
        save(run, steps)
        flush(sender)
    foreign = far / "checkpoints" / "5"
    shutil.copytree(far / "checkpoints" / "10", foreign)
    (far / "checkpoints" / "10" / "note.txt").write_text("mine")
    save(run, 30)
    save(run, 40)
    flush(sender)
    assert run.checkpoints.steps() == [30, 40]
    assert sorted(path.name for path in (far / "checkpoints").iterdir()) == ["10", "30", "40", "5"]
    assert (far / "checkpoints" / "10" / "note.txt").read_text() == "mine"
    verify_checkpoint(foreign)


def test_at_every_moment_there_is_a_whole_best_checkpoint_there(run, sender, far, monkeypatch):
    save_best(run, 1)
    flush(sender)
    seen = []

    def looking(change):
        def changed(self, *args):
            change(self, *args)
            bests = [path for path in (far / "checkpoints").iterdir() if (path / "meta.json").exists()]
            seen.append([int(load_checkpoint(path).weights["w"][0]) for path in bests])

        return changed

    for name in ("send", "remove"):
        monkeypatch.setattr(RemoteDirectory, name, looking(getattr(RemoteDirectory, name)))
    for steps in (2, 3):
        save_best(run, steps)
        flush(sender)
    assert all(seen) and seen[-1] == [3]
    assert load_checkpoint(resolve_checkpoint(f"file://{far}")).meta["steps"] == 3


def test_what_was_learned_last_is_sent_first(run, sender, monkeypatch):
    for steps in (1, 2):
        save(run, steps)
        time.sleep(0.02)  # files have times of a few milliseconds
    names = sent_names(monkeypatch)
    flush(sender)
    assert [name for name in names if name.endswith("/meta.json")] == [f"checkpoints/{n}/meta.json" for n in (2, 1)]


def test_a_place_that_fails_is_said_once_and_tried_until_everything_is_there(run, sender, far, monkeypatch):
    save(run, 10)
    is_down, send = [True], RemoteDirectory.send

    def failing(self, *args):
        if is_down:
            raise ConnectionError("the line is cut")
        send(self, *args)

    monkeypatch.setattr(RemoteDirectory, "send", failing)
    sender.start()
    unsent = sender.flush(0.3)
    assert "checkpoints/10" in unsent and "config.json" in unsent
    assert sender.status()["upload_error"] == "ConnectionError: the line is cut"
    assert sender.status()["unsent_files"] >= 4 and sender.status()["unsent_nbytes"] > 400
    assert len(sender.notes) == 1 and "the line is cut" in sender.notes[0]
    is_down.clear()
    flush(sender)
    assert sender.notes[1:] == [f"file://{far}: files can be sent again, and all are sent"]
    verify_checkpoint(far / "checkpoints" / "10")


def test_what_arrives_with_other_bytes_is_sent_again(run, sender, far, monkeypatch):
    save(run, 10)
    replace, count = os.replace, [0]

    def altering(source, target):
        if str(target).endswith("far/run/checkpoints/10/state.pt") and count[0] < 3:
            count[0] += 1
            data = bytearray(Path(source).read_bytes())
            data[-1] ^= 1
            Path(source).write_bytes(data)
        replace(source, target)

    monkeypatch.setattr("penstock.runs.remote.os.replace", altering)
    flush(sender)
    assert count == [3] and "another checksum" in sender.notes[0]
    verify_checkpoint(far / "checkpoints" / "10")


def test_a_damaged_checkpoint_is_not_sent_and_said_to_be(run, sender, far):
    save(run, 10)
    save(run, 20)
    weights = run.path / "checkpoints" / "20" / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"?")
    flush(sender)
    assert sender.notes == ["warning: checkpoints/20 is damaged, or changes all the time: it is not sent"]
    assert [path.name for path in far.glob("checkpoints/*/meta.json")] == ["meta.json"]
    verify_checkpoint(far / "checkpoints" / "10")


def test_nothing_is_sent_over_a_run_that_was_resumed_elsewhere(run, sender, far):
    flush(sender)
    config = json.loads((far / "config.json").read_text())
    config["run"]["resumed"] = [{"time": "later", "steps": 10}]
    (far / "config.json").write_text(json.dumps(config))
    save(run, 10)
    assert "checkpoints/10" in sender.flush(60)
    assert "resumed elsewhere" in sender.notes[0]
    assert not (far / "checkpoints").exists()
    with pytest.raises(RemoteError, match=r"penstock resume file:///"):
        Sender(run)


def test_a_run_that_was_removed_there_is_sent_anew(run, sender, far):
    save(run, 10)
    flush(sender)
    shutil.rmtree(far)
    save(run, 20)
    flush(sender)
    assert files_in(far).keys() == files_in(run.path).keys() - {"run.lock"}


def test_contents_of_replay_are_sent_as_they_are_saved(run, sender, far, monkeypatch):
    names = sent_names(monkeypatch)
    buffer = ReplayBuffer(1000, {"x": Field((), np.float64)})
    for value in (1.0, 2.0):
        buffer.add(x=np.full(10, value))
        buffer.save(run.path / "replay")
        flush(sender)
    assert files_in(far / "replay") == files_in(run.path / "replay")
    assert names[-1] == "replay/manifest.json" or "replay/manifest.json" in names
    loaded = ReplayBuffer(1000, {"x": Field((), np.float64)})
    loaded.load(far / "replay")
    assert len(loaded) == 20


def test_contents_of_replay_that_have_lost_files_are_said_once_and_sent_when_they_are_saved_again(run, sender, far):
    buffer = ReplayBuffer(3_000_000, {"x": Field((), np.float64)})  # several files of rows
    buffer.add(x=np.zeros(2_000_000))
    buffer.save(run.path / "replay")
    (store,) = read_manifest(run.path / "replay").stores
    first, *others = store.blocks
    (run.path / "replay" / first.file.name).unlink()
    for _ in range(2):
        flush(sender)
    (note,) = sender.notes
    assert note == (
        f"warning: replay is not sent: it lacks 1 of {len(others) + 1} files ({first.file.name}), with "
        f"{first.readable:,} of 2,000,000 rows. The next save writes them anew"
    )
    assert not (far / "replay").exists()
    buffer.save(run.path / "replay")
    flush(sender)
    assert files_in(far / "replay") == files_in(run.path / "replay")
    assert len(sender.notes) == 1


def test_contents_of_replay_there_are_whole_also_when_a_save_ends_while_the_one_before_is_looked_at(
    run, sender, far, monkeypatch
):
    buffer, loaded = (ReplayBuffer(1000, {"x": Field((), np.float64)}) for _ in range(2))
    lengths, pending = [], []
    file_names, send = Manifest.file_names, RemoteDirectory.send

    def save_ten_more():
        buffer.add(x=np.zeros(10))
        buffer.save(run.path / "replay")

    def names_then_a_save(self):
        names = file_names(self)
        if pending and threading.current_thread() is sender._thread:
            pending.pop()()
        return names

    def send_and_load(self, name, *args):
        send(self, name, *args)
        if name == "replay/manifest.json":
            loaded.load(far / "replay")
            lengths.append(len(loaded))

    monkeypatch.setattr(Manifest, "file_names", names_then_a_save)
    monkeypatch.setattr(RemoteDirectory, "send", send_and_load)
    save_ten_more()
    flush(sender)
    pending.append(save_ten_more)
    save_ten_more()
    flush(sender)
    assert sender.notes == [] and lengths == [10, 30]


def test_a_place_that_holds_something_is_refused_and_left_as_it_is(run, far, tmp_path):
    before = files_in(far)
    with pytest.raises(RemoteError, match="holds a run, and nothing is overwritten"):
        RunDirectory.create(f"file://{far}", env_name="e", algorithm="ppo", config={})
    (tmp_path / "far" / "other").mkdir()
    (tmp_path / "far" / "other" / "thesis.tex").write_text("x")
    with pytest.raises(RemoteError, match=r"is not empty \(thesis.tex\)"):
        RunDirectory.create(f"file://{tmp_path}/far/other", env_name="e", algorithm="ppo", config={})
    assert files_in(far) == before
    assert [path.name for path in Path("runs").iterdir()] == ["run"]


def test_a_slash_at_the_end_of_a_url_names_the_run_as_auto_does(tmp_path):
    run = RunDirectory.create("memory://all/", env_name="CartPole-v1", algorithm="ppo", config={})
    assert run.config["run_dir"].startswith("memory://all/CartPole-v1-ppo-20")
    assert run.path.name == run.config["run_dir"].rpartition("/")[2]
    run.release()


def test_a_place_that_cannot_be_used_says_why_before_anything_is_made(tmp_path):
    for url, words in {
        "nonsense://x/y": "fsspec knows.*nonsense",
        "gs://bucket/y": "gcsfs",
        "file:///proc/nothing/run": "cannot be written",
    }.items():
        with pytest.raises(RemoteError, match=words):
            RunDirectory.create(url, env_name="e", algorithm="ppo", config={})
    assert not Path("runs").exists()


def test_a_copy_in_the_cache_is_made_once_and_verified(run, sender, far, monkeypatch):
    save(run, 10)
    save(run, 20)
    flush(sender)
    first = cached_copy(f"file://{far}")
    assert load_checkpoint(resolve_checkpoint(f"file://{far}")).meta["steps"] == 20
    (first / "mine.txt").write_text("kept")
    assert cached_copy(f"file://{far}") == first
    assert files_in(first)["mine.txt"] == b"kept"
    at_10 = resolve_checkpoint(f"file://{far}/checkpoints/10")
    assert at_10.parts[-2:] == ("checkpoints", "10") and load_checkpoint(at_10).meta["steps"] == 10
    assert load_checkpoint(resolve_checkpoint(f"file://{far}", "10")).meta["steps"] == 10
    with pytest.raises(CheckpointError, match="asked for: 30"):
        resolve_checkpoint(f"file://{far}", "30")
    weights = far / "checkpoints" / "20" / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"?")
    monkeypatch.setenv("XDG_CACHE_HOME", str(run.path.parent / "other"))
    with pytest.raises(CheckpointError, match=f"file://{far}/checkpoints/20 is damaged: .*altered"):
        cached_copy(f"file://{far}/checkpoints/20")
    assert not list((run.path.parent / "other").rglob("20"))


@pytest.mark.parametrize(("prefer", "damaged"), [("best", ["best", "20"]), ("latest", ["20"])])
def test_damaged_checkpoints_of_a_remote_run_are_passed_over_and_named_by_the_url(
    run, sender, far, monkeypatch, prefer, damaged
):
    for steps in (10, 20):
        save(run, steps)
    save_best(run, 5)
    flush(sender)
    for weights in far.glob("checkpoints/[2b]*/weights.safetensors"):
        os.truncate(weights, 40)
    said: list[str] = []
    assert load_checkpoint(resolve_checkpoint(f"file://{far}", prefer, said.append)).meta["steps"] == 10
    assert [line.partition(" is damaged")[0] for line in said] == [
        f"the checkpoint file://{far}/checkpoints/{name}" for name in damaged
    ]
    os.truncate(far / "checkpoints" / "10" / "weights.safetensors", 40)
    monkeypatch.setenv("XDG_CACHE_HOME", str(run.path.parent / "other"))
    with pytest.raises(CheckpointError, match=f"file://{far}/checkpoints/10 is damaged"):
        resolve_checkpoint(f"file://{far}", prefer)


def test_names_that_lead_out_of_the_directory_are_not_fetched(far):
    from fsspec.implementations.memory import MemoryFileSystem

    fs = MemoryFileSystem()
    fs.store.clear()
    for name in ("/evil/config.json", "/evil/../../etc/x", "/evil//double"):
        fs.pipe_file(name, b"{}")
        fs.store[name] = fs.store.get(name) or next(iter(fs.store.values()))
    assert RemoteDirectory("memory://evil").files().keys() == {"config.json"}
    fs.store.clear()


def test_the_newest_intact_checkpoint_the_best_and_the_records_are_fetched_to_go_on(run, sender, far, tmp_path):
    for steps in (10, 20):
        save(run, steps)
    save_best(run, 10)
    run.log("an event")
    flush(sender)
    weights = far / "checkpoints" / "20" / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"?")
    sender.close()
    shutil.rmtree(run.path)
    said: list[str] = []
    copy = copy_to_resume(f"file://{far}", said.append)
    assert copy.parent == Path("runs")
    assert files_in(copy).keys() >= {"config.json", "log.txt", "checkpoints/best/meta.json", "checkpoints/10/state.pt"}
    assert RunDirectory.open(copy).checkpoints.steps() == [10]
    assert "using the previous one" in said[0] and said[-1].startswith("file://")


def test_a_local_copy_with_all_of_the_history_goes_on_and_another_is_left_alone(run, sender, far):
    save(run, 10)
    flush(sender)
    said: list[str] = []
    assert copy_to_resume(f"file://{far}", said.append) == Path("runs/run")
    os.truncate(run.path / "checkpoints" / "10" / "weights.safetensors", 40)
    assert copy_to_resume(f"file://{far}", said.append) == Path("runs/run-2")
    assert RunDirectory.open("runs/run-2").checkpoints.latest_steps() == 10
    config = json.loads((far / "config.json").read_text())
    config["run"]["resumed"] = [{"time": "later", "steps": 10}]
    (far / "config.json").write_text(json.dumps(config))
    before = files_in(run.path)
    assert copy_to_resume(f"file://{far}", said.append) == Path("runs/run-3")
    assert files_in(run.path) == before


def test_a_run_that_trains_elsewhere_is_not_resumed(run, sender, far):
    flush(sender)
    process = {"pid": 7, "host": "far", "start": 1, "boot": "other"}
    status = {"state": "running", "time": time.time(), "process": process}
    (far / "status.json").write_text(json.dumps(status))
    sender.close()
    shutil.rmtree(run.path)
    with pytest.raises(RunInUseError, match="process 7 on far"):
        copy_to_resume(f"file://{far}", print)
    for age in (300, -7200):  # the other machine's clock may be ahead
        (far / "status.json").write_text(json.dumps(status | {"time": time.time() - age}))
        copy_to_resume(f"file://{far}", print)
    with pytest.raises(RunDirectoryError, match="is not a run"):
        copy_to_resume(f"file://{far}/nothing", print)


def test_records_of_remote_runs_are_found_like_those_of_local_ones(run, sender, far):
    save(run, 10)
    (run.path / "metrics.jsonl").write_text('{"steps": 5, "seconds": 1, "steps_per_second": 7.0}\n')
    flush(sender)
    [found] = find_runs([f"file://{far.parent}"])
    assert found.name == f"file://{far}" and found.summary["steps_per_second"] == 7.0
    assert not (found.directory.path / "checkpoints").exists()
    with pytest.raises(RemoteError, match="holds no runs"):
        find_runs([f"file://{far.parent.parent}/nothing"])


def test_what_a_feature_saves_apart_is_replaced_and_fetched_like_a_checkpoint(run, sender, far):
    for value in (1.0, 2.0):
        save_checkpoint(run.path / "redistributor", meta={"run": run.info["id"]}, weights={"w": torch.tensor(value)})
        flush(sender)
    assert [path.name for path in far.iterdir() if "redistributor" in path.name] != ["redistributor"]
    save(run, 10)
    flush(sender)
    sender.close()
    shutil.rmtree(run.path)
    copy = copy_to_resume(f"file://{far}", print)
    assert float(load_checkpoint(copy / "redistributor").weights["w"]) == 2.0
    assert [path.name for path in copy.iterdir() if "redistributor" in path.name] == ["redistributor"]


def test_leftovers_of_a_killed_process_are_removed_when_the_run_goes_on(run, sender, far):
    save(run, 10)
    save_best(run, 1)
    flush(sender)
    sender.close()
    best = far / "checkpoints" / "best"
    shutil.copytree(best, best.with_name("best.0123abcd"))  # killed before the older one was removed
    (far / "checkpoints" / "20").mkdir()
    (far / "checkpoints" / "20" / "weights.safetensors").write_bytes(b"half")
    save_best(run, 2)
    again = Sender(run)
    flush(again)
    again.close()
    found = {path.name: files_in(path).keys() for path in (far / "checkpoints").iterdir()}
    assert "20" not in found and len(found) == 2
    assert load_checkpoint(resolve_checkpoint(f"file://{far}")).meta["steps"] == 2
