"""A launcher that is kept for the next run: which runs start from it, and which end it."""

import os
import signal
import subprocess

import numpy as np
import pytest

from penstock.algorithms.ppo import PPO
from penstock.engine.backends import launcher
from penstock.engine.trainer import Trainer
from penstock.envs.failures import UnknownEnvironmentError
from tests.engine.broken_environment import Counting
from tests.engine.inside import supervisor_of
from tests.engine.launching import fork, launcher_of_a_run
from tests.engine.processes import TINY, Watched, pids_of, wait_until

pytestmark = [pytest.mark.timeout(90), pytest.mark.usefixtures("kept_launcher")]


def test_a_serial_run_and_one_that_cannot_be_made_leave_it_alone():
    first = launcher_of_a_run()
    with Trainer(PPO, **TINY, backend="serial", run_dir=None) as trainer:
        trainer.train(32, quiet=True)
    with pytest.raises(UnknownEnvironmentError):
        Trainer(PPO, **{**TINY, "env": "CartPoll-v1"}, run_dir=None)
    assert launcher_of_a_run() == first


def test_a_backend_that_is_closed_again_leaves_the_next_runs_launcher_alone():
    with Trainer(PPO, **TINY, run_dir=None) as trainer:
        trainer.train(32, quiet=True)
        backend = supervisor_of(trainer).backend
        first = pids_of(trainer)["launcher"]
    backend.close()
    assert launcher_of_a_run() == first


def test_a_block_within_a_block_leaves_the_launcher_to_the_outer_one():
    with launcher.kept():
        first = launcher_of_a_run()
    assert launcher_of_a_run() == first


def test_roles_lead_groups_of_their_own_out_of_reach_of_the_terminal():
    running = launcher.take()
    pid, *_kept = fork(running, "rollout-0")
    try:
        assert os.getpgid(pid) == pid
        assert os.getsid(pid) == running.pid != os.getsid(0)
    finally:
        os.kill(pid, signal.SIGKILL)
        wait_until(running.deaths, "the death is told")
        launcher.give_back(running, is_idle=True)


class StartsAProcess(Counting):
    """As a game with a server of its own does."""

    def __init__(self, folder):
        super().__init__()
        self.folder = folder

    def reset(self, *, seed=None, options=None):
        server = subprocess.Popen(["sleep", "1000"])
        with open(f"{self.folder}/{os.getpid()}-{server.pid}", "w"):
            return np.zeros(2, np.float32), {}


def test_what_an_environment_has_started_ends_with_its_role(tmp_path):
    settings = {**TINY, "env": StartsAProcess, "env_kwargs": {"folder": str(tmp_path)}, "num_workers": 1}
    with Trainer(PPO, **{**settings, "num_envs_per_worker": 2}, run_dir=None) as trainer:
        trainer.train(32, quiet=True)
        worker = pids_of(trainer)["rollout-0"]
        servers = [int(path.name.partition("-")[2]) for path in tmp_path.glob(f"{worker}-*")]
        assert len(servers) == 2
        processes = Watched(servers)
        os.kill(worker, signal.SIGKILL)
        trainer.train(32, quiet=True)
        assert processes.left_after() == []
        started = {tuple(map(int, path.name.split("-"))) for path in tmp_path.iterdir()}
        family_of_servers = Watched([server for by, server in started if by != os.getpid()])
    assert family_of_servers.left_after() == []
    for server in [server for by, server in started if by == os.getpid()]:  # of the one that was looked at, here
        os.kill(server, signal.SIGKILL)


@pytest.mark.long
def test_two_runs_at_once_have_a_launcher_each_of_which_one_is_kept():
    with Trainer(PPO, **TINY, run_dir=None) as one:
        one.train(32, quiet=True)
        pid = pids_of(one)["launcher"]
        other = launcher_of_a_run()
        processes = Watched([pid])
        one.close()
        assert processes.left_after() == []
    assert launcher_of_a_run() == other != pid


@pytest.mark.long
def test_one_that_was_killed_is_replaced():
    first = launcher_of_a_run()
    processes = Watched([first])
    os.kill(first, signal.SIGKILL)
    assert processes.left_after() == []
    assert launcher_of_a_run() != first


@pytest.mark.parametrize("patience", [0.0, 1e-5])
def test_one_with_roles_left_is_not_kept(patience):
    with Trainer(PPO, **TINY, run_dir=None) as trainer:
        trainer.train(32, quiet=True)
        backend = supervisor_of(trainer).backend
        processes = Watched(list(backend.pids.values()))
        backend.close(patience)
    assert processes.left_after() == []
