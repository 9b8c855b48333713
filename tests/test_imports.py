"""Definitions in a user's file are found by name from another folder, and from another process."""

import functools
import json
import subprocess
import sys
import threading

import pytest
from torch import nn

import penstock
from penstock.algorithms import algorithm_id, load_algorithm
from penstock.algorithms.ppo import PPO
from penstock.commands.exits import CommandError
from penstock.commands.training import train
from penstock.config import ConfigError, find_object, make_config
from penstock.engine.trainer import Trainer
from penstock.envs.failures import UnknownEnvironmentError
from penstock.flags import parse_changes
from penstock.imports import NoSuchPlaceError, load_module, place_of
from penstock.runs.checkpoint import CheckpointError
from penstock.runs.run_directory import RunDirectory
from tests.envs.counting import CountingEnv

OWN_FILE = """
import gymnasium as gym
from torch import nn

import penstock
from penstock.algorithms.ppo import PPO


class OwnAlgorithm(PPO):
    pass


class OwnEncoder(nn.Linear):
    def __init__(self, observation):
        super().__init__(observation.shape[0], 5)


class OwnEnv(gym.Wrapper):
    def __init__(self):
        super().__init__(gym.make("CartPole-v1"))


class Outer:
    class Inner:
        pass
"""

SETTINGS = {
    "num_workers": 1, "num_envs_per_worker": 4, "segment_length": 8, "batch_size": 16, "num_epochs": 1,
    "total_steps": 64, "backend": "serial", "eval_interval": 0,
}  # fmt: skip


@pytest.fixture
def own_file(tmp_path):
    path = tmp_path / "own.py"
    path.write_text(OWN_FILE)
    return path


def test_a_place_is_the_module_and_the_name_in_it():
    assert place_of(CountingEnv) == "tests.envs.counting:CountingEnv"
    assert place_of(functools.reduce) == "_functools:reduce"


def test_the_place_of_what_a_file_defines_is_the_files_absolute_path(own_file, monkeypatch):
    monkeypatch.chdir(own_file.parent)
    module = load_module("own.py")
    assert place_of(module.OwnEnv) == f"{own_file}:OwnEnv"
    assert place_of(module.Outer.Inner) == f"{own_file}:Outer.Inner"
    assert place_of("own.py:OwnEnv") == f"{own_file}:OwnEnv"
    assert place_of("CartPole-v1") == "CartPole-v1" and place_of("tests.envs:Env") == "tests.envs:Env"


def test_files_of_one_name_in_two_folders_are_two_modules(tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "env.py").write_text("class Env: pass")
    classes = [load_module(f"{tmp_path}/{folder}/env.py").Env for folder in ("a", "b")]
    assert [place_of(found) for found in classes] == [f"{tmp_path}/{folder}/env.py:Env" for folder in ("a", "b")]


def test_what_is_not_there_is_a_config_error_that_names_the_setting(own_file):
    for name, message in (
        ("no_such_module:Encoder", "encoder='no_such_module:Encoder': there is no module 'no_such_module'"),
        ("no_such.py:Encoder", "encoder='no_such.py:Encoder': there is no file 'no_such.py'"),
        (f"{own_file}:OwnEncodr", "has no 'OwnEncodr'; did you mean 'OwnEncoder'?"),
    ):
        with pytest.raises(ConfigError) as caught:
            find_object(name, "encoder")
        assert message in str(caught.value)
    with pytest.raises(NoSuchPlaceError, match=r"^there is no file 'no_such.py' in /"):
        load_module("no_such.py")
    with pytest.raises(NoSuchPlaceError, match=r"^there is no file '/moved/env.py': .*with the file's place$"):
        load_module("/moved/env.py")


def test_an_error_inside_a_file_is_raised_as_it_is(tmp_path):
    (tmp_path / "own.py").write_text("{}['no such key']")
    with pytest.raises(KeyError, match="no such key"):
        find_object(f"{tmp_path}/own.py:Encoder", "encoder")


