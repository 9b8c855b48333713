"""Outputs that pages show, made by running the blocks before them.

    python tools/outputs.py [--write] [PAGE ...]

A ``text`` block behind ``<!-- output -->`` shows what the block before it prints: a script in Python, or commands of a
shell. ``<!-- output: last 4 -->`` keeps the last four lines. Blocks that begin with ``# NAME.py``, or stand behind
``<!-- file: NAME -->``, are files of the folder in which a page's blocks run, one after the other. Blocks without an
output behind them do not run. Times, rates, process numbers and returns differ from run to run: a page shows those of
its last run, and tests compare the rest (`shape`).
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
BLOCK = re.compile(
    r"(?:<!-- file: (?P<file>\S+) -->\n+)?^```(?P<language>\w+)\n(?P<text>.*?)^```\n"
    r"(?:\n<!-- output(?:: last (?P<last>\d+))? -->\n\n```text\n(?P<output>.*?)^```\n)?",
    re.MULTILINE | re.DOTALL,
)
Run = Callable[[str, str, Path], str]
"""Runs a block, of a language, in a folder, and returns what it prints."""


def run_block(language: str, text: str, folder: Path) -> str:
    """Run a block as a reader does, and return what it prints.

    Raises
    ------
    RuntimeError
        It failed; the message has its output.
    """
    command = [sys.executable, "-c", text] if language == "python" else ["bash", "-ec", text]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        command, cwd=folder, env=os.environ | {"PATH": path, "PYTHONPATH": str(folder)}, text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"exit code {done.returncode} of a block of {language}:\n{text}\n{done.stdout}")
    return done.stdout


def refreshed(page: str, folder: Path, run: Run = run_block) -> str:
    """Return a page's text with the outputs of its blocks.

    Parameters
    ----------
    page : str
        The text of the page.
    folder : Path
        Where its blocks run and its files are written.
    run : Run
        Runs a block.
    """

    def new(found: re.Match[str]) -> str:
        name = found["file"] or (named[1] if (named := re.match(r"# (\w+\.py)\n", found["text"])) else None)
        if name is not None:
            (folder / name).write_text(found["text"])
        if found["output"] is None:
            return found[0]
        lines = [line.rstrip() for line in run(found["language"], found["text"], folder).splitlines()]
        shown = "\n".join(lines[-int(found["last"] or 0) :]).strip("\n")
        start, end = (place - found.start() for place in found.span("output"))
        return f"{found[0][:start]}{shown}\n{found[0][end:]}"

    return BLOCK.sub(new, page)


def outputs(page: str) -> list[str]:
    """Return the outputs that a page shows."""
    return [found["output"] for found in BLOCK.finditer(page) if found["output"] is not None]


def shape(output: str) -> str:
    """Return an output without what differs from run to run: numbers, the limiting role, and the widths of columns."""
    plain = re.sub(r"(rollout|policy) workers?|learner|evaluator|environments?", "ROLE", output)
    return re.sub(r"[\s─]+", " ", re.sub(r"[+-]?\d+([,.:]\d+)*( s\b)?", "0", plain)).strip()


def main() -> None:
    """Refresh pages, or show what is new."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", nargs="*", type=Path, metavar="PAGE", help="of all pages in docs/ by default")
    parser.add_argument("--write", action="store_true", help="write them into the pages")
    asked = parser.parse_args()
    for page in asked.pages or sorted(DOCS.rglob("*.md")):
        text = page.read_text()
        if not outputs(text):
            continue
        with tempfile.TemporaryDirectory() as folder:
            new = refreshed(text, Path(folder))
        if asked.write:
            page.write_text(new)
            print(f"written: {page}")
        else:
            print(f"{page}:", *outputs(new), sep="\n\n")


if __name__ == "__main__":
    main()
