"""Many runs: tables of them, runs over environments, settings and seeds, plots and comparisons."""

import importlib
import sys
from typing import Any

__all__ = ["StudyError", "compare_runs", "curve_table", "plot_runs", "run_table", "train_runs"]

EVALUATION = "evaluation/mean_return"


class StudyError(ValueError):
    """The request cannot be carried out; the message gives the reason and the remedy."""


def warn(line: str) -> None:
    """Print a warning to standard error."""
    from penstock.runs.formatting import printable

    print(f"warning: {printable(line)}", file=sys.stderr)


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(importlib.import_module("penstock.studies.frames"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
