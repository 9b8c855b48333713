"""Checkpoints of a run: what they hold, how many are kept, and that a run goes on from them."""

import itertools
import json
import re
from types import SimpleNamespace

import pytest

import penstock
from penstock.algorithms.appo import APPO
from penstock.algorithms.dqn import DQN
from penstock.algorithms.impala import IMPALA
from penstock.algorithms.ppo import PPO
from penstock.cli import main
from penstock.config import ConfigError
from penstock.engine.trainer import Trainer
from penstock.runs.checkpoint import load_checkpoint
from penstock.runs.reading import RecordedRun
from penstock.runs.run_directory import RunDirectory
from tests.comparing import identical
from tests.engine.broken_environment import Counting
from tests.engine.inside import arena_of, supervisor_of
from tests.engine.processes import TINY, script, without
from tests.engine.reports import Reports
from tests.envs.two_sides import TwoSides
from tests.kept_files import contents

pytestmark = [pytest.mark.timeout(90), pytest.mark.usefixtures("kept_launcher")]


def checkpoints_of(path) -> list[int]:
    return RunDirectory.open(path).checkpoints.steps()


def test_a_run_goes_on_where_it_stopped_and_beyond(tmp_path):
    path = tmp_path / "run"
    settings = {**TINY, "eval_interval": 300, "keep_checkpoints": 2, "total_steps": 1_000}
    settings["learning_rate_schedule"] = "constant"  # a run that goes on begins with its own rate
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
    assert identical(latest.weights, final)
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
        assert identical(copy.state, latest.state)
        assert identical(copy.weights, latest.weights)
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


@pytest.mark.parametrize("policies", [None, {"one": {"agents": "hunter_*"}, "two": {"agents": "prey"}}])
def test_a_run_that_ended_before_its_first_checkpoint_begins_again_in_its_directory(policies, tmp_path):
    path, reports = tmp_path / "run", Reports()
    settings = {**TINY, "backend": "serial", "total_steps": 256, "run_dir": str(path)}
    settings |= {} if policies is None else {"env": TwoSides, "policies": policies}
    with Trainer(PPO, **settings):  # as of a process that was killed
        (path / "metrics.jsonl").write_text('{"steps": 64, "seconds": 1.0, "time": 2.0, "steps_per_second": 3.0}\n')
    with Trainer.resume(path, report=reports.append, max_seconds=60.0) as trainer:
        assert trainer.train(quiet=True).steps >= 256 and trainer.config.max_seconds == 60.0
    assert reports == [f"{path} ended before its first checkpoint, and begins again at step 0"]
    lines = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    assert lines[0]["steps_per_second"] == 3.0 and lines[1]["steps"] == 0 and lines[1]["resumed"] is True
    _, values = RecordedRun.open(path).points("steps", "steps_per_second")
    assert len(values) and 3.0 not in values


def test_a_damaged_last_checkpoint_is_reported_and_the_one_before_is_used(tmp_path, capsys):
    path = tmp_path / "run"
    settings = {**TINY, "backend": "serial", "total_steps": 256, "run_dir": str(path)}
    with Trainer(APPO, **settings) as trainer:
        trainer.train(128, quiet=True)
        trainer.train(quiet=True)
    *_, before, last = checkpoints_of(path)
    weights = path / "checkpoints" / str(last) / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    reports = Reports()
    with Trainer.resume(str(path), report=reports.append) as trainer:
        assert trainer.status.steps == before
    assert len(reports) == 1
    assert f"{last} is damaged" in reports[0]
    assert main(["resume", str(path)]) == 0
    out, error = capsys.readouterr()
    assert error.startswith("warning: ")
    assert "using the previous one" in error
    assert "done after" in out