def test_settings_name_what_a_file_defines_so_that_it_is_found_from_anywhere(own_file, monkeypatch):
    monkeypatch.chdir(own_file.parent)
    algorithm = load_algorithm("own.py:OwnAlgorithm")
    given = {"env": find_object("own.py:OwnEnv", "env"), "encoder": "own.py:OwnEncoder"}
    written = make_config(algorithm.Config, given).to_json()
    assert (written["env"], written["encoder"]) == (f"{own_file}:OwnEnv", f"{own_file}:OwnEncoder")
    assert algorithm_id(algorithm) == f"{own_file}:OwnAlgorithm"
    assert load_algorithm(algorithm_id(algorithm)).__qualname__ == "OwnAlgorithm"


@pytest.mark.long
@pytest.mark.timeout(90)
def test_a_run_of_ones_own_file_is_loaded_by_a_fresh_process_elsewhere_and_goes_on(own_file, tmp_path, monkeypatch):
    run, elsewhere = tmp_path / "run", tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(tmp_path)
    algorithm = load_algorithm("own.py:OwnAlgorithm")
    places = {"env": "own.py:OwnEnv", "encoder": "own.py:OwnEncoder"}
    config = make_config(algorithm.Config, {**SETTINGS, **places, "run_dir": str(run)})
    with Trainer(algorithm, config) as trainer:
        trainer.train(quiet=True)
    assert json.loads((run / "config.json").read_text())["algorithm"] == f"{own_file}:OwnAlgorithm"

    load = (
        f"import penstock; policy = penstock.load_policy({str(run)!r})\n"
        "print(type(policy.algorithm).__name__, type(policy.model.encoder).__name__, policy.act([0.0] * 4) in (0, 1))"
    )
    answer = subprocess.run([sys.executable, "-c", load], cwd=elsewhere, capture_output=True, text=True, check=False)
    assert answer.stdout.split() == ["OwnAlgorithm", "OwnEncoder", "True"], answer.stderr

    monkeypatch.chdir(elsewhere)
    with penstock.Trainer.resume(str(run), total_steps=128) as trainer:
        assert trainer.train(quiet=True).steps == 128


INTERRUPTED = """
import sys

from penstock.algorithms import load_algorithm


class Interrupting:
    @staticmethod
    def find_spec(name, path, target=None):
        if name == "numpy.linalg":
            sys.meta_path.remove(Interrupting)
            raise KeyboardInterrupt


sys.meta_path.insert(0, Interrupting)
load_algorithm("appo")
"""


def test_an_interruption_that_comes_while_an_algorithm_is_imported_is_not_lost():
    """Torch imports NumPy in C code that discards every exception."""
    done = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, check=False)
    assert done.returncode and "KeyboardInterrupt" in done.stderr


def _log_of_trained(algorithm, run_dir, **settings):
    with Trainer(algorithm, "CartPole-v1", run_dir=str(run_dir), **{**SETTINGS, **settings}) as trainer:
        trainer.train(quiet=True)
    return (run_dir / "log.txt").read_text()


def test_a_run_of_a_scripts_algorithm_warns_and_goes_on_with_the_algorithm_from_a_file(own_file, tmp_path):
    run = tmp_path / "run"
    log = _log_of_trained(type("OwnAlgorithm", (PPO,), {"__module__": "__main__"}), run)
    assert "warning: algorithm='__main__:OwnAlgorithm': defined in a script or a function, or an object" in log
    message = "OwnAlgorithm was defined in a script: move it to a file, and give algorithm=... "
    for load in (penstock.load_policy, Trainer.resume):
        with pytest.raises(ConfigError, match=message):
            load(run)
        with pytest.raises(ConfigError, match="is not legal: the run is of '__main__:OwnAlgorithm', give a class of"):
            load(run, algorithm=PPO)
    place = f"{own_file}:OwnAlgorithm"
    assert penstock.load_policy(run, algorithm=place).algorithm.name() == "ownalgorithm"
    with Trainer.resume(run, algorithm=load_algorithm(place), total_steps=128) as trainer:
        assert trainer.train(quiet=True).steps == 128
    assert json.loads((run / "config.json").read_text())["algorithm"] == place
    assert penstock.load_policy(run).meta["steps"] == 128


