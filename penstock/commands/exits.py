"""Exit codes, and errors shown as a message without a traceback."""

from __future__ import annotations

import os
import sys
import sysconfig
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.config import ConfigError, closest

DONE, FAILED, WRONG_USAGE, NOT_REACHED, NOT_SENT, NOT_SAVED, INTERRUPTED = 0, 1, 2, 3, 4, 5, 130

EXIT_CODES = (
    "exit codes: 0 done, 1 failure, 2 wrong usage, 3 budget spent without reaching --target-return, or a target of a "
    "bench missed, 4 files of a run are not at its remote run_dir, 5 the last checkpoint was not saved, 130 interrupted"
)


class CommandError(Exception):
    """Ends a command with a message and an exit code."""

    def __init__(self, message: str, code: int = WRONG_USAGE) -> None:
        super().__init__(message)
        self.code = code


@contextmanager
def explained() -> Iterator[None]:
    """Within the block, turn errors with complete messages, and errors of the user's code, into `CommandError`.

    The message of an error in the user's code is its traceback. Other errors pass through.
    """
    try:
        yield
    except Exception as error:
        code = _exit_code(error)
        if code is not None:
            raise CommandError(str(error), code) from error
        if text := _traceback_in_user_code(error):
            raise CommandError(text, FAILED) from error
        raise


def unknown(what: str, name: str, legal: Iterable[str]) -> CommandError:
    """Return the error for an unknown name of a kind such as "command", with the closest and all legal names."""
    names = list(legal)
    return CommandError(f"unknown {what} {name!r}{closest(name.lower(), names)} (legal: {', '.join(names)})")


def warn(message: str) -> None:
    """Print a warning to standard error."""
    print(f"warning: {message}", file=sys.stderr)


def _traceback_in_user_code(error: Exception) -> str:
    """Return an error's traceback from its first frame in the user's files; "" without such a frame."""
    if isinstance(error, SyntaxError):
        return "".join(traceback.format_exception_only(error)).strip()
    trace = error.__traceback__
    while trace is not None and not _is_user_file(trace.tb_frame.f_code.co_filename):
        trace = trace.tb_next
    return "".join(traceback.format_exception(type(error), error, trace)).strip() if trace is not None else ""


def _is_user_file(file: str) -> bool:
    """Return whether a file is the user's: not of Penstock, Python or an installed package."""
    others = (str(Path(__file__).parents[1]), *sysconfig.get_paths().values())
    return os.path.isfile(file) and not any(file.startswith(other + os.sep) for other in others)


def _exit_code(error: Exception) -> int | None:
    """Return the exit code of an error with a complete message; None for others."""
    from penstock.bench import BenchError, BenchUsageError
    from penstock.dashboard import DashboardError
    from penstock.engine.endings import TrainingFailed
    from penstock.envs.failures import EnvironmentFailure, EnvironmentUsageError
    from penstock.exchange import ExchangeError
    from penstock.imports import UntrustedCodeError
    from penstock.runs.checkpoint import CheckpointError
    from penstock.runs.vacancy import RunDirectoryError
    from penstock.studies import StudyError

    usage = (
        BenchUsageError, CheckpointError, ConfigError, DashboardError, EnvironmentUsageError, ExchangeError,
        MemoryError, RunDirectoryError, StudyError, UntrustedCodeError,
    )  # fmt: skip
    if isinstance(error, usage):  # the request can be corrected
        return WRONG_USAGE
    return FAILED if isinstance(error, BenchError | EnvironmentFailure | TrainingFailed) else None
