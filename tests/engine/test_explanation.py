"""Plots of redistributed rewards: with and without pictures, and the message without rewards."""

import sys

import numpy as np
import pytest

import penstock
from penstock import cli
from penstock.config import ConfigError
from penstock.play.policy import Policy, load_policy
from penstock.rudder.explanation import explain_run, explained, play
from penstock.rudder.predictor import build_predictor
from tests.engine.inside import policy_of
from tests.envs.counting import CountingEnv

pytestmark = [pytest.mark.timeout(120), pytest.mark.usefixtures("kept_launcher")]
SMALL = {
    "num_workers": 1, "num_envs_per_worker": 2, "segment_length": 8, "batch_size": 16, "hidden_sizes": (8,),
    "total_steps": 200, "backend": "serial", "eval_interval": 0,
}  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "run"
    with penstock.PPO("CartPole-v1", rewards="rudder", run_dir=path, **SMALL) as algo:
        algo.train(quiet=True)
    return path


def checkpoint_of(path):
    return next(p for p in sorted((path / "checkpoints").iterdir()) if p.name.isdigit())


def test_an_episode_is_drawn_with_pictures_from_the_command_line(run, tmp_path, capsys):
    pytest.importorskip("pygame")
    file = tmp_path / "rewards.png"
    assert cli.main(["eval", str(run), "--episodes", "2", "--explain", str(file)]) == 0
    assert file.read_bytes().startswith(b"\x89PNG") and f"explanation: {file}" in capsys.readouterr().out


def test_what_is_drawn_adds_up_to_the_return():
    with penstock.PPO("CartPole-v1", rewards="rudder", run_dir=None, **SMALL) as algo:
        algo.train(quiet=True)
        parameters, algorithm = algo.get_parameters()[0], policy_of(algo).algorithm
    model = algorithm.build_model()
    model.load_state_dict(parameters)
    policy = Policy(algorithm, model, {})
    played = play(policy, deterministic=True, seed=3)
    redistributed, predicted = explained(policy, build_predictor(algorithm), played)
    assert played.terminated and len(played.obs) == len(redistributed) == len(predicted)
    assert redistributed.sum() == pytest.approx(played.reward.sum(), abs=1e-3)
    assert not np.allclose(redistributed, played.reward)


def test_an_environment_that_does_not_draw_gets_curves_alone(tmp_path):
    with penstock.PPO(CountingEnv, rewards="rudder", run_dir=tmp_path / "run", **SMALL) as algo:
        algo.train(quiet=True)
    path = checkpoint_of(tmp_path / "run")
    assert not play(load_policy(path), deterministic=True, seed=0).pictures
    explain_run(path, str(tmp_path / "rewards.svg"))
    assert "<svg" in (tmp_path / "rewards.svg").read_text()


def test_a_run_without_a_redistributor_has_nothing_to_explain(tmp_path):
    with penstock.PPO("CartPole-v1", run_dir=tmp_path / "run", **SMALL) as algo:
        algo.train(quiet=True)
    with pytest.raises(ConfigError, match=r"belongs to no run with a redistributor .* Train with rewards='rudder'"):
        explain_run(checkpoint_of(tmp_path / "run"), str(tmp_path / "rewards.png"))


@pytest.mark.parametrize(
    ("file", "message"),
    [("a.gif", "a plot's name must end in one of .png, .svg"), ("/nowhere/a.png", "there is no directory /nowhere")],
)
def test_a_plot_that_could_not_be_written_is_refused_before_anything_is_played(run, file, message):
    with pytest.raises(ConfigError, match=message):
        explain_run(checkpoint_of(run), file)


def test_without_matplotlib_the_extra_is_named(run, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ConfigError, match=r"pip install 'penstock\[plot\]'"):
        explain_run(checkpoint_of(run), str(tmp_path / "rewards.png"))
