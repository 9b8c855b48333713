"""End of a comparison: the exit codes of `penstock bench`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import NoReturn

from penstock.commands.exits import DONE, NOT_REACHED, explained


def ended(measure: Callable[[], bool]) -> NoReturn:
    """Measure, and end this process: with 0, with 3 if a mark was missed, or with the exit code of an error."""
    with explained():
        is_met = measure()
    sys.exit(DONE if is_met else NOT_REACHED)
