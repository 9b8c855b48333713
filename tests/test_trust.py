"""Code of a run from elsewhere is run only if the caller trusts it; the user's own always is."""

import json
import shutil
import sys
from pathlib import Path

import pytest

import penstock
from bench.environments.tic_tac_toe import TicTacToe
from penstock.cli import main
from penstock.config import find_object
from penstock.imports import UntrustedCodeError
from penstock.play.policy import environment_of
from penstock.play.scoring import evaluate_run, evaluate_together
from penstock.runs.lookup import resolve_checkpoint
from penstock.trust import code_of, seals_of
from tests.runs.hostile import described

CODE = """
from pathlib import Path
import gymnasium as gym, numpy as np
from torch import nn

Path(__file__).with_suffix(".ran").touch()

class Env(gym.Env):
    observation_space = gym.spaces.Box(-1, 1, (3,), np.float32)
    action_space = gym.spaces.Discrete(2)
    def reset(self, *, seed=None, options=None):
        return np.zeros(3, np.float32), {}
    def step(self, action):
        return np.zeros(3, np.float32), 1.0, True, False, {}

class Encoder(nn.Sequential):
    output_size = 4
    def __init__(self, observation):
        super().__init__(nn.Linear(3, 4))
"""
SETTINGS = {
    "num_workers": 1, "num_envs_per_worker": 4, "segment_length": 8, "batch_size": 32, "num_epochs": 1,
    "total_steps": 64, "backend": "serial", "eval_interval": 0,
}  # fmt: skip


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A short run with a file of this user's own for environment and encoder, and the mark that it was run."""
    place = tmp_path_factory.mktemp("own")
    file = place / "code.py"
    file.write_text(CODE)
    settings = {**SETTINGS, "env": f"{file}:Env", "encoder": f"{file}:Encoder", "run_dir": str(place / "run")}
    with penstock.PPO(**settings) as trainer:
        trainer.train(quiet=True)
    return place / "run", file.with_suffix(".ran")


@pytest.fixture
def own(trained):
    """The same, with the mark removed."""
    trained[1].unlink(missing_ok=True)
    return trained


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """A short run that names no code but a class of an installed package."""
    run = tmp_path_factory.mktemp("plain") / "run"
    settings = {**SETTINGS, "env": "gymnasium.envs.classic_control:CartPoleEnv", "run_dir": str(run)}
    with penstock.PPO(**settings) as trainer:
        trainer.train(quiet=True)
    return run


def unsealed(run: Path, place: Path, **settings) -> Path:
    """A copy of a run as it comes from another user, who may have changed some settings."""
    shutil.copytree(run, place)
    for config in place.rglob("config.json"):
        record = json.loads(config.read_text())
        record["run"].pop("seals", None)
        config.write_text(json.dumps({**record, **settings}))
    for meta in place.rglob("meta.json"):
        config = {**json.loads(meta.read_text())["config"], **settings}
        described(meta.parent, config=config, seals={"a": "b"})
    return place


def test_ones_own_code_runs_from_any_folder_and_after_a_move(own, tmp_path, monkeypatch):
    run, ran = own
    monkeypatch.chdir("/")
    moved = tmp_path / "moved"
    shutil.copytree(run, moved)
    assert environment_of(penstock.load_policy(moved)).name
    assert ran.exists()
    assert main(["resume", str(moved), "--total-steps", "128"]) == 0


def test_code_of_a_run_from_elsewhere_is_refused_by_every_command_before_it_is_imported(own, tmp_path, capsys):
    run, ran = own
    copied = unsealed(run, tmp_path / "copied")
    for command in (["eval", str(copied)], ["info", str(copied)], ["resume", str(copied)],
                    ["eval", str(copied), "--video", str(tmp_path / "a.mp4")]):  # fmt: skip
        assert main(command) == 2
        told = capsys.readouterr().err
        assert f"code of the file '{ran.with_suffix('.py')}'" in told and "--trust-code" in told
    for use in (penstock.load_policy, evaluate_run, penstock.Trainer.resume):
        with pytest.raises(UntrustedCodeError, match="trust_code=True"):
            use(copied)
    assert not ran.exists()
    assert main(["eval", str(copied), "--episodes", "2", "--trust-code"]) == 0 and ran.exists()
    assert main(["resume", str(copied), "--total-steps", "128", "--trust-code"]) == 0
    assert main(["eval", str(copied), "--checkpoint", "latest", "--episodes", "2"]) == 0, "the run is one's own now"


def test_what_the_caller_names_needs_no_trust(own, tmp_path):
    run, ran = own
    copied, file = unsealed(run, tmp_path / "copied"), ran.with_suffix(".py")
    policy = penstock.load_policy(copied, encoder=f"{file}:Encoder")
    assert policy.act([0.0] * 3) in (0, 1)
    other = unsealed(run, tmp_path / "other", env="/evil.py:Env")
    with pytest.raises(UntrustedCodeError):
        environment_of(penstock.load_policy(other, encoder=f"{file}:Encoder"))


