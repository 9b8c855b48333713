"""The learner's updates: how fast, how far, how many, and what happens when the numbers are not finite."""

import math

import pytest
import torch
from torch.nn.utils import parameters_to_vector

from penstock.algorithms.appo import APPO
from penstock.algorithms.ppo import PPO
from penstock.engine.roles.learner import MAX_SKIPPED_IN_A_ROW, LearningDiverged
from penstock.nn.observations import RETURN_PRIOR_ROWS
from tests.engine.collecting import FIRST_VERSION, Repeating, Watching, a_run


class Plain(Repeating):
    """Plain gradient descent on a loss of one's choice: by default the sum of all logits."""

    def build_optimizer(self, model):
        return torch.optim.SGD(model.parameters(), lr=self.config.learning_rate)

    def loss(self, batch, policy, value):
        loss = policy.flat.sum()
        return loss, {"loss": loss}


class Poisoned(Plain):
    """A loss that is what ``factors`` say, update by update."""

    factors = (1.0,)

    def build_model(self):
        self.count = 0
        return super().build_model()

    def loss(self, batch, policy, value):
        loss, metrics = super().loss(batch, policy, value)
        self.count += 1
        factor = self.factors[(self.count - 1) % len(self.factors)]
        # "offset": the loss is NaN, but its gradient is not.
        return (loss + math.nan if factor == "offset" else loss * factor), metrics


class PoisonedWithReturns(Poisoned):
    """With targets of values, and so with return statistics."""

    targets_for = ("batch",)

    def targets(self, model, batch, policy, values):
        return self.estimate_advantages(model, batch, values, 1.0)


def test_a_minibatch_of_which_nothing_is_learned_makes_no_update():
    # With memory a minibatch is whole segments: here one each.
    run, learner = a_run(memory="gru", batch_size=8, num_minibatches=4, num_epochs=2)
    run.arena.columns["version"].reshape(-1, 9)[run.fill()[1]] = -1000
    report = run.learn_once(learner)
    assert report.updates == 2 * 3 and report.version == FIRST_VERSION + 6
    assert report.steps == 24 and report.experience["masked_steps"] == 8
    run.close()


def test_the_learning_rate_falls_linearly_to_zero_over_the_budget_of_steps():
    settings = {"learning_rate": 0.1, "learning_rate_schedule": "linear", "total_steps": 128}
    run, learner = a_run(batch_size=32, num_minibatches=1, **settings)
    rates = [run.learn_once(learner).learning_rate for _ in range(6)]
    assert rates == pytest.approx([0.1, 0.075, 0.05, 0.025, 0.0, 0.0])
    run.close()


def test_a_constant_learning_rate_stays():
    run, learner = a_run(learning_rate=0.1, learning_rate_schedule="constant", total_steps=64)
    assert [run.learn_once(learner).learning_rate for _ in range(3)] == [0.1] * 3
    run.close()


@pytest.mark.parametrize("algorithm", [PPO, APPO])
def test_a_target_kl_ends_a_batchs_updates_early(algorithm):
    settings = {"num_epochs": 4, "learning_rate": 0.05, "batch_size": 8}
    if algorithm is APPO:
        settings["num_minibatches"] = 4
    run, learner = a_run(algorithm, **settings)
    assert run.learn_once(learner).updates == 16
    run.close()
    run, learner = a_run(algorithm, target_kl=1e-4, **settings)
    report = run.learn_once(learner)
    assert report.updates == 2, "the first update finds no KL yet, the second does"
    run.close()


@pytest.mark.parametrize("max_grad_norm", [0.25, 1e9])
def test_an_update_moves_the_weights_by_at_most_the_clipped_gradient(max_grad_norm):
    run, learner = a_run(Plain, batch_size=32, learning_rate=1.0, max_grad_norm=max_grad_norm)
    before = parameters_to_vector(run.model.parameters()).detach().clone()
    report = run.learn_once(learner)
    run.weights.refresh()
    moved = (parameters_to_vector(run.model.parameters()) - before).norm().item()
    norm = report.losses["grad_norm"]
    assert norm > 0.25 and moved == pytest.approx(min(norm, max_grad_norm), rel=1e-4)
    run.close()


