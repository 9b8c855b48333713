"""Gradients as plans: the same loss, metrics, targets and gradients as torch computes."""

import copy
import dataclasses
import math
from functools import partial

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from penstock._native import Layers, Plan
from penstock.algorithms.a2c import A2C
from penstock.algorithms.apex import ApeX
from penstock.algorithms.apex_dpg import ApeXDPG
from penstock.algorithms.appo import APPO
from penstock.algorithms.bases import operations, planned
from penstock.algorithms.bases.algorithm import NonFiniteUpdate
from penstock.algorithms.bases.operations import Unplannable
from penstock.algorithms.bases.planned import Planned, PlannedGradient, PlannedUpdate, RecordedUpdate
from penstock.algorithms.bases.recording import Recorder
from penstock.algorithms.crossq import CrossQ
from penstock.algorithms.ddpg import DDPG
from penstock.algorithms.dqn import DQN
from penstock.algorithms.fasttd3 import FastTD3
from penstock.algorithms.flashsac import FlashSAC
from penstock.algorithms.impact import IMPACT
from penstock.algorithms.impala import IMPALA
from penstock.algorithms.laser import LASER
from penstock.algorithms.ppo import PPO
from penstock.algorithms.pqn import PQN
from penstock.algorithms.r2d2 import R2D2
from penstock.algorithms.rainbow import Rainbow
from penstock.algorithms.sac import SAC
from penstock.algorithms.td3 import TD3
from penstock.algorithms.tqc import TQC
from penstock.algorithms.xqc import XQC
from tests.algorithms.episodes import LENGTH, episode
from tests.algorithms.transitions import TORQUE, VECTOR, begin, make, random_transitions
from tests.engine.collecting import Collecting
from tests.nn.plain import CHOICE


def minibatch_of(kind, env, **settings):
    run = Collecting(kind, env=env, num_envs_per_worker=4, segment_length=16, **settings)
    batch, algorithm = run.take(), run.algorithm
    run.close()
    model = algorithm.build_model()
    algorithm.begin(model)
    with torch.no_grad():
        algorithm.prepare(model, batch)
    return algorithm, model, batch if algorithm.needs_segments else batch.flatten()


def planned_gradient(algorithm, model):
    return PlannedGradient(algorithm, model, algorithm.autocast(torch.device("cpu")), list(model.parameters()))


def in_torch(algorithm, model, batch):
    return algorithm.gradient(model, batch, algorithm.autocast(torch.device("cpu")))


def gradients_of(model):
    return [each.grad.clone() for each in model.parameters()]


PROXIMAL = {"batch_size": 64}
IN_BFLOAT16 = {"precision": "bfloat16"}
CASES = {
    "choices": (PPO, "CartPole-v1", PROXIMAL),
    "numbers": (PPO, "Pendulum-v1", PROXIMAL),
    "clipped values": (PPO, "CartPole-v1", PROXIMAL | {"value_clip_range": 0.2}),
    "relu": (PPO, "CartPole-v1", PROXIMAL | {"activation": "relu", "shared_encoder": True}),
    "appo": (APPO, "CartPole-v1", PROXIMAL),
    "decoupled": (APPO, "CartPole-v1", PROXIMAL | {"loss": "decoupled", "num_epochs": 2}),
    "targets of the update": (APPO, "CartPole-v1", PROXIMAL | {"num_epochs": 1, "num_minibatches": 1}),
    "gru": (PPO, "CartPole-v1", PROXIMAL | {"memory": "gru", "memory_size": 16}),
    "lstm": (APPO, "Pendulum-v1", PROXIMAL | {"memory": "lstm", "memory_size": 16}),
    "v-trace": (IMPALA, "CartPole-v1", {"batch_size": 64}),
    "a2c": (A2C, "CartPole-v1", {}),
    "impact": (IMPACT, "CartPole-v1", {"batch_size": 64}),
    "laser": (LASER, "CartPole-v1", {"batch_size": 64}),
    "pqn": (PQN, "CartPole-v1", {"batch_size": 64}),
    "bfloat16": (APPO, "CartPole-v1", PROXIMAL | IN_BFLOAT16),
}


@pytest.mark.parametrize("case", CASES)
def test_a_planned_gradient_is_that_of_torch(case, monkeypatch):
    kind, env, settings = CASES[case]
    algorithm, model, batch = minibatch_of(kind, env, **settings)
    gradient, runs, run, prepared = planned_gradient(algorithm, model), [], Planned.run, batch.targets
    monkeypatch.setattr(Planned, "run", lambda self, *given: runs.append(self) or run(self, *given))
    for number in range(3):  # the first records, and steps that are left out come and go
        torch.manual_seed(number)
        learn = (torch.rand(batch.learn.shape) < 0.7).float()
        log_prob = batch.log_prob + torch.randn(batch.log_prob.shape)
        batch = dataclasses.replace(batch, learn=learn, log_prob=log_prob, targets=prepared)
        model.zero_grad()
        expected = copy.copy(batch)
        loss, metrics = in_torch(algorithm, model, expected)
        gradients = gradients_of(model)
        found, found_metrics = gradient(batch)
        assert found_metrics.keys() == metrics.keys()
        assert batch.targets.keys() == expected.targets.keys()
        pairs = [(found, loss), *((found_metrics[name], metrics[name]) for name in metrics)]
        pairs += [(batch.targets[name], expected.targets[name]) for name in batch.targets]
        for one, two in pairs:
            torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-5)
        for one, two in zip(gradients_of(model), gradients, strict=True):
            assert (one - two).norm() <= 1e-4 * (1.0 + two.norm())
    assert len(runs) == 3
    assert len(set(runs)) == 1


