"""Learner and policy worker in one process, as on a GPU: here on the CPU, where everything but CUDA is the same."""

import contextlib
import os
import signal
import threading
import time

import numpy as np
import pytest
import torch

from penstock.algorithms.appo import APPO
from penstock.algorithms.dqn import DQN
from penstock.config import make_config
from penstock.engine import roster
from penstock.engine.contracts import LearnerState
from penstock.engine.endings import TrainingFailed
from penstock.engine.groups.board import Board
from penstock.engine.paths.segments import SegmentPath
from penstock.engine.roles.shared_process import DeviceRole, PairedRole, ThreadedRole, parts_of
from penstock.engine.roles.specs import LearnerRole, PolicyRole, begin_on, left_as_found
from penstock.engine.roster import role_specs, shares_device
from penstock.engine.trainer import Trainer
from penstock.engine.watching import clock
from tests.engine.collecting import FIRST_VERSION, Collecting, Learns
from tests.engine.inside import arena_of, policy_of
from tests.engine.processes import TINY, Watched, pids_of, roles_of, wait_until, without
from tests.engine.stubborn import STAY, Stubborn, always

pytestmark = [pytest.mark.timeout(90), pytest.mark.usefixtures("kept_launcher")]

CENTRAL = {**TINY, "inference": "central", "run_dir": None}


@pytest.fixture
def one_process(monkeypatch):
    monkeypatch.setattr(roster, "shares_device", lambda config: True)


class FailsToAct(APPO):
    """Its policy cannot act once something has been learned."""

    def act(self, model, request):
        if request.steps > 100:
            raise RuntimeError("no action comes to mind")
        return super().act(model, request)


@pytest.mark.parametrize(
    ("device", "backend", "is_shared"),
    [("cpu", "local", False), ("cuda", "local", True), ("cuda:1", "local", True), ("cuda", "serial", False)],
)
def test_one_process_owns_a_gpu_and_the_cpu_is_everybodys(device, backend, is_shared):
    assert (
        shares_device(make_config(APPO.Config, {"env": "CartPole-v1", "device": device, "backend": backend}))
        is is_shared
    )


@pytest.mark.parametrize(("device", "done"), [("cpu", []), ("cuda", [0, "high"]), ("cuda:1", [1, "high"])])
def test_a_process_on_a_gpu_settles_its_device_and_its_precision(monkeypatch, device, done):
    found = []
    monkeypatch.setattr(torch.cuda, "set_device", found.append)
    monkeypatch.setattr(torch, "set_float32_matmul_precision", found.append)
    begin_on(device)
    assert found == done


def test_a_process_that_was_on_a_gpu_for_a_while_is_as_before(monkeypatch):
    on = [2]
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: on[-1])
    monkeypatch.setattr(torch.cuda, "set_device", on.append)
    before = torch.get_float32_matmul_precision()
    with left_as_found():
        begin_on("cuda:1")
        assert (on[-1], torch.get_float32_matmul_precision()) == (1, "high")
    assert (on[-1], torch.get_float32_matmul_precision()) == (2, before)


def test_a_precision_that_torch_does_not_name_stays():
    before = torch.backends.cuda.matmul.fp32_precision
    try:
        torch.backends.cuda.matmul.fp32_precision = "tf32"
        with left_as_found():
            pass
        assert torch.backends.cuda.matmul.fp32_precision == "tf32"
    finally:
        torch.backends.cuda.matmul.fp32_precision = before


def test_the_learners_name_stands_for_both_and_each_has_its_row_of_gauges(one_process):
    run = Collecting(APPO, inference="central", num_workers=2)
    specs = role_specs([Learns(run.algorithm)], run.env, run.arena.shape)
    assert [spec.name for spec in specs] == ["rollout-0", "rollout-1", "learner", "evaluator"]
    assert isinstance(specs[2], DeviceRole)
    parts = parts_of(specs)
    assert [part.name for part in parts] == ["rollout-0", "rollout-1", "policy-0", "learner", "evaluator"]
    assert [run.arena.shape.gauge_row(part.name) for part in parts] == [0, 1, 2, 3, 4]
    run.close()


def test_without_a_policy_worker_there_is_nothing_to_share(one_process):
    run = Collecting(APPO, inference="local")
    specs = role_specs([Learns(run.algorithm)], run.env, run.arena.shape)
    assert [type(spec) for spec in specs][1] is LearnerRole
    run.close()


