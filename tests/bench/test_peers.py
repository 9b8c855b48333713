"""Where cpprb is looked for, and how it gets there."""

import subprocess
import sys
from pathlib import Path

import pytest

from penstock.bench import BenchError, peers
from penstock.bench.machine import _commit, describe, machine_facts


@pytest.fixture(autouse=True)
def empty_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv(peers.VARIABLE, raising=False)


@pytest.fixture
def commands(monkeypatch):
    """What would have been run."""
    done = []

    def run(command, **_):
        done.append(command)
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(peers.subprocess, "run", run)
    (peers._cache() / "cpprb-11.0.0").mkdir(parents=True)
    return done


def test_the_flag_wins_over_the_variable(monkeypatch):
    monkeypatch.setenv(peers.VARIABLE, "/b/python")
    assert peers.find_cpprb(Path("/a/python"), install=True) == Path("/a/python")
    assert peers.find_cpprb(None, install=True) == Path("/b/python")


def test_without_anything_there_is_none():
    assert peers.find_cpprb(None, install=False) is None


def test_it_is_installed_once_in_an_environment_of_its_own(commands, tmp_path):
    python = tmp_path / "penstock" / "peers" / "cpprb-11.0.0" / "bin" / "python"
    assert peers.find_cpprb(None, install=True) == python
    assert [command[:3] for command in commands] == [[sys.executable, "-m", "venv"], [str(python), "-m", "pip"]]
    assert commands[1][-1] == "cpprb==11.0.0"
    assert peers.find_cpprb(None, install=True) == python
    assert peers.find_cpprb(None, install=False) == python
    assert len(commands) == 2


def test_an_installation_that_fails_says_why_and_is_tried_again(monkeypatch, commands):
    def fail(command, **_):
        return subprocess.CompletedProcess(command, 1, "", "no network\n")

    monkeypatch.setattr(peers.subprocess, "run", fail)
    with pytest.raises(BenchError, match=r"cpprb 11\.0\.0 could not be installed in .*\nno network"):
        peers.find_cpprb(None, install=True)
    assert peers.find_cpprb(None, install=False) is None


def test_the_machine_is_described_in_one_line():
    facts = machine_facts()
    assert facts["cores"] >= 1
    assert facts["packages"].keys() >= {"numpy", "torch"}
    assert f"{facts['cores']} cores" in describe()
    assert "\n" not in describe()


def test_a_file_outside_of_its_repository_has_no_commit(tmp_path):
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    (tmp_path / "stray.py").touch()
    assert _commit(tmp_path / "stray.py") is None
