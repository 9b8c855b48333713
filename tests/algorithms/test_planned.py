"""Losses as plans: the same loss, metrics and gradients as torch computes."""

import dataclasses

import pytest
import torch
from torch import Tensor

from penstock._native import Plan
from penstock.algorithms.appo import APPO
from penstock.algorithms.bases import planned
from penstock.algorithms.bases.planned import PlannedLoss, Recorder, Unplannable, leaves_of
from penstock.algorithms.ppo import PPO
from tests.engine.collecting import Collecting


def minibatch_of(kind, env, **settings):
    run = Collecting(kind, env=env, num_envs_per_worker=4, segment_length=16, batch_size=64, **settings)
    batch, algorithm = run.take(), run.algorithm
    run.close()
    model = algorithm.build_model()
    with torch.no_grad():
        algorithm.prepare(model, batch)
    return algorithm, model, batch if algorithm.needs_segments else batch.flatten()


def gradient_of(algorithm, model, batch, loss):
    policy, values = model.evaluate(batch.obs, batch.first, batch.memory)
    if algorithm.needs_segments:
        policy, values = policy[:-1], values[:-1]
    found, metrics = loss(batch, policy, values)
    found.backward()
    gradients = [each.grad.clone() for each in model.parameters()]
    model.zero_grad()
    return found.detach(), {name: each.detach() for name, each in metrics.items()}, gradients


CASES = {
    "choices": (PPO, "CartPole-v1", {}),
    "numbers": (PPO, "Pendulum-v1", {}),
    "clipped values": (PPO, "CartPole-v1", {"value_clip_range": 0.2}),
    "appo": (APPO, "CartPole-v1", {}),
    "decoupled": (APPO, "CartPole-v1", {"loss": "decoupled", "num_epochs": 2}),
    "memory": (PPO, "CartPole-v1", {"memory": "gru", "memory_size": 16}),
}


