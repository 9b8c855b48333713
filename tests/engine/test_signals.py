"""Signals: how a run is interrupted, and that nothing of it outlives its main process."""

import fcntl
import json
import os
import signal
import subprocess
import sys
import termios
import time
from contextlib import suppress
from pathlib import Path

import pytest

from penstock.algorithms.ppo import PPO
from penstock.engine.backends.interruption import interruption
from penstock.engine.backends.process import _begin
from penstock.engine.endings import TrainingInterrupted
from penstock.engine.inspection import inspect
from penstock.engine.trainer import Trainer
from penstock.runs.process import ENDING
from penstock.runs.run_directory import RunDirectory
from tests.engine.broken_environment import Counting
from tests.engine.forked import end_of_forked
from tests.engine.inside import supervisor_of
from tests.engine.processes import FOR_EVER, PATIENCE, TINY, Watched, family, script, started, wait_for_line, wait_until
from tests.places import ROOT

LONG = pytest.mark.long
pytestmark = pytest.mark.timeout(90)

ROLES = {f"penstock-{role}" for role in ("launcher", "rollout-0", "rollout-1", "learner", "evaluator")}
COMMAND = [
    "-m", "penstock.cli", "train", "appo", "--env", "CartPole-v1", "--num-workers", "2", "--num-envs-per-worker", "2",
    "--run-dir", "run", "--total-steps", "1000000000", "--eval-interval", "0",
]  # fmt: skip


def watch(process) -> Watched:
    return Watched([process.pid, *family(process.pid).values()])


def wait_until_it_learns(folder: Path) -> None:
    wait_until((folder / "run" / "metrics.jsonl").exists, "the run has learned from steps")


def to_the_terminal(process, signum):
    """As Ctrl-C does: every process of the group gets it."""
    os.killpg(process.pid, signum)


def to_every_process(process, signum):
    """As `systemctl stop` and the time limit of a cluster do, here with the supervisor last and both to the roles."""
    for pid in family(process.pid).values():
        os.kill(pid, signal.SIGINT)
        os.kill(pid, signum)
    os.kill(process.pid, signum)


def twice(process, signum):
    """As `timeout` does: to the process, and at once to its group."""
    process.send_signal(signum)
    wait_until(lambda: not pending(process.pid, signum), "the first has come")
    os.killpg(process.pid, signum)


def pending(pid: int, signum: int) -> bool:
    """Whether a signal waits to be delivered."""
    lines = dict(line.split(":\t") for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":\t" in line)
    return any(int(lines[name], 16) >> (signum - 1) & 1 for name in ("SigPnd", "ShdPnd"))


