"""A run as HTML, with its curves, for notebooks."""

from __future__ import annotations

import os
from html import escape
from pathlib import Path

import numpy as np

from penstock.runs.formatting import clock, number
from penstock.runs.metrics import METRICS
from penstock.runs.series import GrowingCurve
from penstock.runs.status import Status

_WIDTH, _HEIGHT, _MARGIN = 420, 140, 8
_MOST_POINTS = 400
_CURVES = (("episode/mean_return", "#0072b2", "training"), ("evaluation/mean_return", "#d55e00", "evaluation"))


def run_html(status: Status, run_dir: str | None) -> str:
    """Return a run as HTML: a table of its progress and, if it has a directory, the curves of its returns."""
    rows = {
        "run": run_dir or "no directory",
        "steps": f"{status.steps:,} of {status.total_steps:,}",
        "time": clock(status.seconds),
        "return in training": _or_none(status.mean_return),
        "return in evaluation": _or_none(status.eval_return),
        "best evaluation": _or_none(status.best_return),
    }
    cells = "".join(f"<tr><th>{name}</th><td>{escape(text)}</td></tr>" for name, text in rows.items())
    title = f"<b>{escape(status.algorithm)} on {escape(status.env)}</b>"
    return f"<div>{title}<table>{cells}</table>{'' if run_dir is None else curves_svg(Path(run_dir) / METRICS)}</div>"


def curves_svg(metrics: str | os.PathLike[str]) -> str:
    """Return the curves of training and evaluation returns over steps as SVG; "" if there are none."""
    found = [(*_points(Path(metrics), name), color, label) for name, color, label in _CURVES]
    found = [each for each in found if each[0].size]
    if not found:
        return ""
    low, high = (float(end([end(y) for _, y, _, _ in found])) for end in (np.min, np.max))
    last = max(float(x[-1]) for x, *_ in found)
    lines = [
        f'<polyline fill="none" stroke="{color}" stroke-width="1.5" points="{places}"><title>{label}</title></polyline>'
        for x, y, color, label in found
        for places in [_places(x / (last or 1.0), (y - low) / ((high - low) or 1.0))]
    ]
    labels = [
        f'<text x="{_MARGIN + 110 * place}" y="{_HEIGHT + 14}" fill="{color}">{label}</text>'
        for place, (_, _, color, label) in enumerate(found)
    ]
    ends = (
        f'<text x="{_WIDTH}" y="{_MARGIN + 8}" text-anchor="end" fill="currentColor">{number(high)}</text>'
        f'<text x="{_WIDTH}" y="{_HEIGHT}" text-anchor="end" fill="currentColor">{number(low)}</text>'
        f'<text x="{_WIDTH}" y="{_HEIGHT + 14}" text-anchor="end" fill="currentColor">{last:,.0f} steps</text>'
    )
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT + 20}" width="{_WIDTH}" role="img" aria-label="Returns over steps" '
        f'style="font: 11px sans-serif">{"".join([*lines, *labels])}{ends}</svg>'
    )


def _points(metrics: Path, name: str) -> tuple[np.ndarray, np.ndarray]:
    curve = GrowingCurve(metrics, "steps", name)
    curve.catch_up()
    x, y = curve.points()
    kept = np.linspace(0, x.size - 1, min(x.size, _MOST_POINTS)).astype(int)
    return x[kept], y[kept]


def _places(x: np.ndarray, y: np.ndarray) -> str:
    """Return the points of a polyline; `x` and `y` are shares of the width and of the height."""
    wide, tall = _WIDTH - 70 - _MARGIN, _HEIGHT - 2 * _MARGIN
    return " ".join(
        f"{_MARGIN + wide * right:.1f},{_HEIGHT - _MARGIN - tall * up:.1f}" for right, up in zip(x, y, strict=True)
    )


def _or_none(value: float | None) -> str:
    return "none yet" if value is None else number(value)
