"""Latency between rollout worker and policy worker without other work.

Each is a process with the engine's own loop. The policy worker's network takes no time, so that the latency consists of
signals, sleeping, waking, and Python.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.process import BaseProcess

import numpy as np

from penstock.bench import BenchError
from penstock.engine.backends.channel import Channel
from penstock.engine.backends.process import poll_until_stopped
from penstock.engine.contracts import Role
from penstock.engine.messages import Stop
from penstock.engine.roles.policy_worker import PolicyWorker
from penstock.envs.spaces import ActionSpec, ObservationSpec
from penstock.experience.arena import ExperienceArena, Pending
from penstock.experience.layout import RunShape
from penstock.ipc import set_parent_death_signal

_SHAPE = RunShape(
    num_workers=1,
    num_envs_per_worker=1,
    num_groups=1,
    segment_length=1,
    slots_per_lane=1,
    segments_per_batch=1,
    observation=ObservationSpec((1,), "float32"),
    action=ActionSpec((), "int64", num_actions=2),
    records=(),
    state_size=0,
    weights_nbytes=64,
)
_WARM_UP = 100
"""Requests before the measurement."""
_PATIENCE = 60.0


class Asker:
    """Role that asks like a rollout worker with one group, again after each answer, and records the times.

    Parameters
    ----------
    arena
        Arena shared with the policy worker.
    """

    def __init__(self, arena: ExperienceArena) -> None:
        self.bell = arena.rollout_bells[0]
        self.nanoseconds: list[int] = []
        self._requests = arena.requests
        self._rows = np.zeros(arena.shape.group_size, np.int64)
        self._noise = np.zeros((arena.shape.group_size, arena.shape.action.noise_size), np.float32)
        self._asked_at: int | None = None

    def poll(self) -> bool:
        """Ask if there is no open request; return False while there is no answer."""
        if not self._requests.is_answered(0):
            return False
        now = time.perf_counter_ns()
        if self._asked_at is not None:
            self.nanoseconds.append(now - self._asked_at)
        self._asked_at = now
        self._requests.ask(0, self._rows, self._noise)
        return True

    def handle(self, command: object) -> None:
        """Do nothing: there are no commands."""

    def close(self) -> None:
        """Do nothing: there are no resources."""


class NoInference:
    """Network that takes no time."""

    def answer(self, pending: Pending) -> None:
        """Leave actions unchanged."""


def round_trips(seconds: float, burners: int) -> np.ndarray:
    """Return the microseconds of every round trip, without the first hundred.

    Parameters
    ----------
    seconds
        Duration.
    burners
        Number of processes that compute all the time meanwhile.

    Raises
    ------
    BenchError
        There was no answer.
    """
    arena = ExperienceArena.create(_SHAPE)
    policy = PolicyWorker(arena, NoInference())  # type: ignore[arg-type]
    roles: list[Role] = [Asker(arena), policy]
    context = get_context("fork")
    controls: list[Channel] = []
    processes: list[BaseProcess] = []

    def start(target: Callable[..., None], *args: object) -> None:
        process = context.Process(target=target, args=args)
        process.start()
        processes.append(process)

    try:
        for _ in range(burners):
            start(_burn, os.getpid())
        for role in roles:
            ours, theirs = Channel.pair()
            controls.append(ours)
            start(_run, role, theirs, os.getpid())
            theirs.close()  # so that the other end's death is detected
        time.sleep(seconds)
        give_up = time.monotonic() + _PATIENCE
        while arena.requests.num_answered(0) < 2 * _WARM_UP:
            if time.monotonic() > give_up:
                raise BenchError(f"{_WARM_UP} requests were not answered in {_PATIENCE:g} s")
            time.sleep(0.01)
        for control in controls:
            control.post(Stop())
        arena.ring_all()
        times = controls[0].wait(_PATIENCE)
        if times is None:
            raise BenchError(f"the asking role has not reported its times in {_PATIENCE:g} s")
        return times[_WARM_UP:] / 1000
    except (EOFError, BrokenPipeError):
        raise BenchError("the asking or the answering role has died") from None
    finally:
        for process in processes:
            process.kill()
            process.join()


def _run(role: Role, control: Channel, parent: int) -> None:
    set_parent_death_signal(signal.SIGKILL, parent)
    poll_until_stopped(role, control)
    if isinstance(role, Asker):
        control.send(np.array(role.nanoseconds))


def _burn(parent: int) -> None:
    set_parent_death_signal(signal.SIGKILL, parent)
    while True:
        pass
