"""Endings of a training: with a result, interrupted, or failed."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TrainResult:
    """Result of a call of `train`.

    Attributes
    ----------
    steps
        Steps learned from so far, over all calls.
    seconds
        Wall-clock seconds spent so far on making this trainer and in `train`, over all calls.
    reached_target
        Whether the evaluator's mean return reached the target.
    target_return
        The target; None if there is none.
    eval_return
        Mean return of the last evaluation; None if there was none.
    eval_unfinished
        How many of its episodes were given up before they ended (see ``eval_max_steps``): then it is a part of one.
    mean_return
        Mean return of the last 100 training episodes; None if none has ended.
    stopped
        "target", "steps", "seconds", "callback" (`on_update` returned False) or "interrupted".
    run_dir
        Where the run was written; None: nowhere.
    """

    steps: int
    seconds: float
    reached_target: bool
    target_return: float | None
    eval_return: float | None
    mean_return: float | None
    stopped: str
    run_dir: str | None
    eval_unfinished: int = 0


class TrainingInterrupted(KeyboardInterrupt):
    """A signal, such as that of Ctrl-C, ended a training in good order; `result` says where it stands."""

    def __init__(self, result: TrainResult) -> None:
        super().__init__("training was interrupted")
        self.result = result


class TrainingFailed(RuntimeError):
    """The run ended because something in it failed; the message is the whole story and how to go on."""