@pytest.mark.parametrize("algorithm", [APPO, DQN])
def test_a_run_learns_goes_on_and_leaves_nothing_behind(one_process, algorithm):
    settings = {**without(CENTRAL, "segment_length"), "learning_starts": 100} if algorithm is DQN else CENTRAL
    with Trainer(algorithm, **settings) as trainer:
        versions = []
        trainer.train(1_000, quiet=True, on_update=lambda status: versions.append(status.version))
        pids = pids_of(trainer)
        assert set(pids) == {"launcher", "rollout-0", "rollout-1", "learner", "evaluator"}
        for more in (500, 300):
            steps = trainer.train(more, quiet=True).steps
            # What is reported as learned is what the user gets.
            assert trainer.evaluate(1).steps == steps and policy_of(trainer).weights.version == trainer.status.version
        assert pids_of(trainer) == pids
        assert np.all(np.diff(versions) >= 0) and trainer.status.version > 10
        assert {role.name for role in trainer.status.roles} == {"rollout x2", "policy", "learner", "evaluator"}
        family = Watched(roles_of(trainer))
    assert family.left_after(0.0) == []


@pytest.mark.timeout(120)
def test_it_learns_to_balance_a_pole(one_process):
    settings = {"hidden_sizes": (64, 64), "num_envs_per_worker": 16, "total_steps": 150_000, "target_return": 150.0}
    settings |= {"env": "CartPole-v1", "num_workers": 2, "inference": "central", "run_dir": None, "seed": 1}
    with Trainer(APPO, **settings) as trainer:
        result = trainer.train(quiet=True)
    assert result.reached_target and result.eval_return >= 150.0


def test_weights_that_are_set_fence_off_what_older_ones_chose(one_process):
    with Trainer(Stubborn, **{**CENTRAL, **STAY, "num_envs_per_worker": 4}) as trainer:
        trainer.train(500, quiet=True)
        for action in (0, 1):
            before = trainer.status.version
            trainer.set_parameters(always(action, trainer.get_parameters()))
            assert trainer.get_parameters()[0]["policy_head.bias"].argmax() == action
            trainer.train(500, quiet=True)
            assert trainer.evaluate(2).mean_length < 12  # a pole pushed one way only falls soon
            assert trainer.status.version > before


def test_an_exception_in_the_policy_worker_ends_the_run_with_its_story(one_process):
    trainer = Trainer(FailsToAct, **CENTRAL)
    with pytest.raises(TrainingFailed, match=r"(?s)learner failed:.*Traceback.*in act.*no action comes to mind"):
        trainer.train(5_000, quiet=True)


def test_killing_the_process_ends_the_run_as_the_death_of_a_learner_does(one_process, tmp_path):
    trainer = Trainer(APPO, **{**CENTRAL, "run_dir": str(tmp_path / "run"), "checkpoint_interval": 200})

    def kill(status):
        has_checkpoint = any((tmp_path / "run" / "checkpoints").glob("[0-9]*/meta.json"))  # from which it can resume
        if status.steps > 1_000 and has_checkpoint and (pid := pids_of(trainer).get("learner")):
            with contextlib.suppress(ProcessLookupError):  # it is gone, which is not noticed yet
                os.kill(pid, signal.SIGKILL)

    with pytest.raises(TrainingFailed, match=r"(?s)learner \(process \d+\) was killed by SIGKILL.*penstock resume"):
        trainer.train(10**8, quiet=True, on_update=kill)


def test_a_killed_rollout_worker_is_replaced_once_the_policy_worker_has_passed_its_death(one_process):
    with Trainer(APPO, **CENTRAL) as trainer:
        killed = []

        def kill(status):
            if not killed and status.steps > 500:
                killed.append(pids_of(trainer)["rollout-0"])
                os.kill(killed[0], signal.SIGKILL)

        trainer.train(2_500, quiet=True, on_update=kill)
        while trainer.status.restarts == 0:  # the other worker may have made all steps before the death was seen
            trainer.train(500, quiet=True)
        assert killed and trainer.status.restarts == 1
        requests = arena_of(trainer).requests
        wait_until(lambda: requests.has_passed(1, 0), "the policy worker passes the death")
        assert not requests.has_passed(2, 0)


def test_slots_of_the_dead_wait_for_the_policy_worker_wherever_it_lives(one_process):
    from penstock.engine.backends.restarts import Replacement

    run = Collecting(APPO, inference="central")
    specs = role_specs([Learns(run.algorithm)], run.env, run.arena.shape)
    dead = Replacement(specs[0], run.arena, pause=0.0)
    assert not dead.is_due(alive=specs[1:])
    run.policy_worker.poll()
    assert dead.is_due(alive=specs[1:])
    run.close()


class Idle:
    """A role that counts its polls and commands, and may fail at a poll."""

    def __init__(self, bell, fails_at=None):
        self.bell = bell
        self.polled, self.closed, self.heard = 0, 0, []
        self._fails_at = fails_at

    def poll(self):
        self.polled += 1
        if self.polled == self._fails_at:
            raise ArithmeticError("worn out")
        return False

    def handle(self, command):
        self.heard.append(command)

    def close(self):
        self.closed += 1


