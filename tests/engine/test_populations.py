"""Several policies where an environment has one agent: each plays environments of its own in the same workers."""

import numpy as np
import pytest

import penstock
from penstock.config import ConfigError
from penstock.play.scoring import evaluate_together
from penstock.runs.run_directory import RunDirectory
from tests.comparing import identical
from tests.engine.inside import policies_of, supervisor_of
from tests.envs.told_lane import ToldItsLane

pytestmark = [pytest.mark.timeout(60), pytest.mark.usefixtures("kept_launcher")]

SMALL = {
    "num_policies": 2, "num_workers": 2, "num_envs_per_worker": 4, "segment_length": 8, "batch_size": 16,
    "num_epochs": 1, "hidden_sizes": (8,), "total_steps": 1_024, "eval_interval": 0, "eval_episodes": 4,
    "backend": "serial", "run_dir": None,
}  # fmt: skip


def test_every_environment_is_of_one_policy_and_no_two_have_one_number():
    seen = {0: set(), 1: set()}

    with penstock.PPO(ToldItsLane, **SMALL) as trainer:
        exploits = supervisor_of(trainer)._exploits
        exploits.take_episodes = lambda policy, finished, is_new: seen[policy].update(round(r) for r, _ in finished)
        trainer.train(512, quiet=True)
        learned = [policy.steps for policy in trainer.status.policies]
    lanes = {policy: {int(np.log10(paid)) for paid in found} for policy, found in seen.items()}
    assert lanes == {0: {0, 1, 4, 5}, 1: {2, 3, 6, 7}}  # two of the four environments of both workers
    assert learned[0] == learned[1] >= 256


def test_members_start_from_different_weights_and_one_alone_is_what_it_would_be_without_the_others():
    with penstock.PPO("CartPole-v1", **SMALL) as trainer:
        first, second = trainer.get_parameters().values()
        assert not identical(first, second)
        assert [policy.untuned.total_steps for policy in policies_of(trainer)] == [512, 512]
    with penstock.PPO("CartPole-v1", **{**SMALL, "num_policies": 1, "seed": 1}) as trainer:
        assert identical(trainer.get_parameters()[0], second)


@pytest.mark.long
@pytest.mark.parametrize("inference", ["local", "central"])
def test_in_processes_a_population_is_saved_resumed_and_played(tmp_path, inference):
    settings = {**SMALL, "backend": "local", "inference": inference, "num_workers": 1, "run_dir": str(tmp_path / "run")}
    policies = {"a": {"learning_rate": 1e-2}, "b": {"learning_rate": 1e-4}}
    with penstock.PPO("CartPole-v1", **{**settings, "policies": policies, "total_steps": 4_096}) as trainer:
        trainer.train(512, quiet=True)  # up to 1,024: a goal of each until the supervisor sees both
        while not all(policy.episodes for policy in trainer.status.policies):
            trainer.train(64, quiet=True)
        weights, steps = trainer.get_parameters(), trainer.status.steps
        assert [policy.name for policy in trainer.status.policies] == ["a", "b"]
    with penstock.PPO.resume(tmp_path / "run") as trainer:
        assert all(identical(trainer.get_parameters()[name], weights[name]) for name in weights)
        assert trainer.train(512, quiet=True).steps >= steps + 512
    run = RunDirectory.open(tmp_path / "run")
    paths = {name: run.of_policy(name).checkpoints.path_of(run.checkpoints.steps()[-1]) for name in run.policies}
    found = evaluate_together(paths, episodes=2)
    assert [len(found[name].returns) for name in ("a", "b")] == [2, 2]
    assert penstock.load_policy(tmp_path / "run", policy="b").act(np.zeros(4, np.float32)) in (0, 1)


def test_policies_that_learn_from_replay_have_buffers_of_their_own():
    settings = {name: SMALL[name] for name in ("num_policies", "backend", "run_dir", "eval_interval", "hidden_sizes")}
    with penstock.DQN(
        "CartPole-v1", **settings, num_workers=1, num_envs_per_worker=2, total_steps=600, learning_starts=64,
        batch_size=16,
    ) as trainer:  # fmt: skip
        trainer.train(quiet=True)
        assert [policy.updates > 50 for policy in trainer.status.policies] == [True, True]
        assert all(200 < policy.replay_rows < 400 for policy in trainer.status.policies)


def by_parity(agent, env):
    return "ab"[env == 3]


def test_a_function_says_who_plays_what():
    settings = {**SMALL, "policies": {"a": {}, "b": {}}, "num_policies": 1, "policy_of": by_parity, "batch_size": 8}
    with penstock.PPO(ToldItsLane, **settings) as trainer:
        assert [policy.arena.shape.num_lanes for policy in policies_of(trainer)] == [6, 2]
        trainer.train(512, quiet=True)
        ours, theirs = trainer.status.policies
        assert ours.steps == pytest.approx(3 * theirs.steps, abs=3 * 48)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_policies": 3}, "num_envs_per_worker=4 cannot be shared among 3 policies.*use 3 or 6"),
        ({"num_policies": 5}, "num_envs_per_worker=4 cannot be shared among 5 policies.*use 5"),
        ({"policy_of": lambda agent, env: 0}, "policy_of gives the policy '1' none of the 4 environments"),
        ({"policy_of": lambda agent, env: "01x"[env % 3]}, r"policy_of\('', 2\) returned 'x', which is no policy"),
        ({"policy_of": by_parity, "num_policies": 1}, "policy_of assigns agents to policies, but there is one"),
        ({"policies": {"a": {"agents": "*"}, "b": {}}, "num_policies": 1}, "agents are given, but .* has one agent"),
        ({"policies": {"a": {"seed": 3}, "b": {}}, "num_policies": 1}, "seed belongs to the whole run"),
    ],
)
def test_a_population_that_does_not_fit_is_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        penstock.PPO("CartPole-v1", **{**SMALL, **settings})