def test_a_run_is_resumed_by_the_trainer_of_its_algorithm_or_of_any(tmp_path):
    path = tmp_path / "run"
    with Trainer(APPO, **TINY, backend="serial", run_dir=str(path)) as trainer:
        trainer.train(64, quiet=True)
    before = contents(path)
    with pytest.raises(ConfigError, match=r"is a run of appo, not of sac: use penstock.Trainer.resume$"):
        penstock.SAC.resume(str(path), learning_rate=1e-3)
    assert contents(path) == before
    with penstock.APPO.resume(str(path)) as trainer:
        assert trainer.status.steps >= 64


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
        first = arena_of(trainer).columns["obs"].copy()
    with Trainer.resume(str(tmp_path / "run"), total_steps=128) as trainer:
        trainer.train(quiet=True)
        again = arena_of(trainer).columns["obs"]
        assert again.shape == first.shape
        assert not (again == first).all(axis=1).any()


def optimizers_of(trainer, path):
    """States of the optimisers, as a checkpoint holds them."""
    trainer.save(str(path))
    state = load_checkpoint(path).state
    return state["optimizers"].values() if "optimizers" in state else [state["optimizer"]]


REPLAY = {
    **without(TINY, "segment_length"), "learning_starts": 32, "buffer_size": 500, "optimizer": "rmsprop",
}  # fmt: skip


@pytest.mark.parametrize(
    ("algorithm", "settings", "changes", "option"),
    [
        (IMPALA, TINY, {"rmsprop_eps": 0.5, "rmsprop_decay": 0.5}, {"eps": 0.5, "decay": 0.5}),
        (DQN, REPLAY, {"optimizer_eps": 0.5, "updates_per_step": 1.5, "learning_starts": 64}, {"eps": 0.5}),
    ],
    ids=["segments", "replay"],
)
def test_settings_that_change_within_a_run_win_over_what_is_restored_and_are_written_down(
    algorithm, settings, changes, option, tmp_path
):
    path = tmp_path / "run"
    settings = {**settings, "backend": "serial", "num_workers": 1, "total_steps": 256, "learning_rate": 1e-3}
    with Trainer(algorithm, **settings, run_dir=str(path)) as trainer:
        trainer.train(quiet=True)
        (gathered, *_) = [optimizer["state"] for optimizer in optimizers_of(trainer, tmp_path / "before")]
    changes = {
        **changes, "learning_rate": 2e-5, "total_steps": 512, "target_return": 1e6, "eval_episodes": 3,
        "eval_interval": 64, "keep_checkpoints": 1, "num_envs_per_worker": 4, "learning_rate_schedule": "constant",
    }  # fmt: skip
    with Trainer.resume(path, **changes) as trainer:
        for optimizer in optimizers_of(trainer, tmp_path / "at once"):
            assert {name: optimizer["param_groups"][0][name] for name in option} == option
            assert identical(optimizer["state"], gathered)
        result = trainer.train(quiet=True)
        assert result.steps >= 512 and result.target_return == 1e6
        optimizers = optimizers_of(trainer, tmp_path / "after")
        assert {optimizer["param_groups"][0]["lr"] for optimizer in optimizers} == {2e-5}
        assert supervisor_of(trainer).progress.policies[0].evaluation.episodes == 3
    run = RunDirectory.open(path)
    assert {name: run.config[name] for name in changes} == changes
    assert len(run.checkpoints.steps()) == 1
    log = (path / "log.txt").read_text()
    assert "resumed at step 256 with " in log
    assert "learning_rate=2e-05 (was 0.001)" in log and "total_steps=512 (was 256)" in log


def test_a_run_of_a_cluster_goes_on_here_without_its_settings_of_nodes(tmp_path, capsys):
    path = tmp_path / "run"
    with Trainer(PPO, **TINY, total_steps=64, run_dir=str(path)) as trainer:
        trainer.train(quiet=True)
    file = path / "config.json"
    record = json.loads(file.read_text())
    of_nodes = {"address": "auto", "nodes": 2, "evaluator": "node", "num_evaluators": 2, "node_weights": "bfloat16"}
    record |= {"backend": "ray", **of_nodes}
    file.write_text(json.dumps(record))
    with pytest.raises(ConfigError, match="nodes=3 is for backend=\"ray\""):
        Trainer.resume(path, backend="local", nodes=3)
    assert main(["resume", str(path), "--backend", "local", "--total-steps", "128"]) == 0
    said = "backend='local' has no nodes: nodes=1, node_weights='float32', address=None, evaluator='home'"
    assert said in capsys.readouterr().out
    now = RunDirectory.open(path).config
    assert [now[name] for name in of_nodes] == [None, 1, "home", 1, "float32"]