def test_a_run_whose_parts_have_names_does_not_warn(own_file, tmp_path):
    algorithm, encoder = load_algorithm(f"{own_file}:OwnAlgorithm"), f"{own_file}:OwnEncoder"
    log = _log_of_trained(algorithm, tmp_path / "run", encoder=encoder)
    assert "warning" not in log


def _linear(observation, width=4):
    return nn.Linear(observation.shape[0], width)


def test_a_run_goes_on_with_the_encoder_that_was_not_saved_by_name(own_file, tmp_path):
    for number, encoder in enumerate((lambda observation: _linear(observation), functools.partial(_linear, width=5))):
        run = tmp_path / f"run-{number}"
        log = _log_of_trained(PPO, run, encoder=encoder)
        assert "other processes cannot load this run; move it to a file, and give file.py:Class" in log
        for load in (penstock.load_policy, Trainer.resume):
            with pytest.raises(ConfigError, match=r"^encoder='.*': this encoder was not saved by name: give enc"):
                load(run)
        with Trainer.resume(run, encoder=encoder, total_steps=128) as trainer:
            assert trainer.train(quiet=True).steps == 128
        with pytest.raises(CheckpointError, match="shape"):
            Trainer.resume(run, encoder=functools.partial(_linear, width=6))
    place = f"{own_file}:OwnEncoder"
    flags = ["--encoder", place]
    assert parse_changes(PPO.Config, RunDirectory.open(run).config, flags, "penstock resume") == {"encoder": place}


def test_code_that_cannot_be_pickled_is_named_before_a_run_directory_is_made(tmp_path):
    lock, settings = threading.Lock(), {**SETTINGS, "backend": "local", "run_dir": str(tmp_path / "run")}

    def locked(observation):
        with lock:
            return nn.Linear(observation.shape[0], 4)

    class Locked(PPO):
        def loss(self, *args):
            with lock:
                return super().loss(*args)

    message = r"Locked' cannot travel to worker processes: cannot pickle '_thread.lock' object\. Create what cannot be"
    with pytest.raises(ConfigError, match="^algorithm=.*" + message):
        Trainer(Locked, "CartPole-v1", **settings)
    with pytest.raises(ConfigError, match="^encoder=.*" + message.replace("Locked'", "locked'")):
        Trainer(PPO, "CartPole-v1", encoder=locked, **settings)
    assert not (tmp_path / "run").exists()


def test_an_environment_of_a_script_is_to_move_to_a_file():
    message = "'__main__:no_env': no_env was defined in a script: move it to a file, and give --env file.py:no_env, in"
    with pytest.raises(UnknownEnvironmentError, match=message):
        Trainer(PPO, "__main__:no_env", **SETTINGS, run_dir=None)


def test_an_encoder_without_arguments_is_refused_without_an_internal_cause():
    class Bare(nn.Module):
        def __init__(self):
            super().__init__()

    with pytest.raises(ConfigError, match=r"Bare\.__init__ must accept one argument, the observation spec") as found:
        Trainer(PPO, "CartPole-v1", encoder=Bare, **SETTINGS, run_dir=None)
    assert found.value.__cause__ is None and found.value.__suppress_context__


def test_an_unknown_algorithm_is_answered_with_the_way_to_ones_own():
    with pytest.raises(ConfigError, match=r"unknown algorithm 'SPO'.*, file\.py:Class\)"):
        load_algorithm("SPO")
    with pytest.raises(CommandError, match=r"unknown algorithm 'SPO'.*, file\.py:Class\)"):
        train(["SPO", "--env", "CartPole-v1"])
