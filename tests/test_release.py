"""A native core that needs a newer processor than its wheel says is found."""

import platform
import shutil
import subprocess
from pathlib import Path

import pytest

from tools.release.check_instructions import check

CODE = """
{chosen} void scale(float* __restrict x, float by, long n) {{ for (long i = 0; i < n; ++i) x[i] *= by; }}
long odd(long n) {{ return n | 1; }}
"""
CHOSEN = '__attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))'

pytestmark = pytest.mark.skipif(
    platform.machine() != "x86_64" or not (shutil.which("g++") and shutil.which("objdump")),
    reason="needs g++ and objdump on x86-64",
)


def library_of(folder: Path, *flags: str, chosen: str = "") -> Path:
    source, library = folder / "code.cpp", folder / "code.so"
    source.write_text(CODE.format(chosen=chosen))
    subprocess.run(["g++", "-O3", "-shared", "-fPIC", *flags, source, "-o", library], check=True, timeout=60)
    return library


def test_versions_that_are_chosen_at_run_time_may_use_newer_instructions(tmp_path, capsys):
    assert check(library_of(tmp_path, chosen=CHOSEN))
    assert "1 functions arch_x86_64_v4" in (shown := capsys.readouterr().out)
    assert "1 functions arch_x86_64_v3" in shown


def test_flags_of_the_builders_machine_are_found(tmp_path, capsys):
    assert not check(library_of(tmp_path, "-march=x86-64-v3"))
    assert "beyond the baseline: _Z5scalePffl: v" in capsys.readouterr().out
    assert check(library_of(tmp_path, "-march=x86-64-v2"))


def test_a_library_without_symbols_is_refused(tmp_path):
    with pytest.raises(SystemExit, match=r"has no symbols: give the library of the build folder"):
        check(library_of(tmp_path, "-s"))
