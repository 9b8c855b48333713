"""Checkpoints of a run: what they hold, how many are kept, and that a run goes on from them."""

import pytest
import torch

from penstock.algorithms.appo import APPO
from penstock.algorithms.ppo import PPO
from penstock.cli import main
from penstock.engine.trainer import Trainer
from penstock.runs.checkpoint import load_checkpoint
from penstock.runs.run_directory import RunDirectory
from tests.engine.broken_environment import Counting
from tests.engine.processes import TINY, script

pytestmark = [pytest.mark.timeout(90), pytest.mark.usefixtures("kept_launcher")]


def same(a, b) -> bool:
    """Whether two trees of tensors and plain values are equal."""
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b


def checkpoints_of(path) -> list[int]:
    return RunDirectory.open(path).checkpoints.steps()


def test_a_run_goes_on_where_it_stopped_and_beyond(tmp_path):
    path = tmp_path / "run"
    settings = {**TINY, "eval_interval": 300, "keep_checkpoints": 2, "total_steps": 1_000}
    with Trainer(APPO, **settings, run_dir=str(path)) as trainer:
        for _ in range(3):
            trainer.train(200, quiet=True)
        ended = trainer.train(quiet=True)
        final = trainer.get_parameters()[0]
        status = trainer.status

    store = RunDirectory.open(path).checkpoints
    latest, best = store.latest(), store.best()
    assert len(store.steps()) == 2
    assert store.steps()[-1] == ended.steps
    assert same(latest.weights, final)
    counters = {"steps": ended.steps, "version": status.version, "updates": status.updates}
    assert {name: latest.meta[name] for name in counters} == counters
    assert {name: latest.state[name] for name in counters} == counters
    assert 0.0 < latest.meta["seconds"] <= ended.seconds
    assert latest.meta["config"]["hidden_sizes"] == [8]
    assert best.meta["mean_return"] == status.best_return
    assert 0 < best.meta["steps"] <= ended.steps
    assert best.state is None

    with Trainer.resume(str(path), total_steps=2_000) as trainer:
        trainer.save(str(tmp_path / "copy"))
        copy = load_checkpoint(tmp_path / "copy")
        assert same(copy.state, latest.state)
        assert same(copy.weights, latest.weights)
        assert trainer.status.best_return == best.meta["mean_return"]
        result = trainer.train(quiet=True)
        assert result.steps >= 2_000 > ended.steps
        assert result.seconds > latest.meta["seconds"]
        assert trainer.status.updates > status.updates
        assert store.best().meta["mean_return"] == trainer.status.best_return >= best.meta["mean_return"]
    assert store.latest().meta["steps"] == result.steps
    optimizer = store.latest().state["optimizer"]["state"][0]
    assert optimizer["step"] == store.latest().meta["updates"]
    assert RunDirectory.open(path).config["total_steps"] == 2_000  # the run's own from now on


def test_a_damaged_last_checkpoint_is_reported_and_the_one_before_is_used(tmp_path, capsys):
    path = tmp_path / "run"
    settings = {**TINY, "backend": "serial", "total_steps": 256, "run_dir": str(path)}
    with Trainer(APPO, **settings) as trainer:
        trainer.train(128, quiet=True)
        trainer.train(quiet=True)
    *_, before, last = checkpoints_of(path)
    weights = path / "checkpoints" / str(last) / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    reports = []
    with Trainer.resume(str(path), report=reports.append) as trainer:
        assert trainer.status.steps == before
    assert len(reports) == 1
    assert f"{last} is damaged" in reports[0]
    assert main(["resume", str(path)]) == 0
    out, error = capsys.readouterr()
    assert error.startswith("warning: ")
    assert "using the one before" in error
    assert "done after" in out


def test_worse_weights_never_take_the_place_of_the_best(tmp_path):
    path = tmp_path / "run"
    settings = {**TINY, "backend": "serial", "eval_interval": 64, "total_steps": 256, "run_dir": str(path)}
    with Trainer(APPO, **settings) as trainer:
        trainer.train(quiet=True)
    store = RunDirectory.open(path).checkpoints
    best = store.best()
    store.save_best(best.meta["steps"], meta={"mean_return": 1e6}, weights=best.weights)
    with Trainer.resume(str(path), total_steps=512) as trainer:
        assert trainer.train(quiet=True).eval_return < 1e6
        assert trainer.status.best_return == 1e6
    assert store.best().meta["mean_return"] == 1e6


def test_a_resumed_run_does_not_play_its_first_episodes_again(tmp_path):
    settings = {**TINY, "backend": "serial", "total_steps": 64, "learning_rate": 1e-30, "normalize_observations": False}
    with Trainer(PPO, **settings, run_dir=str(tmp_path / "run")) as trainer:
        trainer.train(quiet=True)
        first = trainer._arena.columns["obs"].copy()
    with Trainer.resume(str(tmp_path / "run"), total_steps=128) as trainer:
        trainer.train(quiet=True)
        again = trainer._arena.columns["obs"]
        assert again.shape == first.shape
        assert not (again == first).all(axis=1).any()


OWN_ENVIRONMENTS = f"""
import gymnasium
import numpy as np
import penstock
from penstock.engine.trainer import Trainer


class Own(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = 5
        return np.zeros(2, np.float32), {{}}

    def step(self, action):
        self.left -= 1
        return np.ones(2, np.float32), 1.0, self.left == 0, False, {{}}


gymnasium.register("Own-v0", entry_point=Own)
settings = {{**{TINY!r}, "total_steps": 64}}
for env, folder in ((Own, "by_class"), ("Own-v0", "by_id")):
    with penstock.APPO(**{{**settings, "env": env}}, run_dir=folder) as algo:
        print(folder, algo.train(quiet=True).steps >= 64, algo.evaluate(4).mean_return)
with Trainer.resume("by_id", total_steps=128) as algo:
    print("resumed", algo.train(quiet=True).steps >= 128)
"""


def test_environments_that_exist_only_in_the_users_script_train_without_a_main_guard(tmp_path):
    with script(OWN_ENVIRONMENTS, tmp_path) as process:
        out, _ = process.communicate()
    assert process.returncode == 0, out
    assert out.splitlines() == ["by_class True 5.0", "by_id True 5.0", "resumed True"]


def test_a_class_that_its_name_does_not_lead_to_can_be_given_anew(tmp_path):
    class Local(Counting):
        """Nobody outside this function finds it."""

    path = tmp_path / "run"
    settings = {**TINY, "env": Local, "backend": "serial", "total_steps": 64, "run_dir": str(path)}
    with Trainer(APPO, **settings) as trainer:
        trainer.train(quiet=True)
    with pytest.raises(ValueError, match="Local"):
        Trainer.resume(str(path))
    with Trainer.resume(str(path), env=Local, total_steps=128) as trainer:
        assert trainer.train(quiet=True).steps >= 128
