"""Panes of a terminal: panels that lose rows, and then disappear, the least important first."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby

import numpy as np
from rich import box
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from penstock.runs.formatting import number
from penstock.runs.status import NodeStatus, RoleShare
from penstock.runs.tables import WORDS, Cells, learners_table, nodes_table

_DOTS = ((0x40, 0x04, 0x02, 0x01), (0x80, 0x20, 0x10, 0x08))  # braille bits of the left and right column, upwards
_AXIS_WIDTH, _MOST_LABEL = 10, 20

Row = tuple[str, str | Text]
"""Label and value of a row."""
Point = tuple[int, float | None, float | None]
"""Steps, mean return in training, and mean return of the last evaluation; None before there is one."""


@dataclass(frozen=True)
class Pane:
    """Panel that may be drawn with fewer rows.

    Attributes
    ----------
    importance
        Order in which panes get rows, from 0 on.
    rows, enough, least
        Number of rows of the whole pane, of the rows that matter, and the smallest number with which it is shown.
    frame
        Lines besides the rows: borders and headings.
    draw
        Function that returns the pane drawn with a given number of rows.
    """

    importance: int
    rows: int
    enough: int
    least: int
    frame: int
    draw: Callable[[int], RenderableType]


def fitted(panes: Sequence[Pane], height: int) -> RenderableType:
    """Draw the panes that fit: in order of importance, all get their least rows first, then enough, then all rows."""
    rows: dict[int, int] = {}
    in_order = sorted(range(len(panes)), key=lambda place: panes[place].importance)
    for place in in_order:
        pane = panes[place]
        least = max(1, min(pane.least, height - pane.frame)) if pane.importance == 1 else pane.least  # returns stay
        if (needed := pane.frame + least) <= height or not rows:
            rows[place] = least
            height -= needed
    for wanted in ("enough", "rows"):
        for place in filter(rows.__contains__, in_order):
            more = max(0, min(height, getattr(panes[place], wanted) - rows[place]))
            rows[place] += more
            height -= more
    return Group(*(panes[place].draw(rows[place]) for place in sorted(rows)))


def beside(importance: int, columns: Sequence[tuple[str, Sequence[Row]]], width: int, least: int = 2) -> Pane:
    """Return a pane of panels side by side, each with rows of a label and a value."""
    needs = [sum(max((len(row[part]) for row in rows), default=0) for part in (0, 1)) + 5 for _, rows in columns]
    left, *others = (2, *(3 for _ in columns[1:]))
    if len(columns) == 2:  # in multiples of 4, so that the border seldom moves
        left = -4 * (-max(2 * width // 5, min(needs[0], width - needs[1], width // 2)) // 4)
        others = [width - left]

    def draw(count: int) -> RenderableType:
        grid = Table.grid(expand=True)
        shown = list[Panel]()
        for (title, rows), ratio in zip(columns, (left, *others), strict=True):
            grid.add_column(ratio=ratio)
            shown.append(panel(pairs(rows[:count]), _titled(title, len(rows) - count), height=count + 2))
        grid.add_row(*shown)
        return grid

    most = max(len(rows) for _, rows in columns)
    return Pane(importance, most, min(4, most), min(least, most), 2, draw)


def _titled(title: str, hidden: int) -> str:
    """Return the title of a panel, with the number of hidden rows."""
    return f"{title}, {hidden} more hidden" if hidden > 0 else title


def of_table(importance: int, title: str, least: int, table: Callable[[int], Table], count: int) -> Pane:
    """Return the pane of a table of `count` rows; `table` draws a given number of them."""

    def draw(rows: int) -> RenderableType:
        return panel(table(rows), _titled(title, count - rows))

    return Pane(importance, count, min(6, count), min(least, count), 3, draw)


def columns_table(
    columns: Mapping[str, Sequence[str]], width: int, order: Sequence[str], looks: Mapping[int, str]
) -> Table:
    """Return a table of the columns that fit.

    Parameters
    ----------
    columns
        Cells by title, from left to right.
    width
        Columns of the terminal.
    order
        Titles in order of importance; others follow from left to right.
    looks
        Styles of rows, by row number.
    """
    kept = set[str]()
    for title in dict.fromkeys((*order, *columns)):
        if title in columns and (wide := max(map(len, (title, *columns[title]))) + 2) <= width:
            kept.add(title)
            width -= wide
    columns = {title: cells for title, cells in columns.items() if title in kept}
    table = Table(box=None, padding=(0, 1), header_style="dim")
    for title in columns:
        table.add_column(title, justify="left" if title in WORDS else "right", no_wrap=True)
    for place, cells in enumerate(zip(*columns.values(), strict=True)):
        table.add_row(*map(Text, cells), style=looks.get(place, ""))
    return table


def nodes_pane(nodes: Sequence[NodeStatus], width: int, most: int) -> Table:
    """Return a table of the first `most` gateways and nodes, lost ones first if not all are shown."""
    if most < len(nodes):
        nodes = sorted(nodes, key=lambda node: node.is_connected)[:most]
    order = ("node", "state", "steps/s", "restarts", "lanes", "policy lag", "machine")
    looks = {place: "dim" if node.has_left else "bold red" for place, node in enumerate(nodes) if not node.is_connected}
    return columns_table(nodes_table(nodes), width - 4, order, looks)


def learners_pane(learners: Sequence[RoleShare], width: int, most: int) -> Table:
    """Return a table of the first `most` learners of a group, the least busy ones first if not all are shown."""
    shown = learners if most >= len(learners) else sorted(learners, key=lambda one: one.busy)[:most]
    return columns_table(learners_table(shown), width - 4, ("learner", "busy", "learn"), {})


def versions_pane(columns: Cells, width: int, most: int) -> Table:
    """Return a table of the last `most` rows of past versions, with policies in bold."""
    shown = {title: cells[len(cells) - most :] for title, cells in columns.items()}
    looks = {place: "bold" for place, steps in enumerate(shown["steps"]) if steps == "now"}
    return columns_table(shown, width - 4, ("policy", "steps", "rating", "score now"), looks)


def chart_of(history: Sequence[Point], width: int, heading: str) -> Pane:
    """Return the pane of a chart of returns over steps in braille dots: training dotted, evaluations solid."""
    columns = width - 4 - _AXIS_WIDTH
    curves = [
        (title, look, gap, [(point[0], value) for point in history if (value := point[place]) is not None])
        for title, look, gap, place in (("training (dotted)", "cyan", 3, 1), ("evaluations", "bold magenta", 0, 2))
    ]
    curves = [curve for curve in curves if len(curve[-1]) > 1]
    values = [value for *_, points in curves for _, value in points] or [0.0]
    begin, end, low, high = history[0][0], history[-1][0], min(values), max(values)

    def draw(rows: int) -> RenderableType:
        cells = [[(0, "")] * columns for _ in range(rows - 1)]
        scale = (4 * (rows - 1) - 1) / ((high - low) or 1.0)
        for _, look, gap, points in curves:
            places, heights = map(list, zip(*points, strict=True))
            at = np.interp(np.linspace(begin, end, 2 * columns), places, heights, np.nan, np.nan)
            before: int | None = None
            for place, height in enumerate((scale * (at - low)).tolist()):
                if height != height:
                    continue
                level = round(height)
                near = level if before is None else before + (level > before) - (level < before)
                for dot in range(min(near, level), max(near, level) + 1) if not gap or place % gap == 0 else ():
                    row = cells[rows - 2 - dot // 4]
                    row[place // 2] = row[place // 2][0] | _DOTS[place % 2][dot % 4], look
                before = level
        labels = {0: high, rows - 2: low} | ({rows // 2 - 1: (low + high) / 2} if rows > 6 else {})
        lines = []
        for n, row in enumerate(cells):
            label = number(labels[n]) if n in labels else ""
            line = Text(f"{label:>{_AXIS_WIDTH - 1}} ", "dim")
            merged = accumulate(row, lambda before, cell: (cell[0], cell[1] or before[1]))
            for look, group in groupby(merged, key=lambda cell: cell[1]):
                line.append("".join(chr(0x2800 + dots) if dots else " " for dots, _ in group), look)
            lines.append(line)
        ends = [f"{step:,}" for step in (begin, (begin + end) // 2, end)]
        middle = f"{ends[1]:^{max(0, columns - len(ends[0]) - len(ends[2]))}}"
        lines.append(Text(f"{'steps':>{_AXIS_WIDTH - 1}} {ends[0]}{middle}{ends[2]}"[: width - 4], "dim"))
        names = Text(", ").join([Text(title, look) for title, look, *_ in reversed(curves)])
        return panel(Group(*lines), Text.assemble((f"{heading}: ", "default"), names))

    return Pane(7, 24, 8, 5, 2, draw)


def panel(body: RenderableType, title: Text | str, *, subtitle: str = "", height: int | None = None) -> Panel:
    """Return a panel with a border, a title on it, and a subtitle below."""
    return Panel(
        body, title=title if isinstance(title, Text) else Text(title, "default"), title_align="left",
        subtitle=Text(subtitle, "default") if subtitle else None, subtitle_align="right",
        box=box.ROUNDED, border_style="bright_black", height=height, padding=(0, 1),
    )  # fmt: skip


def pairs(rows: Sequence[Row]) -> Table:
    """Return a table of labels and values, a line each."""
    table = Table.grid(padding=(0, 1, 0, 0))
    width = max((len(label) for label, _ in rows), default=0)
    table.add_column(style="dim", no_wrap=True, min_width=min(_MOST_LABEL, width))
    table.add_column()  # rich narrows a column only if it may wrap
    for label, value in rows:
        shown = Text(value) if isinstance(value, str) else value
        shown.no_wrap, shown.overflow = True, "ellipsis"
        table.add_row(Text(label), shown)
    return table


def packed(entries: Sequence[Text], width: int) -> list[Text]:
    """Return the entries, in order, in lines that hold as many as fit."""
    lines: list[Text] = []
    for entry in entries:
        if lines and lines[-1].cell_len + 2 + entry.cell_len <= width:
            lines[-1].append("  ").append_text(entry)
        else:
            lines.append(entry.copy())
    return lines
