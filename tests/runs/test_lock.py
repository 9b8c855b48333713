"""A run directory has one owner: the kernel says which process, and ends the ownership with it."""

import errno
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import penstock
from penstock.runs.lock import LOCK, HeldError, RunLock, alone_in, holding_of, holds
from penstock.runs.process import this_process
from penstock.runs.run_directory import RunDirectory
from penstock.runs.state import state_of
from penstock.runs.vacancy import RunDirectoryError, RunInUseError, set_aside_run
from tests.kept_files import contents

TINY = {"backend": "serial", "num_workers": 1, "num_envs_per_worker": 2, "hidden_sizes": (8,), "eval_interval": 0}


def create(path, **config) -> RunDirectory:
    return RunDirectory.create(path, env_name="e", algorithm="ppo", config=config)


def test_a_folder_of_runs_that_was_made_and_stays_empty_is_removed(tmp_path):
    folder = tmp_path / "many" / "runs"
    with pytest.raises(KeyError), alone_in(folder):
        with pytest.raises(BlockingIOError), alone_in(folder):
            pass
        assert folder.is_dir()
        raise KeyError
    assert not (tmp_path / "many").exists()
    folder.parent.mkdir()
    with alone_in(folder):
        (folder / "run").touch()
    assert contents(folder)
    (folder / "run").unlink()
    with alone_in(folder):
        pass
    assert folder.is_dir()


def at_once(count: int, act) -> list[str]:
    """Return the outputs of processes that act at the same moment; each ends after all outputs."""
    (ready, readied), (say, said), (hold, go_on) = ((os.pipe()) for _ in range(3))
    pids = []
    for _ in range(count):
        pid = os.fork()
        if pid == 0:
            os.close(readied), os.close(go_on)
            os.read(ready, 1)  # ends for all of them when the other end is closed
            try:
                kept = act()
                os.write(said, b"made\n")
            except RunDirectoryError as error:
                kept = None
                os.write(said, f"{type(error).__name__}\n".encode())
            os.close(said)
            os.read(hold, 1)
            del kept
            os._exit(0)
        pids.append(pid)
    os.close(readied), os.close(said)
    with open(say) as answers:
        found = answers.read().split()
    os.close(go_on)
    for pid in pids:
        os.waitpid(pid, 0)
    os.close(ready), os.close(hold)
    return sorted(found)


@pytest.mark.parametrize("is_there", [False, True])
def test_of_trainings_that_begin_at_once_in_one_directory_one_begins(tmp_path, monkeypatch, is_there):
    monkeypatch.setattr("penstock.runs.machine.commit_of", lambda *_: None)
    for number in range(6):
        place = tmp_path / str(number)
        if is_there:
            place.mkdir()
        answers = at_once(3, lambda place=place: create(place))
        assert answers.count("made") == 1 and len(answers) == 3, answers
        assert json.loads((place / "config.json").read_text())["algorithm"] == "ppo"