@pytest.mark.parametrize("case", CASES)
def test_a_planned_loss_is_the_loss_that_torch_computes(case, monkeypatch):
    kind, env, settings = CASES[case]
    algorithm, model, batch = minibatch_of(kind, env, **settings)
    plans = []
    run = PlannedLoss.run
    monkeypatch.setattr(PlannedLoss, "run", lambda self, *given: plans.append(self) or run(self, *given))
    in_torch = type(algorithm).loss.__wrapped__.__get__(algorithm)
    for number in range(3):  # the first records, and steps that are left out come and go
        torch.manual_seed(number)
        learn = (torch.rand(batch.learn.shape) < 0.7).float()
        batch = dataclasses.replace(batch, learn=learn, log_prob=batch.log_prob + torch.randn(batch.log_prob.shape))
        expected = gradient_of(algorithm, model, batch, in_torch)
        found = gradient_of(algorithm, model, batch, algorithm.loss)
        assert found[1].keys() == expected[1].keys()
        for one, other in zip([found[0], *found[1].values()], [expected[0], *expected[1].values()], strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
        for one, other in zip(found[2], expected[2], strict=True):
            assert (one - other).norm() <= 1e-4 * (1.0 + other.norm())
    assert len(plans) == 4  # the check of the new plan, and three losses


def test_settings_and_entropy_coefficients_are_those_of_the_call():
    algorithm, model, batch = minibatch_of(PPO, "CartPole-v1", entropy_coef=0.1, entropy_coef_final=0.0)
    batch = dataclasses.replace(batch, log_prob=batch.log_prob + 1.0)
    policy, values = model.evaluate(batch.obs)

    def loss(progress):
        return algorithm.loss(dataclasses.replace(batch, progress=progress), policy, values)[0].item()

    entropy = policy.entropy().mean().item()
    assert loss(0.0) == pytest.approx(loss(1.0) - 0.1 * entropy, abs=1e-4)
    before = loss(0.0)
    algorithm.take_settings(dataclasses.replace(algorithm.config, value_coef=0.0))
    assert loss(0.0) != pytest.approx(before, abs=1e-3)


class Drawn(PPO):
    """PPO whose loss draws random numbers."""

    @planned.planned
    def loss(self, batch, policy, value):
        loss, metrics = PPO.loss.__wrapped__(self, batch, policy, value)
        return loss + 0.1 * torch.rand(()), metrics


def test_a_loss_that_no_plan_has_stays_in_torch():
    algorithm, model, batch = minibatch_of(Drawn, "CartPole-v1")
    policy, values = model.evaluate(batch.obs)
    assert len({algorithm.loss(batch, policy, values)[0].item() for _ in range(4)}) == 4


class Counting(PPO):
    """PPO with a value error that depends on the calls before."""

    calls = 0

    def value_error(self, batch, value):
        self.calls += 1
        return self.calls * super().value_error(batch, value)


def test_the_loss_of_a_subclass_elsewhere_stays_in_torch():
    algorithm, model, batch = minibatch_of(Counting, "CartPole-v1", entropy_coef=0.0)
    policy, values = model.evaluate(batch.obs)
    found = [algorithm.loss(batch, policy, values)[1]["value_loss"].item() for _ in range(3)]
    assert found == pytest.approx([found[0], 2 * found[0], 3 * found[0]])


def test_a_batch_of_other_shapes_is_refused():
    algorithm, model, batch = minibatch_of(PPO, "CartPole-v1")
    policy, values = model.evaluate(batch.obs)
    algorithm.loss(batch, policy, values)
    with pytest.raises(ValueError, match="another shape"):
        algorithm.loss(dataclasses.replace(batch, learn=batch.learn[:5]), policy, values)


class Foreign(PPO):
    """PPO whose loss has a tensor of its own."""

    weight = torch.tensor(1.0)

    @planned.planned
    def loss(self, batch, policy, value):
        loss, metrics = PPO.loss.__wrapped__(self, batch, policy, value)
        return loss * self.weight, metrics


def test_a_tensor_of_unknown_origin_is_no_constant():
    algorithm, model, batch = minibatch_of(Foreign, "CartPole-v1")
    policy, values = model.evaluate(batch.obs)
    first = algorithm.loss(batch, policy, values)[0]
    Foreign.weight.fill_(3.0)
    assert algorithm.loss(batch, policy, values)[0].item() == pytest.approx(3.0 * first.item(), rel=1e-4)


def test_a_plan_that_computes_other_numbers_is_not_used(monkeypatch):
    algorithm, model, batch = minibatch_of(PPO, "CartPole-v1")
    policy, values = model.evaluate(batch.obs)
    monkeypatch.setitem(planned._RECORDED, "exp", planned._RECORDED["sqrt"])
    with pytest.raises(Unplannable, match="other numbers"):
        PlannedLoss(algorithm.loss.__wrapped__.__get__(algorithm), batch, policy, values)


OPERATIONS = {
    "sums": lambda x, m: (x.sum(-1, keepdim=True) * x.sum(0) + x.sum()) * m,
    "bounds": lambda x, m: torch.minimum(x.clamp(-1, 1), m) + torch.maximum(x, m).clamp(min=0.5) - 2 * x.clamp(max=0),
    "choices": lambda x, m: torch.where((x > 0) | ~(x <= -1) & (m != 0), x.square(), 1 - x),
    "powers": lambda x, m: (x.exp() + 1).log() / (x.square() + 1).sqrt(),
    "softmax": lambda x, m: torch.log_softmax(x, -1).gather(-1, (m > 0).long()) * x,
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_operations_and_their_gradients_are_those_of_torch(name):
    torch.manual_seed(1)
    x, m = torch.randn(7, 3).requires_grad_(), torch.randn(7, 3).round().clamp(0, 2)
    recorder = Recorder([x, m])
    with torch.enable_grad(), recorder:
        out = OPERATIONS[name](x, m)
        (gradient,) = torch.autograd.grad(out.sum(), [x])
    plan, kept = planned._pruned(recorder, [0, 0], [recorder.number(out), recorder.number(gradient)])
    results = [torch.empty(7, 3), torch.empty(7, 3)]
    plan.run([(x, m)[number].data_ptr() for number in kept], [each.data_ptr() for each in results])
    torch.testing.assert_close(results, [out.detach(), gradient], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("step", [(99, 1, 0, 0, 0, 0.0, 0.0), (2, 1, 0, -1, -1, 0.0, 0.0), (1, 1, 1, -1, -1, 0.0, 0.0),
                                  (1, 0, 0, -1, -1, 0.0, 0.0), (1, 7, 0, -1, -1, 0.0, 0.0)])  # fmt: skip
def test_a_step_without_its_tensors_is_refused(step):
    with pytest.raises(ValueError, match=r"no such operation|not there yet"):
        Plan([[1, 1, 4], [1, 1, 4]], [0], [step], [1])


def test_leaves_are_the_parameters_of_distributions_and_the_values():
    algorithm, model, batch = minibatch_of(PPO, "Pendulum-v1")
    policy, values = model.evaluate(batch.obs)
    leaves = leaves_of(policy, values)
    assert leaves[0] is policy.mean and leaves[-1] is values and isinstance(leaves[1], Tensor)
    assert algorithm.loss(batch, policy, values)[0].requires_grad
