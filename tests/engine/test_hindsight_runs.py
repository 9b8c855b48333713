"""Runs with hindsight, as a whole: refused where they cannot be, learned in order and in processes, and resumed."""

import json
import os
import signal
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict

from penstock.algorithms.apex import ApeX
from penstock.algorithms.arithmetic.priorities import absolute_td_error
from penstock.algorithms.dqn import DQN
from penstock.algorithms.sac import SAC
from penstock.algorithms.td3 import TD3
from penstock.cli import main
from penstock.config import ConfigError
from penstock.engine.paths.replay import ReplayPath
from penstock.engine.trainer import Trainer
from tests.comparing import identical
from tests.engine.inside import supervisor_of
from tests.engine.processes import FOR_EVER
from tests.engine.replaying import replay_of
from tests.envs.goals import Places
from tests.places import BENCH

LONG = pytest.mark.long
pytestmark = [pytest.mark.timeout(90), pytest.mark.usefixtures("kept_launcher")]

BITS = f"{BENCH / 'environments' / 'bit_flipping.py'}:BitFlipping"
SERIAL: dict[str, Any] = {
    "env": Places, "env_kwargs": {"endings": [(4, "terminated"), (5, "truncated")]}, "hindsight": "future",
    "num_workers": 1, "num_envs_per_worker": 2, "hidden_sizes": (8,), "batch_size": 4, "learning_starts": 20,
    "buffer_size": 2_000, "updates_per_step": 0.5, "total_steps": 400, "learning_rate": 3e-3, "seed": 3,
    "backend": "serial", "eval_interval": 0, "eval_episodes": 2, "run_dir": None, "n_step": 1,
}  # fmt: skip
LOCAL = {**SERIAL, "backend": "local", "num_workers": 2}


class Reach(gymnasium.Env):
    """A hand on a line comes to a goal; the goal reached ends the episode."""

    action_space = Box(-1.0, 1.0, (1,), np.float32)
    observation_space = Dict(
        {name: Box(-1.0, 1.0, (1,), np.float32) for name in ("observation", "achieved_goal", "desired_goal")}
    )

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.hand, self.goal = self.np_random.uniform(-1.0, 1.0, (2, 1)).astype(np.float32)
        self.time = 0
        return self.view(), {}

    def step(self, action):
        self.hand = np.clip(self.hand + 0.2 * action, -1.0, 1.0).astype(np.float32)
        self.time += 1
        is_there = bool(self.compute_terminated(self.hand, self.goal, {}))
        return self.view(), is_there - 1.0, is_there, self.time == 15, {"is_success": is_there}

    def compute_reward(self, achieved_goal, desired_goal, info):
        return self.compute_terminated(achieved_goal, desired_goal, info) - 1.0

    def compute_terminated(self, achieved_goal, desired_goal, info):
        return np.abs(achieved_goal - desired_goal)[..., 0] < 0.02

    def view(self):
        return {"observation": self.hand, "achieved_goal": self.hand, "desired_goal": self.goal}


def trained(algorithm, *calls, **settings):
    """The weights after some calls of train, for as many steps each."""
    with Trainer(algorithm, **{**SERIAL, **settings}) as trainer:
        for steps in calls:
            trainer.train(steps, quiet=True)
        return trainer.get_parameters()[0]


# ---- refused


class NoGoals(Places):
    """Shows no desired goal."""

    def __init__(self):
        super().__init__()
        spaces = self.observation_space.spaces
        self.observation_space = Dict({name: spaces[name] for name in ("observation", "achieved_goal")})


class OtherGoals(Places):
    """Goals that cannot be reached, because they are of another shape."""

    def __init__(self):
        super().__init__()
        self.observation_space = Dict({**self.observation_space.spaces, "desired_goal": Box(-1.0, 1.0, (3,))})


class NoReward(Places):
    """Cannot be asked."""

    compute_reward = None


class Prioritizing(DQN):
    """Finds first priorities of its own."""

    def initial_priorities(self):
        return absolute_td_error


class OwnPath(DQN):
    """Has a data path of its own."""

    data_path = type("Path", (ReplayPath,), {})


NOT_HERE = "hindsight='future' is not possible here: "


