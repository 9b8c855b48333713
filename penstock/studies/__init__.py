"""Many runs: tables of them, runs over environments, settings and seeds, plots and comparisons."""

import sys

EVALUATION = "evaluation/mean_return"


class StudyError(ValueError):
    """The request cannot be carried out; the message gives the reason and the remedy."""


def warn(line: str) -> None:
    """Print a warning to standard error."""
    from penstock.runs.formatting import printable

    print(f"warning: {printable(line)}", file=sys.stderr)
