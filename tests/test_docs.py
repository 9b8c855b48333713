"""Contents of the pages in docs: their Python runs, their links resolve."""

import re
import shlex
import tempfile
from pathlib import Path

import pytest

from tests.commands import commands, read
from tests.places import DOC_PAGES, DOCS, ROOT
from tests.scripts import blocks, run_code, with_small_budgets

pytestmark = pytest.mark.usefixtures("kept_launcher")
PAGES = [*DOC_PAGES, ROOT / "CONTRIBUTING.md"]
COMMANDS = [command for page in PAGES for command in commands(page, "penstock")]
PAGES_OF_ENVIRONMENTS = ("environments", "vector-environments", "simulators", "several-agents")
# Sections of these need other packages, see test_environments_page.py; the tutorial has files and commands.
APART = {
    *(DOCS / "guides" / f"{page}.md" for page in PAGES_OF_ENVIRONMENTS),
    DOCS / "start" / "tutorial.md",
    DOCS / "guides" / "evaluating.md",
}
# Those whose trainings take ten seconds and more.
LONG = {
    DOCS / "guides" / "deployment.md",
    DOCS / "guides" / "training.md",
    DOCS / "reference" / "python" / "policies.md",
    DOCS / "reference" / "python" / "studies.md",
}
FILLING = {DOCS / "algorithms" / "replayed-segments.md"}  # learns only when its sources have 4,000 steps
WITH_PYTHON = [page for page in PAGES if "```python\n" in page.read_text() and page not in APART]
DIRECTIVE = re.compile(r"^\.\. auto\w+:: ([\w.]+)$", re.MULTILINE)


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def anchor(heading: str) -> str:
    """The name that a heading is linked by."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


def test_the_pages_with_python_are_found():
    assert DOCS / "guides" / "replay.md" in WITH_PYTHON


def test_commands_are_found_in_every_kind_of_block():
    shown = {shlex.join(command) for command in COMMANDS}
    on_gpu = "penstock bench throughput --device cuda --workload pong vizdoom"
    assert {"penstock autotune appo --env CartPole-v1", on_gpu} <= shown
    ideal = [command for command in COMMANDS if command[1:3] == ["bench", "ideal"]]
    assert any("--min-efficiency" in command for command in ideal), "on its next line"


@pytest.mark.parametrize("command", COMMANDS, ids=shlex.join)
def test_the_penstock_command_can_be_read(command):
    read(command)


@pytest.mark.long
@pytest.mark.timeout(240)
@pytest.mark.parametrize("page", WITH_PYTHON, ids=name)
def test_the_python_blocks_run_one_after_the_other_as_one_script(page, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # what the page writes goes with the test
    most = 6_000 if page in LONG | FILLING else 2_000
    run_code(with_small_budgets(blocks(page.read_text(), "python"), most), tmp_path)


@pytest.mark.long
def test_the_script_of_stable_baselines3_runs(tmp_path):
    pytest.importorskip("stable_baselines3")
    shown = blocks((DOCS / "start" / "coming-from.md").read_text(), "py")
    script = shown[: shown.index("# python cleanrl")].replace("total_timesteps=100_000", "total_timesteps=2_000")
    assert script.count("stable_baselines3") == 3
    mean = re.search(r"\d+\.\d+", run_code(script, tmp_path))
    assert mean and 1 <= float(mean[0]) <= 500
    assert (tmp_path / "balanced.zip").is_file()


def anchors(page: Path) -> set[str]:
    text = page.read_text()
    return {anchor(heading) for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE)} | set(DIRECTIVE.findall(text))


def leads_somewhere(link: str, page: Path) -> bool:
    file, _, place = link.partition("#")
    target = page.parent / file if file else page
    return target.exists() and (not place or place in anchors(target))


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page):
    links = [link for link in re.findall(r"\]\(([^)]+)\)", page.read_text()) if "://" not in link]
    assert [link for link in links if not leads_somewhere(link, page)] == []


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("evaluate with sampled actions", "--sampled"),
        ("let a recurrent policy act in a loop", "action, state = policy.act(observation, state)"),
        ("layout in which it gets images", "`[N, H, W, C]`"),
        ("costs in memory", "a rollout worker"),
        ("stop at a plateau", "self.since < self.steps"),
        ("make the environment harder while training", "file in `reset`"),
        ("go on from another run's weights", 'algo.set_parameters("runs/base")'),
        ("know whether my environment keeps its contract", "penstock doctor --env"),
    ],
)
def test_a_link_of_the_first_page_leads_to_the_section_with_the_answer(question, answer):
    (row,) = [line for line in (DOCS / "index.md").read_text().splitlines() if question in line]
    file, _, place = row.partition("](")[2].partition(")")[0].partition("#")
    sections = re.split(r"^## ", (DOCS / file).read_text(), flags=re.MULTILINE)
    (section,) = [section for section in sections if anchor(section.partition("\n")[0]) == place]
    assert answer in section


def test_a_page_can_be_read_in_one_go():
    generated = {DOCS / "reference" / "settings.md", DOCS / "benchmarks" / "speed.md"}
    assert [name(page) for page in DOC_PAGES if page.stat().st_size > 20_000 and page not in generated] == []
    assert (DOCS / "how-it-works" / "map.md").stat().st_size <= 15_000, "the map"


def test_links_of_the_readme_reach_every_part_of_the_site():
    readme = (ROOT / "README.md").read_text()
    linked = {(ROOT / link).parent for link in re.findall(r"\]\((docs/[^)#]+\.md)", readme)}
    parts = ("start", "guides", "algorithms", "reference", "how-it-works", "benchmarks")
    assert {DOCS / part for part in parts} <= linked
