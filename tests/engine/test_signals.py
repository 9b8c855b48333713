"""Signals: how a run is interrupted, and that nothing of it outlives its main process."""

import os
import signal
from pathlib import Path

import pytest

from penstock.algorithms.ppo import PPO
from penstock.engine.trainer import Trainer, TrainingInterrupted
from penstock.ipc import SlotState
from penstock.runs.run_directory import RunDirectory
from tests.engine.processes import TINY, Watched, family, script, started, wait_for_line, wait_until

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


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_one_signal_ends_a_run_in_good_order(signum, tmp_path):
    with started(COMMAND, tmp_path) as process:
        wait_until_it_learns(tmp_path)
        processes = watch(process)
        os.killpg(process.pid, signum)  # as a terminal does it: every process of the group gets it
        rest, _ = process.communicate()
        assert process.returncode == 130
        assert processes.left_after(2.0) == []
    assert "\ninterrupted after " in rest
    assert "resume:   penstock resume run\n" in rest
    assert "Traceback" not in rest
    assert RunDirectory.open(tmp_path / "run").checkpoints.latest().meta["updates"] > 0


NEVER_ENDS_AN_UPDATE = f"""
import threading
import penstock
from penstock.algorithms.appo import APPO

class Endless(APPO):
    def loss(self, model, batch):
        threading.Event().wait()

trainer = penstock.Trainer(Endless, **{TINY!r}, run_dir=None)
try:
    trainer.train()
except KeyboardInterrupt:
    print("stopped", flush=True)
    input()
"""


def test_a_second_signal_is_not_waited_for(tmp_path):
    with script(NEVER_ENDS_AN_UPDATE, tmp_path) as process:
        wait_until(lambda: set(family(process.pid)) >= ROLES, "the roles run")
        processes = Watched(list(family(process.pid).values()))
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGTERM)
        wait_for_line(process, "stopped")
        assert processes.left_after(2.0) == []


def test_an_interrupt_while_everything_is_still_being_made_ends_quietly(tmp_path):
    with started(COMMAND, tmp_path) as process:
        wait_until(lambda: family(process.pid), "the launcher is there")
        processes = watch(process)
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate()
        # A shell shows both as 130: Python kills itself where the interrupt came within an exec() of some import.
        assert process.returncode in (130, -signal.SIGINT)
        assert "Traceback" not in rest
        assert processes.left_after(2.0) == []


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


@pytest.mark.parametrize("moment", ["while it trains", "while another child holds its sockets", "while roles are made"])
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
        left = processes.left_after(2.0)
        for pid in stranger:
            os.kill(pid, signal.SIGKILL)
        Watched(list(stranger)).left_after(2.0)
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


def test_a_trainer_that_is_never_closed_leaves_nothing_behind_when_the_program_ends(tmp_path):
    with script(FORGOTTEN, tmp_path) as process:
        wait_for_line(process, "trained")
        processes = watch(process)
        assert len(processes.pids) == 6
        process.communicate("\n")
        assert process.returncode == 0
        assert processes.left_after(2.0) == []


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
            trainer.train(10**9, quiet=True, on_update=press)
        assert isinstance(interruption.value, KeyboardInterrupt)
        assert interruption.value.result.stopped == "interrupted"
        assert interruption.value.result.steps >= pressed[0]
        assert signal.getsignal(signal.SIGINT) is handler
        again = trainer.train(64, quiet=True)
        assert again.steps >= interruption.value.result.steps + 64
        assert len(trainer._arena.slots.in_state(SlotState.READING)) <= trainer.config.segments_per_batch
