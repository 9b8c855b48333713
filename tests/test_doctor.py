"""The doctor finds what stops Penstock here, and says what to do."""

import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest

from penstock import doctor
from penstock.cli import main
from penstock.doctor import CHECKS, TORCH_RANGE, Check, report, run_checks


def found(name: str) -> Check:
    return next(check for check in run_checks() if check.name == name)


@pytest.mark.timeout(60)
def test_a_machine_that_runs_this_suite_has_no_blocker(capsys):
    assert main(["doctor"]) == 0
    out = capsys.readouterr().out
    for name in CHECKS:
        assert name in out
    assert out.endswith("ready to train\n")


def test_a_blocker_exits_with_one_and_says_what_to_do(monkeypatch, capsys):
    blocker = Check("native core", "fail", "cannot be imported", "pip install --force-reinstall penstock")
    monkeypatch.setattr(doctor, "CHECKS", {"native core": lambda: blocker})
    assert main(["doctor"]) == 1
    out = capsys.readouterr().out
    assert "fail  native core  cannot be imported  -> pip install --force-reinstall penstock" in out
    assert "1 blocker" in out


def test_a_warning_is_no_blocker(capsys):
    assert report([Check("cores", "warn", "1 of 2 cores may be used", "expect less")]) == 0
    assert "expect less" in capsys.readouterr().out


def test_a_check_that_breaks_is_a_blocker_itself(monkeypatch):
    def broken() -> Check:
        raise OSError("no such device")

    monkeypatch.setattr(doctor, "CHECKS", {"cuda": broken})
    (check,) = run_checks()
    assert (check.status, check.found) == ("fail", "OSError: no such device")


def test_a_terminal_gets_a_table(monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert report([Check("cores", "ok", "2 of 2"), Check("torch", "fail", "gone", "pip install torch")]) == 1
    out = capsys.readouterr().out
    for words in ("╭", "✓", "✗", "torch", "gone", "pip install torch"):
        assert words in out


def test_another_system_than_linux_is_a_blocker(monkeypatch):
    monkeypatch.setattr("platform.system", lambda: "Darwin")
    check = CHECKS["system"]()
    assert check.status == "fail"
    assert "Penstock needs Linux" in check.advice


@pytest.mark.parametrize("module", ["torch", "gymnasium", "penstock.ipc"])
def test_a_package_that_cannot_be_imported_is_a_blocker(monkeypatch, module):
    monkeypatch.setitem(sys.modules, module, None)
    name = {"penstock.ipc": "native core"}.get(module, module)
    check = CHECKS[name]()
    assert check.status == "fail"
    assert "cannot be imported" in check.found
    assert "pip install" in check.advice


@pytest.mark.parametrize(
    ("version", "status"),
    [("2.7.1", "fail"), ("2.8.0+cu128", "ok"), ("2.13.0a0", "ok"), ("2.14.0", "fail"), ("3.0", "fail")],
)
def test_torch_outside_the_supported_range_is_a_blocker(monkeypatch, version, status):
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(__version__=version, get_num_threads=lambda: 2))
    check = CHECKS["torch"]()
    assert check.status == status
    assert (check.advice == "pip install 'torch>=2.8,<2.14'") is (status == "fail")


def test_the_supported_range_of_torch_is_the_one_that_is_installed_by():
    project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())["project"]
    (low, high) = (".".join(map(str, release)) for release in TORCH_RANGE)
    assert f"torch>={low},<{high}" in project["dependencies"]


def test_a_neighbour_that_cannot_reach_the_memory_is_a_blocker(monkeypatch):
    monkeypatch.setattr(doctor, "_NEIGHBOUR", "raise SystemExit('descriptor 5 is not open')")
    check = CHECKS["native core"]()
    assert check.status == "fail"
    assert "descriptor 5 is not open" in check.found


@pytest.mark.parametrize(("quota", "status"), [(1.5, "warn"), (2.5, "ok")])
def test_a_quota_below_the_cores_is_told_and_warned_of_below_two(monkeypatch, quota, status):
    monkeypatch.setattr("penstock.ipc.cores.cpu_quota", lambda: quota)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1, 2, 3})
    check = CHECKS["cores"]()
    assert check.status == status
    assert f"the cgroup allows the time of {quota}" in check.found


@pytest.mark.parametrize("missing", ["imageio", "av"])
def test_films_need_both_of_their_packages(monkeypatch, missing):
    monkeypatch.setitem(sys.modules, missing, None)
    check = CHECKS["extras"]()
    assert "video" in check.found.partition("not installed:")[2]
    assert "pip install 'penstock[video]'" in check.advice


@pytest.mark.parametrize(
    ("extra", "package"),
    [("mujoco", "gymnasium[mujoco]"), ("vizdoom", "penstock[vizdoom]"), ("envpool", "penstock[envpool]")],
)
def test_an_extra_that_is_not_installed_is_named_with_its_install_command(monkeypatch, extra, package):
    monkeypatch.setitem(sys.modules, extra, None)
    check = found("extras")
    assert extra in check.found
    assert package in check.advice
