"""Failures: killed roles are replaced, errors end the run with the full traceback, and nothing is left behind."""

import json
import os
import random
import re
import resource
import shlex
import signal
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import psutil
import pytest
import torch

from penstock.algorithms.appo import APPO
from penstock.algorithms.ppo import PPO
from penstock.cli import main
from penstock.engine import evaluations
from penstock.engine.backends import channel, launcher, local, restarts
from penstock.engine.backends.channel import Channel
from penstock.engine.backends.local import LocalBackend
from penstock.engine.backends.restarts import Restarts
from penstock.engine.endings import TrainingFailed, TrainingInterrupted
from penstock.engine.messages import Died, Note, SetWeights
from penstock.engine.trainer import Trainer
from penstock.engine.watching import hangs
from penstock.envs.failures import EnvironmentFailure
from penstock.envs.making import lane_seed
from penstock.ipc import SlotState
from penstock.play.scoring import EVALUATION_LANES
from penstock.runs.checkpoint import load_checkpoint
from penstock.runs.run_directory import RunDirectory
from tests.engine.broken_environment import Counting
from tests.engine.collecting import Collecting
from tests.engine.inside import arena_of, supervisor_of
from tests.engine.processes import FOR_EVER, TINY, Watched, pids_of, roles_of, wait_until
from tests.envs.faulty import GOOD, FaultyEnv

LONG = pytest.mark.long
ONE_LANE = {**TINY, "num_workers": 1, "num_envs_per_worker": 1, "batch_size": 16, "num_epochs": 1, "run_dir": None}

pytestmark = [pytest.mark.timeout(90), pytest.mark.usefixtures("kept_launcher")]


@pytest.fixture
def quick_restarts(monkeypatch):
    monkeypatch.setattr(restarts, "LONGEST_BACK_OFF", 0.05)


class InterruptsWhen:
    """Called with every status: presses Ctrl-C, once, when a condition holds."""

    def __init__(self, condition):
        self._condition = condition
        self._has_interrupted = False

    def __call__(self, status):
        if not self._has_interrupted and self._condition(status):
            self._has_interrupted = True
            os.kill(os.getpid(), signal.SIGINT)


class Killer:
    """Kills one role after the other at random moments; is satisfied when 500 steps were learned from after that."""

    def __init__(self, trainer, victims):
        self._backend = supervisor_of(trainer).backend
        self._victims = list(victims)
        self._restarts = trainer.status.restarts + len(victims)
        self._moments = random.Random(3)
        self._killed = set()
        self.steps = None

    def __call__(self, status):
        if self._victims:
            pid = self._backend.pids.get(self._victims[0])
            if pid is not None and pid not in self._killed:  # whose moment may still be to come
                self._victims.pop(0)
                self._killed.add(pid)
                threading.Timer(self._moments.uniform(0.0, 0.2), os.kill, (pid, signal.SIGKILL)).start()
        elif status.restarts == self._restarts:
            self.steps = self.steps or status.steps
            return status.steps > self.steps + 500
        return False


@pytest.mark.parametrize("inference", ["central", "local"])
def test_killed_workers_are_replaced_and_no_slot_is_lost_until_the_sixth_kill_ends_the_run(
    inference, tmp_path, quick_restarts
):
    # PPO needs a slot of every lane for each batch: were one lost, it would never learn again.
    settings = {**TINY, "inference": inference, "run_dir": str(tmp_path / "run"), "num_epochs": 1}
    trainer = Trainer(PPO, **settings, total_steps=FOR_EVER)
    other = "policy-0" if inference == "central" else "rollout-1"
    with pytest.raises(TrainingInterrupted):
        victims = ["rollout-0", other, "rollout-0", "rollout-1", "rollout-0"]
        trainer.train(quiet=True, on_update=InterruptsWhen(Killer(trainer, victims)))
    assert trainer.status.restarts == 5
    slots = arena_of(trainer).slots
    writing = [len(slots.owned_by(worker, SlotState.WRITING)) for worker in range(2)]
    waiting = sum(len(slots.in_state(state)) for state in (SlotState.FREE, SlotState.FULL, SlotState.READING))
    assert sum(writing) + waiting == arena_of(trainer).shape.num_slots
    assert max(writing) <= settings["num_envs_per_worker"]

    family = Watched(roles_of(trainer))
    with pytest.raises(TrainingFailed, match=r"rollout-1 .* was killed by SIGKILL: 6 deaths in 10 minutes"):
        trainer.train(quiet=True, on_update=InterruptsWhen(Killer(trainer, ["rollout-1"])))
    assert family.left_after() == []
    assert (tmp_path / "run" / "log.txt").read_text().count("is replaced") == 5


