"""A run directory is made once, found again, and leads to the right checkpoint."""

import json
import os
import re
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest
import torch

from penstock.runs.checkpoint import CheckpointError, save_checkpoint
from penstock.runs.lookup import resolve_checkpoint
from penstock.runs.run_directory import RunDirectory
from penstock.runs.vacancy import RunDirectoryError
from penstock.runs.videos import video_path, videos_of


def create(path="auto", env_name="CartPole-v1", **config) -> RunDirectory:
    return RunDirectory.create(path, env_name=env_name, algorithm="appo", config={"gamma": 0.99, **config})


def save(run: RunDirectory, *steps: int, best: int | None = None) -> None:
    for number in steps:
        run.checkpoints.save(number, meta={}, weights={"w": torch.zeros(1)})
    if best is not None:
        run.checkpoints.save_best(best, meta={}, weights={"w": torch.zeros(1)})


@pytest.fixture(autouse=True)
def in_an_empty_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_an_automatic_name_tells_environment_algorithm_and_time():
    name = create(env_name="ALE/Pong-v5").path
    assert name.parent == Path("runs").absolute()
    assert re.fullmatch(r"ALE-Pong-v5-appo-\d{8}-\d{6}", name.name)


def test_runs_begun_in_the_same_second_get_names_of_their_own():
    runs = [create().path for _ in range(5)]
    assert len(set(runs)) == 5


@pytest.mark.parametrize("env_name", ["../../etc", "/", "", "a b:C", "<lambda>"])
def test_no_name_of_an_environment_leads_out_of_the_runs(env_name):
    assert create(env_name=env_name).path.resolve().parent == Path("runs").resolve()


def test_config_json_holds_every_setting_and_the_versions():
    run = create("my-run", env="CartPole-v1", hidden_sizes=[64, 64])
    record = json.loads((run.path / "config.json").read_text())
    assert record["algorithm"] == "appo"
    assert record["gamma"] == 0.99
    assert record["hidden_sizes"] == [64, 64]
    assert record["run"]["env_name"] == "CartPole-v1"
    assert record["run"]["versions"]["torch"] == version("torch")
    assert set(record["run"]["versions"]) == {"penstock", "python", "torch", "numpy", "gymnasium"}


def test_config_json_says_what_the_run_was_made_with():
    info = json.loads((create("my-run").path / "config.json").read_text())["run"]
    assert info["command"] and info["machine"]["cpu"] and info["machine"]["memory"] > 2**20
    assert info["commit"] is None, "this folder is in no repository"
    assert "gpus" not in info["machine"]


def test_config_json_says_when_the_run_went_on_and_how_it_has_changed():
    run = create("my-run")
    run.record_resumption(100, {"gamma": 0.9})
    RunDirectory.open("my-run").record_resumption(200, {})
    found = RunDirectory.open("my-run")
    assert found.config["gamma"] == 0.9
    assert [again["steps"] for again in found.info["resumed"]] == [100, 200]
    assert all(again["command"] and again["time"] for again in found.info["resumed"])


def test_films_lie_by_the_steps_of_the_weights():
    path = video_path(create("my-run").path, 20_000)
    assert path == Path("my-run/videos/step-20000.mp4").absolute() and path.parent.is_dir()
    path.touch()
    assert video_path(Path("my-run"), 20_000) == Path("my-run/videos/step-20000-2.mp4")
    for name in ("step-9000.mp4", "other.mp4", ".video.mp4", "step-1.gif"):
        (path.parent / name).touch()
    (path.parent / "step-2.mp4").symlink_to(path)
    assert [video.name for video in videos_of(Path("my-run"))] == ["step-9000.mp4", "step-20000.mp4", "other.mp4"]


def test_settings_that_json_has_no_words_for_are_written_as_text():
    create("my-run", env_kwargs={"size": np.int64(3), "scale": np.float32(0.5), "far": float("inf"), "grid": {1}})
    record = json.loads((Path("my-run") / "config.json").read_text())
    assert record["env_kwargs"] == {"size": 3, "scale": 0.5, "far": None, "grid": "{1}"}


