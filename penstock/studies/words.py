"""Values and tables in words that a terminal shows and does not obey: a copied run may hold anything."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from penstock.runs.files import json_values


def words_of(value: Any) -> str:
    """Return a text as it is, and anything else as JSON; what a terminal would obey is replaced."""
    return printable(value if isinstance(value, str) else json.dumps(json_values(value)))


def printable(text: str) -> str:
    """Replace every character that is not printed, such as those that move the cursor."""
    return "".join(character if character.isprintable() else "\ufffd" for character in text)


def drawn(table: Sequence[Sequence[str]], *, markdown: bool = False) -> str:
    """Draw a table, its headings first: in aligned columns, or in Markdown."""
    cells = [[printable(cell) for cell in row] for row in table]
    if markdown:
        lines = [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in cells]
        return "\n".join([lines[0], "|---" * len(table[0]) + "|", *lines[1:]])
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    rows = [[f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)] for row in cells]
    return "\n".join("  ".join(row).rstrip() for row in rows)
