"""The tutorial and the page of evaluations work as they stand: files, programs and commands, in one folder."""

import contextlib
import io
import re
import shlex
import sys

import pytest

from penstock.cli import main
from tests.commands import read
from tests.places import DOCS
from tests.scripts import run_code, with_small_budgets
from tools import outputs

SHOWS_UNTIL_STOPPED = ("dashboard",)
STEPS = 3_000


def run_command(line: str) -> str:
    """Run a command of `penstock`, with a small budget and few episodes; of one that never ends only read the flags."""
    command = shlex.split(line)
    if command[1] in SHOWS_UNTIL_STOPPED:
        read(command)
        return ""
    line = re.sub(r"(--total-steps) (\d+)", lambda found: f"{found[1]} {int(found[2]) * STEPS // 100_000}", line)
    line = re.sub(r"(--episodes) \d+", r"\1 2", line)
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        assert main(shlex.split(line)[1:]) == 0, line
    return printed.getvalue()


def run_page(page, folder) -> tuple[str, set[str]]:
    """Run the blocks of a page in a folder, and compare what they print with the outputs that the page shows.

    Returns what its scripts print, and the names of its commands.
    """
    printed, ran = [], set()
    with contextlib.chdir(folder):
        for found in outputs.BLOCK.finditer(page.read_text()):
            if name := re.match(r"# (\w+\.py)\n", found["text"]):
                (folder / name[1]).write_text(found["text"])
                continue
            shown = ""
            if found["language"] == "python":
                shown = run_code(with_small_budgets(found["text"], STEPS), folder)
                printed.append(shown)
            elif found["language"] == "bash":
                commands = [line for line in found["text"].splitlines() if line.startswith("penstock ")]
                shown = "".join(map(run_command, commands))
                ran |= {line.split()[1] for line in commands}
            if found["output"] is not None:
                last = "".join(shown.splitlines(keepends=True)[-int(found["last"] or 0) :])
                assert outputs.shape(last).replace("missed", "moored") == outputs.shape(found["output"])
    return "".join(printed), ran


@pytest.mark.long
@pytest.mark.timeout(240)
@pytest.mark.usefixtures("kept_launcher")
def test_every_block_works_after_those_before_it_and_prints_what_the_page_shows(tmp_path, monkeypatch):
    pytest.importorskip("av")  # of the film
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "ferry", raising=False)
    printed, ran = run_page(DOCS / "start" / "tutorial.md", tmp_path)
    assert ran == {"train", "runs", "plot", "dashboard", "eval", "resume", "doctor"}
    assert len(outputs.outputs((DOCS / "start" / "tutorial.md").read_text())) == 6
    assert re.search(r"(moored|missed) after \d+ steps", printed)
    assert (tmp_path / "ferry.mp4").stat().st_size > 1000


@pytest.mark.long
@pytest.mark.timeout(240)
@pytest.mark.usefixtures("kept_launcher")
def test_every_block_of_the_page_of_evaluations_works_after_those_before_it(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "worlds", raising=False)
    printed, _ = run_page(DOCS / "guides" / "evaluating.md", tmp_path)
    assert re.search(r"2 \d+ [\d.]+\nCartPole-v1\s*$", printed)
    assert (tmp_path / "episode.gif").read_bytes()[:3] == b"GIF"


def test_outputs_are_refreshed_behind_the_blocks_that_print_them(tmp_path):
    page = (
        "<!-- file: space.toml -->\n```toml\na = 1\n```\n\n```bash\nnot run\n```\n\n"
        "```python\nprint(open('space.toml').read())\n```\n\n<!-- output -->\n\n```text\nold\n```\n\n"
        "```bash\necho one; echo two; echo three\n```\n\n<!-- output: last 2 -->\n\n```text\nold\n```\n"
    )
    assert outputs.refreshed(page, tmp_path) == page.replace("old", "a = 1", 1).replace("old", "two\nthree")
    assert outputs.outputs(page) == ["old\n", "old\n"]
    with pytest.raises(RuntimeError, match="exit code 3 of a block of bash"):
        outputs.refreshed("```bash\nexit 3\n```\n\n<!-- output -->\n\n```text\n```\n", tmp_path)


def test_the_shape_of_an_output_has_no_numbers_no_roles_and_no_widths():
    first = "done after 100,173 steps and 1:29, mean return -0.45\n limited by\n ──────\n learner"
    other = "done after 2,010 steps and 2.9 s, mean return 0.5\n  limited by\n ──────────────\n rollout workers"
    assert outputs.shape(first) == outputs.shape(other)
    assert outputs.shape(first) != outputs.shape(first.replace("steps", "frames"))