@pytest.mark.parametrize(
    ("send", "signum"),
    [
        (to_the_terminal, signal.SIGINT),
        pytest.param(to_every_process, signal.SIGTERM, marks=LONG),
        pytest.param(twice, signal.SIGTERM, marks=LONG),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_one_signal_ends_a_run_in_good_order(send, signum, tmp_path):
    with started(COMMAND, tmp_path) as process:
        wait_until_it_learns(tmp_path)
        processes = watch(process)
        send(process, signum)
        rest, _ = process.communicate()
        assert process.returncode == 130
        assert processes.left_after() == []
    assert "\ninterrupted after " in rest
    assert "resume:   penstock resume run\n" in rest
    assert "Traceback" not in rest
    assert RunDirectory.open(tmp_path / "run").checkpoints.latest().meta["updates"] > 0


@LONG
@pytest.mark.parametrize("is_ignored", [False, True], ids=["as usual", "under nohup"])
def test_a_closed_terminal_ends_a_run_in_good_order_unless_it_was_started_to_go_on(is_ignored, tmp_path):
    ours, terminal = os.openpty()
    os.set_blocking(ours, False)
    process = subprocess.Popen(
        [*(["nohup"] if is_ignored else []), sys.executable, *COMMAND], cwd=tmp_path, stdin=terminal, stdout=terminal,
        stderr=terminal, start_new_session=True, preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    os.close(terminal)
    metrics = tmp_path / "run" / "metrics.jsonl"

    def has_grown(size):
        with suppress(OSError):  # read, so that the view is never held up
            while os.read(ours, 1 << 16):
                pass
        return metrics.exists() and metrics.stat().st_size > size

    with process:
        try:
            wait_until(lambda: has_grown(0), "the run has learned from steps")
            processes = watch(process)
            os.close(ours)  # the kernel sends SIGHUP, and writing to the terminal fails from now on
            if is_ignored:
                size = metrics.stat().st_size
                wait_until(lambda: metrics.stat().st_size > size, "the run has gone on")
                process.terminate()
            assert process.wait(PATIENCE) == 130
        finally:
            process.kill()
    assert processes.left_after() == []
    run = RunDirectory.open(tmp_path / "run")
    assert run.checkpoints.latest().meta["updates"] > 0
    assert json.loads((run.path / "status.json").read_text())["state"] == "interrupted"


NEVER_ENDS_AN_UPDATE = f"""
import threading
import penstock
from penstock.algorithms.appo import APPO

class Endless(APPO):
    def loss(self, batch, policy, value):
        threading.Event().wait()

trainer = penstock.Trainer(Endless, **{TINY!r}, run_dir=None)
try:
    trainer.train()
except KeyboardInterrupt:
    print("stopped", flush=True)
    input()
"""


@LONG
def test_a_second_signal_is_not_waited_for(tmp_path):
    with script(NEVER_ENDS_AN_UPDATE, tmp_path) as process:
        wait_until(lambda: set(family(process.pid)) >= ROLES, "the roles run")
        processes = Watched(list(family(process.pid).values()))
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGTERM)
        wait_for_line(process, "stopped")
        assert processes.left_after() == []


def test_an_interrupt_while_everything_is_still_being_made_ends_quietly(tmp_path):
    with started(COMMAND, tmp_path) as process:
        wait_until(lambda: family(process.pid), "the launcher is there")
        processes = watch(process)
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate()
        # A shell shows both as 130: Python kills itself where the interrupt came within an exec() of some import.
        assert process.returncode in (130, -signal.SIGINT)
        assert "Traceback" not in rest
        assert processes.left_after() == []


def shared_memory() -> set[str]:
    return {entry.name for entry in Path("/dev/shm").iterdir()}


def maps_of_arenas() -> set[int]:
    """Processes that have an anonymous arena mapped."""
    found = set()
    for maps in Path("/proc").glob("[0-9]*/maps"):
        try:
            if "memfd:penstock" in maps.read_text():
                found.add(int(maps.parent.name))
        except OSError:
            continue
    return found


WITH_A_FORKED_CHILD = f"""
import os, signal, time
import penstock

trainer = penstock.PPO(**{TINY!r}, run_dir=None)
trainer.train(64, quiet=True)
if os.fork() == 0:  # it holds copies of everything that this process has open
    signal.pause()
print("forked", flush=True)
trainer.train(10**9)
"""


@LONG
@pytest.mark.parametrize(
    "moment",
    [
        "while it trains", "while another child holds its sockets",
        "while roles are made",
    ],
)
def test_nothing_outlives_a_main_process_that_is_killed(moment, tmp_path):
    before = shared_memory()
    source = [str(tmp_path / "script.py")] if "another child" in moment else COMMAND
    (tmp_path / "script.py").write_text(WITH_A_FORKED_CHILD)
    with started(source, tmp_path) as process:
        stranger = set()
        if moment == "while it trains":
            wait_until_it_learns(tmp_path)
        elif moment == "while another child holds its sockets":
            wait_for_line(process, "forked")
            stranger = set(family(process.pid).values()) - {family(process.pid)[name] for name in ROLES}
            assert len(stranger) == 1
        else:
            wait_until(lambda: "penstock-rollout-0" in family(process.pid), "the first role is forked")
        process.send_signal(signal.SIGSTOP)  # it asks for no more roles while they are counted
        pids = {process.pid, *family(process.pid).values()} - stranger
        processes = Watched(list(pids))
        process.kill()
        left = processes.left_after()
        for pid in stranger:
            os.kill(pid, signal.SIGKILL)
        Watched(list(stranger)).left_after()
    assert left == []
    assert not maps_of_arenas() & (pids | stranger)
    assert shared_memory() <= before


FORGOTTEN = f"""
import penstock
trainer = penstock.PPO(**{TINY!r}, run_dir=None)
trainer.train(64, quiet=True)
print("trained", flush=True)
input()
"""


@LONG
def test_a_trainer_that_is_never_closed_leaves_nothing_behind_when_the_program_ends(tmp_path):
    with script(FORGOTTEN, tmp_path) as process:
        wait_for_line(process, "trained")
        processes = watch(process)
        assert len(processes.pids) == 6
        process.communicate("\n")
        assert process.returncode == 0
        assert processes.left_after() == []


def test_the_same_signal_at_once_is_one_and_later_it_is_the_second(monkeypatch):
    with interruption() as interrupted:
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)
        assert interrupted.has_come
    monkeypatch.setattr("penstock.engine.backends.interruption.ECHO_SECONDS", 0.0)
    with pytest.raises(KeyboardInterrupt), interruption():
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)


