"""Contents of the README: its Python runs, its commands can be parsed, its links resolve."""

import re
import shlex
import tomllib

import pytest

from penstock.algorithms import ALGORITHMS
from tests.commands import commands, read
from tests.places import DOCS, ROOT
from tests.scripts import blocks, run_code, with_small_budgets

PAGES = [ROOT / "README.md", DOCS / "how-it-works" / "map.md"]
README = PAGES[0].read_text()


@pytest.mark.timeout(120)
@pytest.mark.usefixtures("kept_launcher")
def test_the_python_blocks_run_one_after_the_other_as_one_script(tmp_path):
    shown = run_code(with_small_budgets(blocks(README, "python"), most=2_000), tmp_path)
    assert re.search(r"\d steps to get home\s*$", shown)


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
    named = re.findall(r"\[([a-z0-9,]+)\]'", blocks(README, "bash"))
    assert named
    assert {extra for group in named for extra in group.split(",")} <= set(extras)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_within_the_repository_lead_somewhere(page):
    targets = re.findall(r"\]\(([^)#]+)", page.read_text())
    missing = [link for link in targets if "://" not in link and not (page.parent / link).exists()]
    assert targets
    assert missing == []


def test_the_table_of_algorithms_names_every_algorithm():
    table = README.partition("## Algorithms")[2].partition("##")[0]
    assert {name for name in ALGORITHMS if re.search(rf"\b{name}\b", table, re.IGNORECASE)} == set(ALGORITHMS)


def test_it_can_be_read_in_one_go():
    assert len(README.splitlines()) <= 200