@pytest.mark.parametrize(
    ("algorithm", "settings", "message"),
    [
        (
            DQN, {"env": "CartPole-v1", "env_kwargs": {}},
            NOT_HERE + "expected an environment with goals, whose observation is a Dict with 'achieved_goal' and "
            "'desired_goal', one array each; found no Dict; use hindsight=None",
        ),
        (
            DQN, {"env": NoGoals, "env_kwargs": {}},
            NOT_HERE + "expected an environment with goals, whose observation is a Dict with 'achieved_goal' and "
            "'desired_goal', one array each; found the parts 'achieved_goal', 'observation'; use hindsight=None",
        ),
        (
            DQN, {"env": OtherGoals, "env_kwargs": {}},
            NOT_HERE + "expected 'achieved_goal' and 'desired_goal' of the same space, found float32 of shape (2,) and "
            "float32 of shape (3,); use hindsight=None",
        ),
        (
            DQN, {"env": NoReward, "env_kwargs": {}},
            NOT_HERE + "expected an environment with compute_reward(achieved_goal, desired_goal, info), as goal "
            "environments of Gymnasium-Robotics have it; NoReward and its wrappers have none; use hindsight=None",
        ),
        (
            DQN,
            {"env": lambda num_envs: gymnasium.vector.SyncVectorEnv([Places] * num_envs), "vectorize": "vector",
             "env_kwargs": {}},
            NOT_HERE + "expected single environments, whose compute_reward can be called, found lanes of the vector "
            "environment lambda; use hindsight=None",
        ),
        (
            DQN, {"n_step": 3},
            "n_step=3 is not possible with hindsight='future': successive steps are relabelled with different goals, "
            "whose rewards must not be summed; use n_step=1",
        ),
        (
            DQN, {"memory": "gru"},
            "memory='gru' is not possible with hindsight='future': with memory, sequences are replayed, but "
            'hindsight gives the steps of a sequence different goals; use memory="none" (R2D2 without memory is "dqn")',
        ),
        (
            ApeX, {},
            "hindsight='future' is not possible with Ape-X and R2D2: first priorities are computed from the values of "
            "the acting network, which do not exist for relabelled goals; use dqn with prioritized=True",
        ),
        (DQN, {"goals_per_step": 0}, "goals_per_step=0 is not legal: goals_per_step must be 1 or more"),
        (DQN, {"hindsight": "random"}, "hindsight='random' is not legal"),
        (
            Prioritizing, {},
            NOT_HERE + "prioritizing computes first priorities from values of the chosen actions; use hindsight=None",
        ),
        (
            OwnPath, {},
            "hindsight='future' is not possible with the data path of ownpath, which does not relabel; use "
            "hindsight=None",
        ),
    ],
)  # fmt: skip
def test_hindsight_is_refused_where_it_cannot_be(algorithm, settings, message):
    with pytest.raises(ConfigError) as error:
        Trainer(algorithm, **{**SERIAL, **settings})
    assert str(error.value).startswith(message)


def test_the_command_refuses_it_in_one_line(capsys):
    assert main(["train", "sac", "--env", "Pendulum-v1", "--hindsight", "future", "--run-dir", "none"]) == 2
    out, error = capsys.readouterr()
    assert error.startswith("error: hindsight='future' is not possible here: expected an environment with goals")
    assert error.count("\n") == 1 and out == ""


def test_without_hindsight_a_goal_environment_trains_as_any_other():
    with Trainer(DQN, **{**SERIAL, "hindsight": None, "n_step": 3}) as trainer:
        trainer.train(60, quiet=True)
        discounts = replay_of(trainer).buffer.get_all()["discount"]
        assert pytest.approx(0.99**3) in discounts.tolist() and len(discounts) <= 60


# ---- in order


@LONG
@pytest.mark.parametrize(
    ("algorithm", "settings"),
    [
        (DQN, {"prioritized": True, "double": True}),
        (DQN, {"hindsight": "final", "inference": "central", "num_groups": 2}),
        (SAC, {"env": Reach, "env_kwargs": {}}),
    ],
)
def test_in_order_one_seed_gives_one_set_of_weights_in_however_many_calls(algorithm, settings):
    weights = trained(algorithm, 100, **settings)
    assert identical(weights, trained(algorithm, 40, 60, **settings))
    assert not identical(weights, trained(algorithm, 100, **settings, seed=4))
    assert not identical(weights, trained(algorithm, 100, **{**settings, "hindsight": None}))
    assert all(torch.isfinite(tensor).all() for tensor in weights.values())


@LONG
def test_bit_flipping_is_learned_with_hindsight_and_not_without():
    settings = {
        **SERIAL, "env": BITS, "env_kwargs": {"bits": 9}, "hidden_sizes": (128,), "batch_size": 64, "gamma": 0.98,
        "learning_rate": 1e-3, "learning_rate_schedule": "constant", "buffer_size": 100_000, "learning_starts": 500,
        "exploration": 0.2,
        "num_envs_per_worker": 4, "total_steps": 3_000,
    }  # fmt: skip
    rates = []
    for hindsight in ("future", None):
        with Trainer(DQN, **{**settings, "hindsight": hindsight}) as trainer:
            trainer.train(quiet=True)
            rates.append(trainer.evaluate(100).success_rate)
    assert rates[0] >= 0.9 and rates[1] <= 0.2


