"""Updates from replay that are captured once and replayed learn the same as updates operation by operation.

Here a graph is played by a computation that is done again; tests/engine/test_cuda.py has real ones.
"""

import copy
import dataclasses

import pytest
import torch

from penstock.algorithms.bases.algorithm import NonFiniteUpdate
from penstock.algorithms.btr import BTR
from penstock.algorithms.crossq import CrossQ
from penstock.algorithms.ddpg import DDPG
from penstock.algorithms.dqn import DQN
from penstock.algorithms.fasttd3 import FastTD3
from penstock.algorithms.flashsac import FlashSAC
from penstock.algorithms.rainbow import Rainbow
from penstock.algorithms.sac import SAC
from penstock.algorithms.td3 import TD3
from penstock.algorithms.tqc import TQC
from penstock.algorithms.xqc import XQC
from penstock.engine.paths.captured import WARM_UP
from penstock.engine.paths.captured_updates import CapturedUpdate
from tests.algorithms.transitions import TORQUE, VECTOR, begin, make, random_transitions
from tests.engine.recorded import recorded
from tests.nn.plain import CHOICE

CONTROL = [DDPG, TD3, FastTD3, SAC, TQC, CrossQ, XQC, FlashSAC]


def begun_with(kind, **settings):
    """An algorithm and its network, ready to learn."""
    action = CHOICE if issubclass(kind, DQN) else TORQUE
    sizes = {"hidden_sizes": (8,), "batch_size": 16, "learning_starts": 16}
    algorithm = make(kind, VECTOR, action, **{**sizes, **settings})
    return algorithm, begin(algorithm)


def state_of(algorithm, model):
    """All tensors that updates write."""
    yield from (*model.parameters(), *model.buffers())
    if algorithm.has_target:
        yield from (*algorithm.target.parameters(), *algorithm.target.buffers())
    for optimizer in algorithm.optimizers.values():
        for parameter, state in optimizer.state.items():
            yield from (parameter.grad, *(each for each in state.values() if isinstance(each, torch.Tensor)))


def captured(algorithm, model, notes=None, *, waits=False):
    note = pytest.fail if notes is None else notes.append
    graphs = recorded(lambda: state_of(algorithm, model), algorithm.generator)
    return CapturedUpdate(algorithm, model, note, waits=waits, graphs=graphs)


def batch_of(algorithm, number, **changes):
    """Random transitions of an update."""
    batch = random_transitions(algorithm.action, seed=number, number=number)
    return dataclasses.replace(batch, running_return=batch.reward, **changes)


def learn(algorithm, model, update, numbers):
    """Make updates of these numbers with learning rates that fall; return TD errors and metrics of the last."""
    for number in numbers:
        algorithm.schedule_learning_rates(number / 100)
        batch, _ = algorithm.prepare(model, batch_of(algorithm, number))
        with algorithm.training_mode(model):
            told = update(batch)
        assert not isinstance(update, CapturedUpdate) or not any(value.requires_grad for value in told[1].values())
    return told


def require_same(one, other, atol=1e-6):
    for name, tensor in one.state_dict().items():
        torch.testing.assert_close(tensor, other.state_dict()[name], rtol=1e-5, atol=atol, msg=name)


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        *((kind, {"learning_rate_schedule": "linear"}) for kind in CONTROL),
        (SAC, {"alpha": 0.2}), (SAC, {"policy_delay": 3, "normalization": "layer"}),
        (DQN, {"target_period": 3}), (DQN, {"normalize_returns": False}),
        (DQN, {"optimizer": "adamw", "double": True, "dueling": True}),
        (DQN, {"munchausen": True, "max_grad_norm": 0.1}), (DQN, {"noisy": True}), (BTR, {"target_period": 4}),
        (Rainbow, {"v_min": -5.0, "v_max": 5.0}),
    ],
)  # fmt: skip
def test_what_is_learned_is_the_same(kind, settings):
    expected, plain = begun_with(kind, **settings)
    algorithm, model = begun_with(kind, **settings)
    update, numbers = captured(algorithm, model), range(1, 24)
    error, metrics = learn(algorithm, model, update, numbers)
    expected_error, expected_metrics = learn(expected, plain, lambda batch: expected.update(plain, batch), numbers)
    assert update._graphs.num_recorded >= 1
    # Adam makes whole steps of gradients that are 0 but for rounding, as those of biases before a normalisation.
    require_same(model, plain, atol=2e-3 if kind in (XQC, CrossQ) else 1e-6)
    torch.testing.assert_close(error, expected_error, rtol=1e-3, atol=1e-3)
    assert metrics.keys() == expected_metrics.keys()
    for name, value in expected_metrics.items():
        torch.testing.assert_close(metrics[name], value.float().mean(), rtol=1e-3, atol=1e-3, msg=name)


