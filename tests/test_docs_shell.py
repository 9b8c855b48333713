"""The shell blocks of every page run as they stand, one after the other in one folder.

Those of the tutorial and of the page of evaluations run in `test_tutorial.py`, those of the page of deployment in
`test_deployment_page.py`. `tests/shortened.py` stands before `penstock` and `python` in PATH and keeps trainings short.
Commands that need what is not here are listed in `LEFT_OUT`, each with its reason. A command that goes on from nothing
and leaves nothing to go on from (`ONCE`) runs with the first page that shows it.
"""

import contextlib
import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.places import DOC_PAGES, DOCS, ROOT
from tests.scripts import blocks, run_code, with_small_budgets
from tests.shortened import shortened

ELSEWHERE = ("tutorial", "evaluating", "deployment")
PAGES = [*(page for page in DOC_PAGES if page.stem not in ELSEWHERE), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
FENCED = re.compile(r"^```bash\n(.*?)^```", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"(?<=\n\n)(?: {4}.*\n)+")
PROGRAMS = ("penstock ", "python ", "make ", "taskset ", ".venv/bin/")
LIMIT = 600.0
LEFT_OUT = {
    r"^(pip install|python3 -m venv|(OUT=dist )?make )": "installs, or builds the whole",
    r"^(\.venv/bin/)?python (tools/|-m pytest)": "tests and generators, which the suite runs",
    r"^docker ": "needs Docker",
    r"walk\.py:": "names an environment of the reader's own",
    r"--device cuda": "needs a GPU",
    r"^(srun|until srun|head=|ray )|--learner-nodes|--address auto": "needs several machines",
    r"^penstock dashboard": "shows pages until it is stopped; tests/dashboard starts it",
    r"X/bin/python|--install-peers": "needs other libraries, in environments of their own",
    r"(learning\.py (pong|pong-18|breakout|halfcheetah|lunarlander)|on_minatar\.py|population\.py lunarlander)":
        "trains for many minutes to hours; tests/bench reads its flags",
    r"^hf auth|^penstock hub|import-sb3|runs/(imported|fetched)|bench/import_sb3":
        "needs the Hub, or a model of another library; tests/exchange has a stand-in and models",
    r"--cpu-list 0-7|--cpu-list 8-15": "needs 16 cores",
    r"^python bench/torture\.py": "plays stories for minutes; tests/bench/test_torture.py plays its short form",
    r"bench cluster appo --env ALE/Pong": "renders frames for minutes; the same command runs with CartPole on its page",
}  # fmt: skip
ONCE = re.compile(r"^(penstock (train|doctor|autotune|bench) (?!.*--run-dir)|python bench/)", re.DOTALL)
"""Commands that depend on no other of their page, and that no other depends on."""
NEEDED = {
    "mpe2": "mpe2", "lbforaging": "lbforaging", "shimmy": "shimmy", "grid.py": "minigrid", "highway_env": "highway_env",
    "gymnasium_robotics": "gymnasium_robotics", "EnvPool/": "envpool", "HalfCheetah": "mujoco", "Walker2d": "mujoco",
    "asynchrony.py": "mujoco",
}  # fmt: skip
"""Packages without which a command is left out, by a word of the command."""
FILE = re.compile(r"^<!-- file: (\S+) -->\n+```\w+\n(.*?)^```", re.MULTILINE | re.DOTALL)
NAMED = re.compile(r"^```python\n(# (\w+\.py)\n.*?)^```", re.MULTILINE | re.DOTALL)
RUNS = {
    "many-runs": (
        "runs/CartPole-v1-appo-20261121-082732", "runs/CartPole-v1-appo-20261121-093011", "other/runs/one", "runs/ours",
        "runs/theirs",
    ),
    "dashboard": ("runs/ours",),
}  # fmt: skip
"""Runs that a page takes to be there, copies of stored ones."""
TRAINED = {"it-does-not-learn": "runs/my-run"}
"""A run that a page takes to be there, with its weights."""
WITH_PYTHON = ("populations",)
"""Pages whose commands go on from what their Python leaves behind."""


def commands(page: Path) -> list[str]:
    """The commands of a page's shell blocks, those of several lines as one."""
    text = page.read_text()
    indented = (re.sub(r"^ {4}", "", block, flags=re.MULTILINE) for block in INDENTED.findall(FENCED.sub("", text)))
    shown = [*FENCED.findall(text), *(block for block in indented if block.startswith(PROGRAMS))]
    found: list[str] = []
    for line in "".join(shown).splitlines():
        if found and found[-1].endswith("\\"):
            found[-1] += f"\n{line}"
        elif line.strip():
            found.append(line)
    return found


WITH_COMMANDS = [page for page in PAGES if commands(page)]


FIRST_SHOWN = {command: page for page in reversed(WITH_COMMANDS) for command in commands(page)}
"""The first page that shows a command."""


def left_out(command: str, page: Path) -> str | None:
    """Return the reason why a command of a page does not run with the page, or None."""
    if ONCE.match(command) and (first := FIRST_SHOWN[command]) != page:
        return f"runs with {first.relative_to(ROOT)}"
    for pattern, reason in LEFT_OUT.items():
        if re.search(pattern, command):
            return reason
    for word, package in NEEDED.items():
        if word in command and importlib.util.find_spec(package) is None:
            return f"{package} is not installed"
    return None


def run(command: str, folder: Path) -> str:
    """Run a command in bash and return what it prints; fails with its output, and leaves no process behind."""
    env = os.environ | {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        ["bash", "-ec", command], cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, start_new_session=True,
    )  # fmt: skip
    try:
        shown, _ = process.communicate(timeout=LIMIT)
    except subprocess.TimeoutExpired as error:
        pytest.fail(f"{command}\nhas not ended after {LIMIT:g} s:\n{(error.stdout or b'').decode()[-3000:]}")
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert process.returncode == 0, f"{command}\nended with exit code {process.returncode}:\n{shown[-3000:]}"
    return shown


def checkout(folder: Path, page: Path) -> None:
    """Lay out what a reader of a page has in the folder: the benches, its files and runs, and short programs."""
    shutil.copytree(ROOT / "bench", folder / "bench", ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "docs" / "images" / "curves").mkdir(parents=True)
    (folder / "bin").mkdir()
    for program in ("penstock", "python"):
        shim = folder / "bin" / program
        shim.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{ROOT}/tests/shortened.py" {program} "$@"\n')
        shim.chmod(0o755)
    text = page.read_text()
    for name, written in FILE.findall(text):
        (folder / name).write_text(written)
    for written, name in NAMED.findall(text):
        (folder / name).write_text(written)
    stored = sorted((ROOT / "bench" / "history" / "runs" / "cartpole").iterdir())
    for place, run_dir in zip(RUNS.get(page.stem, ()), stored, strict=False):
        shutil.copytree(run_dir, folder / place)
    if page.stem in TRAINED:
        run(f"penstock train ppo --env CartPole-v1 --total-steps 2000 --run-dir {TRAINED[page.stem]}", folder)
    if page.stem in WITH_PYTHON:
        run_code(with_small_budgets(blocks(text, "python"), most=6_000), folder)


def test_commands_are_found_fenced_and_indented():
    assert commands(DOCS / "algorithms" / "ppo.md") == ["penstock train ppo --env CartPole-v1 --target-return 475"]
    assert "penstock runs --json" in commands(DOCS / "guides" / "many-runs.md")


def test_each_reason_to_leave_a_command_out_has_a_command():
    shown = [command for page in WITH_COMMANDS for command in commands(page)]
    assert [each for each in LEFT_OUT if not any(re.search(each, command) for command in shown)] == []
    assert [word for word in NEEDED if not any(word in command for command in shown)] == []


@pytest.mark.parametrize(
    "command, expected",
    [
        ("penstock eval runs/a --episodes 100", "penstock eval runs/a --episodes 2"),
        ("penstock train ppo --env LunarLander-v3", "penstock train ppo --env LunarLander-v3 --max-seconds 3"),
        ("penstock train --help", "penstock train --help"),
        ("penstock multirun a --learning-starts 5000", "penstock multirun a --learning-starts 500 --total-steps 2000"),
        ("penstock search --show runs/search", "penstock search --show runs/search"),
        ("python bench/policy_lag.py", "python bench/policy_lag.py --steps 2000 --seeds 1 --lags 1"),
        ("python bench/learning.py a b --plots c", "python bench/learning.py a --plots c --seeds 1 --max-seconds 3"),
        ("python bench/fake_nodes.py --nodes 9 99 --alone", "python bench/fake_nodes.py --nodes 9 --alone --seconds 1"),
    ],
)
def test_commands_are_shortened_by_what_says_how_long(command, expected):
    assert " ".join(shortened(command.split())) == expected


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("page", WITH_COMMANDS, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_commands_run_one_after_the_other(page, tmp_path):
    reasons = {command: left_out(command, page) for command in commands(page)}
    here = [command for command in commands(page) if reasons[command] is None]
    if not here:
        pytest.skip("; ".join(sorted({reason for reason in reasons.values() if reason is not None})))
    checkout(tmp_path, page)
    for command in here:
        run(command, tmp_path)
