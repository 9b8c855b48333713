"""bench/busy.py: busy programs run beside a command, its exit code is passed on, and nothing is left behind."""

import signal
import subprocess
import sys

import psutil
import pytest

from tests.engine.processes import PATIENCE, Watched
from tests.places import BENCH

BUSY = [sys.executable, str(BENCH / "busy.py")]


@pytest.mark.parametrize(("command", "code"), [("exit 0", 0), ("exit 7", 7), ("kill -TERM $$", 128 + signal.SIGTERM)])
def test_the_exit_code_is_the_commands(command, code):
    assert subprocess.run([*BUSY, "1", "--", "sh", "-c", command], check=False).returncode == code


def test_a_command_that_is_not_there_is_told():
    done = subprocess.run([*BUSY, "1", "--", "no-such-command"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (127, "no-such-command: No such file or directory\n")


@pytest.mark.parametrize("how", ["end", "terminate", "kill"])
def test_busy_programs_run_beside_the_command_and_end_with_it(how):
    script = [sys.executable, "-c", "print('begun', flush=True); input()"]
    pipe = subprocess.PIPE
    busy = subprocess.Popen([*BUSY, "3", "--", *script], stdin=pipe, stdout=pipe, text=True)
    try:
        assert busy.stdout.readline() == "begun\n"
        children = psutil.Process(busy.pid).children()
        programs = Watched([child.pid for child in children if child.cmdline()[1] == BUSY[1]])
        assert len(programs.pids) == 3 and len(children) == 4
        command = Watched([child.pid for child in children if child.cmdline()[1] != BUSY[1]])
        if how != "end":
            getattr(busy, how)()
        if how == "terminate":  # the command still waits for a line
            busy.wait(PATIENCE)
            assert command.left_after(PATIENCE) == []
        else:
            busy.communicate("\n", timeout=PATIENCE)
    finally:
        busy.kill()
        busy.wait()
    assert programs.left_after(PATIENCE) == command.left_after(PATIENCE) == []
