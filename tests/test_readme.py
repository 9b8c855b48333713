"""What the README shows works: its Python runs, its commands can be read, its links lead somewhere."""

import re
import shlex
import subprocess
import sys
import tomllib

import pytest

from penstock.algorithms import ALGORITHMS
from tests.commands import commands, read
from tests.places import DOCS, ROOT

PAGES = [ROOT / "README.md", DOCS / "architecture.md"]
README = PAGES[0].read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.DOTALL | re.MULTILINE)


def with_small_budgets(code: str) -> str:
    return re.sub(r"(train\(|total_steps=)[1-9][\d_]*", r"\g<1>2_000", code)


@pytest.mark.timeout(120)
def test_the_python_blocks_run_one_after_the_other_as_one_script(tmp_path):
    script = tmp_path / "readme.py"
    script.write_text(with_small_budgets("\n".join(blocks("python"))))
    run = subprocess.run([sys.executable, script.name], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert re.search(r"\d steps to get home\s*$", run.stdout)


@pytest.mark.parametrize("command", commands(PAGES[0], "penstock"), ids=shlex.join)
def test_the_penstock_command_can_be_read(command):
    read(command)


def test_the_make_targets_are_there():
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    named = [line[1] for line in commands(PAGES[0], "make")]
    assert named
    assert set(named) <= set(targets)


def test_the_extras_to_install_are_there():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    named = re.findall(r"\[([a-z0-9,]+)\]'", "\n".join(blocks("bash")))
    assert named
    assert {extra for group in named for extra in group.split(",")} <= set(extras)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_within_the_repository_lead_somewhere(page):
    targets = re.findall(r"\]\(([^)#]+)", page.read_text())
    missing = [link for link in targets if "://" not in link and not (page.parent / link).exists()]
    assert targets
    assert missing == []


def test_the_algorithm_table_names_every_algorithm():
    table = README.partition("## Algorithms")[2].partition("##")[0]
    assert sorted(name.lower() for name in re.findall(r"^\| \[(\w+)\]", table, re.MULTILINE)) == sorted(ALGORITHMS)
