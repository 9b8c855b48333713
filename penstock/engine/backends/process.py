"""The body of a role's process: told over its control connection what it is, it polls until it is told to stop."""

from __future__ import annotations

import contextlib
import os
import pickle
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import setproctitle

from penstock.engine.backends.channel import Channel
from penstock.engine.backends.interruption import leave_to_supervisor
from penstock.engine.contracts import Role, RoleSpec
from penstock.engine.messages import Failed, Ready, Stop
from penstock.engine.roles.specs import RolloutRole
from penstock.experience.arena import ExperienceArena
from penstock.experience.layout import RunShape
from penstock.ipc import set_parent_death_signal
from penstock.surroundings import kept_settings
from penstock.travelling import packed

SLEEP = 0.1  # seconds: the longest sleep on a bell
SPIN = 50e-6  # seconds: a bell is watched so long before, if a core is idle for it
NICENESS = 5  # of rollout workers: where cores are few, nobody steps in the way of who learns or chooses actions
COMMAND_INTERVAL = 0.02  # seconds between looks at the control connection while there is work


@dataclass(frozen=True)
class Told:
    """The first message to a role's process."""

    spec: RoleSpec
    shape: RunShape


def module_path() -> list[str]:
    """Return where modules are found: of ``sys.path`` what Python heeds, which is text and not a `pathlib.Path`."""
    return [entry for entry in sys.path if isinstance(entry, str)]


def tell(send: Callable[[Any], None], told: Any) -> None:
    """Send a process that was forked its first message: where modules are found, and then what it is."""
    send((module_path(), os.getcwd()))
    send(packed(told))


def run_role(name: str, launcher: int, arena_fd: int, control: Channel) -> int:
    """Run a role in this freshly forked process; return its exit status."""
    _begin(name, launcher)
    try:
        told: Told = _receive(control)
        _set_threads(told.spec.num_threads)
        if isinstance(told.spec, RolloutRole):
            os.nice(NICENESS)  # before environments are made: threads and processes of theirs follow
        arena = ExperienceArena.attach(told.shape, arena_fd)
        role = told.spec.build(arena, control.send)
        control.send(Ready())
        poll_until_stopped(role, control)
        role.close()
    except BaseException as error:
        with contextlib.suppress(OSError):  # the supervisor is gone, and that may be what was raised
            control.send(failure_of(error))
        return 1
    return 0


def answer(name: str, launcher: int, control: Channel) -> int:
    """Make one call in this freshly forked process, and send what it returns as a tuple of one, or its `Failed`."""
    _begin(name, launcher)
    try:
        function, arguments = _receive(control)
        control.send((function(*arguments),))
    except BaseException as error:
        with contextlib.suppress(OSError):
            control.send(failure_of(error))
        return 1
    return 0


def _begin(name: str, launcher: int) -> None:
    leave_to_supervisor()
    set_parent_death_signal(signal.SIGKILL, launcher)
    setproctitle.setproctitle(f"penstock-{name}")


def _receive(control: Channel) -> Any:
    """Return what `tell` has sent."""
    sys.path[:], directory = control.wait()
    os.chdir(directory)
    with kept_settings():  # a module of the user's may change them when it is imported
        return pickle.loads(control.wait())


def poll_until_stopped(role: Role, control: Channel) -> None:
    """Poll a role until `Stop` arrives; let it sleep on its bell when there is nothing to do."""
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


def failure_of(error: BaseException) -> Failed:
    """Make an exception fit to travel."""
    text = "".join(traceback.format_exception(error))
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return Failed(None, text)
    return Failed(error, text)


def describe_status(status: int) -> str:
    """Say how a process ended, from its wait status."""
    if os.WIFSIGNALED(status):
        return f"was killed by {signal.Signals(os.WTERMSIG(status)).name}"
    return f"ended with exit status {os.WEXITSTATUS(status)}"
