"""Formatting of numbers for people."""

from __future__ import annotations


def number(value: float) -> str:
    """A number in the few digits that matter."""
    size = abs(value)
    if size >= 10_000:
        return f"{value:,.0f}"
    if size >= 10 or value == 0:
        return f"{value:,.1f}"
    return f"{value:.3f}" if size >= 0.01 else f"{value:.1e}"


def beside(value: float, limit: float) -> str:
    """A number, in as many digits more as it takes to show on which side of another it lies."""
    shown, digits = number(value), 2
    while value != limit and _is_number(shown) and float(shown.replace(",", "")) == limit and digits < 17:
        shown, digits = f"{value:,.{digits}f}", digits + 1
    return shown


def spread(mean: float, std: float) -> str:
    """A mean and its standard deviation, "500.0 +/- 1.2", in the same digits if these tell anything of both."""
    shown = number(mean)
    digits = len(shown.partition(".")[2]) if "e" not in shown else 0
    deviation = f"{std:,.{digits}f}"
    is_lost = std > 1e-9 * abs(mean) and not float(deviation.replace(",", ""))  # less is rounding
    return f"{shown} +/- {number(std) if is_lost or 'e' in shown else deviation}"


def evaluated(mean: float, unfinished: int, target: float | None = None) -> str:
    """The mean return of an evaluation, told apart from the target; of episodes that were given up it holds a part."""
    shown = number(mean) if target is None else beside(mean, target)
    return f"{shown} (partial)" if unfinished else shown


def clock(seconds: float) -> str:
    """A time span: "5.8 s", "3:05", "1:02:03"."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _is_number(text: str) -> bool:
    return text not in ("nan", "inf", "-inf")
