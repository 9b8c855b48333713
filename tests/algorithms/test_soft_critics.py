"""Critics of SAC's family: distributions of returns, both ends in one batch, weights that return to their norm."""

import dataclasses
import math

import pytest
import torch

from penstock.algorithms.arithmetic.distributional import gaussian_histogram, of_smaller_mean
from penstock.algorithms.bases.planned import PlannedUpdate
from penstock.algorithms.crossq import CrossQ
from penstock.algorithms.fasttd3 import FastTD3
from penstock.algorithms.sac import SAC
from penstock.algorithms.tqc import TQC
from penstock.config import ConfigError
from penstock.nn import StochasticActorCritic
from penstock.nn.bodies import UnitHead, UnitLinear
from penstock.nn.norms import BatchNorm
from tests.algorithms.projecting import projected_plainly
from tests.algorithms.transitions import (
    TORQUE,
    VECTOR,
    begin,
    changed,
    copied,
    descend_plainly,
    make,
    random_transitions,
    transitions,
)

THREE = {"num_atoms": 3, "v_min": -1.0, "v_max": 1.0}
PARTS = {"network": "residual", "hidden_sizes": (8, 8), "normalization": "batch", "unit_weights": True}


def test_the_distribution_of_the_smaller_mean_is_taken_as_a_whole():
    """Means 0.4 and 0.5: the first, although it has more mass on the largest atom."""
    first, second = [0.6, 0.0, 0.4], [0.0, 1.5 - 1.0, 0.5]
    atoms = torch.tensor([0.0, 0.5, 1.0])
    probability = torch.tensor([[first, second], [second, first]])
    assert torch.equal(of_smaller_mean(probability, atoms), torch.tensor([first, first]))


def test_means_are_compared_with_all_their_digits_within_autocast():
    atoms = torch.linspace(-10.0, 50.0, 61)
    lower, higher = torch.zeros(2, 1, 61)
    lower[0, 30], higher[0, 30], higher[0, 31] = 1.0, 0.95, 0.05
    with torch.autocast("cpu", torch.bfloat16):
        found = of_smaller_mean(torch.stack((higher, lower)), atoms)
    assert torch.equal(found, lower)


def test_a_gaussian_histogram_has_the_normal_distributions_mass_in_each_bin():
    atoms, value = torch.linspace(-2.0, 2.0, 5), 0.3

    def below(edge):
        return 0.5 * (1.0 + math.erf((edge - value) / 0.75 / math.sqrt(2.0)))

    whole = below(2.5) - below(-2.5)
    expected = [(below(z + 0.5) - below(z - 0.5)) / whole for z in atoms.tolist()]
    torch.testing.assert_close(gaussian_histogram(torch.tensor([value]), atoms), torch.tensor([expected]))
    beyond = gaussian_histogram(torch.tensor([9.0, 2.0, -50.0]), atoms)
    assert torch.equal(beyond[0], beyond[1])
    torch.testing.assert_close(beyond.sum(1), torch.ones(3))
    assert beyond[2].argmax() == 0


def constant_critics(algorithm, model, *logits):
    """Let critics without hidden layers, and those of the target network, give these logits."""
    with torch.no_grad():
        for network in {model, algorithm.target}:
            network.critics.head.weight.zero_()
            network.critics.head.bias.copy_(torch.tensor(logits).unsqueeze(1))