def test_a_signal_may_come_at_any_moment_of_the_handling_of_another():
    came = 0

    def again(frame, event, arg):
        nonlocal came
        if event == "line":
            came += 1
            os.kill(os.getpid(), signal.SIGTERM)  # handled before the line is
        return again

    with interruption() as interrupted:
        sys.settrace(lambda frame, event, arg: again if frame.f_code.co_name != "again" else None)
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        finally:
            sys.settrace(None)
        assert interrupted.has_come
    assert came


@pytest.mark.parametrize("signum", [signal.SIGHUP, signal.SIGUSR1])
def test_a_closed_terminal_and_the_warning_of_a_batch_system_ask_for_the_end(signum):
    with interruption() as interrupted:
        os.kill(os.getpid(), signum)
        assert interrupted.has_come
    assert signal.getsignal(signum) is signal.SIG_DFL


def test_a_program_keeps_its_own_handler_of_sigusr1():
    came = []
    signal.signal(signal.SIGUSR1, lambda *_: came.append(1))
    try:
        with interruption() as interrupted:
            os.kill(os.getpid(), signal.SIGUSR1)
            assert came and not interrupted.has_come
    finally:
        signal.signal(signal.SIGUSR1, signal.SIG_DFL)


def test_signals_that_ask_for_an_end_do_nothing_to_a_role():
    role = os.fork()
    if role == 0:
        try:
            _begin("of-a-test", os.getppid())
            for signum in ENDING:
                os.kill(os.getpid(), signum)
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(role, 0)[1]) == 0


def test_a_role_ends_with_the_launcher_that_has_forked_it():
    reading, writing = os.pipe()
    launcher = os.fork()
    if launcher == 0:
        mine = os.getpid()
        if os.fork() == 0:
            _begin("of-a-test", mine)
            os.write(writing, str(os.getpid()).encode())
            time.sleep(PATIENCE)
            os._exit(0)
        signal.pause()
    role = Watched([int(os.read(reading, 20))])
    os.kill(launcher, signal.SIGKILL)
    os.waitpid(launcher, 0)
    assert role.left_after() == []
    os.close(reading)
    os.close(writing)


def test_a_signal_that_was_ignored_before_stays_ignored():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as a shell has it for what it runs in the background
    try:
        with interruption() as interrupted:
            os.kill(os.getpid(), signal.SIGINT)
            assert not interrupted.has_come
            os.kill(os.getpid(), signal.SIGTERM)
            assert interrupted.has_come
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


FORKS = """
import signal
from penstock.engine.backends.interruption import interruption
from tests.engine.forked import end_of_forked

with interruption():
    assert all(end_of_forked(signal.SIGTERM) == -signal.SIGTERM for _ in range(20))
    assert end_of_forked(signal.SIGINT) == 1  # a KeyboardInterrupt
print("as ever")
"""


def test_a_child_that_is_forked_meanwhile_handles_signals_as_before(tmp_path):
    """In a process of its own: in one that has used Ray, Ray's threads have a part in every fork."""
    with script(FORKS, tmp_path) as process:
        assert process.communicate(timeout=PATIENCE)[0].endswith("as ever\n")


