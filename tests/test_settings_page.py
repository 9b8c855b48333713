"""docs/reference/settings.md agrees with the configs, and flags named by pages exist."""

import dataclasses
import re
import shlex

import pytest

from penstock.algorithms import ALGORITHMS, load_algorithm
from penstock.cli import main
from penstock.flags import EvalFlags, field_documents, own_documents, parse_config
from tests.places import DOCS
from tools.command_page import COMMAND_PAGE, command_page
from tools.pages import SETTINGS_PAGE, settings_page

CONFIGS = [load_algorithm(name).Config for name in ALGORITHMS]
SYMPTOMS = DOCS / "guides" / "it-does-not-learn.md"


def test_the_page_is_in_step_with_the_configs():
    assert SETTINGS_PAGE.read_text() == settings_page(), "write it anew: python tools/pages.py"


def test_the_page_of_the_command_line_is_in_step_with_the_commands():
    assert COMMAND_PAGE.read_text() == command_page(), "write it anew: python tools/command_page.py"


@pytest.mark.parametrize("command", ["runs", "compare", "eval", "hub push", "hub pull", "import-sb3"])
def test_the_page_names_flags_and_places_as_the_help_does(command, capsys):
    assert main([*command.split(), "--help"]) == 0
    shown = re.sub(r"[\s│,]+", " ", capsys.readouterr().out)
    section = command_page().partition(f"## penstock {command}\n")[2].partition("\n## ")[0]
    names = set(re.findall(r"^\| `(\S+)`", section, re.MULTILINE)) - {"DIRS"}  # of which there may be several
    assert names and {name for name in names if f" {name} " not in shown} == set()
    assert {use for use in re.findall(r"`(penstock [^`]+)`", shown)} <= set(re.findall(r"`(penstock [^`]+)`", section))


def test_a_setting_means_the_same_in_python_and_on_the_command_line():
    rows = re.findall(r"^\| `(\w+)=([^`]+)`[^|]*\| `([^`]+)` \|$", settings_page(), re.MULTILINE)
    assert len(rows) == 6
    for name, value, flags in rows:
        config = parse_config(load_algorithm("ppo").Config, ["--env", "CartPole-v1", *shlex.split(flags)], "penstock")
        assert getattr(config, name) == eval(value), flags


def test_the_symptoms_name_flags_that_there_are():
    named = set(re.findall(r"`--([\w-]+)", SYMPTOMS.read_text()))
    fields = {field.name for owner in [*CONFIGS, EvalFlags] for field in dataclasses.fields(owner)}
    flags = {f"{no}{name}".replace("_", "-") for name in fields for no in ("", "no-")}
    assert len(named) > 20
    assert named - flags == set()


def test_a_setting_is_described_once_and_inherits_its_description():
    owners = {owner for config in CONFIGS for owner in config.__mro__ if dataclasses.is_dataclass(owner)}
    for owner in owners:
        for name, text in own_documents(owner).items():
            inherited = [field_documents(base).get(name) for base in owner.__bases__ if dataclasses.is_dataclass(base)]
            assert text not in inherited, f"{owner.__name__}.{name} repeats the docstring that it inherits"
