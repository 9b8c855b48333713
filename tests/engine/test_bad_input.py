"""Bad input: one clear line, exit code 2, and nothing is left behind."""

import shutil

import gymnasium
import numpy as np
import psutil
import pytest
import torch

import penstock
from penstock.algorithms.ppo import PPO
from penstock.cli import main
from penstock.config import ConfigError
from penstock.engine.backends import launcher
from penstock.engine.trainer import Trainer
from penstock.runs.checkpoint import CheckpointError
from tests.engine.processes import TINY

pytestmark = pytest.mark.timeout(60)


class TextOnly(gymnasium.Env):
    """Has observations that no column can hold."""

    observation_space = gymnasium.spaces.Dict({"note": gymnasium.spaces.Text(4)})
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        return {"note": "a"}, {}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run that has ended, with its best and its latest checkpoint."""
    path = tmp_path_factory.mktemp("runs") / "run"
    settings = {**TINY, "eval_interval": 64, "total_steps": 128, "backend": "serial"}
    with Trainer(PPO, **settings, run_dir=str(path)) as trainer:
        trainer.train(quiet=True)
    return path


@pytest.fixture(autouse=True)
def nothing_left_behind(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = set(psutil.Process().children(recursive=True))
    yield
    launcher.discard()  # a command ends with its process, and with it what it has prepared
    assert set(psutil.Process().children(recursive=True)) <= before


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--env CartPoll-v1", "env='CartPoll-v1' is not a registered Gymnasium id. Did you mean 'CartPole-v1'"),
        ("--env no_such_module:Env", "there is no module 'no_such_module'"),
        (f"--env {__name__}:TextOnly --env-kwargs speed=3", "env_kwargs do not fit TextOnly()"),
        (f"--env {__name__}:TextOnly", "Text"),
        ("--env CartPole-v1 --num-envs-per-worker 3 --num-groups 2", "num_envs_per_worker=3 cannot be split into"),
        ("--env CartPole-v1 --total-steps 0", "total_steps=0 is not legal: total_steps must be more than 0"),
        ("--env CartPole-v1 --max-seconds -1", "max_seconds=-1.0 is not legal"),
        ("--env CartPole-v1 --backend serial --run-dir full", "'full' is not empty, and nothing is overwritten"),
        ("--env CartPole-v1 --num-workers 1 --num-envs-per-worker 100000000", "MiB are available"),
        ("--env CartPole-v1 --device cuda:99", "device='cuda:99' is not there: torch"),
    ],
)
def test_a_run_that_cannot_be_is_refused_in_one_line(flags, message, tmp_path, capsys):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter").touch()
    assert main(["train", "ppo", *flags.split()]) == 2
    out, error = capsys.readouterr()
    assert error.startswith("error: ")
    assert message in error
    assert error.count("\n") == 1
    assert out == ""
    assert [path.name for path in tmp_path.iterdir()] == ["full"]


OWN_FILE = """
import gymnasium

def nothing():
    return None

class Plain:
    pass

class Late(gymnasium.Env):
    def __init__(self):
        import no_such_module_at_all