def test_what_cannot_change_is_refused_and_nothing_is_written_down(tmp_path):
    path = tmp_path / "run"
    with Trainer(APPO, **TINY, backend="serial", total_steps=64, run_dir=str(path)) as trainer:
        trainer.train(quiet=True)
    before = (path / "config.json").read_bytes()
    with pytest.raises(ConfigError, match=r"hidden_sizes=\(9,\) is not legal here: .* is \(8,\) in this one"):
        Trainer.resume(str(path), hidden_sizes=(9,), total_steps=128)
    assert (path / "config.json").read_bytes() == before


def test_a_run_that_its_time_ended_goes_on_with_the_command_that_it_prints(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ticks = itertools.count()
    clock = SimpleNamespace(monotonic=lambda: 0.02 * next(ticks))  # seconds of the supervisor's turns alone
    for module in ("endings", "opening", "supervisor", "trainer"):
        monkeypatch.setattr(f"penstock.engine.{module}.time", clock)
    flags = "--env CartPole-v1 --backend serial --num-workers 1 --hidden-sizes 8 --run-dir run --eval-interval 0"
    small = "--num-envs-per-worker 2 --segment-length 8 --batch-size 16 --max-seconds 1"
    assert main(["train", "appo", *flags.split(), *small.split()]) == 0
    first = RunDirectory.open("run").checkpoints.latest().meta
    (command,) = re.findall(r"resume:   penstock (.*)", capsys.readouterr().out)
    assert command == "resume run --max-seconds 1"
    assert main([*command.split(), "--eval-episodes", "3"]) == 0
    (command,) = re.findall(r"resume:   penstock (.*)", capsys.readouterr().out)
    run = RunDirectory.open("run")
    assert run.checkpoints.latest().meta["steps"] > first["steps"]
    assert run.config["max_seconds"] == pytest.approx(first["seconds"] + 1.0, abs=1e-3)


OWN_ENVIRONMENTS = f"""
import gymnasium
import numpy as np
import penstock
from penstock.engine.backends import launcher
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
with launcher.kept():
    for env, folder in ((Own, "by_class"), ("Own-v0", "by_id")):
        with penstock.APPO(**{{**settings, "env": env}}, run_dir=folder) as algo:
            print(folder, algo.train(quiet=True).steps >= 64, algo.evaluate(4).mean_return)
    with Trainer.resume("by_id", total_steps=128) as algo:
        print("resumed", algo.train(quiet=True).steps >= 128)
"""


@pytest.mark.long
def test_environments_that_exist_only_in_the_users_script_train_without_a_main_guard(tmp_path):
    with script(OWN_ENVIRONMENTS, tmp_path) as process:
        out, _ = process.communicate()
    assert process.returncode == 0, out
    assert out.splitlines() == ["by_class True 5.0", "by_id True 5.0", "resumed True"]


def test_a_class_that_its_name_does_not_lead_to_can_be_given_anew(tmp_path):
    class Local(Counting):
        """Cannot be imported: it is local to this function."""

    path = tmp_path / "run"
    settings = {**TINY, "env": Local, "backend": "serial", "total_steps": 64, "run_dir": str(path)}
    with Trainer(APPO, **settings) as trainer:
        trainer.train(quiet=True)
    with pytest.raises(ValueError, match="Local"):
        Trainer.resume(str(path))
    with Trainer.resume(str(path), env=Local, total_steps=128) as trainer:
        assert trainer.train(quiet=True).steps >= 128
