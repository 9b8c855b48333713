"""Errors of environments: unknown, unsupported spaces, or a failure."""

from __future__ import annotations

import pickle
import traceback
from pathlib import Path
from types import TracebackType

PROBED_LANE = 3_000_000  # none of training, evaluation or scoring: nobody plays the episode that is looked at

_HERE = str(Path(__file__).parent)

OF_COPIES = (
    "\nIn the processes of a run, code of a script, a notebook or a loose file is a copy, and pickle finds no copy by "
    "its name: keep the class in a module that can be imported, and give env='module:Class' (see "
    "docs/environments.md#copies)"
)


class EnvironmentUsageError(ValueError):
    """An environment that cannot be used as it was asked for; the message says what to change."""


class UnknownEnvironmentError(EnvironmentUsageError):
    """No environment goes by this name here; the message lists the closest ones, or the package to install."""


class UnsupportedSpaceError(EnvironmentUsageError):
    """An observation or action space that has no column layout; the message names the part."""


class EnvironmentFailure(RuntimeError):
    """An environment raised an exception, or broke the contract it promised to keep.

    Attributes
    ----------
    env
        Name of the environment.
    phase
        What it was doing: ``"make"``, ``"reset"``, ``"step"`` or ``"close"``.
    lane
        Lane of the run, counted over all workers; ``None`` if all lanes of a vector environment failed together.
    step
        How many times its lanes had been stepped, this step included; 0 before the first one.
    problem
        What happened, with the original traceback if there was one.
    """

    def __init__(self, env: str, phase: str, lane: int | None, step: int, problem: str) -> None:
        super().__init__(env, phase, lane, step, problem)
        self.env = env
        self.phase = phase
        self.lane = lane
        self.step = step
        self.problem = problem

    @classmethod
    def of(
        cls, env: str, phase: str, lane: int | None, step: int, problem: str | BaseException
    ) -> EnvironmentFailure:
        """Make one of what is told, or of what was raised."""
        if isinstance(problem, BaseException):
            advice = OF_COPIES if isinstance(problem, pickle.PicklingError) else ""
            told = traceback.format_exception(type(problem), problem, _own_frames(problem))
            problem = "".join(told).rstrip() + advice
        return cls(env, phase, lane, step, problem)

    def __str__(self) -> str:
        where = "every lane" if self.lane is None else f"lane {self.lane}"
        place = "" if self.lane == PROBED_LANE else f" ({where}, step {self.step})"
        return f"environment {self.env} failed in {self.phase}{place}: {self.problem}"


def _own_frames(error: BaseException) -> TracebackType | None:
    """Return an exception's traceback from the first frame that is not of this package."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(_HERE):
        trace = trace.tb_next
    return trace
