"""The tutorial and the page of evaluations work as they stand: files, programs and commands, in one folder."""

import contextlib
import re
import shlex
import sys

import pytest

from penstock.cli import main
from tests.commands import read
from tests.places import DOCS
from tests.scripts import run_code, with_small_budgets

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.DOTALL | re.MULTILINE)
SHOWS_UNTIL_STOPPED = ("dashboard",)
STEPS = 3_000


def run_command(line: str) -> None:
    """Run a command of `penstock`, with a small budget and few episodes; of one that never ends only read the flags."""
    command = shlex.split(line)
    if command[1] in SHOWS_UNTIL_STOPPED:
        read(command)
        return
    line = re.sub(r"(--total-steps) (\d+)", lambda found: f"{found[1]} {int(found[2]) * STEPS // 100_000}", line)
    line = re.sub(r"(--episodes) \d+", r"\1 2", line)
    line += " --seconds 0" if command[1] == "doctor" else ""
    assert main(shlex.split(line)[1:]) == 0, line


def run_page(page, folder) -> tuple[str, set[str]]:
    """Run the blocks of a page in a folder; return what its programs print, and the names of its commands."""
    printed, ran = [], set()
    with contextlib.chdir(folder):
        for language, text in BLOCK.findall(page.read_text()):
            if language == "python" and (name := re.match(r"# (\w+\.py)\n", text)):
                (folder / name[1]).write_text(text)
            elif language == "python":
                printed.append(run_code(with_small_budgets(text, STEPS), folder))
            elif language == "bash":
                commands = [line for line in text.splitlines() if line.startswith("penstock ")]
                for line in commands:
                    run_command(line)
                ran |= {line.split()[1] for line in commands}
    return "".join(printed), ran


@pytest.mark.timeout(240)
@pytest.mark.usefixtures("kept_launcher")
def test_every_block_works_after_those_before_it(tmp_path, monkeypatch):
    pytest.importorskip("av")  # of the film
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "ferry", raising=False)
    printed, ran = run_page(DOCS / "start" / "tutorial.md", tmp_path)
    assert ran == {"train", "runs", "plot", "dashboard", "eval", "resume", "doctor"}
    assert re.search(r"(moored|missed) after \d+ steps", printed)
    assert (tmp_path / "ferry.mp4").stat().st_size > 1000


@pytest.mark.timeout(240)
@pytest.mark.usefixtures("kept_launcher")
def test_every_block_of_the_page_of_evaluations_works_after_those_before_it(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "worlds", raising=False)
    printed, _ = run_page(DOCS / "guides" / "evaluating.md", tmp_path)
    assert re.search(r"2 \d+ [\d.]+\nCartPole-v1\s*$", printed)
    assert (tmp_path / "episode.gif").read_bytes()[:3] == b"GIF"
