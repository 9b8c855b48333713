"""`penstock multirun`: what is done is skipped, what broke goes on, and nothing is left behind."""

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from penstock.cli import main
from penstock.config import ConfigError
from penstock.runs.jobs import Place, split_cores
from penstock.runs.process import this_process
from penstock.runs.reading import find_runs
from penstock.runs.run_directory import RunDirectory
from penstock.studies import StudyError
from penstock.studies.multirun import Study, missed, train
from penstock.studies.plan import plan, read
from penstock.trials.request import ClusterRequest
from tests.kept_files import contents, make_damaged, make_newer, make_unreadable, with_notes
from tests.studies.recorded import record

TINY = [
    "--env", "CartPole-v1", "--backend", "serial", "--hidden-sizes", "8", "--num-workers", "1",
    "--num-envs-per-worker", "2", "--segment-length", "8", "--batch-size", "16", "--num-epochs", "1",
    "--eval-interval", "0",
]  # fmt: skip


def study(tmp_path, *args) -> Study:
    return Study(tmp_path, plan(read(["ppo", *TINY, *args])))


def recorded(found: Study, *, checkpoint: int | None, **changes):
    """A run as a first attempt left it."""
    (run,) = found.runs
    told = {name: changes.pop(name) for name in ("state", "reason", "target") if name in changes}
    config = {**run.config.to_json(), **changes}
    for name in ("env", "seed", "target_return"):
        config.pop(name)
    made = record(found.path_of(run), **{**config, "run_dir": "x", **told})
    if checkpoint is not None:
        meta = {"seconds": 10.0, "algorithm": "ppo"}
        made.directory.checkpoints.save(checkpoint, meta=meta, weights={"w": torch.zeros(1)})
    return found.command_of(run)


def test_what_is_not_there_is_trained_where_it_shall_lie(tmp_path):
    found = study(tmp_path)
    (run,) = found.runs
    assert found.command_of(run) == ["train", "ppo", *TINY, "--seed", "0", "--run-dir", str(tmp_path / run.name)]


def test_what_is_done_is_skipped(tmp_path):
    assert recorded(study(tmp_path), checkpoint=100) is None


@pytest.mark.parametrize("state", ["failed", "interrupted", "paused"])
def test_what_broke_goes_on_from_its_checkpoint(tmp_path, state):
    found = study(tmp_path)
    assert recorded(found, checkpoint=100, state=state) == ["resume", str(found.path_of(found.runs[0]))]


def test_what_broke_before_its_first_checkpoint_begins_anew(tmp_path):
    assert recorded(study(tmp_path), checkpoint=None, state="failed")[0] == "train"


def test_flags_win_over_the_checkpoint_and_what_is_not_given_stays(tmp_path):
    found = study(tmp_path, "--total-steps", "2000")
    command = recorded(found, checkpoint=100, total_steps=1000, learning_rate=0.5, gamma=0.25)
    assert command == ["resume", str(found.path_of(found.runs[0])), "--total-steps", "2000"]


def test_what_cannot_change_within_a_run_is_told_before_anything_trains(tmp_path):
    with pytest.raises(ConfigError, match="cannot change within a run"):
        recorded(study(tmp_path), checkpoint=100, hidden_sizes=[16])


@pytest.mark.parametrize("kind", ["newer", "unreadable"])
def test_a_run_whose_checkpoint_cannot_be_used_now_is_left_as_it_is(tmp_path, monkeypatch, capsys, kind):
    found = study(tmp_path)
    path = with_notes(found.path_of(found.runs[0]).with_name("aside"))  # a new run begins in an empty directory
    recorded(found, checkpoint=100, state="interrupted")
    run = found.path_of(found.runs[0])
    (path / "notes.txt").rename(run / "notes.txt")
    checkpoint = run / "checkpoints" / "100"
    make_newer(checkpoint) if kind == "newer" else None
    before = contents(tmp_path)
    if kind == "unreadable":
        make_unreadable(checkpoint, monkeypatch)
    assert found.train(split_cores(1), found.left()) == 1
    said = capsys.readouterr().out
    assert f"{run.name}: left as it is: " in said and said.strip().endswith("1 left as they are")
    assert ("newer Penstock" if kind == "newer" else "Input/output error") in said
    monkeypatch.undo()
    assert contents(tmp_path) == before and not (run / "../output").exists()