def test_automatic_names_of_trainings_that_begin_at_once_differ(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert at_once(4, lambda: create("auto")) == ["made"] * 4
    assert len(list(Path("runs").glob("*/config.json"))) == 4


@pytest.mark.long
def test_a_run_that_is_trained_has_no_second_training(tmp_path):
    path = tmp_path / "run"
    with penstock.PPO("CartPole-v1", **TINY, total_steps=4096, run_dir=path, checkpoint_interval=256) as trainer:
        trainer.train(512, quiet=True)
        before = contents(path)
        owner = holding_of(path).owner
        assert owner.process == this_process() and holds(os.getpid(), path)
        said = rf"in use: process {os.getpid()} \(this one\) on {owner.process['host']} has trained there since 20\d\d-"
        with pytest.raises(RunInUseError, match=said):
            penstock.Trainer.resume(path)
        with pytest.raises(RunInUseError):
            set_aside_run(path)
        resumed = subprocess.run([sys.executable, "-m", "penstock.cli", "resume", path], capture_output=True, text=True)
        assert resumed.returncode == 2 and f"process {os.getpid()} on" in resumed.stderr, resumed.stderr
        assert contents(path) == before
    assert holding_of(path).is_held is False and (path / LOCK).read_text() == ""
    with penstock.Trainer.resume(path) as again:
        assert again.train(256, quiet=True).steps >= 768


def test_a_training_that_could_not_be_opened_owns_nothing(tmp_path):
    path = tmp_path / "run"
    create(path, env="CartPole-v1").release()
    (path / "checkpoints").mkdir()
    with pytest.raises(penstock.runs.MissingCheckpointError):
        penstock.Trainer.resume(path)
    with pytest.raises(RunDirectoryError, match="holds a run"):
        create(path)
    RunLock.take(path).release()


OWNER_AND_CHILD = r"""
import os, sys, time
from pathlib import Path
from penstock.runs.lock import RunLock
lock = RunLock.take(Path(sys.argv[1]))
child = os.fork()
if child == 0:
    assert not lock.is_held
    lock.release()  # it is not the child's to release
os.write(1, f"{os.getpid()}\n".encode())
time.sleep(600)
"""


@pytest.mark.timeout(60)
def test_a_killed_owner_is_none_though_its_child_lives(tmp_path):
    process = subprocess.Popen([sys.executable, "-c", OWNER_AND_CHILD, tmp_path], stdout=subprocess.PIPE, text=True)
    pids = {int(process.stdout.readline()) for _ in range(2)}
    (child,) = pids - {process.pid}
    try:
        assert holding_of(tmp_path).is_held and holds(process.pid, tmp_path) and not holds(child, tmp_path)
        with pytest.raises(HeldError, match=f"process {process.pid} on"):
            RunLock.take(tmp_path)
        process.kill()
        process.wait()
        assert holding_of(tmp_path).is_held is False
        assert state_of({"state": "running", "process": this_process()}, tmp_path) == "died"
        RunLock.take(tmp_path).release()
    finally:
        process.kill()
        os.kill(child, signal.SIGKILL)
        process.stdout.close()
        process.wait()


def test_to_ask_takes_nothing(tmp_path):
    RunLock.take(tmp_path).release()
    pid = os.fork()
    if pid == 0:
        while True:
            holding_of(tmp_path)
    try:
        for _ in range(300):
            RunLock.take(tmp_path).release()
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def test_a_copied_run_has_no_owner(tmp_path):
    run = create(tmp_path / "run")
    shutil.copytree(run.path, tmp_path / "copy")
    record = {"state": "running", "process": this_process()}
    assert state_of(record, run.path) == "running" and state_of(record, tmp_path / "copy") == "died"
    RunDirectory.own(tmp_path / "copy").release()
    run.release()


@pytest.mark.parametrize("name", ["file", "link", "pipe"])
def test_a_file_of_the_users_with_the_name_of_the_lock_is_left_alone(tmp_path, name):
    (tmp_path / "mine").write_text("my lock")
    place = tmp_path / "run"
    place.mkdir()
    if name == "pipe":
        os.mkfifo(place / LOCK)
    else:
        (os.link if name == "file" else os.symlink)(tmp_path / "mine", place / LOCK)
    with pytest.raises(RunDirectoryError, match="is not empty"):
        create(place)
    with pytest.raises(OSError):
        RunLock.take(place)
    assert holding_of(place).is_held in (None, False) and (tmp_path / "mine").read_text() == "my lock"


@pytest.fixture
def without_locks(monkeypatch):
    """The kernel as it is on a file system that has no locks."""

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "fcntl", refuse)


@pytest.mark.usefixtures("without_locks")
def test_without_locks_the_process_that_the_file_names_decides(tmp_path):
    run = create(tmp_path / "run")
    assert "has no locks (No locks available)" in run.lock.note
    assert holding_of(run.path).is_held is None
    with pytest.raises(RunInUseError, match="is in use"):
        RunDirectory.own(run.path)
    run.release()
    RunDirectory.own(run.path).release()
    (run.path / LOCK).write_text(json.dumps({**this_process(), "start": 1}))  # it is dead
    RunDirectory.own(run.path).release()
    (run.path / LOCK).write_text(json.dumps({**this_process(), "boot": "another", "host": "node7"}))
    said = rf"may be in use: its file system has no locks.*node7.*remove {run.path / LOCK} and give the same"
    with pytest.raises(RunInUseError, match=said):
        RunDirectory.own(run.path)


def test_with_locks_a_dead_owner_on_another_machine_is_none(tmp_path):
    run = create(tmp_path / "run")
    run.release()
    (run.path / LOCK).write_text(json.dumps({**this_process(), "boot": "another", "host": "node7"}))
    RunDirectory.own(run.path).release()