def test_a_killed_evaluator_is_replaced_and_scores_the_final_weights(monkeypatch):
    monkeypatch.setattr(restarts, "_back_off", lambda count: 1.0)  # it is asked before it is back
    with Trainer(APPO, **{**TINY, "eval_interval": 10**6}, run_dir=None, total_steps=200) as trainer:
        trainer.train(64, quiet=True)
        pids = pids_of(trainer)
        os.kill(pids["evaluator"], signal.SIGKILL)
        result = trainer.train(quiet=True)
        assert result.eval_return is not None
        assert trainer.status.restarts == 1
        assert pids_of(trainer)["evaluator"] != pids["evaluator"]


@pytest.mark.parametrize(
    ("victim", "story"), [("learner", "learner .* was killed by SIGKILL"), ("launcher", "the launcher .* is gone")]
)
def test_without_learner_or_launcher_the_run_ends_and_says_how_to_resume(victim, story, tmp_path):
    trainer = Trainer(APPO, **TINY, run_dir=str(tmp_path / "run"))
    trainer.train(64, quiet=True)
    family = Watched(roles_of(trainer))
    assert len(family.pids) == 4
    os.kill(pids_of(trainer)[victim], signal.SIGKILL)
    with pytest.raises(TrainingFailed, match=rf"(?s){story}.*\n.*penstock resume {tmp_path}/run"):
        trainer.train(FOR_EVER, quiet=True)
    assert family.left_after() == []
    assert "did not answer" not in (tmp_path / "run" / "log.txt").read_text(), "a consequence of the failure"
    with pytest.raises(RuntimeError, match="this trainer is closed"):
        trainer.train(1)


@LONG
@pytest.mark.parametrize(
    ("env", "moment", "has_learned"),
    [
        ("BreaksInLaneThree", "step (lane 3, step 2000)", True),
        ("ResetBreaksInLaneThree", "reset (lane 3, step 0)", False),
    ],
)
def test_an_environment_that_raises_ends_the_run_with_the_whole_story_and_a_checkpoint(
    env, moment, has_learned, tmp_path, capsys, monkeypatch
):
    source = Path(__file__).with_name("broken_environment.py")
    monkeypatch.chdir(tmp_path)
    flags = "--num-workers 2 --num-envs-per-worker 2 --eval-interval 0 --run-dir run --checkpoint-interval 0"
    assert main(["train", "appo", "--env", f"{source}:{env}", *flags.split()]) == 1
    error = capsys.readouterr().err
    for part in (
        f"error: rollout-1: environment {env} failed in {moment}: Traceback",
        "broken_environment.py", f"in {moment.split()[0]}",
    ):  # fmt: skip
        assert part in error
    # What broke at once would break again.
    assert ("resume from the last checkpoint with: penstock resume run" in error) is has_learned
    assert error.count("ZeroDivisionError") == 1
    # Where a reset fails at the very start, the other worker may or may not have been learned from already.
    assert RunDirectory.open("run").checkpoints.latest().meta["steps"] > 0 or not has_learned
    assert "ZeroDivisionError" in Path("run", "log.txt").read_text()


class Odd(Exception):
    """Raised by a callback of a user."""


