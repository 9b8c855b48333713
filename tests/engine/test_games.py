"""Runs of several agents that one policy plays: what is learned from is what each agent went through."""

import json
import math
import os
import signal
from itertools import islice
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

import penstock
from penstock.algorithms.apex import ApeX
from penstock.algorithms.dqn import DQN
from penstock.config import ConfigError
from penstock.engine.backends import restarts
from penstock.engine.endings import TrainingFailed
from penstock.engine.roles import rollout_worker
from penstock.engine.trainer import Trainer
from penstock.envs.failures import EnvironmentUsageError
from penstock.play.policy import load_policy
from penstock.play.scoring import evaluate_run
from penstock.rudder import explanation
from tests.comparing import identical
from tests.engine.collecting import Collecting, Recording
from tests.engine.processes import FOR_EVER, pids_of
from tests.engine.replaying import Replaying, replay_of
from tests.envs.playing import AtOnce, InTurn, Masked, Part, steps_at_once, steps_in_turn
from tests.variants import only

pytestmark = [pytest.mark.timeout(90), pytest.mark.usefixtures("kept_launcher")]

ENDS = ("terminated", "truncated")
PARTS = (Part(0, 3, "terminated"), Part(1, 5, "truncated"), Part(0, 1, "truncated"))


class Turns(InTurn):
    """Two agents that move in turn; one is terminated, the other truncated."""

    def __init__(self, moves: int = 7) -> None:
        super().__init__(2, moves, ENDS)


class Together(AtOnce):
    """Three agents that come and go."""

    def __init__(self) -> None:
        super().__init__(PARTS)


class Patient(Masked):
    """One agent, that is offered nothing in every other step."""

    def __init__(self) -> None:
        super().__init__([Part(0, 9, "terminated")])


class Steered(Together):
    """With continuous actions."""

    def action_space(self, agent: str) -> gymnasium.Space:
        return gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)


SERIAL: dict[str, Any] = {
    "num_workers": 1, "num_envs_per_worker": 2, "hidden_sizes": (8,), "total_steps": 240, "seed": 3,
    "backend": "serial", "eval_interval": 0, "eval_episodes": 2, "run_dir": None,
}  # fmt: skip
SEGMENTS: dict[str, Any] = {"segment_length": 4, "memory": "gru", "memory_size": 6}
REPLAY: dict[str, Any] = {"learning_starts": 40, "buffer_size": 1_000, "batch_size": 8, "updates_per_step": 0.25}
SEQUENCES = {**REPLAY, "sequence_length": 4, "burn_in": 2, "sequence_overlap": 2, "memory_size": 6}
RUNS = [
    pytest.param(penstock.APPO, Turns, {**SEGMENTS, "batch_size": 16, "num_minibatches": 1}, id="appo"),
    pytest.param(penstock.PPO, Together, {**SEGMENTS, "batch_size": 8, "inference": "central"}, id="ppo"),
    pytest.param(penstock.A2C, Together, SEGMENTS, id="a2c"),
    pytest.param(penstock.A3C, Turns, SEGMENTS, id="a3c"),
    pytest.param(
        penstock.IMPALA, Turns,
        {**SEGMENTS, "batch_size": 16, "replay": ("queue:1/2", "uniform:1/2,capacity=20")}, id="impala",
    ),
    pytest.param(penstock.PQN, Together, {**SEGMENTS, "batch_size": 8}, id="pqn"),
    pytest.param(penstock.DQN, Together, {**REPLAY, "n_step": 3, "prioritized": True}, id="dqn"),
    pytest.param(penstock.ApeX, Turns, {**REPLAY, "inference": "central"}, id="apex"),
    pytest.param(penstock.R2D2, Together, SEQUENCES, id="r2d2"),
    pytest.param(penstock.A3C, Patient, SEGMENTS, id="a3c-nobody-asked"),
    pytest.param(penstock.R2D2, Patient, {**SEQUENCES, "inference": "central"}, id="r2d2-nobody-asked"),
    pytest.param(penstock.SAC, Steered, REPLAY, id="sac"),
    pytest.param(penstock.TD3, Steered, {**REPLAY, "prioritized": True, "n_step": 2}, id="td3"),
]


