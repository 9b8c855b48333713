"""Numbers, values and tables as text for a terminal, without control characters."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from math import isfinite
from typing import Any

from rich.cells import cell_len, set_cell_size

from penstock.runs.files import json_values

_SPARKS = "▁▂▃▄▅▆▇█"


def number(value: float) -> str:
    """Format a number with about three significant digits."""
    size = abs(value)
    if size >= 10_000:
        return f"{value:,.0f}" if size < 1e15 else f"{value:.2e}"
    if size >= 10 or value == 0:
        return f"{value:,.1f}"
    return f"{value:.3f}" if size >= 0.01 else f"{value:.1e}"


def beside(value: float, limit: float) -> str:
    """Format a number with enough digits to show on which side of a limit it lies."""
    shown, digits = number(value), 2
    while value != limit and isfinite(value) and float(shown.replace(",", "")) == limit and digits < 17:
        shown, digits = f"{value:,.{digits}f}", digits + 1
    return shown


def spread(mean: float, std: float) -> str:
    """Format a mean and its standard deviation, "500.0 +/- 1.2", with equally many digits if that suffices for both."""
    shown = number(mean)
    digits = len(shown.partition(".")[2]) if "e" not in shown else 0
    deviation = f"{std:,.{digits}f}"
    is_lost = std > 1e-9 * abs(mean) and not float(deviation.replace(",", ""))  # less is rounding error
    return f"{shown} +/- {number(std) if is_lost or 'e' in shown else deviation}"


def evaluated(mean: float, unfinished: int, target: float | None = None) -> str:
    """Format the mean return of an evaluation, distinct from the target, and marked if episodes were given up."""
    shown = number(mean) if target is None else beside(mean, target)
    return f"{shown} (partial)" if unfinished else shown


def clock(seconds: float) -> str:
    """Format a time span: "5.8 s", "3:05", "1:02:03"."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def folded(line: str, width: int) -> str:
    """Break a line with a shell command, with backslashes before flags, into lines of at most `width` columns.

    A line that fits stays whole, and so does a flag that is longer than `width`.
    """
    lines = [""]
    for part in re.split(r"(?= --)", line):
        if lines[-1] and len(lines[-1]) + len(part) + len(" \\") > width and len(line) > width:
            lines[-1] += " \\"
            lines.append("   ")
        lines[-1] += part
    return "\n".join(lines)


def words_of(value: Any) -> str:
    """Return a string as it is and any other value as JSON, with control characters replaced."""
    return printable(value if isinstance(value, str) else json.dumps(json_values(value)))


def counted(count: int, noun: str) -> str:
    """Return a count with its noun, in the plural unless it is 1."""
    return f"{count} {noun}" + ("" if count == 1 else "s")


def printable(text: str) -> str:
    """Replace unprintable characters, such as those that move the cursor."""
    return "".join(character if character.isprintable() else "\ufffd" for character in text)


def spark_line(values: Sequence[float], width: int) -> str:
    """Return values (at least one), evenly sampled, as a line of at most `width` block characters."""
    last = min(width, len(values)) - 1
    picked = [values[round(i * (len(values) - 1) / max(1, last))] for i in range(last + 1)]
    low, span = min(picked), (max(picked) - min(picked)) or 1.0
    return "".join(_SPARKS[round((value - low) / span * (len(_SPARKS) - 1))] for value in picked)


def drawn(table: Sequence[Sequence[str]], *, markdown: bool = False) -> str:
    """Format a table, headings first, in aligned columns or in Markdown."""
    cells = [[printable(cell) for cell in row] for row in table]
    if markdown:
        lines = [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in cells]
        return "\n".join([lines[0], "|---" * len(table[0]) + "|", *lines[1:]])
    widths = [max(map(cell_len, column)) for column in zip(*cells, strict=True)]
    rows = [[set_cell_size(cell, width) for cell, width in zip(row, widths, strict=True)] for row in cells]
    return "\n".join("  ".join(row).rstrip() for row in rows)
