"""Settings that are functions of progress: they reach the learner, and survive resuming."""

import json
from types import SimpleNamespace

import pytest

from penstock.algorithms.a3c import A3C
from penstock.algorithms.appo import APPO
from penstock.algorithms.dqn import DQN
from penstock.algorithms.td3 import TD3
from penstock.config import ConfigError
from penstock.engine.scheduling import ScheduleRunner
from penstock.engine.trainer import Trainer
from penstock.play.policy import load_policy
from tests.engine.inside import policy_of, supervisor_of
from tests.engine.processes import TINY, without

pytestmark = [pytest.mark.timeout(90), pytest.mark.usefixtures("kept_launcher")]

BATCH = TINY["batch_size"]
SERIAL = {**TINY, "backend": "serial", "run_dir": None}
REPLAY = {
    "env": "CartPole-v1", "num_workers": 1, "batch_size": 8, "learning_starts": 8, "hidden_sizes": (8,),
    "backend": "serial", "eval_interval": 0, "run_dir": None,
}  # fmt: skip
SOURCE = "def falling(progress):\n    return 0.5 - 0.25 * progress\n\nWORD = 'fast'\n"


def rate_of(trainer: Trainer) -> float:
    return supervisor_of(trainer).progress.policies[0].learned.learning_rate


@pytest.fixture
def schedules(tmp_path):
    (tmp_path / "schedules.py").write_text(SOURCE)
    return tmp_path / "schedules.py"


def test_a_learning_rate_follows_its_function_and_no_other_schedule():
    asked: list[float] = []

    def rate(progress: float) -> float:
        asked.append(progress)
        return 0.01 * (1.0 + progress)

    settings = {"num_epochs": 1, "num_minibatches": 1, "total_steps": 4 * BATCH, "learning_rate_schedule": "linear"}
    with Trainer(APPO, **{**SERIAL, **settings}, learning_rate=rate) as trainer:
        asked.clear()
        trainer.train(quiet=True)
        assert rate_of(trainer) == pytest.approx(0.01 * 1.75)
        trainer.train(BATCH, quiet=True)
    assert asked[-5:] == [pytest.approx(n / 4) for n in range(4)] + [1.0], "beyond the budget progress stays at 1"


def test_the_values_of_a_moment_are_set_once():
    """A value set from outside after that moment stays until the next one."""
    tuned, progress = [], SimpleNamespace(steps=50, tuned={})
    policy = SimpleNamespace(scheduled=None, tune=tuned.append, tuned={})
    schedule = {0: {"learning_rate": 0.1}, 100: {"learning_rate": 0.2}}
    runner = ScheduleRunner(schedule, [policy], SimpleNamespace(policies=[progress]))
    for progress.steps in (60, 100, 100, 150):
        runner.schedule()
    assert tuned == [{"learning_rate": 0.1}, {"learning_rate": 0.2}]


def test_an_entropy_bonus_follows_its_function():
    asked: list[float] = []
    settings = {"num_epochs": 1, "num_minibatches": 1, "total_steps": 2 * BATCH}
    with Trainer(APPO, **{**SERIAL, **settings}, entropy_coef=lambda p: asked.append(p) or 0.1 * (1.0 - p)) as trainer:
        asked.clear()
        trainer.train(quiet=True)
    assert sorted(set(asked)) == [0.0, 0.5]


def test_who_learns_from_replay_follows_functions_too_each_optimiser_its_own():
    with Trainer(DQN, **REPLAY, total_steps=40, learning_rate=lambda progress: 0.01 * (1.0 - progress)) as trainer:
        trainer.train(quiet=True)
        assert 0.0 < rate_of(trainer) < 0.001
    settings = {**REPLAY, "env": "Pendulum-v1", "total_steps": 40, "learning_rate": 0.01}
    with Trainer(TD3, **settings, actor_learning_rate=lambda progress: 0.001 * progress) as trainer:
        trainer.train(quiet=True)
        rates = {name: o.param_groups[0]["lr"] for name, o in policy_of(trainer).algorithm.optimizers.items()}
    assert rates["critic"] == 0.01 and 0.0009 < rates["actor"] < 0.001


