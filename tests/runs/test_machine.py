"""Provenance of a run: machine, command, commit; and GPUs according to NVML."""

import os
import subprocess
import sys
from types import ModuleType, SimpleNamespace

import pytest

from penstock.runs import machine
from penstock.runs.machine import Gpus, commit_of, penstock_commit, this_command, this_machine


def test_the_machine_has_a_name_cores_and_memory():
    found = this_machine()
    assert found["host"] and found["cpu"]
    assert 0 < found["cores"] <= os.cpu_count()
    assert found["memory"] > 2**20


def test_the_command_can_be_given_again(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["/x/bin/penstock", "train", "ppo", "--env", "a b"])
    assert this_command() == "penstock train ppo --env 'a b'"
    monkeypatch.setattr(sys, "argv", ["my.py"])
    monkeypatch.setattr(sys, "orig_argv", ["python", "-X", "dev", "my.py"])
    assert this_command() == "python -X dev my.py"


def test_the_commit_says_whether_files_differ_from_it(tmp_path):
    def git(*args):
        who = ["-c", "user.name=a", "-c", "user.email=a@b"]
        subprocess.run(["git", *who, *args], cwd=tmp_path, check=True, capture_output=True)

    assert commit_of(tmp_path) is None
    git("init")
    (tmp_path / "file").write_text("1")
    git("add", "file")
    git("commit", "-m", "first")
    commit = commit_of(tmp_path)
    assert len(commit) >= 7 and "dirty" not in commit
    (tmp_path / "file").write_text("2")
    assert commit_of(tmp_path) == f"{commit}-dirty"


def test_an_installed_package_has_the_commit_that_its_build_recorded(tmp_path, monkeypatch):
    monkeypatch.setattr(machine, "__file__", str(tmp_path / "penstock" / "runs" / "machine.py"))
    (tmp_path / "penstock" / "runs").mkdir(parents=True)
    assert penstock_commit() is None
    (tmp_path / "penstock" / "commit.txt").write_text("abc1234\n")
    assert penstock_commit() == "abc1234"


@pytest.fixture
def nvml(monkeypatch):
    """NVML of a machine with a whole GPU, a divided one, and one that says little."""
    made = ModuleType("pynvml")

    class NVMLError(Exception):
        pass

    def refuse(*_):
        raise NVMLError

    def mode(handle):
        return refuse() if handle == 2 else (int(handle == 1), 0)

    vars(made).update(
        NVMLError=NVMLError, NVML_DEVICE_MIG_ENABLE=1, nvmlInit=lambda: None, nvmlDeviceGetCount=lambda: 3,
        nvmlDeviceGetHandleByIndex=lambda index: index, nvmlDeviceGetName=lambda handle: "H100",
        nvmlDeviceGetMigMode=mode,
        nvmlDeviceGetMemoryInfo=lambda handle: refuse() if handle == 2 else SimpleNamespace(used=5, total=9),
        nvmlDeviceGetUtilizationRates=lambda handle: refuse() if handle else SimpleNamespace(gpu=75),
    )  # fmt: skip
    monkeypatch.setitem(sys.modules, "pynvml", made)
    made.refuse = refuse
    return made


def test_what_nvml_does_not_say_is_none_and_not_zero(nvml):
    gpus = Gpus()
    assert gpus.names == ["H100", "H100 (MIG)", "H100"]
    assert gpus.sample() == {
        "gpu/0/memory_used": 5, "gpu/0/memory_limit": 9, "gpu/0/busy": 0.75,
        "gpu/1/memory_used": 5, "gpu/1/memory_limit": 9, "gpu/1/busy": None,
        "gpu/2/memory_used": None, "gpu/2/memory_limit": None, "gpu/2/busy": None,
    }  # fmt: skip


def test_a_machine_without_a_driver_has_no_gpus(nvml):
    nvml.nvmlInit = nvml.refuse
    assert (Gpus().names, Gpus().sample()) == ([], {})


def test_without_the_package_there_are_no_gpus(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert Gpus().sample() == {}
