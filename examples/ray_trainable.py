"""Penstock under Ray Tune: a Trainable around a trainer, for Ray's searches and its population-based training.

    pip install 'ray[tune]'
    python examples/ray_trainable.py [STEPS] [SAMPLES]

Ray restores a trial from another trial's checkpoint with changed settings (population-based training), or from its own
checkpoint on another machine. The trial continues with the weights, the optimiser's state and the steps of the
checkpoint. The current settings of the trial are given to `Trainer.resume`, where they replace restored ones. A change
of a setting that is fixed within a run, such as the network, raises an error with the reason.

Ray writes settings to files and resumes trials from them: secrets among the environment's arguments are refused.
"""

import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from ray import tune

import penstock
from penstock.config import require_no_secrets


class PenstockTrainable(tune.Trainable):
    """Trains APPO in slices, and reports the score of each to Ray.

    `config` has settings of `penstock.APPO`, and "steps_per_iteration".
    """

    def setup(self, config: dict[str, Any]) -> None:
        require_no_secrets(config.get("env_kwargs", {}), "Ray Tune")
        self.folder = Path(tempfile.mkdtemp(prefix="penstock-"))
        self.algo = penstock.APPO(**self.settings(), run_dir=self.folder / "run")

    def settings(self) -> dict[str, Any]:
        """Return the trial's current settings."""
        ours = {name: value for name, value in self.config.items() if name != "steps_per_iteration"}
        return {"eval_interval": 0, **ours}

    def step(self) -> dict[str, Any]:
        result = self.algo.train(self.config["steps_per_iteration"], quiet=True)
        score = self.algo.evaluate(episodes=20)
        is_done = result.steps >= self.algo.config.total_steps
        return {"mean_return": score.mean_return, "steps": result.steps, "done": is_done}

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Save a checkpoint, and copy the run's directory for `Trainer.resume`."""
        steps = self.algo.status.steps
        self.algo.save(self.folder / "run" / "checkpoints" / str(steps))
        shutil.copytree(self.folder / "run", Path(checkpoint_dir) / "run", dirs_exist_ok=True)

    def load_checkpoint(self, checkpoint_dir: str) -> None:
        """Continue from a checkpoint of any trial with the settings of this one."""
        self.cleanup()
        self.folder = Path(tempfile.mkdtemp(prefix="penstock-"))
        shutil.copytree(Path(checkpoint_dir) / "run", self.folder / "run")
        self.algo = penstock.Trainer.resume(self.folder / "run", **self.settings())

    def cleanup(self) -> None:
        self.algo.close()
        shutil.rmtree(self.folder, ignore_errors=True)


if __name__ == "__main__":
    from ray.tune.schedulers import PopulationBasedTraining

    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 50_000
    samples = int(sys.argv[2]) if len(sys.argv) > 2 else 4
    learning_rate = tune.loguniform(1e-4, 1e-2)
    param_space = {
        "env": "CartPole-v1", "num_workers": 1, "total_steps": steps, "steps_per_iteration": steps // 10,
        "env_kwargs": {}, "learning_rate": learning_rate,
    }  # fmt: skip
    require_no_secrets(param_space["env_kwargs"], "Ray Tune")  # before Ray writes the settings
    tuner = tune.Tuner(
        tune.with_resources(PenstockTrainable, {"cpu": max(1, (os.cpu_count() or 1) // 2)}),
        param_space=param_space,
        tune_config=tune.TuneConfig(
            metric="mean_return", mode="max", num_samples=samples,
            scheduler=PopulationBasedTraining(
                time_attr="steps", perturbation_interval=steps // 5,
                hyperparam_mutations={"learning_rate": learning_rate},
            ),
        ),
    )  # fmt: skip
    best = tuner.fit().get_best_result()
    print(f"best: mean return {best.metrics['mean_return']:.1f} with learning rate {best.config['learning_rate']:.2g}")