def test_workers_that_learn_themselves_follow_functions_too():
    settings = {**without(SERIAL, "batch_size"), "total_steps": 640}
    with Trainer(A3C, **settings, learning_rate=lambda progress: 0.02 - 0.01 * progress) as trainer:
        trainer.train(quiet=True)
        assert 0.01 < rate_of(trainer) < 0.012


def test_any_function_travels_to_the_learners_process(tmp_path):
    scale = 0.25
    settings = {**TINY, "run_dir": tmp_path / "run", "total_steps": 320}
    with Trainer(APPO, **settings, learning_rate=lambda progress: scale + 0.0 * progress) as trainer:
        trainer.train(quiet=True)
        assert rate_of(trainer) == 0.25
    recorded = json.loads((tmp_path / "run" / "config.json").read_text())["learning_rate"]
    assert recorded.startswith("tests.engine.test_schedules:") and recorded.endswith("<lambda>")
    assert load_policy(tmp_path / "run").meta["steps"] == 320, "a policy does not need it"
    with pytest.raises(ConfigError, match=r"must be given again: learning_rate=\.\.\."):
        Trainer.resume(tmp_path / "run", total_steps=640)
    with Trainer.resume(tmp_path / "run", total_steps=640, learning_rate=lambda progress: 0.125) as trainer:
        trainer.train(quiet=True)
        assert rate_of(trainer) == 0.125


def test_a_function_of_a_file_is_named_in_the_runs_config_and_found_again_at_its_resume(schedules, tmp_path):
    settings = {**SERIAL, "run_dir": tmp_path / "run", "total_steps": 10 * BATCH, "num_minibatches": 1}
    with Trainer(APPO, **settings, learning_rate=f"{schedules}:falling") as trainer:
        trainer.train(5 * BATCH, quiet=True)
        assert rate_of(trainer) == pytest.approx(0.5 - 0.25 * 0.4)
    assert json.loads((tmp_path / "run" / "config.json").read_text())["learning_rate"] == f"{schedules}:falling"
    with Trainer.resume(str(tmp_path / "run"), total_steps=20 * BATCH) as trainer:
        trainer.train(BATCH, quiet=True)
        assert rate_of(trainer) == pytest.approx(0.5 - 0.25 * 0.25), "progress is the share of the new budget"


@pytest.mark.parametrize(
    ("rate", "message"),
    [
        ("3e-4", "learning_rate='3e-4' is not legal: learning_rate must be a number, or a function of progress"),
        ("linear", 'did you mean learning_rate_schedule="linear"?'),
        (lambda progress: 0.1 - progress, "function of progress that returns -0.4 at 0.5: it must return a finite"),
        (lambda progress: "0.1", "function of progress that returns '0.1' at 0"),
        (lambda progress: 0.1 / progress, "function of progress that fails at 0: ZeroDivisionError"),
        (lambda: 0.1, "function of progress that fails at 0: TypeError"),
    ],
)
def test_a_schedule_that_is_none_is_refused_before_anything_starts(rate, message):
    with pytest.raises(ConfigError) as refusal:
        Trainer(APPO, **SERIAL, learning_rate=rate)
    assert message in str(refusal.value)


def test_a_schedule_that_cannot_be_found_is_refused_with_the_closest(schedules):
    with pytest.raises(ConfigError, match="has no 'faling'; did you mean 'falling'"):
        Trainer(APPO, **SERIAL, learning_rate=f"{schedules}:faling")
    with pytest.raises(ConfigError, match="is a str, not a function of progress"):
        Trainer(APPO, **SERIAL, learning_rate=f"{schedules}:WORD")


def test_a_bonus_that_is_a_function_says_itself_where_it_ends():
    with pytest.raises(ConfigError, match="a function, which also gives the final value: use entropy_coef_final=None"):
        Trainer(APPO, **SERIAL, entropy_coef=lambda progress: 0.1, entropy_coef_final=0.0)
