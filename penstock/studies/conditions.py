"""Selection of runs by conditions such as ``env=CartPole-v1`` and ``learning_rate<1e-3``."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from penstock.config import closest
from penstock.runs.reading import RecordedRun
from penstock.studies import StudyError

_WORD = re.compile(r"([\w.]+)(!=|>=|<=|=|>|<)(.*)", re.DOTALL)
_COMPARE: dict[str, Callable[[float, float], bool]] = {
    ">": lambda a, b: a > b, "<": lambda a, b: a < b, ">=": lambda a, b: a >= b, "<=": lambda a, b: a <= b,
}  # fmt: skip


@dataclass(frozen=True)
class Condition:
    """Condition on a run.

    Attributes
    ----------
    key
        A column of the table, or a setting.
    comparison
        "=", "!=", "<", ">", "<=" or ">=".
    value
        Value as given; for a text, a pattern with ``*`` and ``?``.
    """

    key: str
    comparison: str
    value: str

    def holds(self, found: Any) -> bool:
        """Return whether the condition holds for a run's value; an unknown value is neither less nor more than any."""
        if self.comparison in _COMPARE:
            is_number = isinstance(found, int | float)
            return is_number and _COMPARE[self.comparison](float(found), _number(self))
        return self._is_like(found) == (self.comparison == "=")

    def _is_like(self, found: Any) -> bool:
        if isinstance(found, str):
            return fnmatchcase(found, self.value)
        try:
            return bool(found == json.loads(self.value))
        except ValueError:
            return found is None and self.value in ("None", "")


def conditions(text: str) -> list[Condition]:
    """Read conditions such as ``env=Cart* state=done learning_rate<1e-3``; raise `StudyError` for any other word."""
    found = []
    for word in text.split():
        match = _WORD.fullmatch(word)
        if match is None:
            raise StudyError(f"--where {word!r} is not a condition: write KEY=VALUE, with =, !=, <, >, <= or >=")
        condition = Condition(*match.groups())
        if condition.comparison in _COMPARE:
            _number(condition)
        found.append(condition)
    return found


def chosen(runs: Sequence[RecordedRun], where: str) -> list[RecordedRun]:
    """Return the runs for which all conditions hold.

    Raises
    ------
    StudyError
        A condition cannot be read, or names a key that no run has.
    """
    words = conditions(where)
    for word in words:
        require_known(word.key, runs, "--where")
    return [run for run in runs if all(word.holds(value_of(run, word.key)) for word in words)]


def value_of(run: RecordedRun, key: str) -> Any:
    """Return a run's column of the table, else its setting, else None."""
    summary = run.summary
    return summary[key] if key in summary else run.settings.get(key)


def require_known(key: str, runs: Sequence[RecordedRun], flag: str) -> None:
    """Raise `StudyError` unless a run has such a column or setting."""
    known = {name for run in runs for name in (*run.summary, *run.settings)}
    if runs and key not in known:
        raise StudyError(f"{flag} {key!r} is neither a column nor a setting of these runs{closest(key, sorted(known))}")


def _number(condition: Condition) -> float:
    try:
        return float(condition.value)
    except ValueError:
        word = f"{condition.key}{condition.comparison}{condition.value}"
        raise StudyError(f"--where {word!r}: {condition.value!r} is not a number") from None
