"""The roster: every role that a run needs, and cores shared out among them."""

import pytest

from penstock.algorithms.appo import APPO
from penstock.config import ConfigError
from penstock.engine.groups.board import GroupSpec
from penstock.engine.groups.follower import RankRole
from penstock.engine.preparation import run_shape
from penstock.engine.roles.shared_process import DeviceRole, parts_of
from penstock.engine.roles.specs import PolicyRole, RolloutRole
from penstock.engine.roster import role_specs
from penstock.envs.making import probe
from penstock.envs.spec import EnvSpec
from tests.engine.collecting import Learns


def roles_of_run(**settings):
    """Roles of a run, and the numbers of its arena."""
    config = APPO.Config(**{"env": "CartPole-v1", "hidden_sizes": (8,), **settings})
    env = EnvSpec.resolve(config.env, config.env_kwargs, config.vectorize)
    observation, action, *_ = probe(env)
    algorithm = APPO(config, observation, action)
    shape = run_shape(algorithm, algorithm.build_model())
    group = GroupSpec(config.num_learners, 0) if config.num_learners > 1 else None
    return role_specs([Learns(algorithm)], env, shape, group), shape


def threads_of_roles(monkeypatch, cores, **settings):
    """Threads of each role of a run on a machine with `cores` cores, by name."""
    monkeypatch.setattr("penstock.ipc.limits.available_cores", lambda: cores)
    return {spec.name: spec.num_threads for spec in parts_of(roles_of_run(**settings)[0])}


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


@pytest.mark.parametrize(
    ("settings", "quota", "pinned"),
    [
        ({**ON_GPU, "num_workers": 4}, 4, True), ({**ON_GPU, "num_workers": 3}, 4, False),
        ({**ON_GPU, "num_workers": 2}, 2, False), ({**CENTRAL, "num_workers": 4}, 4, False),
        ({**CENTRAL, "num_workers": 4, "pin_workers": True}, 4, True),
        ({**ON_GPU, "num_workers": 4, "pin_workers": False}, 4, False),
    ],
    ids=["one for each core", "fewer", "a quota of fewer", "without a GPU", "wanted", "not wanted"],
)  # fmt: skip
def test_workers_that_fill_a_machine_with_a_gpu_keep_to_a_core_each(settings, quota, pinned, monkeypatch):
    monkeypatch.setattr("penstock.ipc.limits.available_cores", lambda: quota)
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(4)))
    specs, _ = roles_of_run(**settings)
    assert {spec.rollout.is_pinned for spec in specs if isinstance(spec, RolloutRole)} == {pinned}


def test_workers_that_are_no_processes_here_cannot_be_pinned():
    with pytest.raises(ConfigError, match='pin_workers=True is for backend="local", found backend="serial"'):
        APPO.Config(env="CartPole-v1", backend="serial", pin_workers=True)


@pytest.mark.parametrize("settings", [LOCAL, CENTRAL, ON_GPU], ids=["local", "central", "GPU"])
@pytest.mark.parametrize("num_workers", [1, 2, 5, None])
@pytest.mark.parametrize("cores", [1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 17, 64])
def test_threads_use_every_core_once_and_each_role_has_one_where_cores_are_too_few(
    cores, num_workers, settings, monkeypatch
):
    threads = threads_of_roles(monkeypatch, cores, num_workers=num_workers, **settings)
    assert min(threads.values()) == 1
    assert sum(threads.values()) == max(cores, len(threads))


GROUP = {"inference": "central", "num_workers": 2, "num_learners": 3, "num_envs_per_worker": 6, "batch_size": 384}


def test_each_learner_of_a_group_has_its_policy_worker_as_long_as_there_are_rollout_workers_for_it():
    specs, shape = roles_of_run(**GROUP)
    acting = [(spec.name, spec.number) for spec in specs if isinstance(spec, PolicyRole)]
    assert acting == [("policy-0", 0), ("policy-0.1", 1)] and shape.num_policy_workers == 2
    learning = {"learner", "rank-1", "rank-2"}
    others = {"rollout-0", "rollout-1", "evaluator"}
    assert {spec.name for spec in specs} == learning | others | {name for name, _ in acting}
    rows = [shape.gauge_row(spec.name) for spec in specs]
    assert len(set(rows)) == len(rows)


def test_learners_of_a_group_have_the_threads_of_policy_workers_that_there_are_not(monkeypatch):
    threads = threads_of_roles(monkeypatch, 17, **GROUP)
    assert [threads[name] for name in ("policy-0", "policy-0.1", "learner", "rank-1", "rank-2")] == [2, 2, 3, 3, 3]


def test_learners_that_do_not_choose_actions_have_no_policy_workers():
    for settings in ({"inference": "local"}, {"inference": "central", "backend": "ray"}):
        specs, shape = roles_of_run(**{**GROUP, **settings})
        assert len([spec for spec in specs if isinstance(spec, PolicyRole)]) == (settings["inference"] == "central")
        assert shape.num_policy_workers == 1


def test_each_gpu_of_a_group_belongs_to_a_process_with_learner_and_policy_worker():
    specs, _ = roles_of_run(**GROUP, device="cuda")
    on_gpus = {spec.name: spec for spec in specs if spec.name in ("learner", "rank-1", "rank-2")}
    assert len(specs) == 2 + len(on_gpus) + 1
    for rank, (name, number) in enumerate((("learner", 0), ("rank-1", 1))):
        role = on_gpus[name]
        assert isinstance(role, DeviceRole) and not role.is_vital
        assert role.policy.number == number
        devices = {part.algorithm.config.device for part in (role.learner, role.policy)}
        assert devices == ({"cuda"} if rank == 0 else {"cuda:1"})
    assert isinstance(on_gpus["rank-2"], RankRole)


def test_parameters_travel_rounded_where_that_is_wanted():
    on_nodes = {"env": "CartPole-v1", "backend": "ray", "num_workers": 1}
    _, shape = roles_of_run(**on_nodes, node_weights="bfloat16")
    _, whole = roles_of_run(**on_nodes)
    assert 0 < shape.rounded_nbytes <= shape.weights_nbytes == whole.weights_nbytes and whole.rounded_nbytes == 0
