"""The tutorial works as it stands: its files, programs and commands, one after the other in one folder."""

import contextlib
import re
import shlex
import sys

import pytest

from penstock.cli import main
from tests.commands import read
from tests.places import DOCS
from tests.scripts import run_code, with_small_budgets

PAGE = (DOCS / "start" / "tutorial.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
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
    assert main(shlex.split(line)[1:]) == 0, line


@pytest.mark.timeout(240)
@pytest.mark.usefixtures("kept_launcher")
def test_every_block_works_after_those_before_it(tmp_path, monkeypatch):
    pytest.importorskip("av")  # of the film
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "ferry", raising=False)
    printed, ran = [], []
    with contextlib.chdir(tmp_path):
        for language, text in BLOCKS:
            if language == "python" and (name := re.match(r"# (\w+\.py)\n", text)):
                (tmp_path / name[1]).write_text(text)
            elif language == "python":
                printed.append(run_code(with_small_budgets(text, STEPS), tmp_path))
            elif language == "bash":
                commands = [line for line in text.splitlines() if line.startswith("penstock ")]
                for line in commands:
                    run_command(line)
                ran += [line.split()[1] for line in commands]
    assert {"train", "runs", "plot", "dashboard", "eval", "resume"} == set(ran)
    assert re.search(r"(moored|missed) after \d+ steps", "".join(printed))
    assert (tmp_path / "ferry.mp4").stat().st_size > 1000
