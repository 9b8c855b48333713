"""deploy/slurm.sh, with commands of SLURM, Ray and Penstock replaced: three nodes join in turn."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from tests.places import ROOT

COMMANDS = {
    "scontrol": "printf 'one\\ntwo\\nthree\\n'",
    # Runs the command once for each task that it is asked for, without options.
    "srun": """
for each in "$@"; do case "$1" in --ntasks=*) tasks=${1#*=};; -w) shift;; -*) ;; *) break;; esac; shift; done
for number in $(seq $tasks); do "$@" & done
trap 'kill -USR1 $!' USR1
while kill -0 $! 2> /dev/null; do wait -n; code=$?; done
exit $code""",
    # The head begins late, so that the other nodes find none at first; then they join one after the other.
    "ray": """
case "$*" in
    *--head*) $SLEEP 0.4; echo head >> joined;;
    *) [ -s joined ] || { echo early >> refused; exit 1; }; (flock 9; $SLEEP 0.2; echo "$@" >> joined) 9> lock;;
esac
exec tail -f /dev/null""",
    "sleep": "$SLEEP 0.05",
    "python": f"""
exec {sys.executable} "$@"
""",
    # Nothing is there to be resumed; a training that is asked to be long is ended by a signal.
    "penstock": """
[ "$1" != runs ] || exit 1
cp joined trained; echo "$@" > command
[ -z "$LONG" ] || { trap 'exit 130' USR1; while :; do $SLEEP 0.05; done; }""",
    "sbatch": 'echo "$@" > submitted',
}
RAY = """
from pathlib import Path
def init(**settings): pass
def nodes(): return [{"Alive": True} for line in Path("joined").read_text().splitlines()]
"""


@pytest.fixture
def start(tmp_path) -> Iterator[Callable[..., subprocess.Popen]]:
    """Start of the script in a job of three nodes."""
    started = []
    (tmp_path / "deploy").symlink_to(ROOT / "deploy")
    for name, body in COMMANDS.items():
        command = tmp_path / name
        command.write_text(f"#!/bin/bash\n{body}\n")
        command.chmod(0o755)
    (tmp_path / "ray.py").write_text(RAY)
    (tmp_path / "joined").touch()

    def start(**environment: str) -> subprocess.Popen:
        started.append(subprocess.Popen(
            ["bash", "deploy/slurm.sh"], cwd=tmp_path, start_new_session=True,
            env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": str(tmp_path),
                 "SLEEP": str(shutil.which("sleep")), "SLURM_JOB_NODELIST": "n[1-3]", "SLURM_NNODES": "3", "LONG": "",
                 **environment},
        ))  # fmt: skip
        return started[-1]

    yield start
    for process in started:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.mark.timeout(60)
def test_the_script_for_slurm_trains_once_all_nodes_have_joined_and_not_before(start, tmp_path):
    assert start(RUN="s3://bucket/run").wait(timeout=50) == 0
    joined = ["head", *["start --address=one:6379 --block"] * 2]
    assert (tmp_path / "trained").read_text().splitlines() == joined
    assert "early" in (tmp_path / "refused").read_text()  # who came before the head has tried again
    assert "--nodes 2 --run-dir s3://bucket/run" in (tmp_path / "command").read_text()
    assert not (tmp_path / "submitted").exists()


@pytest.mark.timeout(60)
def test_a_training_that_is_out_of_time_saves_and_another_job_is_submitted(start, tmp_path):
    process = start(LONG="yes")
    while not (tmp_path / "command").exists():
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGUSR1)
    assert process.wait(timeout=50) == 130
    assert (tmp_path / "submitted").read_text().strip().endswith("deploy/slurm.sh")
