"""The serial engine: bit for bit reproducible, and exact in its accounts."""

from typing import Any

import numpy as np
import pytest
import torch

import penstock
from penstock.engine.backends.restarts import Restarts
from penstock.engine.backends.serial import SerialBackend
from penstock.engine.roles import specs as roles
from penstock.experience.arena import Control, ExperienceArena
from tests.comparing import identical
from tests.engine.collecting import TINY, Witnessed
from tests.engine.inside import arena_of, supervisor_of
from tests.envs.counting import CountingEnv
from tests.experience.writing import run_shape

SERIAL: dict[str, Any] = {
    **TINY, "num_workers": 2, "num_envs_per_worker": 2, "num_epochs": 2, "total_steps": 400, "learning_rate": 3e-3,
    "seed": 3, "backend": "serial", "eval_interval": 0, "run_dir": None,
}  # fmt: skip
APPO = {"num_minibatches": 1}
ONE_PASS = {"without": ("num_epochs",)}
ALL_LANES = {"without": ("num_epochs", "batch_size")}
PENDULUM = {"env": "Pendulum-v1", "num_envs_per_worker": 4, "num_workers": 1}


def trained(algorithm, *calls, without=(), **settings):
    """The weights after some calls of train, for as many steps each, of an algorithm that has not all settings."""
    settings = {name: value for name, value in {**SERIAL, **settings}.items() if name not in without}
    with algorithm(**settings) as trainer:
        for steps in calls:
            result = trainer.train(steps, quiet=True)
        return trainer.get_parameters()[0], result


RUNS = [
    pytest.param(penstock.PPO, {}, id="ppo"),
    pytest.param(penstock.PPO, {"memory": "gru"}, id="ppo-gru"),
    pytest.param(penstock.PPO, {**PENDULUM, "normalize_returns": True}, id="ppo-continuous"),
    pytest.param(penstock.APPO, APPO, id="appo"),
    pytest.param(penstock.APPO, {**APPO, "memory": "gru"}, id="appo-gru"),
    pytest.param(penstock.APPO, {**APPO, "memory": "lstm", "advantage_estimator": "vtrace"}, id="appo-lstm-vtrace"),
    pytest.param(penstock.APPO, {**APPO, "inference": "central"}, id="appo-central"),
    pytest.param(penstock.A2C, ALL_LANES, id="a2c"),
    pytest.param(penstock.A2C, {**ALL_LANES, "memory": "gru"}, id="a2c-gru"),
    pytest.param(penstock.IMPALA, ONE_PASS, id="impala"),
    pytest.param(penstock.IMPALA, {**ONE_PASS, "memory": "lstm", "inference": "central"}, id="impala-lstm-central"),
    pytest.param(penstock.A3C, ALL_LANES, id="a3c"),
    pytest.param(penstock.A3C, {**ALL_LANES, "memory": "lstm"}, id="a3c-lstm"),
    pytest.param(penstock.PQN, {}, id="pqn"),
    pytest.param(penstock.PQN, {"memory": "gru", "burn_in": 2, "inference": "central"}, id="pqn-gru-central"),
]


@pytest.mark.parametrize(("algorithm", "settings"), RUNS)
def test_one_seed_gives_one_set_of_weights_bit_for_bit_in_however_many_calls_and_another_seed_others(
    algorithm, settings
):
    at_once, result = trained(algorithm, 192, **settings)
    in_parts, same = trained(algorithm, 96, 96, **settings)
    other, _ = trained(algorithm, 192, **settings, seed=4)
    assert result.steps == same.steps, "each call was to end with a whole batch"
    assert identical(at_once, in_parts) and not identical(at_once, other)
    assert all(torch.isfinite(tensor).all() for tensor in at_once.values())


def test_the_users_own_random_numbers_have_no_say():
    torch.manual_seed(1)
    np.random.seed(1)
    weights, _ = trained(penstock.PPO, 64)
    torch.manual_seed(2)
    np.random.seed(2)
    assert identical(weights, trained(penstock.PPO, 64)[0])


def test_what_the_supervisor_does_between_calls_changes_nothing(tmp_path):
    at_once, _ = trained(penstock.APPO, 128, **APPO)
    with penstock.APPO(**{**SERIAL, **APPO}) as trainer:
        trainer.train(64, quiet=True)
        trainer.evaluate(2)
        trainer.save(str(tmp_path / "saved"))
        trainer.train(64, quiet=True)
        assert identical(at_once, trainer.get_parameters()[0])


