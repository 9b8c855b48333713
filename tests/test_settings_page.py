"""docs/settings.md is what the configs say."""

import re
import shlex

from penstock.algorithms import load_algorithm
from penstock.flags import parse_config
from penstock.pages import SETTINGS_PAGE, settings_page


def test_the_page_is_in_step_with_the_configs():
    assert SETTINGS_PAGE.read_text() == settings_page(), "write it anew: python -m penstock.pages"


def test_a_setting_means_the_same_in_python_and_on_the_command_line():
    rows = re.findall(r"^\| `(\w+)=([^`]+)`[^|]*\| `([^`]+)` \|$", settings_page(), re.MULTILINE)
    assert len(rows) == 6
    for name, value, flags in rows:
        config = parse_config(load_algorithm("ppo").Config, ["--env", "CartPole-v1", *shlex.split(flags)], "penstock")
        assert getattr(config, name) == eval(value), flags
