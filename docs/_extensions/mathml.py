"""Equations as MathML, which browsers draw by themselves: no script, no font and no server are needed.

Pages write LaTeX between ``$`` or ``$$``. A command that has no MathML is an error of the build.
"""

from __future__ import annotations

import re
from html import escape
from typing import Any

from docutils import nodes
from latex2mathml import exceptions
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.util import logging

LOGGER = logging.getLogger(__name__)
MALFORMED = (*(each for each in vars(exceptions).values() if isinstance(each, type)), IndexError)
INEXPRESSIBLE = re.compile(r"<m[io]>(\\\w+|&)</m[io]>")


def mathml(latex: str, display: str) -> str:
    """Return the MathML element of an equation.

    Parameters
    ----------
    latex : str
        The equation, without delimiters.
    display : {"inline", "block"}
        Within a line, or on lines of its own.

    Raises
    ------
    ValueError
        If the LaTeX is malformed, or has a command that MathML cannot express.
    """
    try:
        found = convert(latex, display=display)
    except MALFORMED as error:
        raise ValueError(f"malformed equation ({type(error).__name__}): {latex}") from error
    if unknown := INEXPRESSIBLE.findall(found):
        raise ValueError(f"{', '.join(unknown)} has no MathML in the equation: {latex}")
    return found.replace("<math ", f'<math alttext="{escape(latex, quote=True)}" ', 1)


def _body(latex: str, node: nodes.Element, display: str) -> str:
    try:
        return mathml(latex, display)
    except ValueError as error:
        LOGGER.warning(str(error), location=node)
        return escape(latex)


def visit_inline(translator: Any, node: nodes.math) -> None:
    """Write an equation within a line."""
    translator.body.append(_body(node.astext(), node, "inline"))
    raise nodes.SkipNode


def visit_block(translator: Any, node: nodes.math_block) -> None:
    """Write an equation on lines of its own, in a box that scrolls where the window is too narrow."""
    translator.body.append(f'<div class="equation">{_body(node.astext(), node, "block")}</div>\n')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the renderer; `html_math_renderer` chooses it by its name."""
    app.add_html_math_renderer("mathml", inline_renderers=(visit_inline, None), block_renderers=(visit_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True, "version": "1"}
