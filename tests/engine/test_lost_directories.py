"""A run directory that is removed, or replaced, during training: it is noticed, reported, and written anew."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import penstock
from penstock.runs.checkpoint import CheckpointError, verify_checkpoint
from penstock.runs.lock import holding_of
from penstock.runs.reading import RecordedRun
from penstock.runs.run_directory import RunDirectory
from tests.kept_files import contents
from tests.self_play.guests import Turns

TINY = {
    "backend": "serial", "num_workers": 1, "num_envs_per_worker": 2, "segment_length": 64, "batch_size": 128,
    "num_epochs": 1, "hidden_sizes": (8,), "total_steps": 2048, "eval_interval": 256, "eval_episodes": 1,
}  # fmt: skip


def lose(run: Path) -> None:
    """Move the directory away, as a clean-up would, to a place where it can be inspected afterwards."""
    shutil.move(run, run.with_name("lost"))


def replace_by_empty(run: Path) -> None:
    lose(run)
    run.mkdir()


def remove_lock(run: Path) -> None:
    (run / "run.lock").unlink()


def remove_config(run: Path) -> None:
    (run / "config.json").unlink()


@pytest.mark.long
@pytest.mark.parametrize("how", [lose, replace_by_empty, remove_lock, remove_config])
def test_a_run_whose_directory_is_lost_is_whole_at_its_next_checkpoint(tmp_path, monkeypatch, how):
    monkeypatch.setattr("penstock.engine.watching.chronicle.REFRESH_INTERVAL", 0.0)
    monkeypatch.setattr("penstock.engine.watching.chronicle.METRICS_INTERVAL", 0.0)
    path, seen = tmp_path / "run", []

    def on_update(status) -> None:
        if not seen and status.steps >= 640:
            how(path)
        if status.steps >= 640:
            seen.append((status.steps, path.exists() and {file.name for file in path.iterdir()}))

    with penstock.PPO("CartPole-v1", **TINY, run_dir=path, checkpoint_interval=512) as trainer:
        trainer.train(quiet=True, on_update=on_update)
        assert holding_of(path).is_held
    between = [names for steps, names in seen if steps < 900]
    if how is lose:
        assert between and not any(between), "nothing is written where the run was until it is whole"
    if how is replace_by_empty:
        assert between and not any(set(names) for names in between)
    run = RecordedRun.open(path)
    assert run.state == "done" and run.directory.config["total_steps"] == 2048
    assert verify_checkpoint(run.directory.checkpoints.latest_path())["steps"] == 2048
    steps = [json.loads(line)["steps"] for line in (path / "metrics.jsonl").read_text().splitlines()]
    assert steps[-1] == 2048 and steps == sorted(steps)
    assert "is written again from step 1,024 on" in (path / "log.txt").read_text()
    with penstock.Trainer.resume(path, total_steps=2560) as trainer:
        assert trainer.train(quiet=True).steps == 2560


POPULATION = {
    "num_policies": 2, "pbt": "truncation", "pbt_space": {"learning_rate": {"low": 1e-5, "high": 1e-2}},
    "pbt_interval": 128, "pbt_fraction": 0.5, "pbt_episodes": 1, "batch_size": 64,
}  # fmt: skip
PAST_VERSIONS = {"num_agents": 2, "segment_length": 8, "batch_size": 24, "opponents": "past", "opponent_interval": 24}


@pytest.mark.long
@pytest.mark.parametrize(
    ("env", "settings", "name"),
    [("CartPole-v1", POPULATION, "lineage.jsonl"), (Turns, PAST_VERSIONS, "matches.jsonl")],
)
@pytest.mark.parametrize("how", [lose, pytest.param(replace_by_empty, marks=pytest.mark.long)])
def test_lines_are_dropped_while_the_directory_is_lost_and_written_from_the_next_checkpoint_on(
    tmp_path, monkeypatch, env, settings, name, how
):
    monkeypatch.setattr("penstock.engine.watching.chronicle.REFRESH_INTERVAL", 0.0)
    path, seen = tmp_path / "run", []

    def on_update(status) -> None:
        if not seen and status.steps >= 640:
            how(path)
            seen.append((path.with_name("lost") / name).read_bytes())
        if 640 <= status.steps < 1024:
            seen.append((path / name).exists())

    with penstock.PPO(env, **TINY | settings, run_dir=path, checkpoint_interval=1024) as trainer:
        trainer.train(quiet=True, on_update=on_update)
    before, *while_lost = seen
    assert before and len(while_lost) > 1 and not any(while_lost)
    assert (tmp_path / "lost" / name).read_bytes() == before
    last = max(json.loads(line)["steps"] for line in before.splitlines())
    assert all(json.loads(line)["steps"] > last for line in (path / name).read_text().splitlines())
    with penstock.Trainer.resume(path, total_steps=2560) as trainer:
        assert trainer.train(quiet=True).steps >= 2560


def test_what_has_taken_the_place_of_a_run_is_left_alone(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("penstock.engine.watching.chronicle.REFRESH_INTERVAL", 0.0)
    path, seen = tmp_path / "run", []

    def on_update(status) -> None:
        if not seen and status.steps >= 512:
            lose(path)
            another = RunDirectory.create(path, env_name="e", algorithm="dqn", config={"keep_checkpoints": 1})
            another.checkpoints.save(8, meta={}, weights={})
            another.log("another run")
            seen.extend([another, contents(path)])

    with penstock.PPO("CartPole-v1", **TINY, run_dir=path, checkpoint_interval=512) as trainer:
        trainer.train(on_update=on_update)
        with pytest.raises(CheckpointError, match="something else has taken its place"):
            trainer._run_directory.checkpoints.save(9, meta={}, weights={})
    assert contents(path) == seen[1]
    said = capsys.readouterr().out
    assert said.count("was removed, or something else has taken its place; the next checkpoint") == 1
    assert f"no checkpoint could be written: {path} holds something else now" in said.replace("\n", "")


def test_the_target_of_a_link_is_made_again(tmp_path):
    (tmp_path / "runs").symlink_to(tmp_path / "scratch")
    (tmp_path / "scratch").mkdir()
    with penstock.PPO("CartPole-v1", **TINY | {"eval_interval": 0}, run_dir=tmp_path / "runs" / "run") as trainer:
        trainer.train(256, quiet=True)
        shutil.rmtree(tmp_path / "scratch")
        result = trainer.train(256, quiet=True)
    assert not result.save_error
    assert RunDirectory.open(tmp_path / "scratch" / "run").checkpoints.latest_steps() == result.steps


PROGRAM = """
import shutil, sys
from penstock.engine.watching.chronicle import Chronicle
ended = Chronicle.ended
Chronicle.ended = lambda self, *of: (ended(self, *of), shutil.rmtree(sys.argv[1]))
from penstock.cli import main
sys.exit(main(["train", "ppo", "--env", "CartPole-v1", "--backend", "serial", "--num-workers", "1", "--total-steps",
               "512", "--eval-interval", "0", "--run-dir", sys.argv[1]]))
"""


@pytest.mark.long
@pytest.mark.timeout(120)
def test_a_command_whose_run_is_removed_at_its_end_ends_without_a_traceback(tmp_path):
    path = tmp_path / "run"
    done = subprocess.run([sys.executable, "-c", PROGRAM, path], capture_output=True, text=True)
    assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr
    assert "the run cannot be resumed" in done.stdout and not path.exists()