class Ended:
    """Job that ended at once with an exit code, in the stead of a training."""

    def __init__(self, run, code, output):
        self.run, self.code, self.output, self.cores = run, code, output, ()

    def lines(self):
        return []


def test_a_run_with_a_damaged_config_counts_as_failed_and_the_others_go_on(tmp_path, monkeypatch, capsys):
    found = study(tmp_path, "--seeds", "2")
    first, second = found.runs
    (record(found.path_of(first)).directory.path / "config.json").write_text("{")
    monkeypatch.setattr(Study, "_start", lambda self, run, command, cores, with_cores: started(run, cores))
    began = []

    def started(run, cores):
        began.append(run.name)
        record(found.path_of(run), target=None).directory.path.joinpath("config.json").write_text("{")
        job = Ended(run, 0, tmp_path / "output" / "x.txt")
        job.cores, job.poll = cores, lambda: 0
        return job

    assert found.train(split_cores(1), found.left()) == 1
    said = capsys.readouterr().out
    assert began == [second.name]
    path = found.path_of(first)
    assert f"{first.name}: left as it is: {path}/config.json cannot be read: it is not JSON" in said
    assert said.count("config.json") == 2 and f"Restore it, or move {path} away" in said
    assert f"{second.name}: failed, {found.path_of(second)}/config.json cannot be read: " in said
    found._print_progress([Ended(first, None, None)], left=0)
    assert said.strip().endswith("1 left as they are, 1 unreadable")


@pytest.mark.parametrize("code", [130, -signal.SIGTERM])
def test_a_run_that_is_interrupted_before_it_has_begun_is_no_failure(tmp_path, capsys, code):
    found = study(tmp_path)
    (run,) = found.runs
    found._print_end(Ended(run, code, tmp_path / "x.txt"), code, is_interrupted=True)
    assert capsys.readouterr().out == f"{run.name}: interrupted\n"
    found._print_end(Ended(run, 1, tmp_path / "x.txt"), 1, is_interrupted=True)
    assert "failed, see" in capsys.readouterr().out


def test_runs_that_end_with_their_cluster_have_not_failed(tmp_path, capsys):
    found = study(tmp_path)
    (run,) = found.runs
    ended = Ended(run, 130, tmp_path / "x.txt")
    ended.cores = Place([0])
    found._print_end(ended, 130, is_interrupted=False)
    assert capsys.readouterr().out == f"{run.name}: ended with its cluster\n"


@pytest.mark.parametrize("is_there", [False, True])
def test_a_refused_multirun_leaves_no_record_and_no_folder_that_it_made(tmp_path, is_there):
    found = study(tmp_path)
    found.folder = tmp_path / "many" / "study"
    if is_there:
        found.folder.mkdir(parents=True)
    with pytest.raises(ConfigError, match="there is no Ray cluster there"):
        train(found, 1, ClusterRequest("127.0.0.1:1"))
    assert not (found.folder / "multirun.json").exists()
    assert tmp_path.is_dir() and (tmp_path / "many").exists() == found.folder.exists() == is_there


def test_runs_over_nodes_for_which_the_cluster_has_no_room_are_refused_before_any_begins(tmp_path, monkeypatch):
    over_nodes = ["--backend", "ray", "--nodes", "2"]
    with pytest.raises(ConfigError, match="there is no Ray cluster there"):
        train(study(tmp_path, *over_nodes, "--address", "127.0.0.1:1"), 1)
    assert not (tmp_path / "multirun.json").exists() and not (tmp_path / "output").exists()
    asked = []

    def on_cluster(algorithm, config):
        asked.append((config.address, config.gamma))
        if config.address == "b:1":
            raise ConfigError("nodes=2 asks for 2 nodes; the cluster at b:1 has none")

    monkeypatch.setattr("penstock.engine.nodes.joining.on_cluster", on_cluster)
    several = ["--address", "a:1,b:1", "--gamma", "0.5,0.9", "--seeds", "3"]
    with pytest.raises(ConfigError, match="2 nodes; the cluster at b:1"):
        train(study(tmp_path, *over_nodes, *several), 1)
    assert asked == [("a:1", 0.5), ("a:1", 0.9), ("b:1", 0.5)]


