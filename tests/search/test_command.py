"""`penstock search`: what it refuses, and one real search that is interrupted, goes on, and is shown."""

import importlib.util
import json
import shlex
import signal

import pytest

from penstock.algorithms import load_algorithm
from penstock.cli import main
from penstock.flags import parse_config
from penstock.runs.run_directory import RunDirectory
from tests.engine.processes import PATIENCE, Watched, family, started, wait_until

ENV = ["--env", "CartPole-v1"]
APPO = ["appo", *ENV]


@pytest.fixture
def space(tmp_path):
    path = tmp_path / "space.toml"
    path.write_text("[learning_rate]\nlow = 1e-4\nhigh = 1e-2\nlog = true\n")
    return path


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([], "the algorithm comes first: penstock search"),
        (["apo", *ENV], "unknown algorithm 'apo'; did you mean 'appo'?"),
        (APPO, "--space is missing: give a TOML file"),
        ([*APPO, "--space", "nowhere.toml"], "the space 'nowhere.toml' cannot be read"),
        ([*APPO, "--space", "SPACE", "--gamma", "2"], "gamma=2.0 is not legal"),
        ([*APPO, "--space", "SPACE", "--learning-rate", "1e-3"], "learning_rate is searched, but also given by a flag"),
        ([*APPO, "--space", "SPACE", "--trials", "0"], "--trials 0 is not legal: give 1 or more"),
        ([*APPO, "--space", "SPACE", "--jobs", "0"], "--jobs 0 is not legal: give 1 or more"),
        ([*APPO, "--space", "SPACE", "--jobs", "999"], "--jobs 999 is not legal: this process may use"),
        ([*APPO, "--space", "SPACE", "--seeds", "0"], "--seeds 0 is not legal"),
        ([*APPO, "--space", "SPACE", "--target-return", "475"], "--target-return 475.0 is not legal in a search"),
        ([*APPO, "--space", "SPACE", "--run-dir", "here"], "--run-dir here is not legal in a search"),
        ([*APPO, "--space", "SPACE", "--eval-interval", "0"], "trials are compared by their evaluations"),
        ([*APPO, "--space", "SPACE", "--json", "no/where.json"], "there is no directory"),
        ([*APPO, "--space", "SPACE", "--backend", "ray", "--nodes", "2", "--address", "127.0.0.1:1"], "no Ray cluster"),
        (["--show", "nowhere"], "nowhere holds no search"),
    ],
)
def test_wrong_usage_is_told_before_anything_begins(args, message, space, tmp_path, capsys, monkeypatch):
    pytest.importorskip("optuna")
    monkeypatch.chdir(tmp_path)
    assert main(["search", *[str(space) if arg == "SPACE" else arg for arg in args]]) == 2
    out, err = capsys.readouterr()
    assert message in err and out == ""
    assert [path.name for path in tmp_path.iterdir()] == ["space.toml"]


def test_without_optuna_it_says_what_to_install(space, capsys, monkeypatch):
    there = importlib.util.find_spec
    monkeypatch.setattr(
        "importlib.util.find_spec", lambda name, *more: there(name, *more) if name != "optuna" else None
    )
    for args in ([*APPO, "--space", str(space)], ["--show", str(space.parent)]):
        assert main(["search", *args]) == 2
        assert capsys.readouterr().err == (
            "error: penstock search needs the package optuna: pip install 'penstock[tune]'\n"
        )


def test_help_names_the_algorithms_and_the_flags_of_its_own(capsys):
    assert main(["search", "--help"]) == 0
    out = capsys.readouterr().out
    assert all(word in out for word in ("appo", "sac", "--space", "--trials", "--jobs", "--seeds", "--show"))


SLOW = """
import os
import time

from gymnasium.envs.classic_control import CartPoleEnv


class Slow(CartPoleEnv):
    def step(self, action):
        if not os.path.exists("be-fast"):
            time.sleep(0.01)
        return super().step(action)
"""


@pytest.mark.long
@pytest.mark.timeout(400)
def test_a_search_is_interrupted_goes_on_and_is_shown(space, tmp_path, capsys, monkeypatch):
    pytest.importorskip("optuna")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "slow.py").write_text(SLOW)  # the first trial is far from its end when it is interrupted
    tiny = (
        "--env slow.py:Slow --total-steps 1000 --eval-interval 250 --eval-episodes 1 --num-workers 1 "
        "--num-envs-per-worker 4 --batch-size 128 --hidden-sizes 8 --backend serial"
    )
    search = ["search", "ppo", *tiny.split(), "--space", str(space), "--dir", "found", "--trials"]
    with started(["-m", "penstock.cli", *search, "2"], tmp_path) as process:
        evaluations = tmp_path / "found" / "trial-0-seed-0" / "evaluations.jsonl"
        wait_until(evaluations.exists, "the first trial is evaluated")
        processes = Watched([*family(process.pid).values(), process.pid])
        process.send_signal(signal.SIGTERM)
        shown, _ = process.communicate(timeout=PATIENCE)
        assert process.returncode == 130 and "interrupted: the same command resumes" in shown
        assert processes.left_after(PATIENCE) == []
    assert "1 under way" in shown
    (tmp_path / "be-fast").touch()

    assert main([*search, "2", "--json", "found.json"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("found: 1 of 2 trials so far\n") and "2 trials: 2 done" in out
    written = json.loads((tmp_path / "found.json").read_text())
    assert [trial["state"] for trial in written["trials"]] == ["done", "done"]
    for trial in written["trials"]:
        run = RunDirectory.open(tmp_path / trial["runs"][0])
        assert run.config["learning_rate"] == trial["settings"]["learning_rate"]
        assert run.checkpoints.latest_steps() >= 1_000
    assert "resumed at step" in (tmp_path / "found" / "trial-0-seed-0" / "log.txt").read_text()
    assert written["trials"][0]["is_as_given"]

    assert main(["search", "--show", "found"]) == 0
    out = capsys.readouterr().out
    command = out.splitlines()[-1]
    assert command == written["command"] and "the settings as given" in out
    _, _, name, *flags = shlex.split(command)
    config = parse_config(load_algorithm(name).Config, flags, prog="penstock train")
    assert config.learning_rate == written["trials"][written["best"]]["settings"]["learning_rate"]
    assert main([*search, "2", "--gamma", "0.9"]) == 2
    assert "gamma is 0.99 there, but 0.9 here" in capsys.readouterr().err
