"""The example for Ray Tune on a local cluster, with ASHA and with population-based training; needs ``ray[tune]``."""

import pytest

tune = pytest.importorskip("ray.tune", exc_type=ImportError)

import ray  # noqa: E402
from ray.tune.schedulers import ASHAScheduler, PopulationBasedTraining  # noqa: E402

from penstock.imports import load_module  # noqa: E402
from tests.places import ROOT  # noqa: E402

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
SPACE = {
    "env": "CartPole-v1", "num_workers": 1, "num_envs_per_worker": 2, "segment_length": 16, "batch_size": 32,
    "hidden_sizes": (8,), "backend": "serial", "total_steps": 800, "steps_per_iteration": 100,
}  # fmt: skip


@pytest.fixture(scope="module")
def example():
    """The example as a module, on a cluster of two cores."""
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
    module = load_module(str(ROOT / "examples" / "ray_trainable.py"))
    ray.cloudpickle.register_pickle_by_value(module)
    yield module
    ray.shutdown()


def fitted(example, scheduler, tmp_path, samples, **space):
    """Results of some trials, two at a time."""
    tuner = tune.Tuner(
        tune.with_resources(example.PenstockTrainable, {"cpu": 1}),
        param_space=SPACE | space,
        tune_config=tune.TuneConfig(num_samples=samples, metric="mean_return", mode="max", scheduler=scheduler),
        run_config=tune.RunConfig(storage_path=str(tmp_path), verbose=0),
    )
    results = tuner.fit()
    assert not results.errors
    return results


def test_asha_ends_bad_trials_early_and_the_best_one_spends_its_budget(example, tmp_path):
    scheduler = ASHAScheduler(time_attr="steps", max_t=10_000, grace_period=100, reduction_factor=2)
    results = fitted(example, scheduler, tmp_path, 4, learning_rate=tune.loguniform(1e-4, 1e-2))
    steps = sorted(result.metrics["steps"] for result in results)
    assert steps[0] < 800 <= steps[-1]


def test_a_population_goes_on_from_the_checkpoints_of_others_with_other_settings(example, tmp_path):
    scheduler = PopulationBasedTraining(
        time_attr="training_iteration", perturbation_interval=3, hyperparam_mutations={"learning_rate": [1e-3, 3e-3]},
        quantile_fraction=0.5, synch=True,
    )  # fmt: skip
    results = fitted(example, scheduler, tmp_path, 2, learning_rate=tune.choice([1e-3, 3e-3]))
    assert all(result.metrics["steps"] >= 800 for result in results)
    assert scheduler._num_perturbations > 0
