"""Programs in terminals of their own."""

import fcntl
import os
import pty
import re
import select
import subprocess
import sys
import termios
import time
from contextlib import contextmanager


@contextmanager
def terminal(code, *arguments, stdout=None):
    """A program as the leader of a terminal's session; yields the process, our end of the terminal, and theirs."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, b"\x18\x00\x50\x00" + bytes(4))  # 24 lines, 80 columns
    process = subprocess.Popen(
        [sys.executable, "-c", code, *arguments], stdin=theirs, stdout=theirs if stdout is None else stdout,
        stderr=theirs, start_new_session=True, env={**os.environ, "TERM": "xterm"},
    )  # fmt: skip
    try:
        yield process, ours, theirs
    finally:
        process.kill()
        process.wait()
        os.close(ours)
        os.close(theirs)


OWN = "import fcntl, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0)\n"


def read_until(ours, words, seconds=30.0):
    """Read what a terminal shows until it has shown words, without colours; raise if they do not come."""
    text, end = "", time.monotonic() + seconds
    while words not in text:
        ready, _, _ = select.select([ours], [], [], max(0.0, end - time.monotonic()))
        assert ready, f"{words!r} is not in {text[-4000:]!r}"
        text += re.sub(r"\x1b\[[0-9;]*m", "", os.read(ours, 65536).decode(errors="replace"))
