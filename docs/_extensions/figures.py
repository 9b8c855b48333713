"""Measured figures in the text of pages, read from ``bench/history/current.jsonl`` by the name of their record.

``{figure}`solve-cartpole-appo``` becomes the record's value with its unit. A second word chooses another part of the
record, such as ``{figure}`solve-cartpole-appo highest```. A page therefore shows what the newest record holds, and a
name that no record has is an error of the build.
"""

from __future__ import annotations

import difflib
import json
from functools import lru_cache
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.parsers.rst.states import Inliner
from sphinx.application import Sphinx

HISTORY = Path(__file__).parents[2] / "bench" / "history" / "current.jsonl"
PARTS = ("value", "number", "lowest", "highest", "spread", "interval", "beside", "ratio", "machine", "commit", "seeds")


@lru_cache
def records() -> dict[str, dict[str, Any]]:
    """Return the current record of each mark."""
    found = map(json.loads, HISTORY.read_text().splitlines())
    return {record["mark"]: record for record in found}


def text_of(reference: str) -> str:
    """Return the text that stands in place of a reference.

    Parameters
    ----------
    reference : str
        ``"MARK"`` or ``"MARK PART"``, with one of these parts:

        ========================  =======================================================
        ``value``, the default    value with its unit
        ``number``                value alone
        ``lowest``, ``highest``   ends of the spread over seeds or rounds, without a unit
        ``spread``                both ends, "3.1 to 3.6"
        ``interval``              95 % interval of the median
        ``beside``, ``ratio``     value of what is compared with, and the ratio to it
        ``machine``, ``commit``   where it was measured, and the code that was
        ``seeds``                 number of seeds
        ========================  =======================================================

    Raises
    ------
    ValueError
        If no record has this mark, the part is none of these, or the record does not have it.
    """
    mark, _, part = reference.strip().partition(" ")
    part = part or "value"
    if mark not in records():
        near = ", ".join(difflib.get_close_matches(mark, records(), 3)) or "none is like it"
        raise ValueError(f"no record of bench/history/current.jsonl has the mark {mark!r}; nearest: {near}")
    if part not in PARTS:
        raise ValueError(f"{part!r} is no part of a figure: use one of {', '.join(PARTS)}")
    found = _parts(records()[mark])[part]
    if found is None:
        raise ValueError(f"the record {mark!r} has no {part}")
    if isinstance(found, tuple):
        return " to ".join(map(_number, found))
    shown = found if isinstance(found, str) else _number(found)
    return f"{shown} {records()[mark]['unit']}".rstrip() if part == "value" else shown


def _parts(record: dict[str, Any]) -> dict[str, Any]:
    against, spread = record["against"] or {}, record["spread"]
    ends = spread["lowest"], spread["highest"]
    return {
        "value": record["value"], "number": record["value"], "lowest": ends[0], "highest": ends[1],
        "spread": None if None in ends else ends, "interval": tuple(spread.get("interval", ())) or None,
        "beside": against.get("value"), "ratio": against.get("ratio"), "machine": record["machine"],
        "commit": record["commit"] or record.get("reported"), "seeds": record["seeds"],
    }  # fmt: skip


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:g}"


def figure(
    name: str, rawtext: str, text: str, lineno: int, inliner: Inliner, options: Any = None, content: Any = ()
) -> tuple[list[nodes.Node], list[nodes.system_message]]:
    """Replace a reference by its figure; the page is read anew once the records have changed."""
    inliner.document.settings.env.note_dependency(str(HISTORY))
    try:
        return [nodes.Text(text_of(text))], []
    except ValueError as error:
        return [nodes.Text(text)], [inliner.reporter.error(f"figure: {error}", line=lineno)]


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the role."""
    app.add_role("figure", figure)
    return {"parallel_read_safe": True, "parallel_write_safe": True, "version": "1"}
