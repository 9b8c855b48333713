"""Errors of environments: unknown name, unsupported space, or failure."""

from __future__ import annotations

import pickle
import traceback
from pathlib import Path
from types import TracebackType

from penstock.ipc import problem_of_locks

FAILING: list[type[BaseException]] = [Exception, SystemExit]  # of environments; in roles KeyboardInterrupt, too
PROBED_LANE = 3_000_000  # outside the lanes of training, evaluation and scoring

_HERE = str(Path(__file__).parent)

OF_COPIES = (
    "\nIn the processes of a run, code of a script, a notebook or a loose file is a copy, which pickle cannot find by "
    "its name: keep the class in a module that can be imported, and give env='module:Class' (see "
    "docs/guides/environments.md#copies)"
)


class EnvironmentUsageError(ValueError):
    """Environment that cannot be used as requested; the message says what to change."""


class UnknownEnvironmentError(EnvironmentUsageError):
    """Name without an environment; the message lists the closest names, or the package to install."""


class UnsupportedSpaceError(EnvironmentUsageError):
    """Observation or action space without a column layout; the message names the part."""


class EnvironmentFailure(RuntimeError):
    """Exception in an environment, or violation of its contract.

    Attributes
    ----------
    env
        Name of the environment.
    phase
        Phase: ``"make"``, ``"reset"``, ``"step"`` or ``"close"``.
    lane
        Lane of the run, counted over all workers; ``None`` if all lanes of a vector environment failed together.
    step
        Number of steps of its lanes, this one included; 0 before the first.
    problem
        Description of the problem, with the original traceback if any.
    """

    def __init__(self, env: str, phase: str, lane: int | None, step: int, problem: str) -> None:
        super().__init__(env, phase, lane, step, problem)
        self.env = env
        self.phase = phase
        self.lane = lane
        self.step = step
        self.problem = problem

    @classmethod
    def of(cls, env: str, phase: str, lane: int | None, step: int, problem: str | BaseException) -> EnvironmentFailure:
        """Make a failure from a description or an exception."""
        if isinstance(problem, BaseException):
            advice = OF_COPIES if isinstance(problem, pickle.PicklingError) else ""
            if isinstance(problem, OSError) and (reason := problem_of_locks()):
                advice = f"\n{reason}: free space there, or start the container with --shm-size=1g"
            lines = traceback.format_exception(type(problem), problem, _own_frames(problem))
            problem = "".join(lines).rstrip() + advice
        return cls(env, phase, lane, step, problem)

    def __str__(self) -> str:
        where = "every lane" if self.lane is None else f"lane {self.lane}"
        place = "" if self.lane == PROBED_LANE else f" ({where}, step {self.step})"
        return f"environment {self.env} failed in {self.phase}{place}: {self.problem}"


def _own_frames(error: BaseException) -> TracebackType | None:
    """Return an exception's traceback from the first frame outside this package."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(_HERE):
        trace = trace.tb_next
    return trace
