"""Distributions against torch.distributions, and sampling as a function of given noise."""

import math

import pytest
import torch
from torch.distributions import Categorical as TorchCategorical
from torch.distributions import Independent, Normal, kl_divergence

from penstock.envs.spaces import ActionSpec
from penstock.nn import Categorical, DiagonalGaussian, distribution_class

BELOW_ONE = 1.0 - 2.0**-24  # the largest float32 below 1

DISCRETE = ActionSpec((), "int64", num_actions=5)
CONTINUOUS = ActionSpec((3,), "float32", low=(-1.0,) * 3, high=(1.0,) * 3)


def random_categorical(*shape, seed=0):
    return Categorical(3.0 * torch.randn(*shape, 5, generator=torch.Generator().manual_seed(seed)))


def random_gaussian(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return DiagonalGaussian(
        torch.randn(*shape, 3, generator=generator), torch.randn(*shape, 3, generator=generator).clamp(-1, 1)
    )


def reference(distribution):
    if isinstance(distribution, Categorical):
        return TorchCategorical(logits=distribution.logits)
    return Independent(Normal(distribution.mean, distribution.log_std.exp()), 1)


@pytest.fixture(params=[random_categorical, random_gaussian], ids=["categorical", "gaussian"])
def make(request):
    return request.param


def test_log_prob_entropy_and_kl_agree_with_torch_distributions(make):
    one, other = make(7, 4, seed=1), make(7, 4, seed=2)
    action = reference(other).sample()
    torch.testing.assert_close(one.log_prob(action), reference(one).log_prob(action))
    torch.testing.assert_close(one.entropy(), reference(one).entropy())
    torch.testing.assert_close(one.kl(other), kl_divergence(reference(one), reference(other)))
    assert one.log_prob(action).shape == one.entropy().shape == one.kl(other).shape == (7, 4)


def test_kl_to_itself_is_zero_and_otherwise_positive(make):
    one, other = make(50, seed=1), make(50, seed=2)
    torch.testing.assert_close(one.kl(one), torch.zeros(50))
    assert (one.kl(other) > 0).all()


def test_gradients_agree_with_torch_distributions(make):
    action = reference(make(6, seed=3)).sample()
    gradients = []
    for wrap in (lambda distribution: distribution, reference):
        flat = make(6, seed=1).flat.clone().requires_grad_()
        distribution = wrap(type(make(6)).from_flat(flat))
        (distribution.log_prob(action) + 0.1 * distribution.entropy()).sum().backward()
        gradients.append(flat.grad)
    torch.testing.assert_close(*gradients)


def test_mode_is_where_the_probability_is_highest():
    assert Categorical(torch.tensor([[0.0, 2.0, 1.0], [3.0, 2.0, 1.0]])).mode().tolist() == [1, 0]
    gaussian = random_gaussian(4)
    assert torch.equal(gaussian.mode(), gaussian.mean)


@pytest.mark.parametrize(("make_one", "action"), [(random_categorical, DISCRETE), (random_gaussian, CONTINUOUS)])
def test_a_distribution_is_rebuilt_exactly_from_its_recorded_parameters(make_one, action):
    distribution = make_one(6, 2)
    cls = distribution_class(action)
    assert isinstance(distribution, cls)
    assert distribution.flat.shape == (6, 2, cls.num_parameters(action))
    rebuilt = cls.from_flat(distribution.flat)
    chosen = distribution.mode()
    assert torch.equal(rebuilt.log_prob(chosen), distribution.log_prob(chosen))
    assert torch.equal(rebuilt.flat, distribution.flat)


def test_indexing_chooses_rows(make):
    distribution = make(5, 2)
    earlier = distribution[:-1]
    assert torch.equal(earlier.flat, distribution.flat[:-1])
    assert torch.equal(earlier.entropy(), distribution.entropy()[:-1])


def test_gaussian_with_one_deviation_for_all_rows_is_the_same_as_with_repeated_ones():
    mean, log_std = torch.randn(4, 3), torch.tensor([-1.0, 0.0, 0.5])
    shared, repeated = DiagonalGaussian(mean, log_std), DiagonalGaussian(mean, log_std.repeat(4, 1))
    assert torch.equal(shared.flat, repeated.flat)
    assert torch.equal(shared.entropy(), repeated.entropy())


def test_gaussian_sample_is_mean_plus_deviation_times_noise():
    gaussian = DiagonalGaussian(torch.tensor([[1.0, -2.0]]), torch.tensor([math.log(0.5), math.log(3.0)]))
    torch.testing.assert_close(gaussian.sample(torch.tensor([[2.0, -1.0]])), torch.tensor([[2.0, -5.0]]))


# --- inverse-CDF sampling --------------------------------------------------------------------------------------------


def test_categorical_sample_is_the_interval_that_the_noise_falls_in():
    """Probabilities 0.2, 0.3, 0.5 split [0, 1) at 0.2 and 0.5."""
    distribution = Categorical(torch.tensor([0.2, 0.3, 0.5]).log().expand(6, 3))
    noise = torch.tensor([0.0, 0.19, 0.21, 0.49, 0.51, 0.99]).unsqueeze(-1)
    assert distribution.sample(noise).tolist() == [0, 0, 1, 1, 2, 2]


def test_categorical_samples_follow_the_probabilities():
    """Chi-square with 4 degrees of freedom exceeds 18.5 once in a thousand; evenly spread noise does far better."""
    probabilities = torch.tensor([0.05, 0.4, 0.01, 0.24, 0.3])
    count = 100_000
    noise = torch.rand(count, 1, generator=torch.Generator().manual_seed(11))
    actions = Categorical(probabilities.log().expand(count, 5)).sample(noise)
    observed, expected = torch.bincount(actions, minlength=5), probabilities * count
    assert ((observed - expected).square() / expected).sum().item() < 18.5


@pytest.mark.parametrize("noise", [0.0, 0.5, BELOW_ONE, 1.0])
def test_categorical_sample_is_always_a_legal_action(noise):
    distribution = random_categorical(20_000)
    actions = distribution.sample(torch.full((20_000, 1), noise))
    assert actions.dtype == torch.int64
    assert actions.min() >= 0
    assert actions.max() <= 4


@pytest.mark.parametrize("noise", [0.0, BELOW_ONE])
def test_an_action_of_probability_zero_is_never_drawn(noise):
    """Logits 200 apart underflow to probability 0 in float32; they stand at both ends, where rounding tempts."""
    likely = torch.randn(20_000, 3, generator=torch.Generator().manual_seed(0))
    impossible = torch.full((20_000, 1), -200.0)
    distribution = Categorical(torch.cat((impossible, likely, impossible, impossible), -1))
    actions = distribution.sample(torch.full((20_000, 1), noise))
    assert set(actions.tolist()) <= {1, 2, 3}


def test_a_single_action_is_always_chosen():
    assert Categorical(torch.randn(4, 1)).sample(torch.rand(4, 1)).tolist() == [0, 0, 0, 0]


def test_sampling_keeps_leading_dimensions():
    assert random_categorical(3, 2).sample(torch.rand(3, 2, 1)).shape == (3, 2)
    assert random_gaussian(3, 2).sample(torch.randn(3, 2, 3)).shape == (3, 2, 3)


def test_sampling_draws_nothing_from_torch_generators(make):
    before = torch.get_rng_state()
    noise_size = 1 if make is random_categorical else 3
    distribution, noise = make(4), torch.full((4, noise_size), 0.3)
    assert torch.equal(distribution.sample(noise), distribution.sample(noise))
    assert torch.equal(torch.get_rng_state(), before)
