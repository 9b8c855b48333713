"""Which commands ask for a cluster, and for what of it."""

import pytest

from penstock.algorithms.ppo import PPOConfig
from penstock.config import ConfigError
from penstock.runs.jobs import Needs
from penstock.studies import plan
from penstock.trials.request import ClusterRequest, needs_of, split


@pytest.mark.parametrize(
    ("args", "left", "asked"),
    [
        ("ppo --backend ray --env A --address auto", "ppo --env A", ClusterRequest("auto")),
        ("ppo --address=h:1 --backend=ray", "ppo", ClusterRequest("h:1")),
        ("ppo --backend ray", "ppo", ClusterRequest(None)),
        ("ppo --backend serial", "ppo --backend serial", None),
        ("ppo --backend ray --nodes 2", "ppo --backend ray --nodes 2", None),
        ("ppo --backend ray --learner_nodes=1", "ppo --backend ray --learner_nodes=1", None),
    ],
)
def test_trainings_are_on_a_cluster_unless_each_has_nodes_of_its_own(args, left, asked):
    assert split(args.split()) == (left.split(), asked)
    request = plan.read(args.split())
    assert plan.take_cluster(request) == asked
    assert ("backend" in request.values) == ("--backend" in left)


def test_settings_of_several_nodes_are_refused_where_each_training_is_on_one():
    args = ["ppo", "--env", "A", "--backend", "ray", "--nodes-per-gateway", "2"]
    for ask in (lambda: split(args), lambda: plan.take_cluster(plan.read(args))):
        with pytest.raises(ConfigError, match="--nodes-per-gateway is for trainings on several nodes"):
            ask()
    assert split([*args, "--nodes", "4"])[1] is None


def test_the_folder_of_runs_is_the_same_on_a_cluster_and_here():
    here, there = (plan.read(f"ppo --env A {more}".split()) for more in ("", "--backend ray --address h:1"))
    plan.take_cluster(there)
    assert plan.folder_of(here) == plan.folder_of(there)


def test_a_training_asks_for_cores_of_its_workers_and_learners_and_for_gpus():
    config = PPOConfig(env="CartPole-v1")
    assert needs_of([config]) == Needs(1, 0)
    several = [PPOConfig(env="CartPole-v1", num_workers=3), PPOConfig(env="CartPole-v1", num_learners=2, device="cuda")]
    assert needs_of(several) == Needs(3, 2)
    assert str(Needs(3, 1)) == "3 cores and 1 GPU" and str(Needs()) == "1 core"