@pytest.mark.parametrize("raised", [Odd("enough"), SystemExit(5)], ids=["exception", "exit"])
@pytest.mark.parametrize("backend", ["serial", "local"])
def test_a_callback_that_raises_leaves_a_checkpoint_and_a_trainer_that_can_go_on(backend, raised, tmp_path):
    def complain(status):
        if status.steps:
            raise raised

    settings = {**TINY, "num_workers": 1, "backend": backend, "run_dir": str(tmp_path / "run")}
    with Trainer(PPO, **settings, checkpoint_interval=0) as trainer:
        with pytest.raises(type(raised)) as caught:
            trainer.train(FOR_EVER, quiet=True, on_update=complain)
        assert caught.value is raised
        saved = RunDirectory.open(tmp_path / "run").checkpoints.latest().meta["steps"]
        assert 0 < saved <= trainer.status.steps
        assert repr(raised) in (tmp_path / "run" / "log.txt").read_text()
        assert trainer.train(32, quiet=True).steps >= saved + 32


def test_the_command_that_resumes_is_one_that_a_shell_reads_as_it_was_meant(tmp_path):
    settings = {**ONE_LANE, "env": FaultyEnv, "env_kwargs": {"step_answers": {20: ArithmeticError("it broke")}}}
    trainer = Trainer(PPO, **{**settings, "backend": "serial", "run_dir": str(tmp_path / "my run")})
    with pytest.raises(TrainingFailed) as failure:
        trainer.train(quiet=True)
    command = shlex.split(str(failure.value).splitlines()[-1].partition("with: ")[2])
    assert command == ["penstock", "resume", str(tmp_path / "my run")]
    reason = json.loads((tmp_path / "my run" / "status.json").read_text())["reason"]
    assert "failed in step" in reason and reason.endswith(": ArithmeticError: it broke")


@contextmanager
def backend_of_two(monkeypatch):
    """A backend with two roles played by the test, each at one end of a channel; and the reports received."""
    deaths, _keeps_open = os.pipe()
    monkeypatch.setattr(launcher, "take", lambda: SimpleNamespace(fileno=lambda: deaths, deaths=list))
    run, heard, roles = Collecting(PPO), [], {}
    backend = LocalBackend(run.arena, [], lambda role, report: heard.append((role, report)), Restarts(False))
    for name in ("learner", "rollout-0"):
        ours, roles[name] = Channel.pair()
        backend._processes[name] = local.Process(SimpleNamespace(name=name), 0, ours)
    yield backend, heard, roles
    run.close()
    os.close(deaths)
    os.close(_keeps_open)


def test_the_supervisor_listens_to_a_role_while_it_talks_to_it(monkeypatch):
    # A role that reports more than its socket holds reads nothing before its report is read.
    large = bytes(5_000_000)
    with backend_of_two(monkeypatch) as (backend, heard, roles):
        got = []

        def role():
            roles["learner"].send(Note(large))
            got.append(roles["learner"].wait())

        thread = threading.Thread(target=role, daemon=True)
        thread.start()
        assert backend.send("learner", SetWeights(large, None))
        wait_until(lambda: backend.pump(0.01) or (got and heard), "both are read")
        thread.join()
        assert got == [SetWeights(large, None)] and heard == [("learner", Note(large))]


def test_a_role_that_is_stopped_during_a_report_blocks_no_other(monkeypatch):
    with backend_of_two(monkeypatch) as (backend, heard, roles):
        report = b"".join(channel._framed(Note(bytes(50_000))))
        stopped = roles["learner"]._socket
        for part in (report[:3], report[3:20_000]):
            stopped.sendall(part)
            backend.pump(0.01)
            assert heard == []
        roles["rollout-0"].send(Note("goes on"))
        assert backend.send("learner", SetWeights(bytes(5_000_000), None))  # which it does not read
        backend.pump(0.01)
        assert heard == [("rollout-0", Note("goes on"))]
        stopped.sendall(report[20_000:])
        backend.pump(0.01)
        assert heard[1:] == [("learner", Note(bytes(50_000)))]


@pytest.mark.parametrize("status", [7 << 8, signal.SIGABRT], ids=["exits", "crashes"])
def test_a_role_that_ended_in_its_environment_is_replaced_in_whichever_way_it_ended(status, monkeypatch):
    monkeypatch.setattr(local, "watched", lambda spec, arena: SimpleNamespace(is_in_env=True))
    with backend_of_two(monkeypatch) as (backend, heard, _):
        process = backend._processes["rollout-0"]
        backend._restarts, process.pid, process.spec.is_vital = Restarts(True), 1, False
        backend._bury(1, status)
        assert [(role, type(report)) for role, report in heard] == [("rollout-0", Died)]
        assert backend._replacements.keys() == {"rollout-0"}