@pytest.mark.long
def test_a_run_without_an_intact_checkpoint_begins_anew_beside_what_it_was(tmp_path, capsys):
    found = study(tmp_path, "--total-steps", "64")
    recorded(found, checkpoint=100, state="failed")
    run = with_notes(found.path_of(found.runs[0]))
    make_damaged(run / "checkpoints" / "100")
    before = contents(run)
    assert found.train(split_cores(1), found.left()) == 0
    aside = run.with_name(f"{run.name}.set-aside-1")
    assert f"it is in {aside} now" in capsys.readouterr().out
    added = contents(aside) - before
    assert not before - contents(aside) and {name for name, _ in added} <= {"run.lock"}
    assert found.command_of(found.runs[0]) is None


def test_what_is_no_run_is_not_touched(tmp_path):
    found = study(tmp_path)
    found.path_of(found.runs[0]).mkdir()
    (found.path_of(found.runs[0]) / "notes.txt").touch()
    with pytest.raises(StudyError, match="is neither empty nor a run"):
        found.command_of(found.runs[0])


def test_a_run_that_another_process_trains_is_busy(tmp_path):
    found = study(tmp_path)
    (run,) = found.runs
    assert not found.is_busy(run)
    recorded(found, checkpoint=None, state="running")
    assert found.is_busy(run), "this process is alive"
    path = found.path_of(run) / "status.json"
    status = json.loads(path.read_text())
    path.write_text(json.dumps({**status, "process": {**this_process(), "start": 1}}))
    assert not found.is_busy(run)


def test_a_miss_is_a_run_that_is_done_below_its_target(tmp_path):
    assert missed(record(tmp_path / "a", target=9.0, reason="steps"))
    assert not missed(record(tmp_path / "b", target=9.0, reason="target"))
    assert not missed(record(tmp_path / "c"))
    assert not missed(record(tmp_path / "d", target=9.0, state="failed"))


def start(folder: Path, *args: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "penstock.cli", "multirun", *args, "--name", "s"]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def finish(folder: Path, *args: str) -> tuple[int, str]:
    """Exit code and output of the command, run in this process, which has imported torch."""
    with contextlib.chdir(folder), contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(out):
        code = main(["multirun", *args, "--name", "s"])
    return code, out.getvalue()


def wait_for(what):
    end = time.monotonic() + 120.0
    while not what():
        assert time.monotonic() < end
        time.sleep(0.05)


def checkpoints(folder: Path) -> list[Path]:
    return list(folder.glob("runs/s/*/checkpoints/*/meta.json"))


SLOW = """
import os
import time

from gymnasium.envs.classic_control import CartPoleEnv


class Slow(CartPoleEnv):
    def step(self, action):
        if not os.path.exists("be-fast"):
            time.sleep(0.03)
        return super().step(action)
"""
LONG = ["ppo", *TINY, "--env", "slow.py:Slow", "--total-steps", "512", "--checkpoint-interval", "32"]


@pytest.mark.timeout(240)
def test_after_ctrl_c_and_after_kill_9_the_same_command_goes_on_and_skips_what_is_done(tmp_path):
    (tmp_path / "slow.py").write_text(SLOW)  # a run is far from its end when it is ended
    with contextlib.chdir(tmp_path):
        (done,) = plan(read(LONG))
        config = {name: value for name, value in done.config.to_json().items() if name != "target_return"}
    before = contents(record(tmp_path / "runs" / "s" / done.name, **config | {"run_dir": "x"}).directory.path)
    command = [*LONG, "--seeds", "2"]

    process = start(tmp_path, *command)
    wait_for(lambda: checkpoints(tmp_path))
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate()
    assert process.returncode == 130, out
    assert "the same command resumes" in out
    run = find_runs([tmp_path / "runs"])[1]
    steps = [run.directory.checkpoints.latest_steps()]
    assert run.state == "interrupted" and 0 < steps[0] < 512

    process = start(tmp_path, *command)
    wait_for(lambda: run.directory.checkpoints.latest_steps() > steps[0])
    process.send_signal(signal.SIGKILL)
    out, _ = process.communicate()
    assert "1 is done already" in out and "resumes" in out

    (tmp_path / "be-fast").touch()
    code, out = finish(tmp_path, *command)
    assert code == 0, out
    assert "1 is done already" in out and "resumes" in out and out.strip().endswith("2 done")
    first, second = find_runs([tmp_path / "runs"])
    assert second.state == "done" and second.summary["steps"] >= 512
    resumed_at = [each["steps"] for each in second.directory.info["resumed"]]
    assert len(resumed_at) == 2 and resumed_at[0] == steps[0] < resumed_at[1] < 512
    assert contents(first.directory.path) == before, "it was not touched"