def test_a_companion_is_made_polled_woken_and_closed_in_a_thread_of_its_own():
    run = Collecting(APPO)
    made = []

    def build():
        made.append((Idle(run.arena.policy_bells[0]), threading.current_thread()))
        return made[0][0]

    learner = Idle(run.arena.learner_bell)
    pair = PairedRole(learner, ThreadedRole(build, wake=run.arena.learner_bell.ring))
    wait_until(lambda: made and made[0][0].polled, "the companion is polled")
    role, thread = made[0]
    assert thread is not threading.main_thread() and learner.polled == 0
    before = role.polled
    run.arena.policy_bells[0].ring()
    wait_until(lambda: role.polled > before, "the bell wakes it")
    assert pair.poll() is False and learner.polled == 1
    pair.handle("command")
    assert learner.heard == ["command"] and role.heard == []
    pair.close()
    assert not thread.is_alive() and (role.closed, learner.closed) == (1, 1)
    run.close()


def test_the_cpu_time_of_a_companion_is_booked_to_it_and_not_to_the_other(monkeypatch):
    monkeypatch.setattr(clock.time, "process_time", lambda: 5.0 + 2.0 * bool(booked))
    monkeypatch.setattr(clock.time, "thread_time", lambda: 1.0 + 2.0 * bool(booked))
    booked, rows = [], np.zeros((2, 32))
    run = Collecting(APPO)

    def build():
        own = clock.Clock(rows[1], ("work", "wait"))
        own._looked = float("-inf")  # as if CPU_INTERVAL were over
        booked.append(True)
        own.switch("work")
        return Idle(run.arena.policy_bells[0])

    other = clock.Clock(rows[0], ("work", "wait"))
    ThreadedRole(build, wake=run.arena.learner_bell.ring).close()
    other._looked = float("-inf")
    other.switch("work")
    assert rows[:, clock.CPU].sum(1).tolist() == [0.0, 2.0]
    run.close()


def test_the_failure_of_a_companion_wakes_the_other_and_is_its_own():
    run = Collecting(APPO)
    bell = run.arena.learner_bell
    rung = bell.value
    pair = PairedRole(Idle(bell), ThreadedRole(lambda: Idle(run.arena.policy_bells[0], fails_at=2), wake=bell.ring))
    run.arena.policy_bells[0].ring()
    wait_until(lambda: bell.value != rung, "the learner's bell is rung")
    with pytest.raises(ArithmeticError, match="worn out"):
        pair.poll()
    pair.close()
    run.close()


def test_a_companion_that_cannot_be_made_says_so_at_once():
    def build():
        raise ArithmeticError("worn out")

    with pytest.raises(ArithmeticError, match="worn out"):
        ThreadedRole(build, wake=lambda: None)


def test_the_policy_worker_has_an_algorithm_of_its_own_and_begins_with_the_learners_weights():
    run = Collecting(APPO, inference="central", num_groups=1)
    policy = PolicyRole(run.algorithm, SegmentPath(), 1)
    state = LearnerState(version=FIRST_VERSION)
    pair = DeviceRole(LearnerRole(run.algorithm, SegmentPath(), state, None, 1), policy).build(
        run.arena, run.reports.append
    )
    run.workers[0].poll()
    end = time.monotonic() + 30
    while not run.arena.requests.is_answered(0) and time.monotonic() < end:
        pair.poll()
    rows = run.arena.requests.rows[0]
    assert run.arena.columns["version"][rows].tolist() == [FIRST_VERSION] * 4
    with torch.no_grad():
        policy_now, _ = run.model.evaluate(torch.from_numpy(run.arena.columns["obs"][rows]))
    expected = policy_now.log_prob(torch.from_numpy(run.arena.columns["action"][rows]))
    torch.testing.assert_close(torch.from_numpy(run.arena.columns["log_prob"][rows]), expected)
    pair.close()
    run.close()


@pytest.mark.parametrize("size", [1, 2])
def test_a_learner_of_a_group_publishes_for_the_policy_workers_of_all(size):
    run, board = Collecting(APPO, inference="central"), Board(size) if size > 1 else None
    group = None if board is None else board.spec
    learner = LearnerRole(run.algorithm, SegmentPath(), LearnerState(version=FIRST_VERSION), None, 1, group=group)
    pair = DeviceRole(learner, PolicyRole(run.algorithm, SegmentPath(), 1)).build(run.arena, run.reports.append)
    alone = pair._role if board is None else pair._role._learner
    alone._weights.publish(FIRST_VERSION + 1, 0)
    assert run.arena.weights.version == FIRST_VERSION + (size > 1)  # one alone has its policy worker beside it
    pair.close()
    run.close()
    if board is not None:
        board.close()
