"""A look inside a trainer shows its processes, slots and versions."""

import pickle

import psutil
import pytest

import penstock
from tests.engine.processes import TINY, roles_of

pytestmark = [pytest.mark.timeout(90), pytest.mark.usefixtures("kept_launcher")]
SERIAL = {**TINY, "backend": "serial", "run_dir": None, "total_steps": 10**9}


def test_slots_versions_and_epochs_of_segments_are_shown():
    with penstock.PPO(**SERIAL) as algo:
        before = penstock.inspect(algo).policies[0]
        algo.train(256, quiet=True)
        after = penstock.inspect(algo).policies[0]
        algo.set_parameters(algo.get_parameters())
        algo.train(32, quiet=True)
        later = penstock.inspect(algo).policies[0]
    assert before.version == 0 and before.slots["free"] >= 4 and sum(before.slots.values()) == before.slots["free"]
    assert after.version > 0 and after.replay_rows is None
    assert sum(after.slots.values()) == before.slots["free"] and after.slots["reading"] == 0
    assert later.version > after.version and later.epoch > after.epoch


def test_rows_of_a_replay_buffer_are_shown():
    replayed = {"num_workers": 1, "batch_size": 8, "learning_starts": 10, "hidden_sizes": (8,), "eval_interval": 0}
    replayed["n_step"] = 1
    with penstock.DQN("CartPole-v1", backend="serial", run_dir=None, **replayed) as algo:
        algo.train(100, quiet=True)
        assert 100 <= penstock.inspect(algo).policies[0].replay_rows <= algo.status.steps + 2 * 8


def test_processes_of_a_run_are_shown_within_a_callback_and_gone_roles_are_not(tmp_path):
    seen = []
    with penstock.PPO(**{**SERIAL, "backend": "local"}) as algo:
        algo.train(64, on_update=lambda status: seen.append(penstock.inspect(algo)), quiet=True)
        pids = penstock.inspect(algo).pids
        assert {"launcher", "learner", "rollout-0", "rollout-1"} <= pids.keys()
        assert sorted(pid for name, pid in pids.items() if name != "launcher") == sorted(roles_of(algo))
        assert all(psutil.pid_exists(pid) for pid in pids.values())
    assert seen and all(look.restarts == 0 for look in seen)
    with pytest.raises(RuntimeError, match="this trainer is closed: inspect it before"):
        penstock.inspect(algo)


def test_policies_are_shown_by_their_keys():
    with penstock.PPO(**{**SERIAL, "num_policies": 2}) as algo:
        look = penstock.inspect(algo)
        assert look.policies.keys() == algo.get_parameters().keys() and look.pids == {}
    assert pickle.loads(pickle.dumps(look)) == look
