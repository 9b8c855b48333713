"""Charts of a run as HTML with SVG pictures, without scripts, inline styles or external resources."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from html import escape
from itertools import pairwise
from typing import Any

import numpy as np

from penstock.runs.descriptions import WAIT
from penstock.runs.formatting import number
from penstock.runs.tables import MOST_COLUMNS, Games

_WIDTH, _HEIGHT = 480, 220
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 8, 8, 24
COLORS = 6
_DASHES = ("", "6 4", "2 3", "8 3 2 3")
_TICKS = 5

STYLE = """
.chart { border: 1px solid var(--line); border-radius: 8px; padding: 0.4rem 0.6rem; margin: 0;
  break-inside: avoid; }
.chart figcaption { font-weight: 600; } .chart .unit, .chart .said { color: var(--quiet); font-weight: 400; }
.chart svg { width: 100%; height: auto; } .chart text { font: 11px system-ui, sans-serif; fill: var(--quiet); }
.chart .grid { stroke: var(--line); } .chart .target { stroke: var(--ink); stroke-dasharray: 2 4; }
.chart polyline { fill: none; stroke-width: 1.6; } .chart polyline.target { stroke-width: 1; }
.chart .legend { display: flex; flex-wrap: wrap; gap: 0.1rem 0.9rem; }
.chart .legend > span { display: -webkit-box; -webkit-box-orient: vertical; -webkit-line-clamp: 2; overflow: hidden; }
.chart .legend span { font-size: 12px; } .chart .legend svg { width: 22px; height: 8px; }
.c0 { --c: #0072b2; } .c1 { --c: #d55e00; } .c2 { --c: #009e73; } .c3 { --c: #cc79a7; } .c4 { --c: #56b4e9; }
.c5 { --c: #e69f00; } .wait { --c: #b9c5cf; } .line { stroke: var(--c); }
.area { fill: var(--c); stroke: var(--paper); }
@media screen and (prefers-color-scheme: dark) {
  .c0 { --c: #56b4e9; } .c1 { --c: #e69f00; } .c4 { --c: #0090e0; } .c5 { --c: #d55e00; } .wait { --c: #465665; }
}
@media (max-width: 499px) { .chart text { font-size: 14px; } }
.dot { fill: var(--c); } .band { fill: var(--c); fill-opacity: 0.2; }
.games { width: 7rem; height: 0.7rem; }
.front { stroke: var(--ink); stroke-width: 1.5; }
"""
"""Style of the charts; the page defines the colours --ink, --quiet, --paper and --line."""

Columns = Mapping[str, Sequence[float | None]]


def chart_html(chart: Mapping[str, Any], columns: Columns, x: str = "steps", target: float | None = None) -> str:
    """Return a chart of `charts_of` as a figure with a picture and a legend; "" if no line has a value.

    Parameters
    ----------
    chart
        Description of the chart.
    columns
        Metrics by name, a value or None for each row.
    x
        Metric of the horizontal axis.
    target
        Value at which a horizontal line is drawn.
    """
    found = [(line, *_points(columns, x, line["name"])) for line in chart["lines"]]
    is_area = chart["kind"] == "area"
    drawn = [(line, at, values) for line, at, values in found if at.size and (not is_area or values.any())]
    if not drawn:
        return ""
    inside = [] if is_area else _inside(chart, found)
    drawn = [one for one in drawn if not one[0]["edge"]]
    unit = "" if chart["unit"] == "share" else chart["unit"]
    title = f'<figcaption>{escape(chart["title"])} <span class="unit">{escape(unit)}</span></figcaption>'
    shapes: Sequence[Any] = _stacked(drawn) if is_area else [*inside, *((*one, None) for one in drawn)]
    picture, legend = _picture(chart, shapes, x, target), _legend(chart, drawn, target)
    return f'<figure class="chart">{title}{picture}{legend}</figure>'


def games_html(games: Games) -> str:
    """Return a table with a bar of won, drawn and lost games for each policy and opponent; "" without games."""
    known = list(dict.fromkeys(name for its in games.values() for name, results in its.items() if any(results)))
    if not known:
        return ""
    opponents, more = known[:MOST_COLUMNS], f" {MOST_COLUMNS} of {len(known)} opponents are shown."
    heads = "".join(f'<th scope="col">against {escape(name)}</th>' for name in opponents)
    rows = "".join(
        f'<tr><th scope="row">{escape(policy)}</th>{"".join(_result(its.get(name, ())) for name in opponents)}</tr>'
        for policy, its in games.items()
    )
    return (
        '<div><p class="quiet">Games against past versions are from the whole training, those against other opponents '
        f'from the last evaluation.{more if len(known) > MOST_COLUMNS else ""}</p>'
        '<div class="wide" tabindex="0" role="region" aria-label="Games won, by policy and opponent">'
        f'<table class="runs"><thead><tr><th scope="col">policy</th>{heads}</tr></thead><tbody>{rows}</tbody></table>'
        "</div></div>"
    )


def _result(results: Sequence[int]) -> str:
    """Return the table cell for the numbers of games won, drawn and lost."""
    games = sum(results)
    if not games:
        return "<td></td>"
    shares, left, parts = [100 * count / games for count in results], 0.0, []
    for look, share in zip(("c0", "wait", "c1"), shares, strict=True):
        parts.append(f'<rect class="area {look}" x="{left:.1f}" width="{share:.1f}" height="10"/>' if share else "")
        left += share
    bar = f'<svg class="games" viewBox="0 0 100 10" aria-hidden="true">{"".join(parts)}</svg>'
    said = f"{shares[0]:.0f} % won, {shares[1]:.0f} % drawn"
    return f'<td>{bar}<br>{said}<br><span class="quiet">of {games:,} games</span></td>'


def _points(columns: Columns, x: str, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return x and y of a metric, x ascending; if an x occurs several times, its last value counts."""
    known = {at: value for at, value in zip(columns.get(x, ()), columns[name], strict=False)
             if at is not None and value is not None}  # fmt: skip
    places = np.array(sorted(known))
    return places, np.array([known[at] for at in places.tolist()])


def _stacked(drawn: Sequence[tuple[Any, np.ndarray, np.ndarray]]) -> list[Any]:
    """Return line, x, upper and lower edge of each stacked area; a missing value counts as 0."""
    places = np.unique(np.concatenate([at for _, at, _ in drawn]))
    below, shapes = np.zeros(places.size), list[Any]()
    for line, at, values in drawn:
        above = below.copy()
        above[np.searchsorted(places, at)] += values
        shapes.append((line, places, above, below))
        below = above
    return shapes


def plain_chart(title: str, unit: str, labels: Mapping[str, str], **looks: Any) -> dict[str, Any]:
    """Return a chart, as `charts_of` does, of lines with these labels (by name), each in its own colour and dashes."""
    same = {"dots": False, "edge": False, **looks}
    lines = [
        {"name": name, "label": label, "color": n, "dash": n, **same} for n, (name, label) in enumerate(labels.items())
    ]
    return {"title": title, "unit": unit, "kind": "line", "lines": lines, "bands": []}


def _inside(chart: Mapping[str, Any], found: Sequence[tuple[Any, np.ndarray, np.ndarray]]) -> list[Any]:
    """Return line, x, upper and lower edge of each band, at every x where both edges have a value."""
    shapes = list[Any]()
    for band in chart["bands"]:
        (line, at, low), (_, of_high, high) = found[band["low"]], found[band["high"]]
        places, among_low, among_high = np.intersect1d(at, of_high, return_indices=True)
        if places.size:
            shapes.append((line, places, high[among_high], low[among_low]))
    return shapes


def scatter_html(title: str, x: str, groups: Mapping[str, Sequence[tuple[str, float, float, bool]]]) -> str:
    """Return groups of points as a figure with a picture and a legend; a stepped line joins the Pareto front.

    Parameters
    ----------
    title
        Title of the figure.
    x
        Unit of the horizontal axis, which begins at 0.
    groups
        Points of each group: text, x, y, and whether the point is on the front. An empty group still uses a colour.
    """
    points = [point for each in groups.values() for point in each]
    across, up = [at for _, at, _, _ in points], [value for _, _, value, _ in points]
    parts, right, down = _axes((min(0.0, *across), max(across)), _range(up, ""), "")
    front = sorted((at, value) for _, at, value, is_on_front in points if is_on_front)
    corners = [front[0], *(place for (_, low), (at, high) in pairwise(front) for place in ((at, low), (at, high)))]
    at, value = np.array(corners).T
    parts.append(f'<polyline class="target" points="{_places(right(at), down(value))}"/>')
    for color, each in enumerate(groups.values()):
        for text, x_of, y_of, is_on_front in each:
            look = f'class="dot c{color % COLORS}{" front" if is_on_front else ""}" r="{5 if is_on_front else 3}"'
            place = f'cx="{right(x_of):.1f}" cy="{down(y_of):.1f}"'
            parts.append(f"<circle {look} {place}><title>{escape(text)}</title></circle>")
    mark = '<svg viewBox="0 0 22 8" aria-hidden="true"><circle class="dot c{}" cx="11" cy="4" r="4"/></svg>'
    legend = "".join(
        f'<span title="{escape(name)}">{mark.format(n % COLORS)} {escape(name)}</span>'
        for n, name in enumerate(groups) if groups[name]
    )  # fmt: skip
    return (
        f'<figure class="chart"><figcaption>{escape(title)} <span class="unit">over {escape(x)}</span></figcaption>'
        f'{_svg(parts, f"{title} over {x}")}<div class="legend">{legend}'
        '<span class="said">dashed, with rings: the front</span></div></figure>'
    )


def _axes(
    ends: tuple[float, float], heights: tuple[float, float], unit: str
) -> tuple[list[str], Callable[..., Any], Callable[..., Any]]:
    """Return the ticks of axes with the given ends, and the functions that map x and y to the picture."""
    (begin, end), (low, high) = ends, heights

    def right(at: np.ndarray | float) -> Any:
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * (at - begin) / ((end - begin) or 1.0)

    def down(value: np.ndarray | float) -> Any:
        return _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * (value - low) / (high - low)

    parts = []
    for tick in ticks(low, high):
        y = f"{down(tick):.1f}"
        label = f"{100 * tick:.8g} %" if unit == "share" else short(tick)
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y}" y2="{y}"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{down(tick) + 4:.1f}" text-anchor="end">{label}</text>')
    for tick in ticks(begin, end):
        anchor = "end" if right(tick) > _WIDTH - 24 else "middle"
        parts.append(f'<text x="{right(tick):.1f}" y="{_HEIGHT - 6}" text-anchor="{anchor}">{short(tick)}</text>')
    return parts, right, down


def _svg(parts: Sequence[str], label: str) -> str:
    return f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(label)}">{"".join(parts)}</svg>'


def _picture(chart: Mapping[str, Any], shapes: Sequence[Any], x: str, target: float | None) -> str:
    is_area = chart["kind"] == "area"
    ends = [end for _, _, *sides in shapes for side in sides if side is not None for end in (side.min(), side.max())]
    heights = _range([*ends, *(() if target is None else (target,))], chart["unit"])
    across = min(at[0] for _, at, *_ in shapes), max(at[-1] for _, at, *_ in shapes)
    parts, right, down = _axes(across, heights, chart["unit"])
    for line, at, above, below in shapes:
        over = _places(right(at), down(above))
        if below is not None:
            under = _places(right(at)[::-1], down(below)[::-1])
            look = "area" if is_area else "band"
            parts.append(f'<polygon class="{look} {_class(line)}" points="{over} {under}"/>')
            continue
        parts.append(f'<polyline class="line {_class(line)}" stroke-dasharray="{_dash(line)}" points="{over}"/>')
        if at.size <= (100 if line["dots"] else 1):
            dots = zip(right(at), down(above), strict=True)
            parts += (f'<circle class="dot {_class(line)}" cx="{cx:.1f}" cy="{cy:.1f}" r="2.2"/>' for cx, cy in dots)
    if target is not None:
        y = f"{down(target):.1f}"
        parts.append(f'<line class="target" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y}" y2="{y}"/>')
    return _svg(parts, f"{chart['title']} over {x}")


def _legend(chart: Mapping[str, Any], drawn: Sequence[tuple[Any, np.ndarray, np.ndarray]], target: float | None) -> str:
    entries, is_area = [], chart["kind"] == "area"
    is_whole = all((values == np.round(values)).all() for _, _, values in drawn)
    for line, _, values in drawn:
        dashes = f'stroke-dasharray="{_dash(line)}"'
        mark = (
            f'<rect class="area {_class(line)}" width="22" height="8"/>' if is_area
            else f'<line class="line {_class(line)}" x2="22" y1="4" y2="4" stroke-width="2" {dashes}/>'
        )  # fmt: skip
        last, unit = float(values[-1]), chart["unit"].partition("/")[0]
        plain = f"{last:,.0f}" if is_whole else number(last)
        shown = {"share": f"{last:.1%}", "bytes": f"{short(last, 3)}B"}.get(unit, plain)
        said = line.get("said", shown)
        swatch = f'<svg viewBox="0 0 22 8" aria-hidden="true">{mark}</svg>'
        label = escape(line["label"])
        entries.append(f'<span title="{label}">{swatch} {label} <span class="said">{said}</span></span>')
    if target is not None:
        entries.append(f'<span class="said">target {number(target)}</span>')
    if labels := dict.fromkeys(band["label"] for band in chart["bands"]):
        entries.append(f'<span class="said">bands: {escape(", ".join(labels))}</span>')
    return f'<div class="legend">{"".join(entries)}</div>'


def _class(line: Mapping[str, Any]) -> str:
    return "wait" if line["color"] == WAIT else f"c{line['color'] % COLORS}"


def _dash(line: Mapping[str, Any]) -> str:
    return _DASHES[(line["dash"] + line["color"] // COLORS) % len(_DASHES)]


def _places(x: np.ndarray, y: np.ndarray) -> str:
    return " ".join(f"{right:.1f},{down:.1f}" for right, down in zip(x, y, strict=True))


def _range(ends: Sequence[float], unit: str) -> tuple[float, float]:
    """Return the ends of the vertical axis."""
    low, high = float(min(ends)), float(max(ends))
    if unit == "share":
        return min(0.0, low), max(1.0, high)
    if low == high:
        return (0.0, 1.0) if not low else (low - 0.1 * abs(low), high + 0.1 * abs(high))
    return low - 0.05 * (high - low), high + 0.05 * (high - low)


def ticks(low: float, high: float) -> list[float]:
    """Return a few round numbers between two."""
    if not high > low:
        return [low]
    rough = (high - low) / _TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    steps = (factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power != 2.5)  # counts are whole
    step = next(step for step in steps if step >= rough)
    first = math.ceil(low / step)
    return [step * place for place in range(first, math.floor(high / step) + 1)]


def short(value: float, digits: int = 8) -> str:
    """Format a number, such as a tick, with at most `digits` significant digits: "20 k", "0.5", "3e-05"."""
    for factor, letter in ((1e12, " T"), (1e9, " G"), (1e6, " M"), (1e3, " k")):
        if factor <= abs(value) < 1e15:
            return f"{value / factor:.{digits}g}{letter}"
    return f"{value:.{digits}g}"