@pytest.mark.parametrize("algorithm", [SAC, CrossQ])
def test_logits_step_towards_the_projected_distribution_of_the_smaller_mean(algorithm):
    """Without entropy: r + d z of the second critic, whose mean is smaller. A logit's gradient is p - m."""
    own = {} if algorithm is SAC else {"normalization": "batch", "critic_hidden_sizes": ()}
    learns = make(algorithm, VECTOR, TORQUE, alpha=0.0, distributional="c51", **THREE, **own)
    model = begin(learns)
    logits = torch.tensor([[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]])
    constant_critics(learns, model, *logits.tolist())
    descend_plainly(learns)
    batch = transitions([[0.0, 0.0]] * 2, [[0.0], [0.5]], [0.25] * 2, [0.5] * 2, [[0.0, 1.0]] * 2)
    error, metrics = learns.update(model, batch)
    p = logits.softmax(-1)
    m = torch.tensor(projected_plainly([-0.25, 0.25, 0.75], p[1].tolist(), [-1.0, 0.0, 1.0]))
    torch.testing.assert_close(model.critics.head.bias.squeeze(1), logits - (p - m), atol=1e-5, rtol=1e-5)
    kl = (m * (m.log() - p.log())).sum(-1)
    torch.testing.assert_close(error, kl.unsqueeze(1).expand(2, 2), atol=1e-5, rtol=1e-5)
    assert metrics["critic_loss"].item() == pytest.approx(kl.sum().item(), abs=1e-5)
    torch.testing.assert_close(metrics["q"], (p @ torch.tensor([-1.0, 0.0, 1.0])).unsqueeze(1).expand(2, 2))


def test_the_entropy_bonus_shifts_every_return():
    learns = make(SAC, VECTOR, TORQUE, distributional="c51", **THREE)
    model = begin(learns)
    constant_critics(learns, model, [0.0, 30.0, 0.0], [0.0, 30.0, 0.0])  # all mass at 0
    q, next_q = (net.critics(torch.zeros(1, 3)) for net in (model, learns.target))
    batch = transitions([[0.0, 0.0]], [[0.0]], [0.1], [0.5], [[0.0, 1.0]])
    _, error, _ = learns.critic_loss(model, q, next_q, torch.tensor([0.4]), batch)  # at 0.1 + 0.5 * 0.4 = 0.3
    entropy = -(0.7 * math.log(0.7) + 0.3 * math.log(0.3))
    assert error[0].item() == pytest.approx(0.3 * 30.0 - entropy, abs=1e-4)


