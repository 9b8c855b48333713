"""One slice of a member's training, where each member of a population is a run of its own.

``python -m penstock.engine.slices FILE`` trains the run that a JSON file tells of, up to a number of its steps.
Whatever kills it, the run's newest checkpoint is of before the slice's copy, or of after it: the first is of no more
steps than the slice began with.
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
from penstock.runs.lookup import checkpoint_to_go_on_from

DONE, FAILED, DIVERGED, INTERRUPTED = 0, 1, 4, 130


def train_slice(told: dict[str, Any]) -> int:
    """Train a slice; return the exit code.

    Parameters
    ----------
    told
        ``algorithm``, ``config`` (settings as JSON values, with ``run_dir``), ``settings`` (tunable ones, that hold in
        the slice), ``parent`` (a checkpoint that is copied first, or None), ``begin`` (steps that the run had when the
        slice was decided), ``until`` (steps).
    """
    run = Path(told["config"]["run_dir"])
    algorithm = load_algorithm(told["algorithm"])
    if checkpoint_to_go_on_from(run) is None:
        trainer = Trainer(algorithm, make_config(algorithm.Config, told["config"]))
    else:
        trainer = Trainer.resume(run)
    with trainer:
        steps = trainer.status.steps
        if told["parent"] is not None and steps <= told["begin"]:
            trainer.copy_policy(Path(told["parent"]))
        trainer.set_hyperparameters(told["settings"])
        try:
            if steps < told["until"]:
                trainer.train(told["until"] - steps, quiet=True)
        except TrainingInterrupted:
            return INTERRUPTED
        except TrainingFailed as failure:
            print(f"error: {failure}", flush=True)
            # Of an exception in another process nothing more is known than its story.
            return DIVERGED if "updates in a row were not finite" in str(failure) else FAILED
    return DONE


if __name__ == "__main__":
    sys.exit(train_slice(json.loads(Path(sys.argv[1]).read_text())))