@pytest.mark.parametrize(
    ("large", "problem"),
    [("x" * (1 << 23), r"would have \S+ bytes, and at most 8,388,608 can be read back"),
     (json.loads("[" * 80 + "]" * 80), "nested deeper than 64 levels")],
    ids=["size", "depth"],
)  # fmt: skip
def test_settings_that_no_reader_would_take_are_refused_before_a_run_begins(large, problem):
    with pytest.raises(RunDirectoryError, match=rf"config\.json .*{problem}; the largest setting is env_kwargs: put"):
        create("run", env_kwargs={"maze": large})
    assert list(Path("run").iterdir()) == []
    run = create("other", lr=1.0)
    before = (run.path / "config.json").read_bytes()
    with pytest.raises(RunDirectoryError):
        run.record_resumption(100, {"env_kwargs": {"maze": large}})
    assert (run.path / "config.json").read_bytes() == before


def test_a_run_is_found_again_with_its_settings():
    made = create("my-run", keep_checkpoints=1)
    found = RunDirectory.open("my-run")
    assert (found.algorithm, found.config, found.info) == (made.algorithm, made.config, made.info)
    save(found, 1, 2)
    assert found.checkpoints.steps() == [2]


def test_a_directory_that_holds_a_run_is_not_used_again():
    create("my-run")
    with pytest.raises(RunDirectoryError, match=r"run_dir='my-run' holds a run.*penstock resume my-run"):
        create("my-run")


def test_a_directory_with_anything_in_it_is_not_used():
    Path("mine").mkdir()
    Path("mine/notes.txt").touch()
    with pytest.raises(RunDirectoryError, match=r"'mine' is not empty, and nothing is overwritten: give another name$"):
        create("mine")


def test_no_run_begins_within_another():
    create("outer").release()
    for path in ("outer/inner", "outer/checkpoints/deep"):
        with pytest.raises(RunDirectoryError, match=rf"^run_dir='{path}' belongs to the run outer: give a place"):
            create(path)
    assert not Path("outer/checkpoints").exists()
    Path("project").mkdir()
    Path("project/config.json").write_text("{}")  # another program's
    assert create("project/run").path.is_dir()


def test_an_empty_directory_is_used():
    Path("deep/er").mkdir(parents=True)
    assert create("deep/er").path == Path("deep/er").absolute()


def test_a_place_that_cannot_be_written_is_named():
    Path("file").touch()
    with pytest.raises(RunDirectoryError, match=r"run_dir='file/run' cannot be written: Not a directory"):
        create("file/run")


def test_what_is_no_run_is_not_opened_and_the_runs_there_are_shown():
    run = create().path
    shown = run.relative_to(Path.cwd())
    with pytest.raises(RunDirectoryError, match=f"nowhere does not exist; .* in runs are {shown}"):
        RunDirectory.open("nowhere")
    with pytest.raises(RunDirectoryError, match=r"runs is not a run: it is a directory without config\.json"):
        RunDirectory.open("runs")
    (run / "config.json").write_text("{}")
    with pytest.raises(RunDirectoryError, match=r"is not the config\.json of a run"):
        RunDirectory.open(run)


def test_log_lines_carry_the_time_and_stay_together():
    run = create("my-run")
    run.log("worker 1 was killed by signal 9")
    run.log("Traceback\n  line 1")
    lines = (run.path / "log.txt").read_text().splitlines()
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:.]+[+-]\d\d:\d\d  worker 1 was killed by signal 9", lines[0])
    assert lines[1].endswith("  Traceback")
    assert lines[2] == "      line 1"


def test_a_run_means_its_best_checkpoint_unless_told_otherwise():
    run = create("my-run")
    save(run, 10, 20, best=10)
    assert resolve_checkpoint("my-run") == Path("my-run/checkpoints/best")
    assert resolve_checkpoint("my-run", "latest") == Path("my-run/checkpoints/20")
    assert resolve_checkpoint("my-run", "10") == Path("my-run/checkpoints/10")


