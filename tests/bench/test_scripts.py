"""The scripts in bench/ read the commands that the pages and they themselves name them by."""

import argparse
import re
import runpy
import shlex
import sys
import time
import tomllib
from importlib.metadata import packages_distributions
from types import SimpleNamespace

import pytest

from bench import nodes
from tests.places import BENCH, DOC_PAGES, ROOT

SCRIPTS = sorted(path.name for path in BENCH.glob("*.py") if "argparse" in path.read_text())
PAGES = [*DOC_PAGES, ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
COMMAND = re.compile(r"^ {4}python bench/(.*?)$|`python bench/(.*?)`", re.MULTILINE)
COMMANDS = sorted({indented or quoted for page in PAGES for indented, quoted in COMMAND.findall(page.read_text())})


class IsReadError(Exception):
    """The command line was read."""


@pytest.fixture
def start(monkeypatch):
    """Run a script as far as it has read its command line."""
    parse = argparse.ArgumentParser.parse_args

    def parse_and_stop(parser: argparse.ArgumentParser) -> None:
        parse(parser)
        raise IsReadError

    def start(command: str) -> None:
        script, *flags = shlex.split(command)
        monkeypatch.setattr("sys.argv", [script, *flags])
        runpy.run_path(str(BENCH / script), run_name="__main__")

    monkeypatch.syspath_prepend(str(BENCH))
    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parse_and_stop)
    return start


def test_commands_are_found_indented_and_in_tables():
    assert {"learning.py pong-18", "slow_env.py --seconds 3 --rounds 3", "startup.py"} <= set(COMMANDS)
    assert any("policy_lag.py" in command for command in COMMANDS), "in a sentence"


@pytest.mark.parametrize("command", COMMANDS)
def test_a_documented_command_can_be_read(start, command):
    with pytest.raises(IsReadError):
        start(command)


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_has_the_flags_that_it_shows(start, script, capsys):
    with pytest.raises(SystemExit, match="0"):
        start(f"{script} --help")
    shown = capsys.readouterr().out
    usage, _, described = shown.partition(f"python bench/{script}")
    assert described, "its docstring shows no command"
    named = set(re.findall(r"--[a-z0-9-]+", described.partition("\n\n")[0]))
    assert named <= set(re.findall(r"--[a-z0-9-]+", usage))


def test_no_script_hides_a_package_that_it_may_import():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    named = {re.split(r"[^\w-]", each)[0].replace("-", "_") for group in extras.values() for each in group}
    scripts = {script.stem for folder in ("bench", "examples") for script in (ROOT / folder).glob("*.py")}
    assert not scripts & (named | set(packages_distributions()) | sys.stdlib_module_names)


class Trained:
    """Trainer whose steps on a node stand still."""

    def __init__(self, *_, backend="local", **__):
        node = SimpleNamespace(nbytes=0, steps=0, weights_nbytes=0)
        self.status, self.is_node = SimpleNamespace(steps=0, nodes=[node], policy_lag_mean=0.0), backend == "ray"

    def train(self, **_):
        time.sleep(0.001)
        self.status.steps += 0 if self.is_node else 100

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None


def test_a_node_without_a_step_misses_the_marks_and_is_named(monkeypatch, capsys):
    monkeypatch.setattr(nodes, "Trainer", Trained)
    monkeypatch.setattr(sys, "argv", ["nodes.py", "--rounds", "1", "--seconds", "1"])
    assert nodes.main() == 3
    assert "no step was learned from within 1 s (node): raise --seconds" in capsys.readouterr().out
