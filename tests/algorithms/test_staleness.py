"""Experience of earlier policies: its measure, and the decoupled loss."""

import pytest
import torch

from penstock.algorithms.appo import APPO
from penstock.algorithms.arithmetic.losses import effective_samples, normalize_advantage, truncated_weight
from penstock.algorithms.arithmetic.returns import gae, vtrace
from penstock.algorithms.clear import CLEAR
from penstock.algorithms.impact import IMPACT
from penstock.algorithms.impala import IMPALA
from penstock.algorithms.laser import LASER
from penstock.config import ConfigError
from tests.algorithms.batches import collect, gradients, make, make_model, settings_alone, whole

ASYNCHRONOUS = [APPO, IMPALA, IMPACT, CLEAR, LASER]


# (sum w)^2 / (n sum w^2): 4^2 / (3 * 6); of 1, 0, 0, 0 a quarter; weights of 2 and 1 on equal ratios: 3^2 / (2 * 5).
@pytest.mark.parametrize(
    ("ratios", "learn", "expected"),
    [([1.0] * 4, [1.0] * 4, 1.0), ([2.0, 1.0, 1.0], [1.0] * 3, 16 / 18), ([3.0, 3.0], [1.0] * 2, 1.0),
     ([1.0, 1e-8, 1e-8, 1e-8], [1.0] * 4, 0.25), ([9.0, 2.0, 2.0], [0.0, 1.0, 1.0], 1.0),
     ([1.0, 1.0], [2.0, 1.0], 0.9), ([5.0], [0.0], 0.0)],
)  # fmt: skip
def test_the_effective_sample_size_has_the_golden_values(ratios, learn, expected):
    found = effective_samples(torch.tensor(ratios).log(), torch.tensor(learn))
    assert found.item() == pytest.approx(expected, abs=1e-6)


def test_a_weight_is_the_ratio_up_to_its_bound():
    log_prob = torch.tensor([0.5, 0.1, 0.3]).log().requires_grad_()
    weight = truncated_weight(log_prob, torch.tensor([0.1, 0.2, 0.2]).log(), 2.0)
    torch.testing.assert_close(weight, torch.tensor([2.0, 0.5, 1.5]))
    assert not weight.requires_grad


def stale(algorithm, model):
    """A batch of a policy that was another one: 0.8 standard deviations in the logarithms of the ratios."""
    batch = collect(algorithm, model)
    noise = torch.randn(batch.log_prob.shape, generator=torch.Generator().manual_seed(7))
    batch.log_prob = batch.log_prob + 0.8 * noise
    batch.records = {"logits": torch.zeros(*noise.shape, 3), "value": torch.zeros_like(noise)}
    return batch, -0.8 * noise


def evaluated(algorithm, model, batch):
    algorithm.begin(model)
    algorithm.prepare(model, batch)
    return algorithm.evaluate(model, whole(algorithm, batch))


@pytest.mark.parametrize("kind", ASYNCHRONOUS)
def test_every_asynchronous_algorithm_reports_the_effective_samples_of_its_ratios(kind):
    settings = {"trust_region": 100.0, "replay": ("queue:1/2", "uniform:1/2")} if kind is LASER else {}
    algorithm = make(kind, **settings)
    model = make_model(algorithm)
    batch, log_ratio = stale(algorithm, model)
    _, metrics = evaluated(algorithm, model, batch)
    expected = effective_samples(log_ratio, batch.learn).item()
    assert metrics["effective_samples"].item() == pytest.approx(expected, rel=1e-4) and expected < 0.9


@pytest.mark.parametrize("estimator", ["gae", "vtrace"])
def test_on_fresh_experience_the_decoupled_loss_is_the_clipped_one(estimator):
    algorithms = [make(APPO, loss=loss, advantage_estimator=estimator) for loss in ("clipped", "decoupled")]
    model = make_model(algorithms[0])
    losses = [evaluated(algorithm, model, collect(algorithm, model))[0] for algorithm in algorithms]
    assert losses[0].item() == pytest.approx(losses[1].item(), rel=1e-6)
    for one, other in zip(*(gradients(loss, model).values() for loss in losses), strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("estimator", ["gae", "vtrace"])
def test_the_decoupled_loss_clips_around_the_policy_of_the_batchs_start_and_weighs_by_its_ratio(estimator):
    bound = 1.3
    algorithm = make(APPO, loss="decoupled", rho_proximal=bound, advantage_estimator=estimator, **settings_alone())
    model = make_model(algorithm)
    batch, _ = stale(algorithm, model)
    algorithm.prepare(model, batch)
    proximal = model.evaluate(batch.obs)[0][:-1].log_prob(batch.action).detach()
    values = model.evaluate(batch.obs)[1].detach()
    with torch.no_grad():  # updates of the same batch
        model.policy_head.weight.add_(0.4 * torch.randn(3, 8, generator=torch.Generator().manual_seed(1)))
    loss, metrics = algorithm.evaluate(model, whole(algorithm, batch))

    log_prob = model.evaluate(batch.obs)[0][:-1].log_prob(batch.action)
    c, flags = algorithm.config, (batch.terminated, batch.truncated)
    if estimator == "gae":
        advantage, _ = gae(batch.reward, values, *flags, gamma=c.gamma, lambda_=c.gae_lambda)
    else:
        log_ratio = (log_prob - batch.log_prob).detach()
        target, _ = vtrace(batch.reward, values, *flags, log_ratio, gamma=c.gamma, lambda_=c.gae_lambda)
        following = torch.cat((target[1:], values[-1:]))  # r + d (lambda v' + (1 - lambda) V') - V, no ratio before it
        goes_on = (~(flags[0] | flags[1])).float()
        goes_on[-1] = 0.0
        mixed = values[1:] + c.gae_lambda * goes_on * (following - values[1:])
        advantage = batch.reward + c.gamma * (~batch.terminated).float() * mixed - values[:-1]
    advantage = normalize_advantage(advantage, batch.learn)
    ratio = (log_prob - proximal).exp()
    weight = (proximal - batch.log_prob).exp().clamp(max=bound)
    assert (weight == bound).any() and (weight < bound).any() and 0 < metrics["clip_fraction"] < 1
    objective = weight * torch.minimum(ratio * advantage, ratio.clamp(1 / 1.2, 1.2) * advantage)
    expected = -objective.mean()
    assert loss.item() == pytest.approx(expected.item(), rel=1e-4)
    found, wanted = gradients(loss, model), gradients(expected, model)
    torch.testing.assert_close(found["policy_head.weight"], wanted["policy_head.weight"], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("setting", "message"),
    [({"loss": "coupled"}, "decoupled"), ({"rho_proximal": 0.0}, "rho_proximal=0.0 is not legal")],
)
def test_illegal_settings_are_named(setting, message):
    with pytest.raises(ConfigError, match=message):
        make(APPO, **setting)