@pytest.mark.parametrize("folder", ["study", "."])
def test_a_folder_of_runs_names_them(folder):
    for name in ("study/one", "study/two"):
        save(create(name), 10)
    os.utime("study/one/config.json", (1, 1))
    os.utime("study/one", (1, 1))
    with pytest.raises(CheckpointError, match=f"folder of runs: the newest runs in {folder} are study/two, study/one"):
        resolve_checkpoint(folder)


def test_a_run_without_a_best_means_its_latest():
    save(create("my-run"), 10, 20)
    assert resolve_checkpoint("my-run") == Path("my-run/checkpoints/20")


def test_a_damaged_best_is_reported_and_the_latest_meant():
    run = create("my-run")
    save(run, 10, best=10)
    (run.path / "checkpoints/best/weights.safetensors").unlink()
    told: list[str] = []
    assert resolve_checkpoint("my-run", report=told.append) == Path("my-run/checkpoints/10")
    assert "best is damaged: weights.safetensors" in told[0]


def test_a_run_of_one_policy_has_none_by_name():
    save(create("my-run"), 10)
    with pytest.raises(CheckpointError, match=r"one policy, which has no name: leave out policy 'prey'"):
        resolve_checkpoint("my-run", policy="prey")
    assert resolve_checkpoint("my-run", policy="prey", is_any_legal=True) == Path("my-run/checkpoints/10")


def test_a_checkpoint_means_itself():
    save_checkpoint("saved", meta={"steps": 3}, weights={"w": torch.zeros(1)})
    assert resolve_checkpoint("saved") == Path("saved")


def test_a_checkpoint_that_is_not_there_is_answered_with_those_that_are():
    run = create("my-run")
    with pytest.raises(CheckpointError, match="holds no checkpoint"):
        resolve_checkpoint("my-run")
    save(run, 10, 20, best=10)
    with pytest.raises(CheckpointError, match=r"no checkpoint '15': give best, latest, or steps\. It has best, 10, 20"):
        resolve_checkpoint("my-run", "15")
    with pytest.raises(CheckpointError, match="my-runn does not exist"):
        resolve_checkpoint("my-runn")
    with pytest.raises(CheckpointError, match=r"is a folder of runs: the newest runs in \. are my-run"):
        resolve_checkpoint(".")


@pytest.mark.parametrize(("content", "reason"), [("{", "it is not JSON"), ("[]", "it is a list, not an object")])
def test_a_damaged_config_is_named_once_and_with_what_to_do(tmp_path, content, reason):
    (run := tmp_path / "run").mkdir()
    (run / "config.json").write_text(content)
    with pytest.raises(RunDirectoryError) as of_another:
        RunDirectory.open(run)
    (run / "log.txt").touch()
    with pytest.raises(RunDirectoryError) as of_a_run:
        RunDirectory.open(run)
    file = f"{run}/config.json"
    assert str(of_another.value).startswith(f"{file} is not the config.json of a run: {reason}")
    assert str(of_a_run.value).startswith(f"{file} cannot be read: {reason}")
    assert str(of_a_run.value).endswith(f". Restore it, or move {run} away")
    assert str(of_a_run.value).count(file) == str(of_another.value).count(file) == 1


@pytest.mark.parametrize("name", ["log.txt", "replay", "checkpoints", "checkpoints/best", "policies/a/checkpoints/10"])
def test_no_training_goes_on_in_a_run_with_links_to_other_files(tmp_path, name):
    run = create(tmp_path / "run")
    run.release()
    link = run.path / name
    link.parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / "mine").write_text("mine\n")
    link.symlink_to(tmp_path / "mine")
    with pytest.raises(RunDirectoryError, match=f"{name} is a link"):
        RunDirectory.own(run.path)
    link.unlink()
    (run.path / "wandb").mkdir()
    (run.path / "wandb" / "latest").symlink_to(tmp_path)
    (tmp_path / "behind").symlink_to(run.path)
    RunDirectory.own(tmp_path / "behind").release()
    assert (tmp_path / "mine").read_text() == "mine\n"
