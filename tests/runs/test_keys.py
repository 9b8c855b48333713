"""Keys of a terminal choose the policy that is shown, and the terminal is left as it was."""

import json
import os
import select
import signal
import subprocess
import termios

import pytest

from penstock.runs.keys import Keys
from tests.runs.terminals import OWN, read_until, terminal

pytestmark = pytest.mark.timeout(60)

SHOW = """
import sys, time
from penstock.runs.status import PolicyStatus, Status
from penstock.runs.view import open_view

policies = tuple(PolicyStatus(name=name, steps=1, losses={"entropy": 0.5}) for name in ("red", "green", "blue"))
shown = Status(algorithm="ppo", env="Walk", steps=5, total_steps=100, seconds=1.0, policies=policies)
end = time.monotonic() + 40
with open_view() as view:
    while time.monotonic() < end and not view.has_ended:
        view.update(shown)
        time.sleep(0.01)
        if len(sys.argv) > 1 and view._keys._before is not None:
            raise RuntimeError(sys.argv[1])
"""
SHELL = """
import fcntl, json, os, signal, subprocess, sys, termios, time

signal.signal(signal.SIGTTOU, signal.SIG_IGN)
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
ended = signal.Signals[sys.argv[1]]
before = termios.tcgetattr(0)
found = {}

def wait_until(is_so):
    end = time.monotonic() + 20
    while not is_so() and time.monotonic() < end:
        time.sleep(0.01)
    return is_so()

def takes_keys():
    return not termios.tcgetattr(0)[3] & (termios.ICANON | termios.ECHO)

job = subprocess.Popen([sys.executable, "-c", sys.argv[2]], stdout=2, preexec_fn=lambda: os.setpgid(0, 0))
try:
    def handles_stops():
        (caught,) = [line.split()[1] for line in open(f"/proc/{job.pid}/status") if line.startswith("SigCgt")]
        return int(caught, 16) >> signal.SIGTSTP - 1 & 1

    wait_until(handles_stops)  # the view is drawn
    time.sleep(0.6)  # several further draws, none of which may take the terminal
    found["in the background"] = takes_keys()
    os.tcsetpgrp(0, job.pid)
    found["in the foreground"] = wait_until(takes_keys)
    os.kill(job.pid, signal.SIGTSTP)
    found["stopped"] = os.WIFSTOPPED(os.waitpid(job.pid, os.WUNTRACED)[1]) and termios.tcgetattr(0) == before
    os.kill(job.pid, signal.SIGCONT)
    found["again"] = wait_until(takes_keys)
    os.kill(job.pid, ended)
    found["ended by"] = -job.wait(20)
    found["restored"] = termios.tcgetattr(0) == before
finally:
    job.kill()
    job.wait()
print(json.dumps(found), flush=True)
"""

STOPPED = """
import fcntl, os, signal, subprocess, sys, termios, time

signal.signal(signal.SIGTTOU, signal.SIG_IGN)
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
job = subprocess.Popen([sys.executable, "-c", sys.argv[1]], preexec_fn=lambda: os.setpgid(0, 0))
os.tcsetpgrp(0, job.pid)

def sleeps():
    (line,) = [line for line in open(f"/proc/{job.pid}/status") if line.startswith("voluntary")]
    return int(line.split()[1])

try:
    os.waitpid(job.pid, os.WUNTRACED)
    os.tcsetpgrp(0, os.getpgrp())
    print("one line of the shell", flush=True)
    os.kill(job.pid, signal.SIGCONT)  # as bg does
    before, end = sleeps(), time.monotonic() + 20
    while sleeps() < before + 80 and time.monotonic() < end:  # longer than two draws are apart
        time.sleep(0.01)
    print("another line of the shell", flush=True)
    os.tcsetpgrp(0, job.pid)
    os.kill(job.pid, signal.SIGCONT)  # as fg does
    job.wait()
finally:
    job.kill()
    job.wait()
"""


def test_keys_choose_the_policy_and_ctrl_c_ends_the_view():
    with terminal(OWN + SHOW) as (process, ours, theirs):
        before = termios.tcgetattr(theirs)
        read_until(ours, "entropy of red")
        for key, policy in ((b"9", "blue"), (b"\x1b[A", "green"), (b"\x1bOD", "red"), (b"\x1b[B\x1b[C", "blue")):
            os.write(ours, key)
            read_until(ours, f"entropy of {policy}")
        assert not termios.tcgetattr(theirs)[3] & termios.ECHO
        os.write(ours, b"\x03")
        read_until(ours, "KeyboardInterrupt")
        assert process.wait(20) in (130, -signal.SIGINT) and termios.tcgetattr(theirs) == before


def test_a_stopped_view_goes_on_below_what_the_shell_has_written():
    up, frame = b"\x1b[1A", "╭".encode()

    def read(*words):
        text = b""
        for word in words:
            before = len(text)
            while word not in text[before:]:
                assert select.select([ours], [], [], 30)[0], text[-2000:]
                text += os.read(ours, 65536)
        return text

    with terminal(STOPPED, SHOW) as (process, ours, _):
        read(b"entropy of red", up)
        os.write(ours, b"\x1a")
        behind, _, again = read(b"one line of the shell", b"another line of the shell", frame, up).partition(b"another")
        assert frame not in behind.partition(b"one line of the shell")[2], "nothing is drawn in the background"
        assert up not in again.partition(frame)[0], "the shell's lines are not drawn over"
        os.write(ours, b"\x03")
        process.wait(20)


def test_an_exception_leaves_the_terminal_as_it_was():
    with terminal(OWN + SHOW, "not well") as (process, ours, theirs):
        before = termios.tcgetattr(theirs)
        read_until(ours, "RuntimeError: not well")
        assert process.wait(20) == 1 and termios.tcgetattr(theirs) == before


@pytest.mark.parametrize("ended", ["SIGTERM", "SIGHUP"])
def test_a_background_job_takes_no_keys_and_a_signal_leaves_the_terminal_as_it_was(ended):
    with terminal(SHELL, ended, SHOW, stdout=subprocess.PIPE) as (process, ours, _):
        shown = subprocess.Popen(["cat"], stdin=ours, stdout=subprocess.DEVNULL)  # or the job would wait for a reader
        try:
            found = json.loads(process.communicate(timeout=50)[0])
        finally:
            shown.kill()
            shown.wait()
    assert found == {
        "in the background": False, "in the foreground": True, "stopped": True, "again": True,
        "ended by": getattr(signal, ended), "restored": True,
    }  # fmt: skip


def test_without_a_terminal_there_are_no_keys(monkeypatch):
    before = signal.getsignal(signal.SIGTSTP)
    with open(os.devnull) as nothing:
        for stdin in (None, nothing):
            monkeypatch.setattr("sys.stdin", stdin)
            keys = Keys(lambda shown: None)
            assert keys.pressed() == [] and signal.getsignal(signal.SIGTSTP) == before
            keys.close()
