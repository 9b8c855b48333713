"""A policy as a guest: in some games it acts by its newest weights, and learns nothing there."""

import os
import signal
from collections import defaultdict
from typing import Any

import pytest
import torch

import penstock
from penstock.cli import main
from penstock.config import ConfigError
from penstock.engine.paths.segment_learner import SegmentLearner
from tests.comparing import identical
from tests.engine.inside import arena_of, opponents_of, policies_of, supervisor_of
from tests.engine.known import known_to
from tests.engine.processes import Watched, pids_of, roles_of
from tests.envs.counting import CountingLists
from tests.envs.playing import AtOnce, Part
from tests.envs.two_sides import Gifts
from tests.self_play.guests import REPLAY, always

pytestmark = [pytest.mark.timeout(90), pytest.mark.usefixtures("kept_launcher")]


class Three(AtOnce):
    """What is observed is the agent's number, the game's and the step's."""

    def __init__(self) -> None:
        super().__init__([Part(0, 4, "terminated"), Part(0, 2, "truncated"), Part(1, 3, "terminated")])


SERIAL: dict[str, Any] = {
    "env": Gifts, "policies": {"pair": {"agents": ["b", "c"]}, "one": {"agents": "a"}}, "opponents": "one",
    "num_workers": 1, "num_envs_per_worker": 4, "segment_length": 6, "batch_size": 12, "hidden_sizes": (8,),
    "num_epochs": 1, "total_steps": 720, "seed": 3, "backend": "serial", "eval_interval": 0, "run_dir": None,
}  # fmt: skip
THREE = {"env": Three, "policies": {"pair": {"agents": ["player_1", "player_2"]}, "one": {"agents": "player_0"}}}
RUNS = [
    pytest.param(penstock.PPO, {**THREE, "memory": "gru", "memory_size": 6}, id="ppo"),
    pytest.param(penstock.PPO, {"team_reward": "mean"}, id="team reward"),
    pytest.param(penstock.APPO, {"inference": "central", "num_groups": 2}, id="appo"),
    pytest.param(penstock.A3C, {}, id="a3c"),
    pytest.param(penstock.DQN, REPLAY, id="dqn"),
    pytest.param(
        penstock.APPO, {"env": CountingLists, "policies": {}, "num_policies": 2, "opponents": "0"}, id="lists"
    ),
]


@pytest.mark.long
@pytest.mark.parametrize(("algorithm", "more"), RUNS)
def test_one_seed_gives_one_set_of_weights_and_the_guest_learns_from_the_other_games_alone(algorithm, more):
    found = []
    for _ in range(2):
        with algorithm(**known_to(algorithm, {**SERIAL, **more})) as trainer:
            trainer.train(quiet=True)
            found.append(trainer.get_parameters())
            policies = list(policies_of(trainer))
            lanes = [policy.arena.shape.num_lanes for policy in policies]
            config = trainer.config
    weights, again = found
    assert all(identical(weights[policy], again[policy]) for policy in weights)
    games = config.num_envs_per_worker
    own = {"pair": (2 * games, games - 2), "0": (games - 2, games)}[policies[0].name]
    assert tuple(lanes) == own, "two games have a guest"
    budgets = [policy.untuned.total_steps for policy in policies]
    assert budgets == [round(720 * each / sum(lanes)) for each in lanes]


def test_guests_are_not_learned_from(monkeypatch):
    seen = defaultdict(set)
    learn = SegmentLearner.learn

    def watched(self, batch):
        for lane in range(batch.valid.shape[1]):
            obs = batch.obs[:-1, lane][batch.valid[:, lane]]
            seen[self._arena.policy] |= {(agent, game) for agent, game, _ in obs.tolist()}
        return learn(self, batch)

    monkeypatch.setattr(SegmentLearner, "learn", watched)
    with penstock.PPO(**{**SERIAL, **THREE}) as trainer:
        trainer.train(quiet=True)
        pair, one = trainer.status.policies
    assert {agent for agent, _ in seen[0]} == {1.0, 2.0} and {agent for agent, _ in seen[1]} == {0.0}
    assert pair.episodes == pytest.approx(4 * one.episodes, rel=0.1), "two agents in four games, and one in two"


