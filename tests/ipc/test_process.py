"""The signal to a process at its parent's death."""

import os
import select
import signal
from contextlib import suppress

import numpy as np
import pytest

from penstock.ipc import Arena, Doorbell, set_parent_death_signal
from tests.ipc.sharing import Sent
from tests.starting import Start


def _have_a_child_and_wait(sent: Sent) -> None:
    """Run in the middle process: its child reports its process id, then waits for the end."""
    middle = os.getpid()
    if os.fork() == 0:
        set_parent_death_signal(signal.SIGKILL, middle)
        sent.arena.array(64, 1, np.int64)[0] = os.getpid()
        Doorbell.attach(sent.arena, 0).ring()
    while True:
        signal.pause()


@pytest.mark.timeout(60)
def test_a_child_dies_with_its_parent(fork: Start, arena: Arena) -> None:
    bell = Doorbell.create(arena, 0)
    parent = fork(_have_a_child_and_wait, Sent(arena))
    assert bell.wait(0, timeout=None) == 1
    grandchild = os.pidfd_open(int(arena.array(64, 1, np.int64)[0]))
    try:
        parent.kill()
        ended, _, _ = select.select([grandchild], [], [], 20.0)
        assert ended == [grandchild]
    finally:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(grandchild, signal.SIGKILL)
        os.close(grandchild)


def test_a_parent_gone_before_the_request_is_noticed() -> None:
    with pytest.raises(ProcessLookupError, match="process 1234567890, is gone already"):
        set_parent_death_signal(0, 1234567890)


def test_a_signal_that_does_not_exist_is_refused() -> None:
    with pytest.raises(OSError, match="PR_SET_PDEATHSIG with signal 12345"):
        set_parent_death_signal(12345, os.getppid())
