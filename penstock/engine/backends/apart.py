"""Calls that make environments before a run starts, in a process that ends with the call.

So making an environment changes no state of the user's process, and leaves no memory in it.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from contextlib import closing, suppress
from multiprocessing.connection import wait
from typing import Any, TypeVar

from penstock.engine.backends import launcher
from penstock.engine.backends.channel import Channel
from penstock.engine.backends.process import describe_status, send_setup
from penstock.engine.messages import Failed
from penstock.envs.failures import EnvironmentFailure
from penstock.process_state import ProcessState

T = TypeVar("T")
NAME = "preparation"  # of the process
PATIENCE = 10.0  # seconds without an answer, if there is no limit, after which the user is shown the cause of the wait


class NoAnswer(EnvironmentFailure):
    """A process ended, or reached its time limit, before it answered; the phase of the environment is unknown."""

    def __str__(self) -> str:
        return f"environment {self.env}: {self.problem}"


def apart(env: str, function: Callable[..., T], *arguments: Any, limit: float | None = None) -> T:
    """Call a function in a process that the run's launcher forks, and return its result.

    Without a launcher (serial backend, benchmarks), call it in this process and restore what it changes.

    Parameters
    ----------
    env
        Name of the environment that the function makes.
    function, arguments
        Function and its arguments; they and the result are pickled.
    limit
        Seconds after which a process without an answer is killed; None: never.

    Raises
    ------
    NoAnswer
        The process ended, or was killed, without an answer.
    EnvironmentFailure
        The function raised an exception that cannot be pickled; the message has its traceback.
    LauncherDied
        The launcher is gone.
    Exception
        Any exception of the function.
    """
    with launcher.lent() as forks:
        if forks is None:
            with ProcessState().inside():
                return function(*arguments)
        answer = _answer(forks, env, (function, arguments), limit)
    if not isinstance(answer, Failed):
        (returned,) = answer
        return returned
    if not isinstance(answer.error, Exception):  # none, or one that would end this process
        raise EnvironmentFailure(env, "make", None, 0, answer.text)
    if not isinstance(answer.error, ValueError | EnvironmentFailure):  # their messages are complete
        answer.error.add_note(answer.text)
    raise answer.error


def _answer(
    forks: launcher.Launcher, env: str, call: tuple[Callable[..., Any], tuple[Any, ...]], limit: float | None
) -> Any:
    ours, theirs = Channel.pair()
    with closing(ours):
        with closing(theirs):
            pid = forks.fork(NAME, None, theirs)
        try:
            send_setup(ours.send, call)
            answer = ours.wait(PATIENCE if limit is None else limit)
            if answer is None and limit is None:
                what = f"environment {env}: process {pid}, which makes and closes it once, has not answered yet"
                print(f"waiting for {what}; does it hang? See penstock doctor --env ENV", file=sys.stderr, flush=True)
                answer = ours.wait()
        except (EOFError, OSError):  # the process ended first
            raise _no_answer(env, describe_status(_status_of(forks, pid))) from None
    if answer is None:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    _status_of(forks, pid)
    if answer is None:
        raise _no_answer(env, f"gave no answer within {limit:g} s")
    return answer


def _no_answer(env: str, problem: str) -> NoAnswer:
    return NoAnswer(env, "make", None, 0, f"the process that made it to inspect it {problem}")


def _status_of(forks: launcher.Launcher, pid: int) -> int:
    """Wait for a process to end, and return its wait status."""
    while True:
        wait([forks.fileno()])
        for ended, status in forks.deaths():
            if ended == pid:
                return status
