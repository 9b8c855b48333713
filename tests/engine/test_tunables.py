"""Settings that change while a run goes on: the learner reads them before every batch, and nothing restored wins."""

import numpy as np
import pytest

import penstock
from penstock.config import ConfigError, tunable_settings
from penstock.engine.roles.learner import Tunables
from tests.engine.inside import learner_of, role_of

SERIAL = {"backend": "serial", "run_dir": None, "num_workers": 1, "eval_interval": 0, "hidden_sizes": (8,),
          "learning_rate_schedule": "constant"}  # fmt: skip
PPO = {**SERIAL, "env": "CartPole-v1", "num_envs_per_worker": 2, "segment_length": 16, "batch_size": 32,
       "num_epochs": 1, "total_steps": 4_000}  # fmt: skip
REPLAY = {**SERIAL, "env": "Pendulum-v1", "batch_size": 8, "learning_starts": 32, "total_steps": 1_000}


def test_what_is_set_reaches_live_groups_betas_and_the_loss_before_the_next_batch():
    with penstock.PPO(**PPO) as trainer:
        trainer.train(64, quiet=True)
        state = learner_of(trainer)._updater.optimizer.state_dict()["state"]
        trainer.set_hyperparameters(
            {"learning_rate": 0.02, "adam_beta1": 0.5, "adam_eps": 1e-3, "clip_range": 0.1, "entropy_coef": 0.5,
             "gamma": 0.9}
        )  # fmt: skip
        trainer.train(32, quiet=True)
        learner = learner_of(trainer)
        group = learner._updater.optimizer.param_groups[0]
        config = learner._algorithm.config
        assert (group["lr"], group["betas"], group["eps"]) == (0.02, (0.5, 0.999), 1e-3)
        assert (config.clip_range, config.entropy_coef, config.gamma) == (0.1, 0.5, 0.9)
        assert trainer.get_hyperparameters()["gamma"] == 0.9 and trainer.status.tuned["learning_rate"] == 0.02
        assert learner._updater.optimizer.state_dict()["state"][0]["step"] == state[0]["step"]


def test_a_schedule_multiplies_the_value_that_is_set():
    with penstock.PPO(**{**PPO, "learning_rate_schedule": "linear", "total_steps": 64}) as trainer:
        trainer.train(32, quiet=True)
        trainer.set_hyperparameters({"learning_rate": 0.02})
        trainer.train(32, quiet=True)
        assert trainer.status.learning_rate == pytest.approx(0.02 * (1 - 32 / 64))


def test_each_optimiser_of_a_replay_learner_has_its_own_rate():
    with penstock.TD3(**REPLAY, actor_learning_rate=1e-4) as trainer:
        trainer.train(100, quiet=True)
        trainer.set_hyperparameters({"learning_rate": 0.02, "actor_learning_rate": 0.01, "tau": 0.5})
        trainer.train(20, quiet=True)
        algorithm = learner_of(trainer)._algorithm
        rates = {name: each.param_groups[0]["lr"] for name, each in algorithm.optimizers.items()}
        assert rates == {"critic": 0.02, "actor": 0.01} and algorithm.config.tau == 0.5


def test_workers_that_learn_themselves_get_changed_settings():
    settings = {**SERIAL, "env": "CartPole-v1", "num_envs_per_worker": 2, "segment_length": 8, "total_steps": 4_000}
    with penstock.A3C(**settings) as trainer:
        trainer.train(64, quiet=True)
        trainer.set_hyperparameters({"learning_rate": 0.02, "rmsprop_decay": 0.5})
        trainer.train(32, quiet=True)
        actor = role_of(trainer, "rollout-0")._policy_lanes[0]._actor
        group = actor._shared.optimizer.param_groups[0]
        assert (group["lr"], group["decay"], trainer.status.learning_rate) == (0.02, 0.5, 0.02)


@pytest.mark.timeout(60)
@pytest.mark.usefixtures("kept_launcher")
def test_in_processes_too_and_a_resume_restores_it_unless_it_says_otherwise(tmp_path):
    settings = {**PPO, "backend": "local", "run_dir": str(tmp_path / "run")}
    with penstock.PPO(**settings) as trainer:
        trainer.train(64, quiet=True)
        trainer.set_hyperparameters({"learning_rate": 0.02, "gamma": 0.9})
        trainer.train(64, quiet=True)
        assert trainer.status.learning_rate == 0.02
    with penstock.PPO.resume(tmp_path / "run", learning_rate=0.03, backend="serial") as trainer:
        assert {"learning_rate": 0.03, "gamma": 0.9}.items() <= trainer.get_hyperparameters().items()
        trainer.train(32, quiet=True)
        assert learner_of(trainer)._updater.optimizer.param_groups[0]["lr"] == 0.03
        assert learner_of(trainer)._algorithm.config.gamma == 0.9
    metrics = (tmp_path / "run" / "metrics.jsonl").read_text()
    assert '"tuned/gamma": 0.9' in metrics


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"learning_rat": 0.1}, "unknown setting 'learning_rat'; did you mean 'learning_rate'?"),
        ({"segment_length": 8}, "segment_length cannot change during a run.*tunable: gamma, learning_rate"),
        ({"hidden_sizes": 8}, "hidden_sizes cannot change during a run: the run's weights belong to this"),
        ({"clip_range": -1.0}, "clip_range=-1.0 is not legal"),
        ({"target_kl": 0.1}, "target_kl cannot be tuned in a run with target_kl=None"),
        ({7: {"gamma": 0.9}}, r"policies \[7\]; this run has \[0\]"),
    ],
)
def test_what_cannot_be_tuned_is_refused_and_nothing_is_changed(settings, message):
    with penstock.PPO(**PPO) as trainer:
        before = trainer.get_hyperparameters()
        with pytest.raises(ConfigError, match=message):
            trainer.set_hyperparameters({"gamma": 0.5, **settings} if 7 not in settings else settings)
        assert trainer.get_hyperparameters() == before


def test_a_setting_given_by_keyword_is_answered_with_how_settings_are_given():
    with penstock.PPO(**PPO) as trainer, pytest.raises(TypeError, match=r'one dict: set_hyperparameters\(\{"learning_'):
        trainer.set_hyperparameters(learning_rate=0.1)


def test_gamma_is_part_of_what_a_replay_buffer_stores():
    with penstock.TD3(**REPLAY) as trainer, pytest.raises(ConfigError, match=r"gamma .* stored with it"):
        trainer.set_hyperparameters({"gamma": 0.9})


def test_a_field_says_that_it_is_tunable_once_and_a_subclass_need_not_repeat_it():
    from penstock.algorithms.ppo import PPOConfig

    assert {"learning_rate", "clip_range"} <= set(tunable_settings(PPOConfig))  # both have other defaults there
    assert "batch_size" not in tunable_settings(PPOConfig)


def test_a_value_that_is_being_written_is_news_later():
    row = np.zeros(64)
    ours, theirs = Tunables(row, ["a", "b"]), Tunables(row, ["a", "b"])
    assert theirs.news() is None
    ours.write({"a": 1.0})
    row[0] += 1  # the next change has begun
    assert theirs.news() is None
    row[0] += 1
    assert theirs.news() == {"a": 1.0} and theirs.news() is None
    ours.write({})
    assert theirs.news() == {}
