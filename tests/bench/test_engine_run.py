"""A training is measured from one report of the learner to another, start-up left out."""

import pytest

from penstock.algorithms import load_algorithm
from penstock.bench import BenchError
from penstock.bench.engine_run import run_engine
from penstock.config import make_config
from penstock.engine.endings import TrainingFailed
from tests.bench.environments import Breaking, Sleeping

pytestmark = pytest.mark.timeout(120)

SMALL = {"num_workers": 1, "num_envs_per_worker": 4, "hidden_sizes": (8,), "total_steps": 5_000}


def run(name, seconds=0.5, patience=60.0, **settings):
    algorithm = load_algorithm(name)
    config = make_config(algorithm.Config, {"env": "CartPole-v1", **SMALL, **settings})
    return run_engine(algorithm, config, seconds=seconds, warmup=0.2, patience=patience)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("appo", {"segment_length": 8, "batch_size": 32}),
        ("appo", {"segment_length": 8, "batch_size": 32, "backend": "serial", "target_return": 1.0}),
        ("a3c", {}),
        ("dqn", {"learning_starts": 100, "batch_size": 16}),
    ],
)
def test_the_window_holds_steps_and_the_time_of_all_roles(name, settings):
    engine = run(name, **settings)
    assert engine.steps > 0 and engine.seconds >= 0.5 and engine.rate == engine.steps / engine.seconds
    times = {role.name: role for role in engine.roles}
    assert {"rollout", "learner"} <= set(times) and times["rollout"].processes == 1
    assert times["rollout"].cpu["env"] > 0.0
    assert sum(sum(role.cpu.values()) for role in engine.roles) <= engine.cpu_seconds
    assert engine.limiting_role in times and engine.limiting_reason


def test_in_one_process_the_roles_take_turns_and_none_is_counted_while_another_works():
    engine = run("appo", seconds=3.0, segment_length=8, batch_size=32, backend="serial", total_steps=1_000_000)
    assert sum(sum(role.wall.values()) for role in engine.roles) == pytest.approx(engine.seconds, rel=0.25)


def test_a_training_that_ends_too_soon_to_be_measured_is_told(monkeypatch):
    monkeypatch.setattr("penstock.engine.trainer.Trainer.train", lambda *_, **__: None)
    with pytest.raises(BenchError, match="ended before there was anything to measure"):
        run("ppo")


def test_a_training_that_takes_too_long_is_given_up():
    with pytest.raises(BenchError, match=r"given up after 0\.5 s, with 0 steps and 0 updates"):
        run("appo", patience=0.5, env=Sleeping, segment_length=512, batch_size=8192)


def test_a_training_that_fails_is_told():
    with pytest.raises(TrainingFailed, match="the simulator is gone"):
        run("ppo", env=Breaking)
