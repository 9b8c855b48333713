"""Output without a reader or without room does not end a run."""

import io
import json
import os
import subprocess
import sys

import pytest

from penstock.output import lossy_output
from penstock.runs.run_directory import RunDirectory
from tests.engine.processes import PATIENCE, started


def test_what_cannot_be_written_is_dropped_and_the_stream_of_before_comes_back(monkeypatch):
    reader, writer = os.pipe()
    os.close(reader)
    unread = os.fdopen(writer, "w")
    monkeypatch.setattr(sys, "stdout", unread)
    with lossy_output():
        for _ in range(3):
            print("x" * 100_000, flush=True)
        print("left to the end of the block")
    assert sys.stdout is unread
    print("as ever")
    with pytest.raises(BrokenPipeError):
        unread.close()


def test_what_can_be_written_is_written_in_order(tmp_path, monkeypatch):
    with open(tmp_path / "out", "w", encoding="latin-1") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        print("before", end=" ")
        with lossy_output():
            print("ü", end=" ")
        print("after")
    assert (tmp_path / "out").read_bytes() == "before ü after\n".encode("latin-1")


def test_characters_that_an_encoding_lacks_become_question_marks(tmp_path, monkeypatch):
    with open(tmp_path / "out", "w", encoding="latin-1") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        with lossy_output():
            print("ü ▁█ 学")
    assert (tmp_path / "out").read_bytes() == "ü ?? ?\n".encode("latin-1")


def test_a_stream_without_a_file_stays_as_it_is(monkeypatch):
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    monkeypatch.setattr(sys, "stderr", None)
    stream = sys.stdout
    with lossy_output():
        assert sys.stdout is stream
        print("a notebook")
    assert stream.getvalue() == "a notebook\n"


@pytest.mark.timeout(60)
@pytest.mark.parametrize("command", ["", "train", "bench"])
def test_a_command_whose_reader_is_gone_ends_with_the_code_that_it_deserves(command):
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as unread:
        program = [sys.executable, "-m", "penstock.cli", *command.split()]
        done = subprocess.run(program, stdout=unread, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, ""), "it shows its usage, as nothing says what to do"


LOUD = """
from gymnasium.envs.classic_control import CartPoleEnv

class Loud(CartPoleEnv):
    def step(self, action):
        print("a step is taken", flush=True)
        return super().step(action)
"""


@pytest.mark.timeout(90)
@pytest.mark.parametrize("backend", [pytest.param("serial", marks=pytest.mark.long), "local"])
def test_a_training_whose_output_nobody_reads_any_more_ends_as_ever(backend, tmp_path):
    (tmp_path / "loud.py").write_text(LOUD)
    flags = f"--backend {backend} --num-workers 1 --total-steps 600 --eval-episodes 1 --run-dir run --target-return 1"
    command = ["-m", "penstock.cli", "train", "ppo", "--env", "loud.py:Loud", *flags.split()]
    with started([*command, "--eval-interval", "10000"], tmp_path) as process:
        assert process.stdout.readline()
        process.stdout.close()  # standard error goes there, too
        assert process.wait(PATIENCE * 2) == 0
    run = RunDirectory.open(tmp_path / "run")
    steps = run.checkpoints.latest().meta["steps"]
    assert steps >= 600
    assert json.loads(run.metrics.read_text().splitlines()[-1])["steps"] == steps
