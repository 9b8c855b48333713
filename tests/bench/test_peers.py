"""Search and installation of peers, and the machine of each figure."""

import subprocess
import sys
from pathlib import Path

import pytest
from comparing import peers
from comparing.peers import CPPRB, FASTER_FIFO, SAMPLE_FACTORY, STABLE_BASELINES3

from penstock.bench import BenchError
from penstock.cli import main
from penstock.runs.machine import commit_of, describe, machine_facts
from tests.places import ROOT


@pytest.fixture(autouse=True)
def empty_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for peer in (CPPRB, SAMPLE_FACTORY):
        monkeypatch.delenv(peer.variable, raising=False)


@pytest.fixture
def commands(monkeypatch):
    """Record commands instead of running them."""
    done = []

    def run(command, **_):
        done.append(command)
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(peers.subprocess, "run", run)
    for peer in (CPPRB, SAMPLE_FACTORY):
        (peers._cache() / f"{peer.name}-{peer.version}").mkdir(parents=True)
    return done


def test_the_flag_wins_over_the_variable(monkeypatch):
    monkeypatch.setenv("PENSTOCK_BENCH_CPPRB", "/b/python")
    assert CPPRB.find(Path("/a/python"), install=True) == Path("/a/python")
    assert CPPRB.find(None, install=True) == Path("/b/python")


def test_each_peer_has_a_variable_of_its_own():
    assert FASTER_FIFO.variable == "PENSTOCK_BENCH_FASTER_FIFO"
    assert STABLE_BASELINES3.variable == "PENSTOCK_BENCH_STABLE_BASELINES3"


def test_without_anything_there_is_none():
    assert CPPRB.find(None, install=False) is None


def test_it_is_installed_once_in_an_environment_of_its_own(commands, tmp_path):
    python = tmp_path / "penstock" / "peers" / "cpprb-11.0.0" / "bin" / "python"
    assert CPPRB.find(None, install=True) == python
    assert [command[:3] for command in commands] == [[sys.executable, "-m", "venv"], [str(python), "-m", "pip"]]
    assert commands[1][-1] == "cpprb==11.0.0"
    assert CPPRB.find(None, install=True) == python
    assert CPPRB.find(None, install=False) == python
    assert len(commands) == 2


def test_what_undoes_a_pin_is_installed_afterwards(commands):
    SAMPLE_FACTORY.find(None, install=True)
    _, first, second = commands
    assert first[-3:] == ["torch>=2.8,<2.14", "sample-factory==2.1.1", "ale-py==0.12.1"]
    assert second[-2:] == ["numpy<2", "opencv-python==4.11.0.86"]


def test_an_installation_that_fails_says_why_and_is_tried_again(monkeypatch, commands):
    def fail(command, **_):
        return subprocess.CompletedProcess(command, 1, "", "no network\n")

    monkeypatch.setattr(peers.subprocess, "run", fail)
    with pytest.raises(BenchError, match=r"cpprb 11\.0\.0 could not be installed in .*\nno network"):
        CPPRB.find(None, install=True)
    assert CPPRB.find(None, install=False) is None


def test_how_to_get_one_can_be_typed_as_it_stands():
    assert SAMPLE_FACTORY.how_to_get().splitlines() == [
        "no comparison: sample-factory 2.1.1 is needed in a separate environment, either",
        "  python bench/throughput.py --install-peers",
        "or",
        "  python -m venv X; X/bin/pip install 'torch>=2.8,<2.14' sample-factory==2.1.1 ale-py==0.12.1; "
        "X/bin/pip install 'numpy<2' opencv-python==4.11.0.86",
        "  python bench/throughput.py --sample-factory X/bin/python    (or PENSTOCK_BENCH_SAMPLE_FACTORY=X/bin/python)",
    ]


def test_programs_of_peers_are_in_the_source_and_not_in_the_package():
    for name in ("bare_cartpole.py", "faster_fifo_messages.py", "sample_factory_throughput.py", "sb3_throughput.py"):
        assert peers.program(name).is_file()
        assert not [*(ROOT / "penstock").rglob(name)]


@pytest.mark.parametrize(
    ("args", "command"),
    [
        (["replay", "--quick"], "python bench/replay.py --quick"),
        (
            ["throughput", "--install-peers", "--workload", "pong"],
            "python bench/throughput.py --install-peers --workload pong",
        ),
        (["throughput", "--sample_factory=x y"], "python bench/throughput.py '--sample_factory=x y'"),
        (["ipc"], "python bench/ipc.py"),
        (["ipc", "--faster-fifo", "x"], "python bench/ipc.py --faster-fifo x"),
    ],
)
def test_the_installed_command_names_that_of_the_source_for_a_comparison(args, command, capsys):
    assert main(["bench", *args]) == 2
    said = capsys.readouterr().err
    assert "compares Penstock with other libraries" in said and said.endswith(f"{command}\n")


def test_the_machine_is_described_in_one_line():
    facts = machine_facts()
    assert facts["cores"] >= 1
    assert facts["packages"].keys() >= {"numpy", "torch"}
    assert f"{facts['cores']:g} cores" in describe()
    assert "\n" not in describe()


def test_a_file_outside_of_its_repository_has_no_commit(tmp_path):
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    (tmp_path / "stray.py").touch()
    assert commit_of(tmp_path, "stray.py") is None
