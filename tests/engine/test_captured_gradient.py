"""Updates that are captured once and replayed learn the same as updates operation by operation.

Here a graph is played by a computation that is done again; tests/engine/test_cuda.py has real ones.
"""

import copy
from functools import partial

import pytest
import torch

from penstock.algorithms.a2c import A2C
from penstock.algorithms.appo import APPO
from penstock.algorithms.bases.segment import SegmentUpdater
from penstock.algorithms.clear import CLEAR
from penstock.algorithms.impact import IMPACT
from penstock.algorithms.impala import IMPALA
from penstock.algorithms.laser import LASER
from penstock.algorithms.ppo import PPO
from penstock.algorithms.pqn import PQN
from penstock.engine.paths.captured import WARM_UP, CapturedWork
from penstock.engine.paths.captured_updates import CapturedGradient
from tests.algorithms.batches import collect, make, make_model
from tests.engine.recorded import recorded

CPU = torch.device("cpu")


def made(kind, **settings):
    """An algorithm and its network, ready to learn."""
    algorithm = make(kind, **settings)
    torch.manual_seed(0)
    model = algorithm.build_model()
    algorithm.begin(model)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    return algorithm, model


def batches_for(algorithm, count):
    """Batches with all that algorithms record, half of each replayed."""
    batches = []
    actor = make(APPO) if isinstance(algorithm, PQN) else algorithm
    for seed in range(count):
        model = make_model(actor, seed)
        batch = collect(actor, model, seed)
        with torch.no_grad():
            policy, value = model.evaluate(batch.obs, batch.first, batch.memory)
        batch.replayed[2:] = True
        batch.records = {"logits": policy[:-1].flat, "value": value[:-1]}
        batches.append(batch)
    return batches


def gradient_of(algorithm, model, notes=None, graphs=None):
    note = pytest.fail if notes is None else notes.append
    graphs = graphs or recorded(lambda: [parameter.grad for parameter in model.parameters()])
    return CapturedGradient(algorithm, model, algorithm.autocast(CPU), note, graphs)


def learn(algorithm, model, batches, gradient=None):
    """Learn from batches, by torch unless a gradient is given; return the metrics of the last."""
    updater = SegmentUpdater(algorithm, model)
    updater.gradient = gradient or partial(algorithm.gradient, model, autocast=algorithm.autocast(CPU))
    for updates, batch in enumerate(batches):
        metrics = updater.learn(copy.deepcopy(batch))
        algorithm.after_update(model, updates)
    return metrics


@pytest.mark.parametrize(
    ("algorithm", "settings"),
    [
        (APPO, {"num_epochs": 2}), (APPO, {"advantage_estimator": "vtrace", "num_epochs": 2}),
        (APPO, {"num_minibatches": 1}), (APPO, {"memory": "lstm"}),
        (PPO, {"num_epochs": 2}), (A2C, {}), (IMPALA, {}), (IMPALA, {"memory": "gru"}), (CLEAR, {}),
        (LASER, {"replay": ["queue:1/2", "uniform:1/2"]}), (IMPACT, {"target_period": 4}), (PQN, {}),
    ],
)  # fmt: skip
def test_what_is_learned_is_the_same(algorithm, settings):
    weights, told = [], []
    for captures in (False, True):
        made_one, model = made(algorithm, **settings)
        gradient = gradient_of(made_one, model) if captures else None
        told.append(learn(made_one, model, batches_for(made_one, WARM_UP + 6), gradient))
        weights.append(model.state_dict())
    assert gradient._graphs.num_recorded > 0
    for name, tensor in weights[0].items():
        assert torch.equal(tensor, weights[1][name]), name
    assert told[0].keys() == told[1].keys()
    for name, number in told[0].items():
        torch.testing.assert_close(number.float(), told[1][name], equal_nan=True)


def test_batches_of_another_shape_have_a_graph_of_their_own():
    algorithm, model = made(APPO)
    gradient = gradient_of(algorithm, model)
    batch = batches_for(algorithm, 1)[0].flatten()
    batch.targets = {name: torch.randn(24) for name in ("advantage", "return", "old_value")}
    for count in (24, 20, 24, 20):
        for _ in range(WARM_UP + 2):
            gradient(batch.transitions(torch.arange(count)))
    assert gradient._graphs.num_recorded == 2


def test_updates_that_depend_on_the_progress_of_the_run_are_not_captured_and_that_is_said_once():
    algorithm, model = made(APPO, entropy_coef=0.1, entropy_coef_final=0.0)
    notes: list[str] = []
    gradient = gradient_of(algorithm, model, notes)
    learn(algorithm, model, batches_for(algorithm, WARM_UP + 3), gradient)
    assert gradient._graphs.num_recorded == 1
    assert notes == [
        "updates run without CUDA graphs: they depend on the progress of the run, as a schedule of entropy_coef does"
    ]


def test_what_cannot_be_captured_runs_as_it_is_written():
    class Unrecordable(CapturedWork):
        def _record(self, compute):
            raise RuntimeError("operation not permitted when stream is capturing")

    algorithm, model = made(IMPALA)
    notes: list[str] = []
    learn(algorithm, model, batches_for(algorithm, WARM_UP + 3), gradient_of(algorithm, model, notes, Unrecordable))
    assert notes == [
        "updates run without CUDA graphs: RuntimeError: operation not permitted when stream is capturing"
    ]


def test_an_algorithm_that_does_not_say_that_its_updates_are_alike_is_left_alone():
    class Changing(APPO):
        pass

    algorithm, model = made(Changing)
    gradient = gradient_of(algorithm, model)
    learn(algorithm, model, batches_for(algorithm, WARM_UP + 3), gradient)
    assert gradient._graphs.num_recorded == 0


def test_a_replay_whose_loss_is_not_finite_is_left_out_and_the_next_is_not():
    algorithm, model = made(IMPALA)
    gradient = gradient_of(algorithm, model)
    batches = batches_for(algorithm, WARM_UP + 3)
    for batch in batches[:-1]:
        gradient(batch)
    broken = copy.deepcopy(batches[-1])
    broken.reward[0] = float("inf")
    updater = SegmentUpdater(algorithm, model)
    updater.gradient, skipped = gradient, []
    assert updater.learn(broken, skipped=skipped.append) == {} and "loss" in skipped[0]
    assert updater.learn(batches[-1])["grad_norm"].isfinite()
    assert gradient._graphs.num_recorded == 1