def test_hl_gauss_learns_a_histogram_around_the_smaller_mean():
    learns = make(SAC, VECTOR, TORQUE, alpha=0.0, distributional="hl_gauss", **THREE)
    model = begin(learns)
    logits = torch.tensor([[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]])
    constant_critics(learns, model, *logits.tolist())
    descend_plainly(learns)
    learns.update(model, transitions([[0.0, 0.0]], [[0.0]], [0.25], [0.5], [[0.0, 1.0]]))
    p, atoms = logits.softmax(-1), torch.tensor([-1.0, 0.0, 1.0])
    m = gaussian_histogram(0.25 + 0.5 * (p[1:] @ atoms), atoms)
    torch.testing.assert_close(model.critics.head.bias.squeeze(1), logits - (p - m), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(("own", "kind"), [(SAC, "c51"), (SAC, "hl_gauss"), (CrossQ, "c51"), (FastTD3, None)])
@pytest.mark.parametrize("return_bound", [None, 1.0])
def test_targets_outside_of_the_atoms_are_measured_and_noted_once_where_rewards_are_not_scaled(own, kind, return_bound):
    settings = {"alpha": 0.0, "distributional": kind} if kind else {}
    settings |= {"normalization": "batch", "critic_hidden_sizes": ()} if own is CrossQ else {}
    learns = make(own, VECTOR, TORQUE, **THREE, **settings, return_bound=return_bound)
    update = PlannedUpdate(learns, begin(learns))
    given = transitions([[0.0, 0.0]] * 4, [[0.0]] * 4, [0.0, 5.5, -3.0, 0.5], [0.0] * 4, [[0.0, 1.0]] * 4)
    given = dataclasses.replace(given, running_return=given.reward)
    for number in range(1, 201):
        batch, _ = learns.prepare(None, dataclasses.replace(given, number=number))
        _, metrics = update(batch)
    assert (update.plan_for(batch) is None) == (kind == "hl_gauss")  # without a plan it runs in torch
    assert metrics["outside_support"].item() == (0.5 if return_bound is None else 0.0)
    assert len(learns.remarks) == (return_bound is None)
    assert all("50% of the targets lie outside the support, v_min=-1 to v_max=1" in text for text in learns.remarks)


@pytest.mark.parametrize("algorithm", [SAC, TQC, CrossQ])
def test_weights_return_to_their_norm_after_the_steps_that_moved_them(algorithm):
    own = {} if algorithm is TQC else {"distributional": "c51"}
    learns = make(algorithm, VECTOR, TORQUE, critic_hidden_sizes=(8, 8), **PARTS, **own)
    model = begin(learns)
    before = copied(model)
    with learns.training_mode(model):
        for number in range(1, 4):
            learns.update(model, random_transitions(TORQUE, number=number))
    assert changed(model, before) == set(before) - {"returns.atoms"}
    for module in model.modules():
        if isinstance(module, UnitLinear):
            torch.testing.assert_close(module.weight.norm(dim=1), torch.ones_like(module.weight[:, 0]))
        if isinstance(module, UnitHead):
            torch.testing.assert_close(module.weight.norm(dim=1), torch.ones_like(module.weight[:, 0]))
        if isinstance(module, BatchNorm):
            squares = module.scale.square().sum(-1) + module.shift.square().sum(-1)
            torch.testing.assert_close(squares, torch.full_like(squares, module.scale.shape[-1]))


def test_target_critics_normalise_by_the_batch_of_both_ends():
    learns = make(SAC, VECTOR, TORQUE, **PARTS)
    model = begin(learns)
    batch, next_action = random_transitions(TORQUE), torch.zeros(16, 1)
    with learns.training_mode(model):
        q, next_q = learns.both_ends(model, batch, next_action)
        together = model.joint_q(batch.obs, batch.action, batch.next_obs, next_action)
    torch.testing.assert_close(q, together[0])
    torch.testing.assert_close(next_q, together[1].detach())  # the target network is a copy
    assert not next_q.requires_grad


@pytest.mark.parametrize("algorithm", [SAC, CrossQ, TQC])
def test_the_policys_objective_is_of_critics_with_running_moments_within_updates_too(algorithm):
    learns = make(algorithm, VECTOR, TORQUE, critic_hidden_sizes=(8,), normalization="batch")
    model = begin(learns)
    batch = random_transitions(TORQUE)
    with learns.training_mode(model):
        learns.update(model, batch)  # moments of their own
        seen = learns.value(model, batch.obs, batch.action)
        by_the_batch = model.q(batch.obs, batch.action)
    q = model.q(batch.obs, batch.action)
    expected = q.mean((0, 2)) if algorithm is TQC else model.values(batch.obs, batch.action).amin(0)
    torch.testing.assert_close(seen, expected)
    assert (q - by_the_batch).abs().amax() > 1e-3


def test_plain_settings_make_plain_networks():
    assert type(make(SAC, VECTOR, TORQUE).build_model()) is StochasticActorCritic
    assert type(make(TQC, VECTOR, TORQUE).build_model()) is StochasticActorCritic
    model = make(SAC, VECTOR, TORQUE, critic_hidden_sizes=(5,)).build_model()
    assert type(model) is StochasticActorCritic and model.critics.sizes == (3, 5)


@pytest.mark.parametrize(
    ("algorithm", "settings", "message"),
    [
        (SAC, {"network": "residual", "hidden_sizes": (8, 4)}, r"hidden_sizes=\(8, 4\).*blocks have one width"),
        (SAC, {"network": "residual", "hidden_sizes": (8,), "critic_hidden_sizes": ()}, "critic_hidden_sizes"),
        (SAC, {"critic_hidden_sizes": (8, 0)}, "critic_hidden_sizes"),
        (SAC, {"v_min": 1.0, "v_max": 1.0}, "v_min=1 must be less than v_max=1"),
        (SAC, {"num_atoms": 1}, "num_atoms"),
        (TQC, {"distributional": "c51"}, "TQC give quantiles"),
        (CrossQ, {"normalization": "layer"}, 'normalization="batch"'),
        (CrossQ, {"network": "residual", "hidden_sizes": (8,)}, 'normalization="batch"'),
    ],
)
def test_settings_that_do_not_fit_are_refused(algorithm, settings, message):
    with pytest.raises(ConfigError, match=message):
        make(algorithm, VECTOR, TORQUE, **settings)