def test_evaluations_on_the_way_change_nothing():
    assert identical(trained(penstock.PPO, 128)[0], trained(penstock.PPO, 128, eval_interval=32, eval_episodes=2)[0])


def test_the_steps_of_a_ppo_run_are_exactly_the_steps_that_its_environments_made():
    Witnessed.made.clear()
    with penstock.PPO(**{**SERIAL, "env": Witnessed, "reward_scale": 1e-3}) as trainer:
        for _ in range(3):
            result = trainer.train(30, quiet=True)
            assert sum(bool(env.actions) for env in Witnessed.made) == 4
            assert Witnessed.steps() == result.steps >= 30
        status = trainer.status
    assert status.steps == result.steps and status.masked_steps == 0 and status.policy_lag_max == 0
    assert status.version == status.updates > 0 and status.skipped_updates == 0


def test_an_appo_run_learns_from_no_step_twice():
    Witnessed.made.clear()
    with penstock.APPO(**{**SERIAL, **APPO, "env": Witnessed, "reward_scale": 1e-3}) as trainer:
        result = trainer.train(200, quiet=True)
    in_flight = (4 + 2) * 8  # slots for every lane and the batch that is being collected, of 8 steps each
    assert 0 <= Witnessed.steps() - result.steps <= in_flight


def test_new_weights_fence_off_the_experience_of_the_old_ones():
    with penstock.APPO(**{**SERIAL, **APPO, "max_policy_lag": 1, "num_epochs": 1}) as trainer:
        trainer.train(64, quiet=True)
        masked = trainer.status.masked_steps
        trainer.set_parameters(trainer.get_parameters())
        trainer.train(1, quiet=True)
        assert trainer.status.policy_lag_max == 0, "nothing old is learned from"
        assert trainer.status.masked_steps == masked + 16, "and the two full segments fenced off are counted"


def test_metrics_of_the_environment_reach_the_status():
    with penstock.PPO(**{**SERIAL, "env": CountingEnv, "reward_scale": 1e-3}) as trainer:
        while trainer.status.metrics.get("progress", 1.0) == 1.0:  # at first that of the first step alone is reported
            trainer.train(64, quiet=True)
        assert trainer.status.metrics["progress"] == pytest.approx(2.0, abs=0.5)


class Sleepy:
    """A role, and its own spec, with a number of pieces of work; it notes its polls."""

    num_threads = 1

    def __init__(self, name, work, log):
        self.name, self.work, self.log = name, work, log
        self.is_vital = name == "learner"

    def build(self, arena, report):
        return self

    def poll(self):
        self.log.append(self.name)
        self.work -= 1
        return self.work >= 0

    def close(self):
        self.log.append(f"closed {self.name}")


def test_roles_are_polled_in_turn_until_none_has_anything_to_do():
    log: list[str] = []
    arena = ExperienceArena.create(run_shape())
    specs = [Sleepy("one", 1, log), Sleepy("two", 2, log)]
    backend = SerialBackend(arena, specs, lambda *report: None, Restarts(forgive_environments=False))
    backend.start()
    backend.pump(60.0)
    assert log == ["one", "two"] * 3
    backend.close()
    assert log[6:] == ["closed one", "closed two"]


def test_a_pump_leaves_torchs_threads_as_they_were():
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        trained(penstock.PPO, 32)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)


def test_a_closed_run_leaves_the_precision_of_products_as_it_was(monkeypatch):
    monkeypatch.setattr(roles, "begin_on", lambda device: torch.set_float32_matmul_precision("high"))
    before = torch.get_float32_matmul_precision()
    with penstock.PPO(**SERIAL) as trainer:
        trainer.train(32, quiet=True)
        assert torch.get_float32_matmul_precision() == "high"
    assert torch.get_float32_matmul_precision() == before == "highest"


def test_what_a_batch_took_decides_nothing():
    with penstock.APPO(**SERIAL, **APPO) as trainer:
        trainer.train(100, quiet=True)
        assert arena_of(trainer).control[Control.PACE] == 0


def test_without_a_goal_no_rollout_worker_steps():
    Witnessed.made.clear()
    with penstock.PPO(**{**SERIAL, "env": Witnessed}) as trainer:
        trainer.train(32, quiet=True)
        made = Witnessed.steps()
        supervisor_of(trainer).backend.pump(0.01)
        assert arena_of(trainer).control[Control.GOAL] == 0
        assert Witnessed.steps() == made
