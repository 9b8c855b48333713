"""``penstock train`` and ``penstock resume``: a training, and the summary at its end."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.commands.exits import (
    DONE,
    FAILED,
    INTERRUPTED,
    NOT_REACHED,
    NOT_SAVED,
    NOT_SENT,
    WRONG_USAGE,
    CommandError,
    explained,
    unknown,
    warn,
)
from penstock.commands.usage import HELP, RESUME_USAGE, train_usage

if TYPE_CHECKING:
    from penstock.engine.endings import TrainResult
    from penstock.engine.trainer import Trainer


_TRUST_CODE = "--trust-code"


def train(args: list[str]) -> int:
    """Train an algorithm on an environment."""
    from penstock.algorithms import ALGORITHMS, load_algorithm

    if not args or args[0] in HELP:
        print(train_usage(ALGORITHMS))
        return DONE if args else WRONG_USAGE
    name, *flags = args
    if name.startswith("-"):
        raise CommandError(f"the algorithm comes first: penstock train {next(iter(ALGORITHMS))} {' '.join(args)}")
    if name.lower() not in ALGORITHMS and ":" not in name:
        raise unknown("algorithm", name, [*ALGORITHMS, "file.py:Class"])
    _prepare(flags)
    from penstock.flags import parse_config

    with explained():
        algorithm = load_algorithm(name)
        config = parse_config(algorithm.Config, flags, prog=f"penstock train {name}")
    from penstock.engine.trainer import Trainer

    return _run(lambda: Trainer(algorithm, config))


def resume(args: list[str]) -> int:
    """Resume a run from its last checkpoint."""
    if not args or args[0] in HELP:
        print(RESUME_USAGE)
        return DONE if args else WRONG_USAGE
    path, *flags = args
    if path.startswith("-"):
        raise CommandError(f"the run comes first: penstock resume RUN {' '.join(args)}")
    from penstock.runs.remote import is_remote
    from penstock.runs.run_directory import RunDirectory

    with explained():
        if is_remote(path) and not {*HELP} & {*flags}:
            from penstock.runs.fetching import copy_to_resume

            path = str(copy_to_resume(path, print))
        run = RunDirectory.open(path)
    _prepare([str(run.config.get("backend")), *flags])
    from penstock.algorithms import load_algorithm
    from penstock.flags import parse_changes
    from penstock.trust import code_of

    trust_code = _TRUST_CODE in flags
    flags = [flag for flag in flags if flag != _TRUST_CODE]
    with explained(), code_of(run.info, path, trust_code, [word for flag in flags for word in flag.split("=")]):
        changes = parse_changes(load_algorithm(run.algorithm).Config, run.config, flags, f"penstock resume {path}")
    from penstock.engine.trainer import Trainer

    return _run(lambda: Trainer.resume(path, report=warn, trust_code=trust_code, **changes))


def _prepare(flags: list[str]) -> None:
    """Import torch in another process while this one reads the flags, unless they request help or one process."""
    words = {word for flag in flags for word in flag.split("=")}
    if not words & {*HELP, "serial"}:
        from penstock.engine.backends.launcher import prepare

        prepare()


def _run(make: Callable[[], Trainer]) -> int:
    """Train until the run ends, then print results and the command to resume."""
    from penstock.engine.endings import NO_STEP, TrainingFailed, TrainingInterrupted

    with explained():
        trainer = make()
    with trainer:
        try:
            result = trainer.train()
        except TrainingInterrupted as interruption:
            result = interruption.result
        except TrainingFailed as error:
            raise CommandError(str(error), FAILED) from error
    summary = _summary(result)
    print(_folded_for_terminal(summary))
    if result.save_error and result.stop_reason != "interrupted":
        then = "resume" if "\nresume: " in summary else "resume from the beginning: the run has no checkpoint"
        reason = f"the last checkpoint could not be saved: {result.save_error}"
        raise CommandError(f"{reason}; free space or fix permissions, then {then}", NOT_SAVED)
    if result.stop_reason == "seconds" and not result.steps:
        raise CommandError(f"{NO_STEP}; look at the warnings above", FAILED)
    if result.unsent:
        return NOT_SENT
    if result.stop_reason == "interrupted":
        return INTERRUPTED
    return NOT_REACHED if result.target_return is not None and not result.reached_target else DONE


def _folded_for_terminal(lines: str) -> str:
    """Return lines, wrapped before flags for a narrow terminal, which would break them within words."""
    import shutil
    import sys

    from penstock.runs.formatting import folded

    if sys.stdout is None or not sys.stdout.isatty():
        return lines
    return "\n".join(folded(line, shutil.get_terminal_size().columns) for line in lines.split("\n"))


def _summary(result: TrainResult) -> str:
    """Return lines about the results of a training and how to continue."""
    from penstock.runs.files import shown_path
    from penstock.runs.formatting import beside, clock, number

    spent = f"after {result.steps:,} steps and {clock(result.seconds)}"
    if result.eval_return is not None:
        target = result.target_return
        score = f"mean return {number(result.eval_return) if target is None else beside(result.eval_return, target)}"
        if result.eval_unfinished:
            score += f" (partial: {result.eval_unfinished} episodes did not end)"
    else:
        in_training = result.mean_return
        score = "no evaluation" if in_training is None else f"mean return {number(in_training)} in training"
    if result.stop_reason == "interrupted":
        lines = [f"interrupted {spent}"]
    elif result.save_error:
        lines = [f"not saved {spent}, {score}"]
    elif result.target_return is None:
        lines = [f"done {spent}, {score}"]
    elif result.reached_target:
        lines = [f"reached {score} >= {result.target_return:g} {spent}"]
    else:
        lines = [f"not reached {result.target_return:g}: {score} {spent}"]
    if result.run_dir is not None:
        lines += _saved(result, shown_path(result.run_dir))
    return "\n".join(lines)


def _saved(result: TrainResult, run_dir: str) -> list[str]:
    """Return lines about the checkpoints of a training."""
    from penstock.redaction import flags_of_secrets
    from penstock.runs.checkpoint import CheckpointError
    from penstock.runs.run_directory import RunDirectory
    from penstock.runs.vacancy import RunDirectoryError

    lines = []
    try:
        run = RunDirectory.open(run_dir)
        checkpoints = run.checkpoints
        if checkpoints.has_best():
            lines.append(f"best checkpoint: {checkpoints.best_path}")
        if checkpoints.has_best() or checkpoints.steps():
            lines.append(f"evaluate: penstock eval {run_dir}{flags_of_secrets(run.config.get('env_kwargs'))}")
        if (saved := checkpoints.latest_steps()) is not None:
            if saved < result.steps:
                lines.append(f"last checkpoint: step {saved:,}; later learning is not saved")
            lines.append(f"resume:   {run.resume_command(saved, is_out_of_time=result.stop_reason == 'seconds')}")
    except (CheckpointError, RunDirectoryError) as error:
        lines.append(f"the run cannot be resumed: {error}")
    return lines
