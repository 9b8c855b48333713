"""The doctor finds obstacles to Penstock on this machine, and their remedies."""

import errno
import multiprocessing
import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import metadata, version
from types import SimpleNamespace

import pytest
from packaging.requirements import Requirement

from penstock import extras as penstock_extras
from penstock.cli import main
from penstock.doctor import Check, machine, report
from penstock.doctor.machine import CHECKS, TORCH_RANGE, run_checks
from penstock.extras import extra_with, missing_from
from tests.places import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.mark.long
@pytest.mark.timeout(60)
def test_a_machine_that_runs_this_suite_has_no_blocker(capsys):
    assert main(["doctor"]) == 0
    out = capsys.readouterr().out
    for name in CHECKS:
        assert name in out
    assert out.endswith("ready to train\n")


def test_a_blocker_exits_with_one_and_says_what_to_do(monkeypatch, capsys):
    blocker = Check("native core", "fail", "cannot be imported", "pip install --force-reinstall WHEEL_OR_CHECKOUT")
    monkeypatch.setattr(machine, "CHECKS", {"native core": lambda: blocker})
    assert main(["doctor"]) == 1
    out = capsys.readouterr().out
    assert "fail  native core  cannot be imported  -> pip install --force-reinstall WHEEL_OR_CHECKOUT" in out
    assert "1 blocker" in out


def test_a_warning_is_no_blocker(capsys):
    assert report([Check("cores", "warn", "1 of 2 cores may be used", "expect less")]) == 0
    assert "expect less" in capsys.readouterr().out


def test_a_check_that_breaks_is_a_blocker_itself(monkeypatch):
    def broken() -> Check:
        raise OSError("no such device")

    monkeypatch.setattr(machine, "CHECKS", {"cuda": broken})
    (check,) = run_checks()
    assert (check.status, check.found) == ("fail", "OSError: no such device")


def test_a_small_or_full_dev_shm_is_said_with_what_needs_it(monkeypatch):
    look = CHECKS["/dev/shm"]
    monkeypatch.setattr(machine.os, "statvfs", lambda _: SimpleNamespace(f_bavail=16_384, f_frsize=4_096))
    assert (look().status, look().found) == ("ok", "64 MiB free") and "--shm-size=1g" in look().advice
    monkeypatch.setattr(machine.os, "statvfs", lambda _: SimpleNamespace(f_bavail=2**20, f_frsize=4_096))
    assert look() == Check("/dev/shm", "ok", "4,096 MiB free")
    monkeypatch.setattr(multiprocessing.context.ForkContext, "Lock", full)
    assert look().status == "warn" and "No space left on device" in look().found


def full(_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


TRAINING_WITHOUT_SHARED_FILES = """
mount -t tmpfs -o size=4k,ro tmpfs /dev/shm || exit 77
exec "$0" -m penstock.cli train ppo --env CartPole-v1 --run-dir None --num-workers 2 --total-steps 512 \
    --segment-length 32 --eval-interval 0
"""


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_training_needs_no_dev_shm():
    if shutil.which("unshare") is None:
        pytest.skip("no unshare")
    command = ["unshare", "--mount", "sh", "-c", TRAINING_WITHOUT_SHARED_FILES, sys.executable]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 77 or "unshare failed" in done.stderr:
        pytest.skip(f"this user may not mount: {done.stderr}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "done after 512 steps" in done.stdout


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
    (low, high) = (".".join(map(str, release)) for release in TORCH_RANGE)
    assert f"torch>={low},<{high}" in PROJECT["dependencies"]


def test_a_neighbour_that_cannot_reach_the_memory_is_a_blocker(monkeypatch):
    monkeypatch.setattr(machine, "_NEIGHBOUR", "raise SystemExit('descriptor 5 is not open')")
    check = CHECKS["native core"]()
    assert check.status == "fail"
    assert "descriptor 5 is not open" in check.found


@pytest.mark.parametrize(("quota", "status"), [(1.5, "warn"), (2.5, "ok")])
def test_a_quota_below_the_cores_is_told_and_warned_of_below_two(monkeypatch, quota, status):
    monkeypatch.setattr("penstock.ipc.limits.cpu_quota", lambda: quota)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1, 2, 3})
    check = CHECKS["cores"]()
    assert check.status == status
    assert f"the cgroup allows {quota} cores'" in check.found