NAN = np.array([0.0, np.nan], np.float32)


@pytest.mark.parametrize("backend", ["serial", "local"])
@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ((NAN, 0.0, False, False, {}), "finite"),
        ((GOOD, float("nan"), False, False, {}), "expected a finite float32 reward, found nan"),
        ((np.zeros(3, np.float32), 0.0, False, False, {}), "shape"),
        ((np.array(["a", "b"]), 0.0, False, False, {}), "dtype"),
        (ArithmeticError("it broke"), r'faulty.py", line \d+, in step.*ArithmeticError: it broke'),
    ],
    ids=["NaN observation", "NaN reward", "wrong shape", "wrong dtype", "exception"],
)
def test_what_breaks_the_contract_is_named_by_both_backends(answer, problem, backend, tmp_path):
    settings = {**ONE_LANE, "env": FaultyEnv, "env_kwargs": {"step_answers": {20: answer}}, "backend": backend}
    trainer = Trainer(PPO, **{**settings, "run_dir": str(tmp_path / "run")})
    story = rf"(?s)rollout-0: environment FaultyEnv failed in step \(lane 0, step 20\): .*{problem}.*penstock resume"
    with pytest.raises(TrainingFailed, match=story) as failure:
        trainer.train(quiet=True)
    if backend == "serial":
        assert isinstance(failure.value.__cause__, EnvironmentFailure)  # with its traceback, for a debugger
    assert load_checkpoint(tmp_path / "run" / "checkpoints" / "16").meta["updates"] == 1


@pytest.mark.parametrize("backend", ["serial", "local"])
def test_environments_that_fail_now_and_then_are_made_anew_and_counted_if_the_user_says_so(
    backend, quick_restarts, tmp_path
):
    fails_early = {"env": FaultyEnv, "env_kwargs": {"step_answers": {40: ArithmeticError("it broke")}}}
    settings = {**ONE_LANE, **fails_early, "backend": backend, "on_env_error": "restart"}
    with Trainer(PPO, **{**settings, "run_dir": str(tmp_path / "run")}) as trainer:
        trainer.train(32 * 7, quiet=True)  # each life brings two segments of 16
        assert trainer.status.restarts >= 6
    assert "it broke" in (tmp_path / "run" / "log.txt").read_text()


class FailsInAnyOtherProcess(Counting):
    """Can be made in the process that is the first to make one, which only looks at it."""

    def __init__(self, first):
        super().__init__()
        try:
            with open(first, "x") as file:
                file.write(str(os.getpid()))
        except FileExistsError:
            if first.read_text() != str(os.getpid()):
                raise ConnectionError("no game server here") from None


@pytest.mark.parametrize("on_env_error", ["stop", "restart"])
def test_environments_that_cannot_even_be_made_end_the_run(on_env_error, quick_restarts, tmp_path):
    settings = {**ONE_LANE, "env": FailsInAnyOtherProcess, "env_kwargs": {"first": tmp_path / "first"}}
    trainer = Trainer(PPO, **settings, on_env_error=on_env_error)
    launcher_of_it = psutil.Process(pids_of(trainer)["launcher"])
    with pytest.raises(TrainingFailed, match=r"(?s)failed in make \(.*no game server here"):
        trainer.train(quiet=True)
    wait_until(lambda: not launcher_of_it.is_running() or not launcher_of_it.children(), "the roles have ended")


class Hangs(Counting):
    """Hangs from its tenth step on."""

    def step(self, action):
        answer = super().step(action)
        if self.steps == 10:
            threading.Event().wait()
        return answer