@pytest.mark.long
@pytest.mark.timeout(240)
def test_a_run_that_fails_stops_no_other_and_is_told_at_the_end(tmp_path):
    place = f"{Path(__file__).parents[1] / 'engine' / 'broken_environment.py'}:ResetBreaksInLaneThree"
    args = ["ppo", *TINY, "--num-envs-per-worker", "4", "--total-steps", "64", "--target-return", "9000"]
    args += ["--eval-interval", "32"]
    code, out = finish(tmp_path, *args, "--env", f"{place},CartPole-v1")
    assert code == 1, out
    assert "failed, see runs/s/output/" in out and "below the target of 9000" in out
    assert out.strip().endswith("1 failed, 1 missed")
    code, out = finish(tmp_path, *args, "--env", "CartPole-v1")
    assert code == 3 and "1 is done already" in out


@pytest.mark.long
@pytest.mark.timeout(240)
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="two runs at a time need two cores")
def test_runs_at_a_time_have_cores_of_their_own(tmp_path):
    code, out = finish(tmp_path, "ppo", *TINY, "--total-steps", "64", "--seeds", "2", "--jobs", "2")
    assert code == 0, out
    shares = [line.partition(" on cores ")[2].split(", ") for line in out.splitlines() if " on cores " in line]
    assert len(shares) == 2 and not set(shares[0]) & set(shares[1])
    told = [run.directory.info["machine"]["cores"] for run in find_runs([tmp_path / "runs"])]
    assert told == [len(share) for share in shares]


def test_files_of_others_are_not_replaced_and_a_folder_that_is_a_file_is_refused(tmp_path):
    folder = tmp_path / "runs" / "s"
    folder.mkdir(parents=True)
    for content in ('{"mine": 1}', "no JSON"):
        (folder / "multirun.json").write_text(content)
        code, out = finish(tmp_path, "ppo", *TINY)
        assert code == 2 and "multirun.json is not a record of penstock multirun: give another --name" in out
        assert (folder / "multirun.json").read_text() == content
    (folder / "multirun.json").unlink()
    (folder / "output").write_text("mine")
    code, out = finish(tmp_path, "ppo", *TINY)
    assert code == 2 and "runs/s cannot be written: Not a directory (runs/s/output): give another --name" in out
    (folder / "output").unlink()
    folder.rmdir()
    folder.write_text("mine")
    code, out = finish(tmp_path, "ppo", *TINY)
    assert code == 2 and "runs/s cannot be written: File exists (runs/s): give another --name" in out
    assert folder.read_text() == "mine"


def test_a_run_is_no_folder_of_runs(tmp_path):
    with contextlib.chdir(tmp_path):
        RunDirectory.create("runs/s", env_name="e", algorithm="ppo", config={}).release()
    code, out = finish(tmp_path, "ppo", *TINY)
    assert code == 2 and "the folder runs/s belongs to the run runs/s: give a place outside of it" in out
    assert not (tmp_path / "runs" / "s" / "multirun.json").exists()


def test_the_record_of_an_earlier_multirun_is_replaced(tmp_path):
    (folder := tmp_path / "runs" / "s").mkdir(parents=True)
    found = Study(folder, [])
    assert train(found, 1) == train(found, 1) == 0
    assert json.loads((folder / "multirun.json").read_text())["runs"] == {}


@pytest.mark.timeout(60)
def test_only_one_is_at_work_in_a_folder(tmp_path):
    import fcntl

    (tmp_path / "runs" / "s").mkdir(parents=True)
    descriptor = os.open(tmp_path / "runs" / "s", os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        code, out = finish(tmp_path, "ppo", *TINY)
    finally:
        os.close(descriptor)
    assert code == 2 and "another penstock multirun is at work in runs/s" in out