@pytest.mark.long
def test_every_extra_of_the_installed_package_is_listed_with_the_packages_that_are_missing():
    check = CHECKS["extras"]()
    there, _, missing = check.found.partition("; not installed: ")
    listed = set(re.findall(r"[\w-]+", there.removeprefix("installed: "))) | set(re.findall(r"([\w-]+) \(", missing))
    declared = metadata("penstock").get_all("Provides-Extra")
    assert listed == set(declared) - {"all", "dev"}


@pytest.fixture
def declared(monkeypatch):
    """Let an installed package require what is put into this dict."""
    required: dict[str, list[str]] = {}
    monkeypatch.setattr(penstock_extras, "requires", required.get)
    return required


@pytest.mark.parametrize(
    ("required", "missing"),
    [
        ("pytest>=8", ""),
        ("pytest>=8; extra == 'x' and python_version < '3'", ""),
        ("no-such-package>=3,<4", "no-such-package<4,>=3"),
        ("pytest<2", f"pytest<2 (found {version('pytest')})"),
        ("gymnasium[games]", "no-such-game"),
        ("gymnasium[none]", ""),
    ],
)
def test_what_is_missing_from_an_extra_is_found_through_the_extras_of_its_packages(declared, required, missing):
    declared["gymnasium"] = ['no-such-game; extra == "games"', 'other; extra == "others"', "numpy"]
    assert ", ".join(missing_from([Requirement(required)])) == missing


def test_an_extra_that_is_not_whole_is_named_with_what_it_lacks_and_its_install_command(declared):
    declared["penstock"] = [
        "numpy", 'pytest; extra == "there"', 'no-such-package; extra == "mine"', 'penstock[there,mine]; extra == "all"',
    ]  # fmt: skip
    check = CHECKS["extras"]()
    assert check.found == "installed: there; not installed: mine (no-such-package)"
    assert check.advice == "pip install 'penstock[NAME]' installs one, pip install 'penstock[all]' all"


def test_an_extra_whose_modules_cannot_be_imported_is_broken(declared, monkeypatch):
    declared["penstock"] = ['pytest; extra == "mine"']
    monkeypatch.setitem(sys.modules, "pytest", None)
    check = CHECKS["extras"]()
    assert (check.status, check.advice) == ("warn", "reinstall the broken ones")
    assert "broken: mine (" in check.found


def test_a_package_without_metadata_says_so(declared):
    assert CHECKS["extras"]().found == "unknown: the package is not installed"


@pytest.mark.parametrize(
    ("module", "extra"),
    [
        ("mujoco", "mujoco"), ("Box2D", "box2d"), ("ale_py", "atari"), ("dm_control.suite", "dmcontrol"),
        ("gymnasium_robotics", "robotics"), ("highway_env", "highway"), ("jax", "jax"), ("mpe2", "mpe2"),
        ("lbforaging", "lbforaging"), ("vizdoom", "vizdoom"), ("gymnasium", None), ("no_such_module", None),
    ],
)  # fmt: skip
def test_the_extra_that_brings_a_module_is_found_by_its_name(declared, module, extra):
    optional = PROJECT["optional-dependencies"]
    declared["penstock"] = [f'{each}; extra == "{name}"' for name in optional for each in optional[name]]
    assert extra_with(module) == extra


def test_all_has_every_extra_but_those_of_developers():
    optional = PROJECT["optional-dependencies"]
    within = {extra for each in optional["all"] for extra in Requirement(each).extras}
    assert within == set(optional) - {"all", "dev", "docs"}
    assert {"box2d", "mpe2", "lbforaging"} <= within