@LONG
def test_an_environment_that_hangs_is_named_once_and_does_not_hinder_the_end(tmp_path, monkeypatch):
    monkeypatch.setattr(hangs, "HANG_SECONDS", 0.3)
    log = tmp_path / "run" / "log.txt"

    def is_named(status):
        return log.exists() and "hangs" in log.read_text()

    trainer = Trainer(APPO, **{**TINY, "env": Hangs, "num_workers": 1}, run_dir=str(tmp_path / "run"))
    with pytest.raises(TrainingInterrupted):
        trainer.train(quiet=True, on_update=InterruptsWhen(is_named))
    family = Watched(roles_of(trainer))
    trainer.close()
    assert family.left_after() == []
    assert log.read_text().count("environment Hangs hangs: rollout-0 has waited") == 1
    assert "for one of lanes 0 to 1" in log.read_text()


class NeverEnds(Counting):
    """Hangs in the first step of evaluations if requested; elsewhere no episode ends."""

    def __init__(self, hangs=False):
        super().__init__()
        self.hangs = hangs

    def step(self, action):
        answer = super().step(action)
        if self.hangs and self.steps == 1 and self.seed in [lane_seed(0, EVALUATION_LANES + i, 0) for i in range(2)]:
            threading.Event().wait()
        return answer


@LONG
@pytest.mark.parametrize("hangs_for_ever", [False, True], ids=["never ends", "hangs"])
def test_an_evaluation_that_does_not_end_keeps_no_run_from_its_end_and_costs_nothing(
    hangs_for_ever, tmp_path, monkeypatch
):
    # In which the evaluator begins, on busy cores too; what hangs is waited for twice as long.
    monkeypatch.setattr(evaluations, "LEAST_GRACE", 6.0 if hangs_for_ever else 12.0)
    monkeypatch.setattr(hangs, "HANG_SECONDS", 0.3)
    run_dir, saved_before = tmp_path / "run", []

    def on_update(status):
        saved_before.append(bool(RunDirectory.open(run_dir).checkpoints.steps()))

    env = {"env": NeverEnds, "env_kwargs": {"hangs": hangs_for_ever}, "num_workers": 1, "checkpoint_interval": 0}
    evaluation = {"eval_interval": FOR_EVER, "eval_max_steps": FOR_EVER}
    settings = {**TINY, **env, **evaluation, "max_seconds": 0.5, "total_steps": 64}
    with Trainer(APPO, **settings, run_dir=str(run_dir)) as trainer:
        result = trainer.train(quiet=True, on_update=on_update)
        assert result.stop_reason in ("steps", "seconds") and not result.reached_target
        assert saved_before[-2], "the checkpoint was there while the evaluation went on"
        assert RunDirectory.open(run_dir).checkpoints.latest().meta["steps"] == result.steps
    log = (run_dir / "log.txt").read_text()
    if hangs_for_ever:
        assert result.eval_return is None
        assert "environment NeverEnds hangs: evaluator has waited" in log and "for one of its 2 lanes" in log
        assert "the final weights were not evaluated: the evaluator has not answered" in log
    else:
        assert (result.eval_return, result.eval_unfinished) == (0.0, 2)
        assert "asked for 2 episodes: 0 ended, and 2 were cut short" in log and "(max_seconds)" in log


class Stuck(Counting):
    """Never returns from its first step."""

    def step(self, action):
        time.sleep(FOR_EVER)


def test_a_run_that_made_no_step_in_its_time_has_failed(tmp_path):
    settings = {**TINY, "env": Stuck, "num_workers": 1, "eval_interval": 0, "max_seconds": 1.0}
    with Trainer(APPO, **settings, run_dir=str(tmp_path / "run")) as trainer:
        result = trainer.train(quiet=True)
    assert (result.stop_reason, result.steps) == ("seconds", 0)
    status = json.loads((tmp_path / "run" / "status.json").read_text())
    assert status["state"] == "failed" and "no step" in status["reason"]


class EndsItsProcess(Counting):
    """Ends its process at random, in the requested way."""

    def __init__(self, how):
        super().__init__()
        self.how = how

    def step(self, action):
        answer = super().step(action)
        if self.steps == 40:
            {"exits": lambda: os._exit(7), "crashes": os.abort, "leaves": lambda: sys.exit(7)}[self.how]()
        return answer


