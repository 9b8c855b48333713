"""A forked child closes nothing of its parent's, however it goes on."""

import json
import os
import subprocess
import sys

import pytest

from penstock.ipc.ownership import Owned, owner_only
from tests.engine.processes import TINY, script

pytestmark = pytest.mark.timeout(90)

FORKS = f"""
import gc, os, sys
import penstock

def forked(way):
    pid = os.fork()
    if pid == 0:
        way()
        sys.exit(0)  # through atexit and the end of the interpreter, as a child does that falls off a script's end
    assert os.waitpid(pid, 0)[1] == 0, way

def leaves():
    with trainer:
        pass
    trainer.close()

def raises():
    try:
        with trainer:
            raise ValueError("of the child")
    except ValueError:
        pass

def forgets():
    globals().pop("trainer")
    gc.collect()

def refused(call, *arguments):
    try:
        call(*arguments)
    except RuntimeError as error:
        assert "was forked from process" in str(error), error
    else:
        os._exit(1)

def uses():
    refused(trainer.train, 64)
    refused(trainer.save, "of-the-child")
    refused(trainer.set_parameters, trainer.get_parameters())

def makes_its_own():
    with penstock.PPO(**{ {**TINY, "backend": "serial"}!r}, run_dir=None) as own:
        own.train(64, quiet=True)

forked_from = os.getpid()
pids = []

def forks_once(status):
    if status.steps and not pids:
        pids.append(os.fork())
        if pids[0]:  # and the child goes on as if it trained
            assert os.waitpid(pids[0], 0)[1] == 0

settings = {TINY!r} | dict(num_learners=2, batch_size=64)
with penstock.PPO(**settings, run_dir="run") as trainer:
    trainer.train(64, quiet=True)
    before = penstock.inspect(trainer).pids
    for way in (leaves, raises, forgets, uses, makes_its_own):
        forked(way)
    try:
        trainer.train(500, on_update=forks_once)
    except RuntimeError as error:
        assert os.getpid() != forked_from and "was forked from process" in str(error)
        sys.exit(0)
    result = trainer.train(64, quiet=True)
    assert result.stop_reason == "steps" and penstock.inspect(trainer).pids == before
    assert pids, "nothing was forked"
print("trained on", flush=True)
"""


@pytest.mark.long
def test_a_forked_child_never_disturbs_its_parents_run(tmp_path):
    with script(FORKS, tmp_path) as process:
        said, _ = process.communicate()
        assert process.returncode == 0 and said.endswith("trained on\n"), said
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    steps = [line["steps"] for line in lines]
    assert steps == sorted(steps)
    assert json.loads((tmp_path / "run" / "status.json").read_text())["state"] == "paused"
    assert "of-the-child" not in os.listdir(tmp_path)


class Counted(Owned):
    """Counts how often it is closed."""

    def __init__(self, times):
        self.times = times

    @owner_only
    def close(self, more=1):
        self.times += more


def test_what_is_owned_is_closed_by_its_maker_and_a_grandchild_owns_what_it_makes():
    source = """
import os, sys
from tests.engine.test_ownership import Counted
made = Counted(0)
for generation in range(2):
    if os.fork():
        sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))
    made.close()
    assert made.is_foreign and made.times == 0
own = Counted(1)
own.close(more=2)
assert not own.is_foreign and own.times == 3
"""
    assert subprocess.run([sys.executable, "-c", source]).returncode == 0
    made = Counted(0)
    made.close()
    assert made.times == 1
