"""Trains with a run's settings from its newest weights, with another seed: for tasks whose beginning is luck.

    python bench/from_weights.py RUN --seed 1 --total-steps 400000 --run-dir RUNS/after-Pong-1

On Pong, how long a run stays at -20 differs more from seed to seed than anything else does. Runs from the weights of
one that has left it show what two states of the code make of them. The optimiser begins anew.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import penstock


def main() -> None:
    """Take the settings, take the weights, train."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--total-steps", type=int, required=True)
    parser.add_argument("--run-dir", required=True)
    arguments = parser.parse_args()
    settings = json.loads((arguments.run / "config.json").read_text())
    algorithm = settings.pop("algorithm").upper()
    del settings["run"]
    settings |= {"seed": arguments.seed, "total_steps": arguments.total_steps, "run_dir": arguments.run_dir}
    newest = max((arguments.run / "checkpoints").iterdir(), key=lambda path: int(path.name))
    with getattr(penstock, algorithm)(**settings) as trainer:
        trainer.set_parameters(newest)
        print(trainer.train())


if __name__ == "__main__":
    main()
