"""One slice of a member's training, where each member of a population is a run of its own.

``python -m penstock.engine.slices FILE`` trains the run that a JSON file describes, up to a number of its steps. A
killed slice leaves a checkpoint from before its copy, of no more steps than it began with, or one from after it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from penstock.algorithms import load_algorithm
from penstock.config import make_config
from penstock.engine.endings import TrainingFailed, TrainingInterrupted
from penstock.engine.trainer import Trainer
from penstock.runs.lookup import checkpoint_to_resume
from penstock.runs.run_directory import RunDirectory
from penstock.trust import names_only

DONE, FAILED, DIVERGED, INTERRUPTED = 0, 1, 4, 130


def train_slice(task: dict[str, Any]) -> int:
    """Train a slice; return the exit code.

    Parameters
    ----------
    task
        ``algorithm``, ``config`` (settings as JSON values, with ``run_dir``), ``settings`` (tunable settings of the
        slice), ``parent`` (a checkpoint that is copied first, or None), ``begin`` (steps of the run when the slice was
        decided), ``until`` (steps at the end).
    """
    run = Path(task["config"]["run_dir"])
    algorithm = load_algorithm(task["algorithm"])
    if checkpoint_to_resume(run) is None:
        trainer = Trainer(algorithm, make_config(algorithm.Config, task["config"]))
    else:
        trainer = Trainer.resume(run, trust_code=names_only(RunDirectory.open(run).config, task["config"]))
    with trainer:
        steps = trainer.status.steps
        if task["parent"] is not None and steps <= task["begin"]:
            trainer.copy_policy(Path(task["parent"]))
        trainer.set_hyperparameters(task["settings"])
        try:
            if steps < task["until"] and (problem := trainer.train(task["until"] - steps, quiet=True).save_error):
                print(f"error: the slice could not be saved: {problem}", flush=True)
                return FAILED
        except TrainingInterrupted:
            return INTERRUPTED
        except TrainingFailed as failure:
            print(f"error: {failure}", flush=True)
            # An exception from another process can only be recognised by its text.
            return DIVERGED if "updates in a row were not finite" in str(failure) else FAILED
    return DONE


if __name__ == "__main__":
    sys.exit(train_slice(json.loads(Path(sys.argv[1]).read_text())))