@LONG
@pytest.mark.parametrize("how", ["exits", "crashes", "leaves"])
def test_environments_that_end_their_process_are_made_anew_if_the_user_says_so(how, quick_restarts, tmp_path):
    settings = {**ONE_LANE, "env": EndsItsProcess, "env_kwargs": {"how": how}, "on_env_error": "restart"}
    with Trainer(PPO, **{**settings, "run_dir": str(tmp_path / "run")}) as trainer:
        trainer.train(32 * 8, quiet=True)  # each life brings two segments of 16
        assert trainer.status.restarts >= 7, "more often than a role may be killed from outside"


@pytest.mark.parametrize("how", ["exits", "leaves"])
def test_an_environment_that_ends_its_process_ends_the_run_and_is_named_as_the_cause(how, tmp_path):
    settings = {**ONE_LANE, "env": EndsItsProcess, "env_kwargs": {"how": how}}
    story = {
        "exits": r"rollout-0 .* ended with exit status 7, in its environment.*on_env_error='restart'",
        "leaves": r"(?s)environment EndsItsProcess failed in step \(lane 0, step 40\): .*SystemExit: 7",
    }[how]
    trainer = Trainer(PPO, **settings)
    with pytest.raises(TrainingFailed, match=story):
        trainer.train(quiet=True)


class Diverging(APPO):
    """Its loss is never a number."""

    def loss(self, batch, policy, value):
        loss, metrics = super().loss(batch, policy, value)
        return loss * torch.nan, metrics


def test_a_loss_that_stays_not_finite_ends_the_run_with_a_diagnosis(tmp_path):
    trainer = Trainer(Diverging, **TINY, backend="serial", run_dir=None)
    with pytest.raises(TrainingFailed, match=r"learner: .* were not finite \(loss nan.*lower learning_rate"):
        trainer.train(quiet=True)


def test_a_checkpoint_that_a_failing_run_cannot_write_is_said_after_the_failure(tmp_path):
    trainer = Trainer(APPO, **TINY, run_dir=str(tmp_path / "run"))
    trainer.train(64, quiet=True)
    resource.prlimit(pids_of(trainer)["learner"], resource.RLIMIT_FSIZE, (1024, 1024))
    supervisor = supervisor_of(trainer)
    with pytest.raises(TrainingFailed, match=r"^rollout-0 failed"):
        supervisor._fail("rollout-0 failed", None)
    told = [line.partition("  ")[2] for line in (tmp_path / "run" / "log.txt").read_text().splitlines()]
    place = told.index("rollout-0 failed")
    assert told[place + 1].startswith("warning: no checkpoint could be written: "), told


def test_a_full_disk_is_warned_of_and_training_goes_on_with_the_last_good_checkpoint(tmp_path):
    run_dir = tmp_path / "run"
    settings = {**TINY, "checkpoint_interval": 0, "total_steps": FOR_EVER, "run_dir": str(run_dir)}
    with Trainer(APPO, **settings) as trainer:
        good = trainer.train(64, quiet=True)
        learner = pids_of(trainer)["learner"]
        full, roomy = ((size, resource.RLIM_INFINITY) for size in (1024, resource.RLIM_INFINITY))
        resource.prlimit(learner, resource.RLIMIT_FSIZE, full)
        after = trainer.train(64, quiet=True)
        with pytest.raises(OSError, match="File too large"):
            trainer.save(str(tmp_path / "elsewhere"))
        last = trainer.train(64, quiet=True)
        assert last.steps > after.steps > good.steps
        assert not good.save_error and "File too large" in after.save_error and "File too large" in last.save_error
        assert RunDirectory.open(run_dir).checkpoints.latest().meta["steps"] == good.steps
        assert [p.name for p in (run_dir / "checkpoints").iterdir()] == [str(good.steps)]
        for limit in (full, full, full, roomy, full):
            resource.prlimit(learner, resource.RLIMIT_FSIZE, limit)
            trainer.train(64, quiet=True)
    shown = re.findall(r"warning: no checkpoint could be written(.*?): ", (run_dir / "log.txt").read_text())
    assert shown == ["", ", 2 times in a row", ", 4 times in a row", ""], "of six failures in a row, and one more"