class StartsAndEnds(Counting):
    """Starts processes in each way, ends each by each signal, and writes down how that went; only in a role."""

    def __init__(self, home, folder):
        super().__init__()
        if os.getpid() == home:
            return
        ends = []
        for signum in (signal.SIGTERM, signal.SIGINT):
            program = subprocess.Popen(["sleep", "1000"])
            program.send_signal(signum)
            ends += [program.wait(PATIENCE / 3), end_of_forked(signum)]
        Path(folder, str(os.getpid())).write_text(str(ends))


@LONG
@pytest.mark.usefixtures("kept_launcher")
def test_what_an_environment_starts_can_be_ended_by_signals(tmp_path):
    given = {"home": os.getpid(), "folder": str(tmp_path)}
    settings = {**TINY, "env": StartsAndEnds, "env_kwargs": given, "num_workers": 1, "num_envs_per_worker": 2}
    with Trainer(PPO, **settings, run_dir=None) as trainer:
        trainer.train(32, quiet=True)
    assert {file.read_text() for file in tmp_path.iterdir()} == {"[-15, -15, -2, 1]"}


class EndsAtASign(Counting):
    """Fails as soon as a file exists, like an environment whose server got the signal too."""

    def __init__(self, sign):
        super().__init__()
        self.sign = Path(sign)

    def step(self, action):
        if self.sign.exists():
            raise ConnectionError("the server is gone")
        return super().step(action)


@pytest.mark.usefixtures("kept_launcher")
def test_an_environment_that_the_signal_has_ended_too_does_not_hinder_the_end_in_good_order(tmp_path):
    run, sign = tmp_path / "run", tmp_path / "sign"

    def press(status):
        if status.steps and not sign.exists():
            os.kill(os.getpid(), signal.SIGTERM)
            sign.touch()
            # The failure is there before the checkpoint is asked for, while lanes are still stepped.
            roles.until(lambda: roles.failure is not None, PATIENCE)

    with Trainer(PPO, **{**TINY, "env": EndsAtASign, "env_kwargs": {"sign": str(sign)}}, run_dir=str(run)) as trainer:
        roles = supervisor_of(trainer)._roles
        with pytest.raises(TrainingInterrupted):
            trainer.train(FOR_EVER, quiet=True, on_update=press)
        assert roles.failure is not None
    assert RunDirectory.open(run).checkpoints.latest().meta["updates"] > 0


@pytest.mark.usefixtures("kept_launcher")
def test_a_run_that_is_interrupted_while_it_fails_is_closed_at_once(tmp_path):
    sign = tmp_path / "sign"
    sign.touch()

    def interrupt(*_):
        raise KeyboardInterrupt

    with Trainer(
        PPO, **{**TINY, "env": EndsAtASign, "env_kwargs": {"sign": str(sign)}}, run_dir=str(tmp_path / "run")
    ) as trainer:
        supervisor_of(trainer).saves.save_run = interrupt
        with pytest.raises(KeyboardInterrupt):
            trainer.train(FOR_EVER, quiet=True)
        assert supervisor_of(trainer).is_closed


@LONG
@pytest.mark.usefixtures("kept_launcher")
def test_in_python_the_interruption_carries_the_result_and_training_can_go_on():
    trainer = Trainer(PPO, **TINY, run_dir=None)
    handler = signal.getsignal(signal.SIGINT)
    pressed = []

    def press(status):
        if status.steps and not pressed:
            pressed.append(status.steps)
            os.kill(os.getpid(), signal.SIGINT)

    with trainer:
        with pytest.raises(TrainingInterrupted) as interruption:
            trainer.train(FOR_EVER, quiet=True, on_update=press)
        assert isinstance(interruption.value, KeyboardInterrupt)
        assert interruption.value.result.stop_reason == "interrupted"
        assert interruption.value.result.steps >= pressed[0]
        assert signal.getsignal(signal.SIGINT) is handler
        again = trainer.train(64, quiet=True)
        assert again.steps >= interruption.value.result.steps + 64
        assert inspect(trainer).policies[0].slots["reading"] <= trainer.config.segments_per_batch