@pytest.mark.parametrize("factor", [math.nan, math.inf, "offset"])
def test_an_update_that_is_not_finite_is_skipped_and_counted(factor):
    run, learner = a_run(Poisoned, batch_size=32)
    run.algorithm.factors = (factor, 1.0)
    weights = run.published()
    report = run.learn_once(learner)
    assert report.skipped_updates == 1 and report.updates == 0 and report.version == FIRST_VERSION
    assert report.steps == 32
    assert run.published() == weights
    report = run.learn_once(learner)
    assert report.skipped_updates == 1 and report.updates == 1
    run.weights.refresh()
    assert all(torch.isfinite(p).all() for p in run.model.parameters()) and run.published() != weights
    run.close()


@pytest.mark.parametrize("factors", [(math.nan, 1.0), (1.0, math.nan)], ids=["first", "last"])
def test_a_batch_of_which_any_update_is_not_finite_stays_out_of_the_statistics(factors):
    run, learner = a_run(PoisonedWithReturns, batch_size=32, num_epochs=2, normalize_returns=True)
    run.algorithm.factors = (*factors, 1.0, 1.0)
    moments = (run.model.return_moments, run.model.input.moments)
    report = run.learn_once(learner)
    run.weights.refresh()
    assert (report.updates, report.skipped_updates) == (1, 1)
    assert [each.count.item() for each in moments] == [RETURN_PRIOR_ROWS, 0]
    run.learn_once(learner)
    run.weights.refresh()
    assert [each.count.item() for each in moments] == [RETURN_PRIOR_ROWS + 32, 32]
    run.close()


def test_what_a_skipped_update_would_have_reported_is_not_reported():
    run, learner = a_run(Poisoned, batch_size=32, num_epochs=3)
    run.algorithm.factors = (1.0, math.nan, 1.0)
    seen, loss = [], run.algorithm.loss

    def remembered(*given):
        total, metrics = loss(*given)
        seen.append(metrics["loss"].item())
        return total, metrics

    run.algorithm.loss = remembered
    assert run.learn_once(learner).losses["loss"] == pytest.approx((seen[0] + seen[2]) / 2)
    run.close()


def test_learning_that_is_never_finite_ends_with_a_diagnosis():
    run, learner = a_run(Poisoned, batch_size=32, num_epochs=7)
    run.algorithm.factors = (math.nan,)
    assert run.learn_once(learner).skipped_updates == 7
    assert run.learn_once(learner).skipped_updates == 14
    with pytest.raises(LearningDiverged) as end:
        run.learn_once(learner)
    message = str(end.value)
    assert f"{MAX_SKIPPED_IN_A_ROW} updates in a row were not finite (loss nan, gradient norm nan)" in message
    assert "at update 0, step 64: the first loss was already not finite: check the loss and the network; or" in message
    assert "lower learning_rate (now 0.0003)" in message
    run.close()


def test_a_finite_update_in_between_forgives_those_before():
    run, learner = a_run(Poisoned, batch_size=32, num_epochs=19)
    run.algorithm.factors = (*[math.nan] * 18, 1.0)
    assert [run.learn_once(learner).skipped_updates for _ in range(3)] == [18, 36, 54]
    run.close()


@pytest.mark.parametrize("algorithm", [PPO, APPO])
@pytest.mark.parametrize("memory", ["gru", "lstm"])
def test_updates_reach_the_memory_core_and_normalise_returns(algorithm, memory):
    run, learner = a_run(algorithm, memory=memory, normalize_returns=True)
    before = {name: tensor.clone() for name, tensor in run.model.state_dict().items()}
    for _ in range(2):
        run.learn_once(learner)
    run.weights.refresh()
    after = run.model.state_dict()
    for name in ("memory.cell.weight_hh", "memory.cell.weight_ih", "return_moments.mean", "input.moments.mean"):
        assert not torch.equal(before[name], after[name]), name
    assert after["return_moments.count"].item() - RETURN_PRIOR_ROWS == run.learned[-1].steps
    assert after["input.moments.count"].item() == run.learned[-1].steps
    run.close()


def test_observation_statistics_stand_still_while_a_batch_is_learned_and_are_published_after():
    run, learner = a_run(Watching, batch_size=32, num_epochs=2)
    seen = []
    run.algorithm.watch = lambda: seen.append(learner._model.input.moments.count.item())
    run.learn_once(learner)
    assert seen == [0.0, 0.0]
    run.weights.refresh()
    assert run.model.input.moments.count.item() == 32.0
    run.close()