@pytest.mark.parametrize("kind", [TD3, SAC, CrossQ, FlashSAC, DQN])
@pytest.mark.parametrize("waits", [False, True])
def test_an_update_that_is_not_finite_moves_nothing_and_is_counted_once(kind, waits):
    algorithm, model = begun_with(kind)
    update = captured(algorithm, model, waits=waits)
    learn(algorithm, model, update, range(1, 3 * WARM_UP))
    number = 3 * WARM_UP + 3 * WARM_UP % 2
    before = [tensor.detach().clone() for tensor in state_of(algorithm, model)]
    bad = batch_of(algorithm, number, reward=torch.full((16,), torch.nan))
    if waits:
        with pytest.raises(NonFiniteUpdate):
            update(bad)
    else:
        update(bad)
    gradients = {id(parameter.grad) for each in algorithm.optimizers.values() for parameter in each.state}
    for tensor, was in zip(state_of(algorithm, model), before, strict=True):
        if id(tensor) not in gradients:
            torch.testing.assert_close(tensor, was, rtol=1e-6, atol=0.0)
    if not waits:
        with pytest.raises(NonFiniteUpdate):
            update(batch_of(algorithm, number + 1))
    update(batch_of(algorithm, number + 2))
    assert all(torch.isfinite(tensor).all() for tensor in model.state_dict().values())


def test_graphs_are_recorded_anew_when_settings_or_the_memory_of_optimisers_are_replaced():
    algorithm, model = begun_with(SAC)
    update = captured(algorithm, model)
    learn(algorithm, model, update, range(1, 10))
    algorithm.apply_settings(dataclasses.replace(algorithm.config, tau=0.5))
    expected, plain = begun_with(SAC)
    plain.load_state_dict(model.state_dict())
    expected.apply_settings(algorithm.config)
    expected.inherit(copy.deepcopy(algorithm.learning_state()))
    expected.generator.set_state(algorithm.generator.get_state())
    learn(algorithm, model, update, range(10, 20))
    learn(expected, plain, lambda batch: expected.update(plain, batch), range(10, 20))
    require_same(algorithm.target, expected.target)
    algorithm.inherit(copy.deepcopy(expected.learning_state()))
    learn(algorithm, model, update, range(20, 30))
    learn(expected, plain, lambda batch: expected.update(plain, batch), range(20, 30))
    require_same(model, plain)
    assert update._graphs.num_recorded == 3


class Altered(SAC):
    """A subclass that says nothing of its updates."""


@pytest.mark.parametrize(
    ("kind", "settings", "reason"),
    [
        (Altered, {}, "Altered does not declare its updates repeatable (repeatable_updates)"),
        (DQN, {"optimizer": "rmsprop"}, "TorchRMSProp needs numbers from the host at each step"),
    ],
)
def test_updates_that_no_graph_repeats_run_as_they_are_written_and_that_is_said_once(kind, settings, reason):
    algorithm, model = begun_with(kind, **settings)
    notes: list[str] = []
    update = captured(algorithm, model, notes)
    learn(algorithm, model, update, range(1, 3 * WARM_UP))
    assert notes == [f"updates run without CUDA graphs: {reason}"]
    assert update._graphs.num_recorded == 0