@pytest.mark.parametrize(("algorithm", "env", "settings"), only("appo pqn r2d2-nobody-asked sac", RUNS))
def test_every_algorithm_learns_from_games_and_one_seed_gives_one_set_of_weights(
    algorithm, env, settings, monkeypatch
):
    monkeypatch.setattr(rollout_worker, "REPORT_INTERVAL", 0.0)
    weights = []
    for _ in range(2):
        with algorithm(env=env, **{**SERIAL, **settings}) as trainer:
            result = trainer.train(quiet=True)
            weights.append(trainer.get_parameters()[0])
            assert result.steps >= 240 and trainer.status.updates > 5 and trainer.status.episodes > 20
            per_step = {Turns: 7 / 7, Patient: 9 / 5}.get(env, 6 / 9)  # steps of a game, and decisions in them
            assert trainer.status.env_steps == pytest.approx(per_step * result.steps, rel=0.25)
    assert identical(*weights) and all(torch.isfinite(tensor).all() for tensor in weights[0].values())


# ---- what is learned from


@pytest.mark.parametrize("inference", ["local", "central"])
@pytest.mark.parametrize(("env", "length"), [(Turns, 1), (Turns, 3), (Turns, 5), (Together, 3), (Patient, 2)])
def test_the_memory_an_action_was_chosen_from_is_that_of_its_row_whatever_the_segments_length(env, length, inference):
    run = Collecting(
        Recording, env=env, memory="gru", segment_length=length, batch_size=4 * length, num_envs_per_worker=2,
        inference=inference,
    )  # fmt: skip
    num_lanes = run.arena.shape.num_lanes
    state, carried = torch.zeros(num_lanes, run.model.state_size), 0
    for _ in range(24 // length):
        batch = run.take()
        policy, _ = run.model.evaluate(batch.obs, batch.first, batch.memory)
        for lane in range(num_lanes):
            for t in batch.valid[:, lane].nonzero().flatten().tolist():
                if t == 0:
                    before = torch.zeros_like(state[lane]) if batch.first[0, lane] else state[lane]
                    found = torch.zeros_like(before) if batch.first[0, lane] else batch.memory[lane]
                    torch.testing.assert_close(found, before, rtol=1e-5, atol=1e-6)
                    carried += bool(before.any())
                obs, first = batch.obs[t, lane : lane + 1], batch.first[t, lane : lane + 1]
                with torch.no_grad():
                    chosen, after = run.model.act(obs, first, state[lane : lane + 1])
                state[lane] = after[0]
                recorded = batch.records["logits"][t, lane]
                torch.testing.assert_close(chosen.flat[0], recorded, rtol=1e-4, atol=1e-5)
                torch.testing.assert_close(policy.flat[t, lane], recorded, rtol=1e-4, atol=1e-5)
    assert carried > 4
    run.close()


def replayed(steps, n, gamma):
    """The n-step transitions of true steps: observation, reward, discount, and what it led to."""
    for k, (obs, *_) in enumerate(steps):
        reward, last = 0.0, k
        for i, (_, _, one, ending, _) in enumerate(steps[k : k + n]):
            reward, last = reward + gamma**i * one, k + i
            if ending:
                break
        _, _, _, ending, led_to = steps[last]
        yield obs, reward, 0.0 if ending == "terminated" else gamma ** (last - k + 1), led_to


@pytest.mark.parametrize("inference", ["local", "central"])
@pytest.mark.parametrize("n_step", [1, 3])
@pytest.mark.parametrize(
    ("env", "seats"),
    [(Turns, [lambda: steps_in_turn(0, 2, 7, ENDS), lambda: steps_in_turn(1, 2, 7, ENDS)]),
     (Together, [lambda seat=seat: steps_at_once(seat, PARTS) for seat in range(3)])],
)  # fmt: skip
def test_replayed_transitions_are_what_each_agent_went_through(env, seats, n_step, inference):
    run = Replaying(DQN, env=env, n_step=n_step, gamma=0.5, ratio_slack=60, inference=inference)
    while run.poll():
        pass
    rows = run.rows()
    assert len(rows["ids"]) > 40
    for seat, steps in enumerate(seats):
        mine = rows["obs"][:, 0] == seat
        expected = replayed(list(islice(steps(), 80)), n_step, 0.5)
        for (obs, reward, discount, led_to), row in zip(expected, mine.nonzero()[0].tolist(), strict=False):
            assert rows["obs"][row].tolist() == obs
            assert math.isclose(rows["reward"][row], reward, rel_tol=1e-5) and rows["discount"][row] == discount
            assert discount == 0.0 or rows["next_obs"][row].tolist() == led_to
    run.close()


@pytest.mark.parametrize("env", [Turns, Together])
def test_first_priorities_are_the_temporal_differences_of_what_each_agent_went_through(env):
    run = Replaying(ApeX, env=env, num_envs_per_worker=2, n_step=1, gamma=0.5, priority_alpha=1.0, ratio_slack=60)
    while run.poll():
        pass
    rows = {name: torch.from_numpy(array) for name, array in run.rows().items()}
    with torch.no_grad():
        q = run.model.q(rows["obs"]).gather(1, rows["action"][:, None])[:, 0]
        best = run.model.q(rows["next_obs"]).amax(1)
    expected = (rows["reward"] + rows["discount"] * best - q).abs().numpy()
    known = np.isclose(run.priorities(), expected, rtol=1e-3)
    seat, _, tick = rows["next_obs"].numpy().astype(int).T  # final observations have no values
    truncated = tick == np.array([-1, 7] if env is Turns else [-1, 6, 1])[seat]
    assert known[~truncated].all() and known.sum() > 30
    run.close()


def test_replayed_sequences_are_what_each_agent_went_through():
    settings = {**SERIAL, **SEQUENCES, "total_steps": 120}
    with penstock.R2D2(env=Together, **settings) as trainer:
        trainer.train(quiet=True)
        rows = replay_of(trainer).buffer.get_all()
    valid = rows["valid"].astype(bool)
    assert len(valid) > 20
    for obs, first, is_valid, reward in zip(rows["obs"], rows["first"], valid, rows["reward"], strict=True):
        steps = obs[is_valid]
        assert (steps[:, :2] == steps[0, :2]).all() and (np.diff(steps[:, 2]) == 1).all()
        joins = PARTS[int(steps[0, 0])].joins
        assert (first[is_valid] == (steps[:, 2] == joins)).all()
        assert (reward[is_valid] == 100 * steps[:, 1] + steps[:, 2] + 1).all()


# ---- in processes


@pytest.mark.long
@pytest.mark.parametrize("inference", ["local", pytest.param("central", marks=pytest.mark.long)])
def test_a_killed_worker_is_replaced_in_a_run_that_waits_for_every_seat(inference, monkeypatch):
    monkeypatch.setattr(restarts, "LONGEST_BACK_OFF", 0.05)
    killed_at = []

    def kill_one(status):
        pid = pids_of(trainer).get("rollout-1")
        if status.steps > 200 and pid and not killed_at:
            killed_at.append(status.steps)
            os.kill(pid, signal.SIGKILL)
        return not (killed_at and status.restarts and status.steps > killed_at[0] + 300)

    settings = {**SERIAL, **SEGMENTS, "batch_size": 8, "num_workers": 2, "backend": "local", "inference": inference}
    with penstock.PPO(env=Together, **{**settings, "total_steps": FOR_EVER}) as trainer:
        trainer.train(quiet=True, on_update=kill_one)
        assert trainer.status.restarts == 1 and trainer.status.mean_length == pytest.approx(3, abs=0.2)


# ---- a run that is over


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A short run with memory, and its evaluation."""
    path = tmp_path_factory.mktemp("games") / "run"
    with penstock.APPO(env=Turns, **{**SERIAL, **SEGMENTS, "batch_size": 16, "run_dir": str(path)}) as trainer:
        trainer.train(quiet=True)
        return path, trainer.evaluate(4, seed=1)


def test_an_evaluation_has_the_episodes_of_every_agent(run):
    path, evaluation = run
    again = evaluate_run(path, episodes=4, seed=1)
    for played in (evaluation, again):
        assert sorted(played.lengths) == [3] * 4 + [4] * 4
        assert sorted(played.returns) == [28.0] * 4 + [280.0] * 4, "1 to 7, and ten times that"


def test_it_goes_on_with_as_many_agents(run, tmp_path):
    path, _ = run
    with Trainer.resume(str(path), total_steps=320) as trainer:
        assert trainer.config.num_agents == 2
        assert trainer.train(quiet=True).steps >= 320


def test_its_policy_is_loaded_and_plays_a_game_by_hand(run):
    path, _ = run
    policy, env = load_policy(path), Turns()
    env.reset()
    states, moves = {}, 0
    while env.agents:
        observation, _, terminated, truncated, _ = env.last()
        action = None
        if not (terminated or truncated):
            agent = env.agent_selection
            action, states[agent] = policy.act(observation, states.get(agent))
            moves += 1
        env.step(action)
    assert moves == 7


class Drawn(Turns):
    """Draws how far the game is."""

    metadata = {"render_fps": 10}  # noqa: RUF012

    def __init__(self, render_mode=None):
        super().__init__()
        self.render_mode = render_mode

    def render(self):
        return np.full((32, 48, 3), 20 * self.tick, np.uint8)


def test_a_game_is_filmed_with_a_picture_after_every_move(run, tmp_path):
    imageio = pytest.importorskip("imageio.v3")
    film = str(tmp_path / "game.mp4")
    evaluate_run(run[0], episodes=1, video=film, env=Drawn)
    assert np.allclose(imageio.imread(film, plugin="pyav").mean((1, 2, 3)), np.arange(8) * 20, atol=4)


# ---- what is refused


def test_a_wrong_number_of_agents_is_told_with_their_names():
    with pytest.raises(ConfigError, match=r"num_agents=2 is not .* it has 3 \(player_0, player_1, player_2\); leave"):
        penstock.APPO(env=Together, num_agents=2)
    with pytest.raises(ConfigError, match="num_agents=2 is not the number of agents of CartPole-v1: it has 1"):
        penstock.APPO(env="CartPole-v1", num_agents=2)


def test_hindsight_is_refused_with_the_reason():
    with pytest.raises(ConfigError, match="hindsight='future' is not possible here: goals are those of one agent"):
        penstock.DQN(env=Together, hindsight="future", n_step=1)


def test_vector_environments_and_explanations_are_of_one_agent(run):
    with pytest.raises(EnvironmentUsageError, match=r"expects a gymnasium.vector.VectorEnv, found a Together"):
        penstock.APPO(env=lambda num_envs: Together(), vectorize="vector", run_dir=None)
    with pytest.raises(ConfigError, match="Turns has several agents: only episodes of environments with one"):
        explanation.play(load_policy(run[0]), deterministic=True, seed=0)


class Broken(Together):
    """The reward of one agent is no number in the third step."""

    def step(self, actions):
        shown, rewards, *rest = super().step(actions)
        return (shown, {**rewards, **({"player_1": np.nan} if self.tick == 3 else {})}, *rest)


def test_a_reward_that_is_no_number_ends_the_run_and_names_agent_and_lane():
    story = r"lane 1, step 3\): expected a single finite .* \(agent 'player_1'\)"
    settings = {**SERIAL, "num_envs_per_worker": 1, "batch_size": 128}
    with penstock.APPO(env=Broken, **settings) as trainer, pytest.raises(TrainingFailed, match=story):
        trainer.train(quiet=True)


class Endless(Together):
    """One agent plays on for ever, another waits for ever to join."""

    def __init__(self):
        AtOnce.__init__(self, (Part(0, FOR_EVER, "terminated"), Part(FOR_EVER, 1, "terminated")))


class Absent(Together):
    """One agent never comes: the game is over before."""

    def __init__(self):
        AtOnce.__init__(self, (Part(0, 2, "terminated"), Part(3, 1, "terminated")))


def test_who_has_no_part_in_a_game_has_no_episode_in_an_evaluation():
    with penstock.APPO(env=Absent, **SERIAL) as trainer:
        assert trainer.evaluate(2).lengths == (2, 2)


def test_a_policy_whose_agents_act_in_no_game_has_no_best_weights_and_reaches_no_target(tmp_path):
    settings = {**SERIAL, **SEGMENTS, "batch_size": 16, "eval_interval": 32, "target_return": 0.0}
    settings["run_dir"] = str(tmp_path / "run")
    policies = {"here": {"agents": "player_0", "target_return": None}, "absent": {"agents": "player_1"}}
    with penstock.APPO(env=Absent, policies=policies, **settings) as trainer:
        assert not trainer.train(quiet=True).reached_target
        here, absent = trainer.status.policies
        assert here.eval_return is not None and absent.eval_return is absent.best_return is None
        assert trainer.evaluate(2)["absent"].took_part is False
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    found = next(line for line in lines if "evaluation/mean_return" in line)
    assert found["evaluation/mean_return"] == found["policy/here/evaluation/mean_return"] > 0.0


def test_a_game_without_end_is_given_up_for_all_its_agents():
    with penstock.APPO(env=Endless, **{**SERIAL, "eval_max_steps": 7}) as trainer:
        evaluation = trainer.evaluate(2)
    assert evaluation.lengths == (7, 7) and evaluation.unfinished == 2