@pytest.mark.parametrize("setting", ["encoder", "learning_rate", "env"])
@pytest.mark.parametrize("place", ["evil.py:run", "evil:run", "os:getcwd", "__main__:run"])
def test_no_setting_leads_to_code_that_came_along(plain, tmp_path, monkeypatch, setting, place):
    (tmp_path / "evil.py").write_text("from pathlib import Path\nPath('evil.ran').touch()\nrun = print\n")
    monkeypatch.chdir(tmp_path)
    copied = unsealed(plain, tmp_path / "copied", **{setting: place})
    with pytest.raises(UntrustedCodeError, match=r"code of the (file|module) '"):
        penstock.Trainer.resume(copied)
    if setting != "learning_rate":  # of which an evaluation makes no use
        with pytest.raises(UntrustedCodeError, match=r"code of the (file|module) '"):
            evaluate_run(copied, episodes=1)
    with code_of({}, copied, False), pytest.raises(UntrustedCodeError):
        find_object(place, "policy_of")
    assert not (tmp_path / "evil.ran").exists() and "evil" not in sys.modules


def test_a_run_from_elsewhere_is_sent_nowhere(plain, tmp_path, monkeypatch):
    place, url = tmp_path / "place", f"file://{tmp_path}/place"
    place.mkdir()
    (place / "mine").write_text("mine")
    copied = unsealed(plain, tmp_path / "copied", run_dir=url)
    (copied / "mine").write_text("theirs")
    with pytest.raises(UntrustedCodeError, match="no seal says that this user chose it"):
        penstock.Trainer.resume(copied, total_steps=128)
    assert {path.name: path.read_text() for path in place.iterdir()} == {"mine": "mine"}
    monkeypatch.chdir(tmp_path)
    shutil.rmtree(place)
    for trust_code in (True, False):  # the resumption seals it
        with penstock.Trainer.resume(copied, trust_code=trust_code, total_steps=128) as trainer:
            trainer.train(quiet=True)
    with penstock.Trainer.resume(url, report=print, total_steps=192) as trainer:
        assert trainer.run_dir != copied


@pytest.mark.parametrize("name", ["os.getcwd", "importlib.import_module", "sys.exit"])
def test_what_a_package_imports_of_python_is_not_run(plain, tmp_path, name):
    copied = unsealed(plain, tmp_path / "copied", learning_rate=f"penstock.imports:{name}")
    with pytest.raises(UntrustedCodeError, match="code of the module '"):
        penstock.Trainer.resume(copied)
    with code_of({}, copied, False), pytest.raises(UntrustedCodeError):
        find_object(f"penstock.imports:{name}", "policy_of")


@pytest.mark.parametrize("policies", [{}, {"a": {"agents": "crosses"}, "b": {"agents": "noughts"}}])
def test_opponents_of_a_run_from_elsewhere_are_not_imported(tmp_path, policies):
    run, evil = tmp_path / "run", tmp_path / "evil.py"
    with penstock.PPO(TicTacToe, policies=policies, run_dir=str(run), **SETTINGS) as trainer:
        trainer.train(quiet=True)
    evil.write_text("raise SystemExit('it was run')")
    copied = unsealed(run, tmp_path / "copied", eval_against=[f"{evil}:run"])
    with pytest.raises(UntrustedCodeError, match=r"code of the file '.*evil\.py'"):
        if policies:
            evaluate_together({name: resolve_checkpoint(copied, policy=name) for name in policies}, env=TicTacToe)
        else:
            evaluate_run(copied, env=TicTacToe)


def test_an_algorithm_of_a_run_from_elsewhere_is_not_imported(own, tmp_path):
    run, _ = own
    file = tmp_path / "algorithm.py"
    file.write_text("raise SystemExit('it was run')")
    copied = unsealed(run, tmp_path / "copied")
    config = json.loads((copied / "config.json").read_text())
    (copied / "config.json").write_text(json.dumps({**config, "algorithm": f"{file}:Own"}))
    with pytest.raises(UntrustedCodeError):
        penstock.Trainer.resume(copied)
    checkpoint = next((copied / "checkpoints").iterdir())
    with pytest.raises(UntrustedCodeError):
        penstock.load_policy(described(checkpoint, algorithm=f"{file}:Own"))


@pytest.mark.parametrize(("env", "kwargs"), [("torch:load", {"f": "x"}), ("numpy:load", {"file": "x"})])
def test_of_packages_a_run_from_elsewhere_calls_environments_alone(plain, tmp_path, env, kwargs):
    copied = unsealed(plain, tmp_path / "copied", env=env, env_kwargs=kwargs)
    with pytest.raises(UntrustedCodeError, match="is not an environment"):
        evaluate_run(copied, episodes=1)


def test_packages_that_are_installed_need_no_trust(plain, tmp_path):
    copied = unsealed(plain, tmp_path / "copied")
    assert evaluate_run(copied, episodes=1, max_steps=20).episodes == 1


def test_a_seal_is_of_one_user_and_one_place(tmp_path, monkeypatch):
    place = str(tmp_path / "a.py")
    (seal,) = seals_of({"env": f"{place}:Env", "device": "cuda:1", "env_kwargs": {"url": "http://host:a"}}).items()
    assert seal[0] == place and len(seal[1]) == 64
    assert seals_of({"env": f"{place}:Other"}) == dict([seal]) != seals_of({"env": f"{place[:-4]}b.py:Env"})
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "other"))
    assert seals_of({"env": f"{place}:Env"}) != dict([seal])
    assert (tmp_path / "other" / "penstock" / "key").stat().st_mode & 0o777 == 0o600
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "file"))
    assert seals_of({"env": f"{place}:Env"}) == {}, "where no key can be kept nothing is sealed"
