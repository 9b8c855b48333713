"""Measured operations: medians, marks, tables and JSON."""

from __future__ import annotations

import statistics
from dataclasses import asdict, dataclass
from typing import Literal

_WIDTHS = {
    "operation": 54, "rows": 7, "penstock": 11, "cpprb": 11, "ratio": 7, "mark": 5, "met": 3,
    "copy": 9, "x copy": 7, "torchrl": 11,
}  # fmt: skip


@dataclass(frozen=True)
class Measured:
    """All measurements of an operation."""

    operation: str
    capacity: int
    """Rows of the buffer."""
    unit: Literal["us", "/s"]
    """Microseconds per operation, or operations per second."""
    rounds: dict[str, list[float]]
    """One figure per round, by contestant: "penstock", "cpprb", "torchrl", or "copy", which only copies."""
    mark: float | None = None
    """Required ratio to cpprb."""

    def median(self, who: str) -> float | None:
        """Return the median of the rounds; None: not measured."""
        return statistics.median(self.rounds[who]) if who in self.rounds else None

    @property
    def ratio(self) -> float | None:
        """Ratio to cpprb; None: no comparison."""
        ours, theirs = self.median("penstock"), self.median("cpprb")
        if ours is None or theirs is None:
            return None
        return theirs / ours if self.unit == "us" else ours / theirs

    @property
    def met(self) -> bool | None:
        """Whether the mark is met; None without a mark or a comparison."""
        return None if self.mark is None or self.ratio is None else self.ratio >= self.mark

    @property
    def copies(self) -> float | None:
        """Ratio to the time of copying the same bytes."""
        ours, copy = self.median("penstock"), self.median("copy")
        return None if ours is None or copy is None else ours / copy

    def facts(self) -> dict:
        """Return all results, for a JSON file."""
        medians = {who: self.median(who) for who in self.rounds}
        return {**asdict(self), "medians": medians, "ratio": self.ratio, "met": self.met, "copies": self.copies}


def header() -> str:
    """Return the head of a Markdown table."""
    rule = "|".join("-" * (width + 1) + ("-" if name == "operation" else ":") for name, width in _WIDTHS.items())
    return f"{_line({name: name for name in _WIDTHS})}\n|{rule}|"


def line(measured: Measured) -> str:
    """Return an operation as a line of the table."""
    times = {who: _figure(measured.median(who)) for who in ("penstock", "cpprb", "torchrl")}
    return _line({
        "operation": measured.operation + (", us" if measured.unit == "us" else ""),
        "rows": _short(measured.capacity),
        **times,
        "ratio": _times(measured.ratio),
        "mark": "-" if measured.mark is None else f"{measured.mark:g}x",
        "met": {None: "-", True: "yes", False: "NO"}[measured.met],
        "copy": _figure(measured.median("copy")),
        "x copy": _times(measured.copies),
    })  # fmt: skip


def verdict(measured: list[Measured]) -> str:
    """Return the number of marks met, and those missed."""
    judged = [one for one in measured if one.met is not None]
    missed = [f"  missed: {m.operation} {_times(m.ratio)} of {m.mark:g}x" for m in judged if not m.met]
    return "\n".join([f"{len(judged) - len(missed)} of {len(judged)} marks hold", *missed])


def _line(cells: dict[str, str]) -> str:
    aligned = [
        f"{cells[name]:<{width}}" if name == "operation" else f"{cells[name]:>{width}}"
        for name, width in _WIDTHS.items()
    ]
    return f"| {' | '.join(aligned)} |"


def _figure(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _times(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.1f}x" if ratio < 100 else f"{ratio:.0f}x"


def _short(rows: int) -> str:
    for size, letter in ((10**6, "M"), (10**3, "k")):
        if rows >= size:
            return f"{rows / size:g}{letter}"
    return str(rows)
