"""Scripts as users start them, run within the tests' own process: what they import is imported once for all of them."""

import contextlib
import io
import os
import re
import runpy
import sys
from pathlib import Path
from unittest.mock import patch


def run_script(script: Path, *arguments: str, folder: Path) -> str:
    """Run a file as ``__main__`` in a folder, and return what it prints."""
    with (
        contextlib.chdir(folder),
        patch.object(sys, "argv", [os.fspath(script), *arguments]),
        patch.object(sys, "path", [os.fspath(script.parent), *sys.path]),
        contextlib.redirect_stdout(io.StringIO()) as printed,
    ):
        runpy.run_path(os.fspath(script), run_name="__main__")
    return printed.getvalue()


def run_code(code: str, folder: Path) -> str:
    """Run code as a script of its own in a folder, and return what it prints."""
    script = folder / "page.py"
    script.write_text(code)
    return run_script(script, folder=folder)


def with_small_budgets(code: str, most: int) -> str:
    """Code whose trainings end after `most` steps at the latest."""

    def smaller(found: re.Match[str]) -> str:
        return f"{found[1]}{min(int(found[2]), most)}"

    return re.sub(r"(train\(|total_steps=)([1-9][\d_]*)", smaller, code)


def blocks(text: str, language: str) -> str:
    """All blocks of a language that a page shows, one after the other."""
    return "\n".join(re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE))
