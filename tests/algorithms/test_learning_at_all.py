"""Each learns something tiny, in serial: the best action of episodes of one step."""

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

import penstock
from tests.engine.inside import policy_of


class OneStep(gymnasium.Env):
    """Says +1 or -1, and rewards half of that as the action; with a choice of two, the action of that sign."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def __init__(self, is_discrete: bool = False) -> None:
        box = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(2) if is_discrete else box

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.sign = self.np_random.choice([-1.0, 1.0])
        return np.float32([self.sign]), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if isinstance(self.action_space, gymnasium.spaces.Discrete):
            reward = float(action == (self.sign > 0))
        else:
            reward = -float(np.square(action - 0.5 * self.sign).sum())
        return np.float32([self.sign]), reward, True, False, {}


SERIAL: dict[str, Any] = {"backend": "serial", "num_workers": 1, "seed": 1, "run_dir": None, "eval_interval": 0}
CONTROL = {**SERIAL, "num_envs_per_worker": 2, "hidden_sizes": (32,), "learning_rate": 1e-2, "batch_size": 64,
           "learning_starts": 100, "total_steps": 600}  # fmt: skip
PRIORITIZED = {"prioritized": True, "n_step": 3}


@pytest.mark.long
@pytest.mark.parametrize(
    ("algorithm", "settings"),
    [
        pytest.param(penstock.TD3, PRIORITIZED, id="td3-prioritized"),
        pytest.param(penstock.SAC, {**PRIORITIZED, "alpha": 0.01}, id="sac-prioritized"),
        pytest.param(penstock.DDPG, PRIORITIZED, id="ddpg-prioritized"),
        pytest.param(penstock.TQC, {"alpha": 0.01}, id="tqc"),
        pytest.param(
            penstock.CrossQ,
            {"alpha": 0.01, "critic_hidden_sizes": (32,), "learning_rate": 3e-3, "total_steps": 1_200},
            id="crossq",
        ),
        pytest.param(
            penstock.FlashSAC,
            {"critic_hidden_sizes": (16,), "hidden_sizes": (8,), "target_std": 0.05, "total_steps": 1_500},
            id="flashsac",
        ),
        pytest.param(penstock.FastTD3, {"updates_per_step": 1.0, "batch_size": 64}, id="fasttd3"),
        pytest.param(
            penstock.XQC,
            {"alpha": 0.01, "critic_hidden_sizes": (32,), "policy_delay": 1, "total_steps": 1_200},
            id="xqc",
        ),
        pytest.param(
            penstock.ApeXDPG, {"target_period": 10, "learning_rate": 3e-3, "total_steps": 1_200}, id="apexdpg"
        ),
    ],
)
def test_a_policy_for_continuous_actions_finds_the_best_one(algorithm, settings):
    with algorithm(OneStep, **{**CONTROL, **settings}) as trainer:
        trainer.train(quiet=True)
        model = policy_of(trainer).algorithm.build_model()
        model.load_state_dict(trainer.get_parameters()[0])
        choice, _ = model.act(torch.tensor([[-1.0], [1.0]]), torch.ones(2, dtype=torch.bool), torch.zeros(2, 0))
        assert choice.mode().flatten().tolist() == pytest.approx([-0.5, 0.5], abs=0.15)
        assert trainer.evaluate(20).mean_return > -0.03


@pytest.mark.parametrize("memory", ["none", "gru"])
def test_pqn_finds_the_best_of_two_actions(memory):
    settings = {"env_kwargs": {"is_discrete": True}, "num_envs_per_worker": 4, "segment_length": 8, "batch_size": 32,
                "hidden_sizes": (16,), "memory": memory, "memory_size": 16, "exploration_steps": 500,
                "learning_rate": 3e-3, "total_steps": 2_000}  # fmt: skip
    with penstock.PQN(OneStep, **{**SERIAL, **settings}) as trainer:
        trainer.train(quiet=True)
        assert trainer.evaluate(20).mean_return == 1.0
