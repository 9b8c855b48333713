"""The roster: every role that a run needs, and cores shared out among them."""

import pytest

from penstock.algorithms.appo import APPO
from penstock.engine.preparation import run_shape
from penstock.engine.roles.together import parts_of
from penstock.engine.roster import role_specs
from penstock.envs.making import probe
from penstock.envs.spec import EnvSpec
from tests.engine.collecting import Learns


def threads_of_roles(monkeypatch, cores, **settings):
    """Threads of each role of a run on a machine with so many cores, by name."""
    monkeypatch.setattr("penstock.ipc.cores.available_cores", lambda: cores)
    config = APPO.Config(**{"env": "CartPole-v1", "hidden_sizes": (8,), **settings})
    env = EnvSpec.resolve(config.env, config.env_kwargs, config.vectorize)
    observation, action, *_ = probe(env)
    algorithm = APPO(config, observation, action)
    shape = run_shape(algorithm, algorithm.build_model())
    return {spec.name: spec.num_threads for spec in parts_of(role_specs([Learns(algorithm)], env, shape))}


LOCAL = {"inference": "local"}
CENTRAL = {"inference": "central"}
ON_GPU = {"device": "cuda"}
SERIAL = {"inference": "central", "backend": "serial"}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (LOCAL, {"rollout-0": 1, "rollout-1": 1, "learner": 6, "evaluator": 1}),
        (CENTRAL, {"rollout-0": 1, "rollout-1": 1, "policy-0": 3, "learner": 3, "evaluator": 1}),
        (ON_GPU, {"rollout-0": 1, "rollout-1": 1, "policy-0": 1, "learner": 5, "evaluator": 1}),
        (SERIAL, {"rollout-0": 1, "rollout-1": 1, "policy-0": 1, "learner": 1, "evaluator": 1}),
    ],
    ids=["local", "central", "GPU", "serial"],
)
def test_learner_and_policy_worker_share_what_the_other_roles_leave_over(settings, expected, monkeypatch):
    assert threads_of_roles(monkeypatch, 9, num_workers=2, **settings) == expected


@pytest.mark.parametrize("settings", [LOCAL, CENTRAL, ON_GPU], ids=["local", "central", "GPU"])
@pytest.mark.parametrize("num_workers", [1, 2, 5, None])
@pytest.mark.parametrize("cores", [1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 17, 64])
def test_threads_use_every_core_once_and_each_role_has_one_where_cores_are_too_few(
    cores, num_workers, settings, monkeypatch
):
    threads = threads_of_roles(monkeypatch, cores, num_workers=num_workers, **settings)
    assert min(threads.values()) == 1
    assert sum(threads.values()) == max(cores, len(threads))
