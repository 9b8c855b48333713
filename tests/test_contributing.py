"""Make targets, files and programs that CONTRIBUTING.md names exist."""

import re

from tests.places import ROOT

TEXT = (ROOT / "CONTRIBUTING.md").read_text()


def test_the_make_targets_are_those_of_the_makefile():
    targets = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)[1].split()
    assert re.findall(r"^\| `make ([\w-]+)` \|", TEXT, re.MULTILINE) == targets


def test_the_files_that_are_named_are_there():
    found = re.findall(r"`((?:[\w.-]+/)+[\w.]*)`", TEXT)
    named = [name for name in found if "NAME" not in name and not name.startswith(("build/", "docs/_build/"))]
    assert len(named) > 15
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_the_programs_to_run_are_there():
    named = re.findall(r"^\.venv/bin/python ([\w/]+\.py)", TEXT, re.MULTILINE)
    assert named
    assert all((ROOT / name).is_file() for name in named)