SQUASHED = {"activation": "tanh", "alpha": 0.1}
FROM_REPLAY = {
    "dqn": (DQN, CHOICE, {"target_period": 2}),
    "dqn, returns as they are": (DQN, CHOICE, {"target_period": 2, "normalize_returns": False}),
    "dqn, bfloat16": (DQN, CHOICE, IN_BFLOAT16),
    "double and dueling": (DQN, CHOICE, {"double": True, "dueling": True}),
    "munchausen": (DQN, CHOICE, {"munchausen": True}),
    "rescaled": (DQN, CHOICE, {"rescale_values": True}),
    "long gradients": (DQN, CHOICE, {"max_grad_norm": 0.1}),
    "rmsprop": (DQN, CHOICE, {"optimizer": "rmsprop", "activation": "tanh"}),
    "noisy": (DQN, CHOICE, {"noisy": True, "double": True}),
    "c51": (DQN, CHOICE, {"distributional": "c51"}),
    "quantiles": (DQN, CHOICE, {"distributional": "quantile", "num_quantiles": 8}),
    "iqn": (DQN, CHOICE, {"distributional": "iqn"}),
    "rainbow": (Rainbow, CHOICE, {}),
    "apex": (ApeX, CHOICE, {}),
    "ddpg": (DDPG, TORQUE, {}),
    "td3": (TD3, TORQUE, {}),
    "td3, every update": (TD3, TORQUE, {"policy_delay": 1, "normalize_observations": True}),
    "sac": (SAC, TORQUE, {}),
    "sac, delayed": (SAC, TORQUE, {"policy_delay": 3}),
    "sac, fixed": (SAC, TORQUE, SQUASHED),
    "bfloat16": (SAC, TORQUE, IN_BFLOAT16),
    "sac, clipped": (SAC, TORQUE, {"log_std": "clipped"}),
    "tqc": (TQC, TORQUE, {}),
    "ape-x dpg": (ApeXDPG, TORQUE, {}),
    "fasttd3": (FastTD3, TORQUE, {}),
    **(NORMALIZED := {
        "residual": (SAC, TORQUE, {"network": "residual", "normalization": "rms", "unit_weights": True}),
        "layer norm": (SAC, TORQUE, {"network": "residual", "normalization": "layer"}),
        "crossq": (CrossQ, TORQUE, {}),
        "xqc": (XQC, TORQUE, {}),
        "flashsac": (FlashSAC, TORQUE, {"target_std": 0.3}),
        "crossq, bfloat16": (CrossQ, TORQUE, IN_BFLOAT16),
        "xqc, bfloat16": (XQC, TORQUE, IN_BFLOAT16),
        "flashsac, bfloat16": (FlashSAC, TORQUE, IN_BFLOAT16),
    }),
}  # fmt: skip
"""Algorithms whose updates are plans; in normalised ones of a small batch rounding grows faster."""


class InTorch:
    """The same algorithm, which does not say that its updates are alike."""

    repeatable_updates = False


def twins(kind, action, **settings):
    """Updates of an algorithm by plans and in torch, with their networks."""
    settings = {"hidden_sizes": (16, 16)} | settings
    algorithms = [make(each, VECTOR, action, **settings) for each in (kind, type("Own", (InTorch, kind), {}))]
    models = [begin(each) for each in algorithms]
    return [(PlannedUpdate(*pair), model) for *pair, model in zip(algorithms, models, models, strict=True)]


@pytest.mark.parametrize("case", FROM_REPLAY)
def test_a_planned_update_from_replay_is_that_of_torch(case, monkeypatch):
    kind, action, settings = FROM_REPLAY[case]
    runs, run = [], RecordedUpdate.run
    monkeypatch.setattr(RecordedUpdate, "run", lambda self, *given: runs.append(self) or run(self, *given))
    (one, model), (other, expected) = twins(kind, action, **settings)
    for number in range(1, 6):
        batch = random_transitions(action, seed=number, number=number)
        batch = dataclasses.replace(batch, weights=batch.reward.abs(), running_return=batch.reward)
        with torch.autocast("cpu", enabled=settings.get("precision") == "bfloat16"):
            found, in_torch = one(batch), other(batch)
        grown = (1000.0 if "bfloat16" in case else 100.0) if case in NORMALIZED and number > 1 else 1.0
        torch.testing.assert_close(found, in_torch, rtol=1e-4 * grown, atol=3e-5 * grown)
    assert sum(each._model is model for each in runs) == 5
    for name, weight in model.state_dict().items():
        atol = 1e-2 if case in NORMALIZED else 1e-5
        torch.testing.assert_close(weight, expected.state_dict()[name], rtol=1e-3, atol=atol)


