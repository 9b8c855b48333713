"""The launcher: it forks roles, reports their deaths, and leaves none behind."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from penstock.algorithms.ppo import PPO
from penstock.config import ConfigError
from penstock.engine.backends import launcher
from penstock.engine.backends.launcher import Launcher, LauncherDied
from penstock.engine.trainer import Trainer
from penstock.envs.failures import UnknownEnvironmentError
from tests.engine.broken_environment import Counting
from tests.engine.launching import fork, launcher_of_a_run
from tests.engine.processes import TINY, Watched, family, started, wait_for_line, wait_until

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def running():
    """A launcher whose maker has blocked its signals: it heeds those of its roles all the same."""
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        it = Launcher()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    yield it
    it.close()


def test_a_death_is_reported_with_its_status_and_a_killed_launcher_takes_the_roles_along(running):
    first, *_kept = fork(running, "rollout-0")
    second, *_more_kept = fork(running, "learner")
    wait_until(lambda: {"penstock-rollout-0", "penstock-learner"} <= set(family(running.pid)), "the roles are named")
    assert running.deaths() == []
    os.kill(first, signal.SIGKILL)
    heard = []
    wait_until(lambda: heard.extend(running.deaths()) or heard, "the death is told")
    assert heard == [(first, signal.SIGKILL)]

    processes = Watched([running.pid, second])
    os.kill(running.pid, signal.SIGKILL)
    with pytest.raises(LauncherDied, match=f"the launcher \\(process {running.pid}\\) is gone"):
        wait_until(running.deaths, "never")
    assert processes.left_after() == []
    with pytest.raises(LauncherDied):
        fork(running, "evaluator")


def test_a_pathlib_path_among_the_places_of_modules_does_no_harm(monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path, Path("/nowhere")])
    assert launcher_of_a_run() > 0


def test_closing_ends_the_roles_also_where_a_child_of_this_process_holds_the_socket(running, monkeypatch):
    monkeypatch.setattr(launcher, "END_SECONDS", 1_000.0)  # it needs no killing
    pid, *_kept = fork(running, "rollout-0")
    copy = os.dup(running.fileno())
    processes = Watched([running.pid, pid])
    try:
        running.close()
        assert processes.left_after(0.0) == []
    finally:
        os.close(copy)
    running.close()


def test_a_launcher_that_is_still_importing_ends_with_its_maker_at_once(tmp_path):
    (tmp_path / "torch.py").write_text("import threading; threading.Event().wait()")  # an import that never ends
    source = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from penstock.engine.backends.launcher import prepare\n"
        "prepare(); print('prepared', flush=True); input()"
    )
    with started(["-c", source], tmp_path) as maker:
        wait_for_line(maker, "prepared")
        wait_until(lambda: "penstock-launcher" in family(maker.pid), "the launcher runs")
        processes = Watched(list(family(maker.pid).values()))
        maker.kill()
        assert processes.left_after() == []


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"env": "CartPoll-v1"}, UnknownEnvironmentError),
        ({"env_kwargs": {"no_such": 1}, "env": Counting}, ConfigError),
        ({"num_envs_per_worker": 10**9, "batch_size": 16}, MemoryError),
    ],
    ids=["unknown environment", "wrong arguments", "no room"],
)
def test_a_trainer_that_cannot_be_made_leaves_no_launcher_behind(settings, error):
    before = set(psutil.Process().children(recursive=True))
    with pytest.raises(error):
        Trainer(PPO, **{**TINY, **settings}, run_dir=None)
    assert set(psutil.Process().children(recursive=True)) <= before
    assert launcher._prepared is None


@pytest.mark.long
def test_a_launcher_is_kept_for_the_next_run_and_ends_with_the_block():
    with launcher.kept():
        first = launcher_of_a_run()
        processes = Watched([first])
        assert launcher_of_a_run() == first
        assert [process.pid for process in psutil.Process(first).children()] == []
    assert processes.left_after() == [] and launcher._prepared is None
    alone = launcher_of_a_run()
    assert alone != first and launcher._prepared is None and not psutil.pid_exists(alone)


@pytest.mark.long
def test_it_has_imported_what_roles_need_before_it_forks_them():
    # What a role imports by itself costs every process of it time and memory.
    roles = ("evaluator", "policy_worker", "rollout_worker", "learner")
    learners = ("segment_learner", "replay_learner", "hogwild")
    paths = (*learners, "segments", "replay", "gradients")
    needed = [f"penstock.engine.roles.{name}" for name in roles] + [f"penstock.engine.paths.{name}" for name in paths]
    script = (
        "import sys; from penstock.engine.backends import forking; forking.import_what_roles_need(); "
        f"print([name for name in {[*needed, 'penstock.engine.acting.inference', 'torch']} if name not in sys.modules])"
    )
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "[]"