"""


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ("--env mine.py", 2, "env='mine.py' names a file, and nothing in it: write 'mine.py:Class'"),
        ("--env :Plain", 2, "env=':Plain' names no module: write 'module:Plain' or 'file.py:Plain'"),
        ("--env mine.py:Missing", 2, "mine.py has no 'Missing', and registers no such id. It has nothing, Plain"),
        ("--env mine.py:Plain", 2, "expected a gymnasium.Env, found a Plain: a factory returns a new environment"),
        ("--env mine.py:Late", 1, "environment Late failed in make: Traceback"),
        ("--env bad.py:X", 1, "SyntaxError"),
        ("--env importing.py:X", 1, "ModuleNotFoundError: No module named 'no_such_module_at_all'"),
        ("--env CartPole-v1 --encoder mine.py:Plain", 2, "encoder Plain is not a network class: it must derive"),
        ("--env CartPole-v1 --encoder mine.py:nothing", 2, "encoder: nothing must accept one argument, the"),
        ("--env CartPole-v1 --encoder importing.py:X", 1, 'importing.py", line 1, in <module>'),
    ],
)
def test_errors_in_a_users_own_file_are_shown_without_penstocks_frames(words, code, message, tmp_path, capsys):
    (tmp_path / "mine.py").write_text(OWN_FILE)
    (tmp_path / "bad.py").write_text("class X:\n    def (\n")
    (tmp_path / "importing.py").write_text("import no_such_module_at_all\n")
    assert main(["train", "ppo", *words.split(), "--backend", "serial", "--run-dir", "None"]) == code
    out, error = capsys.readouterr()
    assert error.startswith("error: ") and message in error and out == ""
    assert "penstock/" not in error
    assert code == 1 or error.count("\n") == 1


def test_an_algorithm_that_is_none_and_a_callback_that_cannot_be_called_are_refused():
    for algorithm in ("ppo", penstock.PPO, TextOnly):
        with pytest.raises(ConfigError, match=r"algorithm=.* is not legal: .*penstock.PPO\(\"CartPole-v1\"\)"):
            Trainer(algorithm, **TINY)
    trainer = Trainer(PPO, **TINY, backend="serial", run_dir=None)
    with trainer, pytest.raises(ConfigError, match="on_update=3 is not legal: on_update must be a callable or None"):
        trainer.train(on_update=3)


def test_a_run_that_is_to_go_on_for_no_steps_is_refused_and_stays_as_it_was(run, capsys):
    before = (run / "config.json").read_text()
    assert main(["resume", str(run), "--total-steps", "0"]) == 2
    message = "error: total_steps=0 is not legal: total_steps must be more than 0\n"
    assert capsys.readouterr() == ("", message)
    assert (run / "config.json").read_text() == before


def test_unknown_and_ill_typed_fields_are_named_with_what_is_legal():
    with pytest.raises(ConfigError, match="unknown setting 'num_worker'; did you mean 'num_workers'"):
        Trainer(PPO, **TINY, num_worker=3)
    with pytest.raises(ConfigError, match="gamma='high' is not legal: gamma must be float, found str"):
        Trainer(PPO, **TINY, gamma="high")
    trainer = Trainer(PPO, **TINY, backend="serial", run_dir=None)
    with trainer, pytest.raises(ConfigError, match="steps=0 is not legal: train at least 1 step"):
        trainer.train(0)


def damage(run, tmp_path, how):
    """A copy of the run with every checkpoint damaged in one way."""
    copy = tmp_path / "copy"
    shutil.copytree(run, copy)
    for checkpoint in (copy / "checkpoints").iterdir():
        if how == "missing":
            shutil.rmtree(checkpoint)
        elif how == "truncated":
            weights = (checkpoint / "weights.safetensors").read_bytes()
            (checkpoint / "weights.safetensors").write_bytes(weights[:-100])
        else:
            (checkpoint / "meta.json").write_text('{"format": "something else"}')
    return copy


@pytest.mark.parametrize(
    ("how", "message"),
    [("missing", "holds no checkpoint"), ("truncated", "bytes instead of"), ("foreign", "is not a checkpoint of")],
)
def test_checkpoints_that_cannot_be_used_are_refused_wherever_they_are_given(how, message, run, tmp_path, capsys):
    copy = damage(run, tmp_path, how)
    for command in ("resume", "eval"):
        assert main([command, str(copy)]) == 2
        error = capsys.readouterr().err
        assert message in error
        assert error.splitlines()[-1].startswith("error: ")
        assert "Traceback" not in error
    with Trainer(PPO, **TINY, backend="serial", run_dir=None) as trainer:
        for parameters in (str(copy), {0: str(copy)}, str(copy / "checkpoints" / "128")):
            with pytest.raises(CheckpointError):
                trainer.set_parameters(parameters)


def test_weights_of_another_architecture_are_refused_and_the_first_tensor_that_differs_is_named(run, tmp_path, capsys):
    message = r"another architecture: its 'encoder.0.weight' has shape \(8, 4\), and this model's has \(9, 4\)"
    with Trainer(PPO, **{**TINY, "hidden_sizes": (9,)}, backend="serial", run_dir=None) as trainer:
        before = trainer.get_parameters()[0]
        for parameters in (str(run), {0: str(run)}):
            with pytest.raises(CheckpointError, match=message):
                trainer.set_parameters(parameters)
        with pytest.raises(CheckpointError, match=r"the parameters given is of another architecture: .* is missing"):
            trainer.set_parameters({0: {}})
        assert all(torch.equal(before[name], tensor) for name, tensor in trainer.get_parameters()[0].items())
    config = run / "config.json"
    settings = config.read_text()
    try:
        config.write_text(settings.replace('"hidden_sizes": [\n    8\n  ]', '"hidden_sizes": [9]'))
        assert main(["resume", str(run)]) == 2
        assert "another architecture: its 'encoder.0.weight'" in capsys.readouterr().err
    finally:
        config.write_text(settings)


def test_an_environment_whose_observations_do_not_fit_the_checkpoint_is_refused(run):
    class Wide(gymnasium.Env):
        observation_space = gymnasium.spaces.Box(-1, 1, (7,), np.float32)
        action_space = gymnasium.spaces.Discrete(2)

    with pytest.raises(CheckpointError, match="another architecture"):
        Trainer.resume(str(run), env=Wide)
