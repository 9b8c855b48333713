"""Main loop of a role's process, which receives its spec over the control connection and polls until `Stop`."""

from __future__ import annotations

import contextlib
import os
import pickle
import select
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import setproctitle

from penstock.engine.backends.channel import Channel
from penstock.engine.backends.interruption import leave_to_supervisor
from penstock.engine.backends.launcher import module_path
from penstock.engine.contracts import SLEEP, SPIN, Role, RoleSpec
from penstock.engine.messages import Failed, Ready, Stop
from penstock.engine.roles.specs import RolloutRole
from penstock.envs.failures import FAILING
from penstock.experience.arena import ExperienceArena
from penstock.experience.layout import RunShape
from penstock.ipc import set_parent_death_signal
from penstock.process_state import kept_settings
from penstock.serialization import packed

NICENESS = 5  # of rollout workers: where cores are few, learning and choosing actions take precedence
COMMAND_INTERVAL = 0.02  # seconds between polls of the control connection while there is work


@dataclass(frozen=True)
class RoleSetup:
    """Spec of a role, and shape of its arena: the setup of a role's process."""

    spec: RoleSpec
    shape: RunShape


def send_setup(send: Callable[[Any], None], setup: Any) -> None:
    """Send a forked process its setup, after the path of modules and the working directory."""
    send((module_path(), os.getcwd()))
    send(packed(setup))


def run_process(name: str, launcher: int, control: Channel, arena_fd: int | None) -> int:
    """Run a role, without an arena a single call, in this freshly forked process; return its exit status.

    An exception is sent as a `Failed`.
    """
    _begin(name, launcher)
    try:
        if arena_fd is not None:
            _run_role(arena_fd, control)
        else:
            function, arguments = _receive_setup(control)
            control.send((function(*arguments),))
    except BaseException as error:
        with contextlib.suppress(OSError):  # the supervisor is gone, which may be the error itself
            control.send(Failed.of(error))
        return 1
    return 0


def _begin(name: str, launcher: int) -> None:
    leave_to_supervisor()
    FAILING.append(KeyboardInterrupt)  # no signal raises it here, so it is a failure of the environment
    set_parent_death_signal(signal.SIGKILL, launcher)
    setproctitle.setproctitle(f"penstock-{name}")


def _run_role(arena_fd: int, control: Channel) -> None:
    setup: RoleSetup = _receive_setup(control)
    _set_threads(setup.spec.num_threads)
    if isinstance(setup.spec, RolloutRole):
        os.nice(NICENESS)  # before environments are made: their threads and processes inherit niceness and core
        if setup.spec.rollout.is_pinned:
            cores = sorted(os.sched_getaffinity(0))
            os.sched_setaffinity(0, {cores[setup.spec.rollout.worker % len(cores)]})
    arena = ExperienceArena.attach(setup.shape, arena_fd)
    role = setup.spec.build(arena, control.send)
    control.send(Ready())
    poll_until_stopped(role, control)
    role.close()


def _receive_setup(control: Channel) -> Any:
    """Apply path and directory of `send_setup`, and return the setup."""
    sys.path[:], directory = control.wait()
    os.chdir(directory)
    with kept_settings():  # the import of a user's module may change them
        return pickle.loads(control.wait())


def poll_until_stopped(role: Role, control: Channel) -> None:
    """Poll a role until `Stop` arrives, and sleep on its bell while it is idle."""
    commands = select.poll()
    commands.register(control, select.POLLIN)
    look_again = 0.0
    while True:
        seen = role.bell.value
        has_worked = role.poll()
        now = time.monotonic()
        if not has_worked or now >= look_again:
            look_again = now + COMMAND_INTERVAL
            while commands.poll(0) and (command := control.receive()) is not None:
                if isinstance(command, Stop):
                    return
                role.handle(command)
                has_worked = True
        if not has_worked:
            role.bell.wait(seen, SLEEP, SPIN)


def _set_threads(num_threads: int) -> None:
    if "torch" in sys.modules:
        import torch

        torch.set_num_threads(num_threads)


def describe_status(status: int) -> str:
    """Describe the end of a process, from its wait status."""
    if os.WIFSIGNALED(status):
        return f"was killed by {signal.Signals(os.WTERMSIG(status)).name}"
    return f"ended with exit status {os.WEXITSTATUS(status)}"
