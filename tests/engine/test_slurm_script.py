"""The SLURM script of docs/guides/clusters.md, with commands of SLURM and Ray replaced: three nodes join in turn."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.places import ROOT

COMMANDS = {
    "scontrol": "printf 'one\\ntwo\\nthree\\n'",
    # Runs the command once for each task that it is asked for, without options.
    "srun": """
for each in "$@"; do case "$1" in --ntasks=*) tasks=${1#*=};; -w) shift;; -*) ;; *) break;; esac; shift; done
for number in $(seq $tasks); do "$@" & done
wait -n""",
    # The head begins late, so that the other nodes find none at first; then they join one after the other.
    "ray": """
case "$*" in
    *--head*) $SLEEP 0.4; echo head >> joined;;
    *) [ -s joined ] || { echo early >> refused; exit 1; }; (flock 9; $SLEEP 0.2; echo "$@" >> joined) 9> lock;;
esac
exec tail -f /dev/null""",
    "sleep": "$SLEEP 0.05",
    "python": f"""
case "$1" in -c) exec {sys.executable} "$@";; *) cp joined trained;; esac""",
}
RAY = """
from pathlib import Path
def init(**settings): pass
def nodes(): return [{"Alive": True} for line in Path("joined").read_text().splitlines()]
"""


@pytest.mark.timeout(60)
def test_the_script_for_slurm_trains_once_all_nodes_have_joined_and_not_before(tmp_path):
    page = (ROOT / "docs" / "guides" / "clusters.md").read_text()
    script = page[page.index("head=$(scontrol") :].partition("```")[0]
    for name, body in COMMANDS.items():
        command = tmp_path / name
        command.write_text(f"#!/bin/bash\n{body}\n")
        command.chmod(0o755)
    (tmp_path / "ray.py").write_text(RAY)
    Path(tmp_path / "joined").touch()
    process = subprocess.Popen(
        ["bash", "-c", script], cwd=tmp_path, start_new_session=True,
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": str(tmp_path),
             "SLEEP": str(shutil.which("sleep")),
             "SLURM_JOB_NODELIST": "n[1-3]", "SLURM_NNODES": "3"},
    )  # fmt: skip
    try:
        assert process.wait(timeout=50) == 0
    finally:
        os.killpg(process.pid, signal.SIGKILL)
    joined = ["head", *["start --address=one:6379 --block"] * 2]
    assert (tmp_path / "trained").read_text().splitlines() == joined
    assert "early" in (tmp_path / "refused").read_text()  # who came before the head has tried again
