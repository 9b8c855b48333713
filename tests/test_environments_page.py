"""The pages of environments work: each section's Python trains, where the package that it needs is installed."""

import importlib.util
import re
import tomllib

import pytest

from penstock.envs.factories import REQUESTABLE
from tests.places import DOCS, ROOT
from tests.scripts import blocks, run_code

pytestmark = pytest.mark.usefixtures("kept_launcher")

PAGES = {
    name: (DOCS / "guides" / f"{name}.md").read_text()
    for name in ("environments", "vector-environments", "simulators", "several-agents")
}
SECTIONS = dict(
    section.split("\n", 1) for text in PAGES.values() for section in re.split(r"^## ", text, flags=re.MULTILINE)[1:]
)
IMPORTED = {
    "envpool": "envpool", "dmcontrol": "shimmy", "minigrid": "minigrid", "highway": "highway_env",
    "robotics": "gymnasium_robotics",
}  # fmt: skip
SMALL = "total_steps=256, num_workers=1, num_envs_per_worker=2, eval_interval=0"


def short(text: str) -> str:
    return re.sub(r"total_steps=[\d_]+", SMALL, blocks(text, "python"))


def python_of(section: str) -> str:
    return short(SECTIONS[section])


def extra_of(section: str) -> str | None:
    named = re.findall(r"pip install 'penstock\[(\w+)\]'", SECTIONS[section])
    return named[0] if named else None


def test_environments_of_factories_train(tmp_path):
    run_code(short(PAGES["environments"]), tmp_path)


def test_vector_environments_of_ones_own_train(tmp_path):
    assert re.search(r"\d steps to get home\s*$", run_code(python_of("Vector environments of your own"), tmp_path))


def test_several_agents_train_and_their_policy_plays(tmp_path):
    shown = run_code(short(PAGES["several-agents"]), tmp_path)
    assert re.search(r"steps to meet\nmet or late after \d+ steps\s*$", shown)


@pytest.mark.timeout(180)
@pytest.mark.parametrize("section", [section for section in SECTIONS if extra_of(section)])
def test_the_section_of_another_package_trains(section, tmp_path):
    package = IMPORTED[extra_of(section)]
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    assert re.search(r"\d steps \(100%\)", run_code(python_of(section), tmp_path))


def test_the_extras_to_install_are_there():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    named = {extra for section in SECTIONS if (extra := extra_of(section))}
    assert named == set(IMPORTED) <= set(extras)


def test_every_value_that_a_factory_can_ask_for_is_explained():
    assert re.findall(r"^\| `(\w+)` \|", SECTIONS["Factories"], re.MULTILINE) == [*REQUESTABLE, "num_envs"]
