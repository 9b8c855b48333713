"""Program that stands before `penstock` and `python` in PATH when the shell blocks of pages run: test_docs_shell.py.

    python tests/shortened.py penstock train ppo --env CartPole-v1

The command runs as it is given, but for the flags that set how long: what takes minutes takes seconds. A target or a
mark that is therefore missed (exit code 3) is no failure: that trainings learn is tested elsewhere.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

TRAINING_SECONDS = 3
PENSTOCK = {
    "train": {"--max-seconds": TRAINING_SECONDS},
    "resume": {"--max-seconds": TRAINING_SECONDS},
    "eval": {"--episodes": 2},
    "multirun": {"--total-steps": 2_000, "--seeds": 1, "--learning-starts": 500},
    "search": {"--total-steps": 2_000, "--trials": 2, "--seeds": 1, "--jobs": 1},
    "pbt": {"--total-steps": 2_000, "--population": 2, "--pbt-interval": 1_000},
    "autotune": {"--seconds": 10},
    "bench ideal": {"--rounds": 1, "--bench-seconds": 1},
    "bench throughput": {"--rounds": 1, "--seconds": 1},
    "bench cluster": {"--rounds": 1, "--bench-seconds": 1, "--max-nodes": 1},
}
"""Most of what a command may ask for, by its first words."""
SMALL = ("--seeds", "--jobs", "--learning-starts")
"""Flags of `penstock` without which a command is small already."""
SCRIPTS = {
    "a3c_scaling.py": {"--steps": 2_000, "--seeds": 1, "--target": 20, "--workers": 1},
    "asynchrony.py": {"--steps": 50, "--repeats": 1},
    "fake_nodes.py": {"--nodes": 20, "--seconds": 1},
    "learning.py": {"--seeds": 1, "--max-seconds": TRAINING_SECONDS},
    "nodes.py": {"--rounds": 1, "--seconds": 4},
    "policy_lag.py": {"--steps": 2_000, "--seeds": 1, "--lags": 1},
    "population.py": {"--seeds": 1},
    "scaling.py": {"--rounds": 1, "--seconds": 0.2},
    "slow_env.py": {"--rounds": 1, "--seconds": 1, "--workers": 2, "--ways": "central"},
    "startup.py": {"--repeats": 1},
    "steps_to_target.py": {"--seeds": 1, "--set": f"max_seconds={TRAINING_SECONDS}"},
    "trials_on_nodes.py": {"--trials": 2, "--steps": 2_000, "--nodes": 2},
    "updates.py": {"--rounds": 1, "--updates": 8, "--rows": 2_000},
}
"""The same of the scripts in ``bench/``. Of several numbers behind a flag, the first one is kept."""
FIRST_ALONE = ("learning.py",)
"""Scripts of which only the first of several tasks runs; `tests/bench/test_scripts.py` reads the names of all."""
MISSED = 3
TOO_SHORT = "error: no step was learned from within max_seconds"
"""Error of a training that got too little of a busy machine for a step: no fault of the command."""


def shortened(command: Sequence[str]) -> list[str]:
    """Return a command with small budgets."""
    program, *words = command
    if program == "python":
        limits = SCRIPTS.get(Path(words[0]).name, {})
        while Path(words[0]).name in FIRST_ALONE and len(words) > 2 and not words[2].startswith("--"):
            del words[2]
    elif "--help" in words or "--show" in words:
        limits = {}
    else:
        limits = PENSTOCK.get(" ".join(words[:2]), PENSTOCK.get(words[0], {}))
    for flag, most in limits.items():
        if flag in words and not isinstance(most, str):
            place = words.index(flag) + 1
            end = place + 1
            while end < len(words) and not words[end].startswith("--"):
                end += 1
            words[place:end] = [str(min(float(words[place]), most)).removesuffix(".0")]
        elif flag in SMALL and program == "penstock":
            continue
        else:
            words += [flag, str(most)]
    return [program, *words]


def main() -> int:
    """Run the command of the command line; return its exit code."""
    program, *words = shortened(sys.argv[1:])
    start = [] if program == "python" else [Path(sys.executable).parent / "penstock"]
    ended = subprocess.run([sys.executable, *start, *words], stderr=subprocess.PIPE, text=True)
    sys.stderr.write(ended.stderr)
    return 0 if ended.returncode == MISSED or TOO_SHORT in ended.stderr else ended.returncode


if __name__ == "__main__":
    sys.exit(main())