@pytest.mark.parametrize("kind", [R2D2, DQN])
@pytest.mark.parametrize("memory", ["gru", "lstm"])
def test_a_planned_update_from_sequences_is_that_of_torch(memory, kind, monkeypatch):
    runs, run = [], RecordedUpdate.run
    monkeypatch.setattr(RecordedUpdate, "run", lambda self, *given: runs.append(self) or run(self, *given))
    settings = {"memory": memory, "memory_size": 4, "sequence_length": 8, "burn_in": 4, "sequence_overlap": 0}
    (one, model), (other, expected) = twins(kind, CHOICE, target_period=2, **settings)
    for number in range(1, 6):
        batch = episode(0.9, last_discount=0.0)
        valid = torch.arange(LENGTH).unsqueeze(1) < torch.tensor([LENGTH, 9, 4 + number])
        state = torch.randn(3, model.state_size, generator=torch.Generator().manual_seed(number))
        batch = dataclasses.replace(batch, number=number, valid=valid, memory=state)
        torch.testing.assert_close(one(batch)[0], other(batch)[0], rtol=1e-4, atol=3e-5)
    assert sum(each._model is model for each in runs) == 5
    for name, weight in model.state_dict().items():
        torch.testing.assert_close(weight, expected.state_dict()[name], rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("lost", [1, 2])
@pytest.mark.parametrize("kind, action", [(TD3, TORQUE), (SAC, TORQUE), (DQN, CHOICE)])
def test_an_update_that_is_not_finite_is_refused_by_a_plan_as_in_torch(kind, action, lost):
    (one, model), (other, expected) = twins(kind, action)
    for number in (1, 2, 3, 4):
        batch = random_transitions(action, seed=number, number=number)
        if number == lost:
            batch.reward[0] = math.inf
            for each in (one, other):
                with pytest.raises(NonFiniteUpdate):
                    each(batch)
        else:
            one(batch), other(batch)
    assert one.plan_for(batch) is not None
    for found, weight in zip(model.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(found, weight, rtol=1e-3, atol=1e-5)
    states = [each._algorithm.generator.get_state() for each in (one, other)]
    assert torch.equal(*states)


def test_a_resumed_run_goes_on_bit_for_bit_wherever_it_is():
    (one, model), (other, resumed) = [twins(TD3, TORQUE)[0] for _ in range(2)]
    with torch.no_grad():  # a policy at its bounds, whose gradient is what rounding leaves of it
        model.actor_head.bias.fill_(7.0)
    for number in range(1, 4):
        one(random_transitions(TORQUE, seed=number, number=number))
    resumed.load_state_dict(model.state_dict())
    other._algorithm.inherit(copy.deepcopy(one._algorithm.learning_state()))
    other._algorithm.generator.set_state(one._algorithm.generator.get_state())
    for number in range(4, 9):
        batch = random_transitions(TORQUE, seed=number, number=number)
        assert torch.equal(one(batch)[0], other(batch)[0])
    assert one.plan_for(batch) is not None and other.plan_for(batch) is not None
    assert all(map(torch.equal, model.parameters(), resumed.parameters()))


class Drifting(SAC):
    """SAC with the distance that its temperature has moved as a metric."""

    repeatable_updates = True

    def update(self, model, batch):
        before = model.log_alpha.detach().clone()
        td_error, metrics = super().update(model, batch)
        return td_error, metrics | {"drift": model.log_alpha.detach() - before}


def test_a_copy_of_a_weight_stays_as_it_was_before_a_step():
    algorithm = make(Drifting, VECTOR, TORQUE, hidden_sizes=(16, 16), learning_rate=0.1)
    model = begin(algorithm)
    update = PlannedUpdate(algorithm, model)
    for number in (1, 2):
        batch = random_transitions(TORQUE, seed=number, number=number)
        before = model.log_alpha.item()
        drift = update(batch)[1]["drift"].item()
        assert abs(drift) > 1e-3
        assert drift == pytest.approx(model.log_alpha.item() - before, abs=1e-6)
    assert update.plan_for(batch) is not None


def test_a_plan_has_the_settings_of_the_call():
    (one, _), (other, _) = twins(TD3, TORQUE)
    for number in range(1, 5):
        if number == 3:
            for each in (one, other):
                each._algorithm.apply_settings(dataclasses.replace(each._algorithm.config, target_noise=2.0, tau=0.5))
        batch = random_transitions(TORQUE, number=number)
        torch.testing.assert_close(one(batch), other(batch), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(one._algorithm.target.state_dict(), other._algorithm.target.state_dict())


def test_a_plan_goes_on_from_a_state_that_is_put_in_its_networks():
    (one, model), (other, expected) = twins(SAC, TORQUE)
    one(random_transitions(TORQUE, number=1))
    model.load_state_dict(expected.state_dict())
    one._algorithm.inherit(other._algorithm.learning_state())
    one._algorithm.generator.set_state(other._algorithm.generator.get_state())
    batch = random_transitions(TORQUE, number=2)
    torch.testing.assert_close(one(batch), other(batch), rtol=1e-4, atol=1e-5)


class Progressing(DQN):
    """DQN whose loss depends on how far the run is."""

    repeatable_updates = True

    def evaluate(self, model, batch):
        td_error, loss, metrics = super().evaluate(model, batch)
        return td_error, loss * (1.0 - batch.progress), metrics


class Shrinking(DQN):
    """DQN whose updates change weights by themselves."""

    repeatable_updates = True

    def evaluate(self, model, batch):
        with torch.no_grad():
            next(model.parameters()).mul_(0.9)
        return super().evaluate(model, batch)


class Bounded(DQN):
    """DQN with a bound that is a tensor."""

    repeatable_updates = True

    def evaluate(self, model, batch):
        td_error, loss, metrics = super().evaluate(model, batch)
        return td_error, loss + td_error.clamp(max=batch.weights.sum()).mean(), metrics


class Odd(DQN):
    """DQN with an operation in a form that plans do not have."""

    repeatable_updates = True

    def evaluate(self, model, batch):
        td_error, loss, metrics = super().evaluate(model, batch)
        return td_error, loss, metrics | {"variance": torch.var_mean(td_error.detach())[0]}


class Particular(DQN):
    """DQN that is made with a word of its own, and bears rewards of an environment alone, which are all 1."""

    repeatable_updates = True

    def __init__(self, *given, word="own"):
        super().__init__(*given)
        self.word = word

    def evaluate(self, model, batch):
        if (batch.reward != 1.0).any():
            raise ValueError("a reward that the environment does not give")
        return super().evaluate(model, batch)


@pytest.mark.parametrize("refuses", ["what it learns from", "another of its kind"])
def test_an_algorithm_of_its_own_kind_learns_in_torch_where_it_bears_no_comparison(refuses, monkeypatch):
    (one, model), _ = twins(Particular, CHOICE)
    if refuses == "another of its kind":
        monkeypatch.setattr(Particular, "__init__", lambda self: None)
        monkeypatch.setattr(Particular, "evaluate", DQN.evaluate)
    weights, batch = [each.clone() for each in model.parameters()], random_transitions(CHOICE)
    batch = dataclasses.replace(batch, reward=torch.ones(16))
    state = torch.get_rng_state()
    assert one.plan_for(batch) is None
    assert torch.equal(torch.get_rng_state(), state)
    one(batch)
    assert not all(map(torch.equal, model.parameters(), weights))


class WithCount(DQN):
    """DQN with a metric that is a whole number."""

    repeatable_updates = True

    def evaluate(self, model, batch):
        td_error, loss, metrics = super().evaluate(model, batch)
        return td_error, loss, metrics | {"above": (td_error > 0).sum()}


class Counting(DQN):
    """DQN whose updates are not alike, though it says so."""

    repeatable_updates = True
    calls = 0

    def evaluate(self, model, batch):
        self.calls += 1
        td_error, loss, metrics = super().evaluate(model, batch)
        return td_error, loss, metrics | {"calls": torch.tensor(float(self.calls))}


@pytest.mark.parametrize("kind", [Progressing, Shrinking, Bounded, Odd, WithCount, Counting])
def test_an_update_from_replay_that_is_not_the_same_function_each_time_stays_in_torch(kind):
    (one, model), _ = twins(kind, CHOICE)
    weights, batch = [each.clone() for each in model.parameters()], random_transitions(CHOICE)
    assert one.plan_for(batch) is None
    assert all(map(torch.equal, model.parameters(), weights))


@pytest.mark.parametrize("times, is_planned", [(1, True), (planned.TRIES - 1, True), (planned.TRIES, False)])
def test_where_rounding_decides_a_rectifier_other_random_numbers_are_compared(times, is_planned, monkeypatch):
    (one, _), _ = twins(SAC, TORQUE)
    failures, require_close = [Unplannable("a rectifier at 0")] * times, planned.require_close

    def with_failures(*given, **named):
        if failures:
            raise failures.pop()
        require_close(*given, **named)

    monkeypatch.setattr(planned, "require_close", with_failures)
    assert (one.plan_for(random_transitions(TORQUE)) is not None) is is_planned


def is_planned(algorithm, model, batch):
    return planned_gradient(algorithm, model).plan_for(batch) is not None


def test_an_entropy_coefficient_that_changes_stays_in_torch():
    assert not is_planned(*minibatch_of(PPO, "CartPole-v1", batch_size=64, entropy_coef_final=0.0))


def test_settings_are_those_of_the_call():
    algorithm, model, batch = minibatch_of(PPO, "CartPole-v1", batch_size=64)
    gradient = planned_gradient(algorithm, model)
    before = gradient(batch)[0].item()
    algorithm.apply_settings(dataclasses.replace(algorithm.config, value_coef=7.0))
    assert gradient(batch)[0].item() != pytest.approx(before, abs=1e-3)


def test_weights_are_those_of_the_call():
    algorithm, model, batch = minibatch_of(PPO, "CartPole-v1", batch_size=64)
    gradient = planned_gradient(algorithm, model)
    before = gradient(batch)[0].item()
    model.load_state_dict({name: 1.5 * each for name, each in model.state_dict().items()})
    after = gradient(batch)[0].item()
    assert after != pytest.approx(before, abs=1e-3)
    assert after == pytest.approx(in_torch(algorithm, model, batch)[0].item(), rel=1e-4)


def test_minibatches_of_every_shape_have_a_plan():
    algorithm, model, batch = minibatch_of(PPO, "CartPole-v1", batch_size=64)
    gradient = planned_gradient(algorithm, model)
    for count in (64, 10, 64, 10):
        part = batch.transitions(torch.arange(count))
        assert gradient(part)[0].item() == pytest.approx(in_torch(algorithm, model, part)[0].item(), rel=1e-4)
    assert sum(plan is not None for plan in gradient._known.values()) == 2


class Drawn(PPO):
    """PPO whose loss draws random numbers."""

    repeatable_updates = True

    def loss(self, batch, policy, value):
        loss, metrics = super().loss(batch, policy, value)
        return loss + 0.1 * torch.rand(()), metrics


class Weighted(PPO):
    """PPO whose loss has a tensor of its own."""

    repeatable_updates = True
    weight = torch.tensor(1.0)

    def loss(self, batch, policy, value):
        loss, metrics = super().loss(batch, policy, value)
        return loss * self.weight, metrics


class CountingCalls(PPO):
    """PPO with a value error that depends on the calls before: its updates are not alike."""

    calls = 0

    def value_error(self, batch, value):
        self.calls += 1
        return self.calls * super().value_error(batch, value)


@pytest.mark.parametrize("kind", [Drawn, Weighted, CountingCalls])
def test_an_update_that_is_not_the_same_function_each_time_stays_in_torch(kind):
    algorithm, model, batch = minibatch_of(kind, "CartPole-v1", batch_size=64)
    gradient = planned_gradient(algorithm, model)
    found = [gradient(batch)[0].item() for _ in range(2)]
    if kind is Weighted:
        Weighted.weight.fill_(3.0)
        assert gradient(batch)[0].item() == pytest.approx(3.0 * found[0], rel=1e-4)
    else:
        assert found[0] != found[1]


class Noisy(nn.Module):
    """Layer with state of its own, of a package of the user."""

    def forward(self, x):
        return x


def test_a_network_with_modules_of_other_packages_stays_in_torch():
    algorithm, model, batch = minibatch_of(PPO, "CartPole-v1", batch_size=64)
    assert is_planned(algorithm, model, batch)
    model.encoder.append(Noisy())
    assert not is_planned(algorithm, model, batch)


def test_a_plan_that_computes_other_numbers_is_not_used(monkeypatch):
    algorithm, model, batch = minibatch_of(PPO, "CartPole-v1", batch_size=64)
    monkeypatch.setitem(operations.RECORDED, "exp", operations.RECORDED["sqrt"])
    with pytest.raises(Unplannable, match="different numbers"):
        Planned(partial(algorithm.evaluate, model), [model], batch)


def change_parts(x, m):
    with torch.no_grad():
        y = x * 1.0
        first, second = y[:, :1], y[:, 1:]
        first.add_(second[:, :1]).sigmoid_()
        y[2].mul_(m[2])
    return y.view(3, 7).t() * x + second.sum() * first


def run(plan, inputs, results):
    plan.begin([each.data_ptr() for each in inputs], [each.data_ptr() for each in results], 1)
    plan.run(0)


def columns_normalized(x, scale, shift):
    return torch.native_batch_norm(x, scale, shift, None, None, True, 0.0, 1e-5)[0]


def rectified(x, m):
    """Rectifiers before and behind normalisations and products, some of whose results are read elsewhere, too."""
    y = x @ m[:3]
    before, behind = columns_normalized(y.relu(), m[0] + 1.0, m[1]), columns_normalized(y, m[2] + 1.0, m[3])
    return before * behind.relu() + behind + y.relu()


def in_few_digits(x, m):
    """Products, sums and changes in bfloat16, of tensors as they are and transposed."""
    few = x.to(torch.bfloat16)
    y = few @ (m.to(torch.bfloat16) / 3.0).t()
    return torch.addmm(few[:, 0], y, few @ few.t()).relu_() * 1.1 + y.float() + few.float() @ x.t()


def blocks(x):
    """Seven matrices of three by three."""
    return x.unsqueeze(1) * x.new_ones(3, 1)


OPERATIONS = {
    "sums": lambda x, m: (x.sum(-1, keepdim=True) * x.sum(0) + x.sum()) * m,
    "bounds": lambda x, m: torch.minimum(x.clamp(-1, 1), m) + torch.maximum(x, m).clamp(min=0.5) - 2 * x.clamp(max=0),
    "choices": lambda x, m: torch.where((x > 0) | ~(x <= -1) & (m != 0), x.square(), 1 - x),
    "powers": lambda x, m: (x.exp() + 1).log() / (x.square() + 1).sqrt(),
    "softmax": lambda x, m: torch.log_softmax(x, -1).gather(-1, (m > 0).long()) * x,
    "activations": lambda x, m: x.tanh() * x.sigmoid() + x.relu() * m,
    "products": lambda x, m: torch.addmm(m[0], x, (x.t() @ m) @ m.t() @ x),
    "parts": lambda x, m: torch.cat((x[3:], x[:3] * m[4:]), 0) + torch.stack([row * row.sum() for row in x.unbind()]),
    "largest": lambda x, m: x.amax(-1, keepdim=True) * m + x.gather(-1, m.argmax(-1, keepdim=True)) - x.abs().mean(),
    "soft steps": lambda x, m: torch.nn.functional.softplus(5 * x) * m + torch.full((), 3.0) * x.amin(0),
    "largest of columns": lambda x, m: x * x.detach().amax(0) + blocks(x).detach().amax(1) * m,
    "soft values": lambda x, m: x.logsumexp(-1).unsqueeze(-1) * m + (3 * x).logsumexp(1, keepdim=True),
    "normalised columns": lambda x, m: columns_normalized(x, m[0] + 1.0, m[1]),
    "moments": lambda x, m: torch.addcmul(m, *(each * x for each in torch.var_mean(x, 0, correction=0, keepdim=True))),
    "blocks": lambda x, m: torch.baddbmm(m[:1].expand(7, 1, 3), blocks(x), blocks(m).mT @ blocks(x)).sum(1) * m,
    "exchanged": lambda x, m: (blocks(x).transpose(0, 1) * m).permute(1, 0, 2).softmax(-1).mean(1) @ m.t() @ x,
    "whole numbers": lambda x, m: x * (3 * x).detach().floor() + x.gather(-1, m.abs().detach().long()) * m.xlogy(m),
    "powers of roots": lambda x, m: (x.square() + 1).rsqrt() * x.pow(3) + (m + 1).pow(-2),
    "no numbers": lambda x, m: x * (m / (m - m)).nan_to_num() / 1e38,
    "one row": lambda x, m: (x.unsqueeze(1).sum(1) + m[:1].mean(0)) * x.unsqueeze(1).mean(1),
    "ends": lambda x, m: torch.cat((x[-9:], x[2:2], x[5:99]))[:7] * m[-99:],
    "waves": lambda x, m: x * ((100.0 * x).detach().cos() + (1e5 * m).cos()),
    "sorted": lambda x, m: (x.detach() * m).sort(-1).values[:, :2].sum(-1, keepdim=True) * x,
    "large powers": lambda x, m: (x.abs().clamp(max=1.0) * 87.0).exp().log() * m,
    "rows of blocks": lambda x, m: blocks(x).gather(1, m.long()[:, :1, None].expand(-1, 1, 3)).squeeze(1) * x,
    "vectors": lambda x, m: (x @ m[0]).unsqueeze(-1) * x + (x * torch.arange(3)) @ m[:3],
    "scaled rows": lambda x, m: torch.layer_norm(x, (3,), m[0] + 1.0, m[1]) * m + torch.layer_norm(m, (3,), x[0], x[1]),
    "rows": lambda x, m: torch.layer_norm(3.0 * x, (3,), eps=0.5) * m + torch.layer_norm(blocks(x), (3,)).sum(1),
    "weighted sums": lambda x, m: (blocks(x) * m[:, :1, None]).sum(1) * (blocks(x) * m.unsqueeze(1)).sum(-1),
    "columns": lambda x, m: torch.cat([part * m[:, :1] for part in x.split((1, 2), -1)], -1),
    "rectified": lambda x, m: rectified(x, m) * (x @ m.t() @ x).relu() + torch.addmm(m[0], x, m[:3]).relu(),
    "few digits": lambda x, m: in_few_digits(x, m).float() @ x * m,
    "changed parts": change_parts,
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_operations_and_their_gradients_are_those_of_torch(name):
    torch.manual_seed(1)
    x, m = torch.randn(7, 3).requires_grad_(), torch.randn(7, 3).round().clamp(0, 2)
    recorder = Recorder([x, m])
    with torch.enable_grad(), recorder:
        out = OPERATIONS[name](x, m)
        (gradient,) = torch.autograd.grad((out * m).sum(), [x])
    recorder.add_outputs([out, gradient])
    plan, read = recorder.plan()
    results = [torch.empty(7, 3), torch.empty(7, 3)]
    for seed in range(2):
        if seed:  # other numbers than those of the record
            with torch.no_grad():
                x.copy_(torch.randn(7, 3))
            again = OPERATIONS[name](x, m)
            out, gradient = again, torch.autograd.grad((again * m).sum(), [x])[0]
        run(plan, [recorder.inputs[number] for number in read], results)
        torch.testing.assert_close(results, [out.detach().contiguous(), gradient.contiguous()], rtol=1e-5, atol=1e-5)


def of_blocks(x, m):
    y = torch.stack((x, x * m)) * 2.0 + m[:, :1]
    var, mean = torch.var_mean(y, 1, correction=0, keepdim=True)
    y = (y - mean) / (var + 1.0).sqrt() * m[3] + x.sum(-1)[:2, None, None]
    return torch.where(y > 0, y.tanh(), 0.5 * y.sigmoid()) @ m[:40, :40]


def of_normalized_blocks(x, m):
    y = torch.stack((x, -x)) * torch.stack((m[:1], m[1:2]))
    rows = y.movedim(-2, 0)
    z = columns_normalized(rows.reshape(len(x), -1), m[4:6].reshape(-1), m[6:8].reshape(-1))
    return z.view(rows.shape).movedim(0, -2) + torch.cat((x[:100], x[100:] * 3.0)).flatten(1)


@pytest.mark.parametrize("compute", [of_blocks, of_normalized_blocks])
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("rows", [120, 700])
def test_large_tensors_are_computed_row_by_row_as_torch_does(compute, threads, rows):
    torch.manual_seed(rows)
    x, m = torch.randn(rows, 40).requires_grad_(), torch.randn(rows, 40)
    recorder = Recorder([x, m])
    with torch.enable_grad(), recorder:
        out = compute(x, m)
        (gradient,) = torch.autograd.grad(out.square().sum(), [x])
    recorder.add_outputs([out, gradient])
    plan, read = recorder.plan()
    with torch.no_grad():
        x.copy_(torch.randn(rows, 40))
    expected = compute(x, m)
    expected = [expected.detach(), torch.autograd.grad(expected.square().sum(), [x])[0]]
    found = [torch.empty(each.shape) for each in expected]
    for _ in range(2):
        plan.begin([recorder.inputs[each].data_ptr() for each in read], [each.data_ptr() for each in found], threads)
        plan.run(0)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-3)


def test_columns_far_from_zero_lose_no_more_digits_than_their_numbers():
    torch.manual_seed(0)
    x = 1e4 + torch.randn(512, 20)
    recorder = Recorder([x, scale := torch.ones(20), shift := torch.zeros(20)])
    with recorder:
        out = columns_normalized(x, scale, shift)
    recorder.add_outputs([out])
    plan, read = recorder.plan()
    run(plan, [recorder.inputs[number] for number in read], [out])
    exact = x.double()
    exact = (exact - exact.mean(0)) / (exact.var(0, correction=0) + 1e-5).sqrt()
    torch.testing.assert_close(out.double(), exact, rtol=0.0, atol=1.5e-3)


def test_a_sum_with_zeros_stays_as_it_was_before_a_step():
    weight, found = torch.tensor([1.0, 2.0, 3.0]), torch.empty(3)
    recorder = Recorder([weight])
    with recorder:
        kept = torch.zeros(3) + weight
        with recorder.between_parts([weight]):
            weight.mul_(10.0)
        recorder.add_outputs([kept * 1.0])
    plan, _ = recorder.plan()
    weight.copy_(torch.tensor([1.0, 2.0, 3.0]))
    plan.begin([weight.data_ptr()], [found.data_ptr()], 1)
    plan.run(0)
    weight.mul_(10.0)
    plan.run(1)
    assert found.tolist() == [1.0, 2.0, 3.0]


def test_a_gradient_that_is_read_behind_its_step_is_refused():
    """The step of an optimiser may shrink it."""
    x = torch.tensor([1.0, 2.0])
    recorder = Recorder([x])
    with recorder:
        gradient = x * 2.0
        recorder.add_outputs([gradient], change=True)
        with recorder.between_parts([]):
            pass
        recorder.add_outputs([gradient + 1.0])
    with pytest.raises(Unplannable, match="after the step"):
        recorder.plan()


@pytest.mark.parametrize(
    "compute",
    [
        lambda x, m: m.int() & 2,
        lambda x, m: x.view(torch.int32) + 0,
        lambda x, m: x**m[0, 0],
        lambda x, m: torch.add(x, m, out=torch.empty(7, 3)),
        lambda x, m: x.gather(-1, m.long()[:2]),
        lambda x, m: x.sort(-1, descending=True).values,
        lambda x, m: x.sort(0).values,
        lambda x, m: x.sort().indices * m,
    ],
)
def test_operations_in_a_form_that_plans_do_not_have_are_refused(compute):
    x, m = torch.randn(7, 3), torch.ones(7, 3)
    recorder = Recorder([x, m])
    with recorder, pytest.raises(Unplannable):
        recorder.add_outputs([compute(x, m)])
        recorder.plan()


def test_a_tensor_that_changes_through_a_view_that_no_plan_knows_is_refused():
    x = torch.randn(4, 4)
    recorder = Recorder([x])
    with recorder, pytest.raises(Unplannable, match="transposed"):
        y = x * 1.0
        y.t().add_(1.0)


@pytest.mark.parametrize("rows", [1, 5, 64, 300])
@pytest.mark.parametrize("columns", [1, 3, 16, 40])
def test_products_are_those_of_torch_for_narrow_and_wide_matrices(rows, columns):
    torch.manual_seed(rows + columns)
    a, b = torch.randn(20, rows), torch.randn(20, columns)
    recorder = Recorder([a, b])
    with recorder:
        out = a.t() @ b
    recorder.add_outputs([out])
    found = torch.empty(rows, columns)
    run(recorder.plan()[0], [a, b], [found])
    torch.testing.assert_close(found, out, rtol=1e-5, atol=1e-5)


REFUSED = {
    "no such operation": (99, 1, 0, 0, 0, 0.0, 0.0),
    "a result of nothing": (2, 1, 0, -1, -1, 0.0, 0.0),
    "a tensor of itself": (1, 1, 1, -1, -1, 0.0, 0.0),
    "an input": (1, 0, 0, -1, -1, 0.0, 0.0),
    "no such tensor": (1, 7, 0, -1, -1, 0.0, 0.0),
    "a product that does not fit": (int(operations.Operation.PRODUCT), 1, 0, 0, -1, 0.0, 0.0),
    "a slice beyond the end": (int(operations.Operation.SLICE), 1, 0, -1, -1, 2.0, 1.0),
    "a slice of no dimension": (int(operations.Operation.SLICE), 1, 0, -1, -1, 3.0, 0.0),
    "a part beyond the end": (int(operations.Operation.PUT), 1, 0, 0, -1, 2.0, 1.0),
    "a turned vector": (int(operations.Operation.TURN), 1, 0, -1, -1, 0.0, 0.0),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_step_that_cannot_be_computed_is_refused(case):
    with pytest.raises(ValueError, match=r"no such operation|not there yet|fit each other"):
        Plan([[1, 1, 4], [1, 1, 4]], [0], [REFUSED[case]], [1])


NO_LAYERS, NO_SAMPLE = (-1, 0, False), (0, 0.0, 0.0)
CALL = (int(operations.Operation.CALL), -1, -1, -1, -1, 0.0, 0.0)
REFUSED_CALLS = {
    "no such kind": (9, [0, 0], [1, 2], 2, NO_LAYERS, (2, 0.0, 1.0)),
    "a sample of other rows": (2, [0, 0], [1, 2], 3, NO_LAYERS, (2, 0.0, 1.0)),
    "a sample of nothing": (2, [0], [1, 2], 2, NO_LAYERS, (2, 0.0, 1.0)),
    "a sample that is not written": (2, [0, 0], [1, -1], 2, NO_LAYERS, (1, 0.0, 1.0)),
    "columns of another matrix": (5, [0, 1, 1], [1, 2, 2], 0, NO_LAYERS, NO_SAMPLE),
    "columns of nothing": (4, [], [1, 2], 0, NO_LAYERS, NO_SAMPLE),
    "samples of other rows": (7, [0, 0, 1], [1, 2], 0, NO_LAYERS, NO_SAMPLE),
    "no layers": (0, [0, 0, 0], [1, 2], 2, NO_LAYERS, NO_SAMPLE),
    "no such tensor": (2, [0, 7], [1, 2], 2, NO_LAYERS, (1, 0.0, 1.0)),
    "a result twice": (2, [0, 0], [1, 1], 2, NO_LAYERS, (1, 0.0, 1.0)),
    "layers without parameters": (0, [0], [1, 2], 2, (0, 1, False), NO_SAMPLE),
    "more networks than there are": (0, [0, 0, 0], [1, 2], 2, (0, 2, False), NO_SAMPLE),
}


@pytest.mark.parametrize("case", REFUSED_CALLS)
def test_a_call_that_cannot_be_computed_is_refused(case):
    shapes, layers = [[1, 2, 2], [1, 2, 1], [1, 1, 2]], [Layers(1, [2, 1], 0, False, False)]
    with pytest.raises(ValueError, match=r"of the plan|not there yet|fit each other"):
        Plan(shapes, [0], [CALL], [1], [REFUSED_CALLS[case]], layers)


def test_parts_of_a_plan_lie_within_it_and_in_order():
    steps = [(1, 1, 0, -1, -1, 0.0, 0.0)]
    for ends in ([2], [1, 0]):
        with pytest.raises(ValueError, match="no such part"):
            Plan([[1, 1, 4], [1, 1, 4]], [0], steps, [1], [], [], ends)
    with pytest.raises(IndexError, match="no such part"):
        Plan([[1, 1, 4], [1, 1, 4]], [0], steps, [1]).run(1)


def test_a_dispatch_mode_sees_the_products_of_a_network():
    _, model, batch = minibatch_of(PPO, "CartPole-v1", batch_size=64)
    with FlopCounterMode(display=False) as counter:
        model.evaluate(batch.obs)
    assert counter.get_total_flops() > 0