def test_a_guest_acts_by_the_newest_weights_of_its_policy():
    still = {"learning_rate": 1e-12, "total_steps": 10**6, "normalize_observations": False}
    with penstock.PPO(**{**SERIAL, **still}) as trainer:
        for action in (2, 0, 1):
            trainer.set_parameters({"one": always(trainer, "one", action)})
            trainer.train(120, quiet=True)  # games under way end
            trainer.train(1_500, quiet=True)
            pair, _ = trainer.status.policies
            assert pair.mean_return == 3.0 * action, "in all games, those with a guest among them"


@pytest.mark.parametrize(
    ("envs", "share", "groups", "games"), [(4, 0.5, 2, 2), (4, 0.25, 1, 1), (5, 0.4, 1, 2), (2, 0.5, 1, 1)]
)
def test_all_policies_have_the_same_groups(envs, share, groups, games):
    settings = {"num_envs_per_worker": envs, "opponent_share": share, "inference": "central"}
    with penstock.APPO(**known_to(penstock.APPO, {**SERIAL, **settings})) as trainer:
        shapes = [arena.shape for arena in arena_of(trainer).policies]
        assert [shape.num_groups for shape in shapes] == [groups] * 3
        assert [shape.lanes_per_worker for shape in shapes] == [2 * envs, envs - games, games]
        trainer.train(100, quiet=True)


@pytest.mark.long
def test_in_processes_guests_play_on_when_their_worker_and_who_acts_for_them_were_killed(tmp_path, capsys):
    settings = {
        **SERIAL, "backend": "local", "inference": "central", "num_workers": 2, "total_steps": 10**9,
        "run_dir": str(tmp_path / "run"),
    }  # fmt: skip
    with penstock.APPO(**known_to(penstock.APPO, {**SERIAL, **settings})) as trainer:
        trainer.train(800, quiet=True)
        assert {"policy-0", "policy-1", "policy-2"} <= pids_of(trainer).keys(), "the last one acts for guests"
        for victim in ("policy-2", "rollout-1"):
            killed, steps = pids_of(trainer)[victim], trainer.status.steps
            os.kill(killed, signal.SIGKILL)
            while pids_of(trainer).get(victim, killed) == killed:
                trainer.train(800, quiet=True)
            trainer.train(800, quiet=True)
            assert trainer.status.steps >= steps + 800
        assert trainer.status.restarts == 2
        watched, weights = Watched(roles_of(trainer)), trainer.get_parameters()
    assert not watched.left_after()
    with penstock.APPO.resume(tmp_path / "run") as resumed:
        assert all(identical(resumed.get_parameters()[name], weights[name]) for name in weights)
        resumed.train(300, quiet=True)
        assert resumed.config.opponents == "one"
    assert main(["eval", str(tmp_path / "run"), "--episodes", "4"]) == 0
    assert "one: against others as a: mean return " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"opponents": "won"}, "opponents='won' is not legal; did you mean 'one'.*the name of a policy: pair, one"),
        ({"opponent_share": 1.0}, "it is a guest in all environments, and would learn nothing"),
        ({"policies": {}, "num_agents": 3}, "opponents='one' is not legal.*; use 'none' or 'past'"),
        ({"pbt": "truncation", "pbt_space": {"learning_rate": {"low": 1e-4, "high": 1e-2}}}, "have no guests"),
        ({"env": "CartPole-v1", "policies": {}, "num_policies": 2, "opponents": "1"}, "has one agent"),
    ],
)
def test_what_does_not_fit_is_refused(more, message):
    with pytest.raises(ConfigError, match=message):
        penstock.PPO(**{**SERIAL, **more})


def test_weights_of_a_guest_are_those_of_its_policy_and_lie_nowhere_else():
    with penstock.PPO(**SERIAL) as trainer:
        _, own, guests = arena_of(trainer).policies
        (note,) = supervisor_of(trainer).training.notes
        assert note.startswith("2 policies: 3 arenas, ") and ", guests of one 0." in note
        assert guests.weights is own.weights and guests.pool is None and opponents_of(trainer) is None
        zeros = {name: torch.zeros_like(tensor) for name, tensor in trainer.get_parameters()["one"].items()}
        trainer.set_parameters({"one": zeros})
        assert identical(trainer.get_parameters()["one"], zeros)