@LONG
@pytest.mark.parametrize("algorithm", [TD3, SAC])
def test_a_goal_on_a_line_is_reached_by_continuous_actions(algorithm):
    settings = {
        **SERIAL, "env": Reach, "env_kwargs": {}, "hidden_sizes": (32, 32), "batch_size": 64, "learning_rate": 3e-3,
        "gamma": 0.9, "buffer_size": 50_000, "learning_starts": 200, "total_steps": 2_500, "updates_per_step": 1.0,
        "seed": 1,
    }  # fmt: skip
    with Trainer(algorithm, **settings) as trainer:
        trainer.train(quiet=True)
        assert trainer.evaluate(50).success_rate >= 0.8


# ---- success


def test_success_rates_are_shown_and_logged_where_the_environment_tells(tmp_path):
    path = tmp_path / "run"
    with Trainer(SAC, **{**SERIAL, "env": Reach, "env_kwargs": {}, "run_dir": str(path), "eval_interval": 100}) as algo:
        algo.train(200, quiet=True)
        status, evaluation = algo.status, algo.evaluate(6)
        assert 0.0 <= status.success_rate <= 1.0 and 0.0 <= status.eval_success_rate <= 1.0
        told = [length < 15 for length in evaluation.lengths]
        assert [bool(success) for success in evaluation.successes] == told
        assert evaluation.success_rate == sum(told) / 6
    lines = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    assert [line["episode/success_rate"] for line in lines if "episode/success_rate" in line][-1] == status.success_rate
    assert any("evaluation/success_rate" in line for line in lines)


# ---- in processes


@pytest.mark.parametrize("inference", ["local", pytest.param("central", marks=LONG)])
def test_in_processes_rows_are_those_of_whole_episodes_and_updates_keep_step_with_steps(inference):
    with Trainer(DQN, **{**LOCAL, "inference": inference, "total_steps": 600, "buffer_size": 20_000}) as trainer:
        result = trainer.train(quiet=True)
        replay, config = replay_of(trainer), trainer.config
        steps, rows = replay.limiter.inserts, len(replay.buffer)
        assert 5 * (steps - 4 * 5) - 20 <= rows <= 5 * steps, "four lanes have an episode of 5 steps at most in hand"
        assert abs(trainer.status.updates - 0.5 * (result.steps - config.min_steps)) <= config.slack
        rewards = replay.buffer.get_all()["reward"]
        assert (rewards > -1.0).sum() > rows / 5, "goals that are reached"


def test_a_killed_rollout_worker_is_replaced_and_relabels_on(tmp_path):
    killed = []
    with Trainer(DQN, **{**LOCAL, "total_steps": FOR_EVER, "buffer_size": 20_000}) as trainer:
        backend = supervisor_of(trainer).backend

        def kill(status):
            if status.steps >= 200 and not killed:
                killed.append(os.kill(backend.pids["rollout-0"], signal.SIGKILL))
            return not (status.restarts and status.steps > 800)

        assert trainer.train(quiet=True, on_update=kill).stop_reason == "callback"
        result = trainer.train(200, quiet=True)
        assert killed and trainer.status.restarts == 1
        assert trainer.status.replay_rows >= min(4 * result.steps, 20_000)


# ---- resumed


def begin(path, **settings):
    with Trainer(DQN, **{**SERIAL, "total_steps": 100, "run_dir": str(path), **settings}) as trainer:
        trainer.train(quiet=True)
        return replay_of(trainer).buffer.get_all()


def test_a_run_with_its_replay_goes_on_from_it_but_for_the_episodes_under_way(tmp_path):
    path = tmp_path / "run"
    rows = begin(path, save_replay=True)
    with Trainer.resume(str(path), total_steps=140, env=Places) as trainer:
        found = replay_of(trainer).buffer.get_all()
        assert all(np.array_equal(found[name], rows[name], equal_nan=True) for name in rows) and len(rows["ids"]) > 400
        assert trainer.train(quiet=True).steps == 140
        written = replay_of(trainer).buffer.get_all()["reward"][len(rows["ids"]) :]
        assert len(written) >= 5 * 36 - 5 and trainer.config.hindsight == "future"


def test_a_run_without_its_replay_fills_it_with_relabelled_rows_again(tmp_path):
    path = tmp_path / "run"
    begin(path)
    with Trainer.resume(str(path), total_steps=140, env=Places, goals_per_step=1, hindsight="episode") as trainer:
        assert trainer.train(quiet=True).steps == 140
        assert trainer.status.replay_rows <= 2 * replay_of(trainer).limiter.inserts
