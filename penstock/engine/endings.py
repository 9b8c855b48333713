"""Endings of a training: with a spent budget and a result, interrupted, or failed."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Literal

NO_STEP = "no step was learned from within max_seconds"  # reason of a failure: time ran out before the first batch
_TRACEBACK = "Traceback (most recent call last):\n"


@dataclass(frozen=True)
class Budget:
    """Limits of one call of `train`.

    Attributes
    ----------
    steps
        Steps of the run at which training ends.
    deadline
        Time at which training ends, in monotonic seconds; None: no time limit.
    """

    steps: int
    deadline: float | None

    def spent(self, steps: int) -> Literal["", "steps", "seconds"]:
        """Return the limit that a run at this number of steps has reached; "" if none."""
        if steps >= self.steps:
            return "steps"
        return "seconds" if self.deadline is not None and time.monotonic() >= self.deadline else ""

    def note_of_spent(self, steps: int, max_seconds: float | None) -> str:
        """Return a note if the budget is spent before training, with the setting to raise; else ""."""
        spent = self.spent(steps)
        if spent == "steps":
            return (
                f"nothing is left to train: the run is at step {steps:,}, and total_steps={self.steps} is reached: "
                f"set total_steps={steps + self.steps} or more, or in Python call train(steps)"
            )
        return f"nothing is left to train: max_seconds={max_seconds:g} is spent: raise it" if spent else ""


@dataclass(frozen=True)
class TrainResult:
    """Result of a call of `train`.

    Attributes
    ----------
    steps
        Steps learned from so far, over all calls.
    seconds
        Wall-clock seconds spent on making the trainer and in `train` so far, over all calls; with ``backend="ray"``
        only those in `train` since the first node connected.
    reached_target
        Whether the evaluator's mean return reached the target.
    target_return
        The target; None if there is none.
    eval_return
        Mean return of the last evaluation; None if there was none.
    eval_unfinished
        Episodes of that evaluation that were cut short (see ``eval_max_steps``); `eval_return` includes their returns
        up to that point.
    mean_return
        Mean return of the last 100 training episodes; None if none has ended.
    stop_reason
        "target", "steps", "seconds", "callback" (`on_update` returned False) or "interrupted".
    run_dir
        Local directory of the run; None: nothing is written.
    unsent
        Parts of the run that have not yet been sent to its remote ``run_dir``; empty if all have, and for local runs.
    save_error
        Reason why the checkpoint at the end could not be written; "" if it was, or if ``run_dir`` is None.
    """

    steps: int
    seconds: float
    reached_target: bool
    target_return: float | None
    eval_return: float | None
    mean_return: float | None
    stop_reason: str
    run_dir: str | None
    eval_unfinished: int = 0
    unsent: tuple[str, ...] = ()
    save_error: str = ""


class TrainingInterrupted(KeyboardInterrupt):
    """A signal, such as Ctrl-C, ended training in good order; `result` is the result so far."""

    def __init__(self, result: TrainResult) -> None:
        later = "" if result.run_dir is None else f", or after close() with Trainer.resume({result.run_dir!r})"
        super().__init__(f"training was interrupted at step {result.steps:,}: go on with train(){later}")
        self.result = result


def in_one_line(story: str) -> str:
    """Return the story of a failure in one line, with the exception in place of its traceback."""
    about, _, traces = story.partition(_TRACEBACK)
    raised = [line for line in traces.rpartition(_TRACEBACK)[2].splitlines() if line[:1].strip()]
    return ": ".join(filter(None, (about.partition("\n")[0].rstrip(": "), *raised[:1])))


class TrainingFailed(RuntimeError):
    """A role of the run failed; the message explains it, with the command that resumes the run."""
