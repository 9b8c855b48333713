"""Distributions against torch.distributions, and sampling as a function of given noise."""

import math

import pytest
import torch
from torch.distributions import Categorical as TorchCategorical
from torch.distributions import Independent, Normal, TanhTransform, TransformedDistribution, kl_divergence
from torch.nn.functional import softplus

from penstock.nn import (
    Categorical,
    Deterministic,
    DiagonalGaussian,
    EpsilonGreedy,
    Joint,
    MultiCategorical,
    SquashedGaussian,
    TanhGaussian,
    distribution_of,
    num_parameters,
    recorded_distribution,
    uniform_action,
)
from penstock.nn.distributions import BELOW_ONE
from tests.nn.composites import BITS, CHOICE, CHOICES, MIXED, TORQUE


def random_categorical(*shape, seed=0):
    return Categorical(3.0 * torch.randn(*shape, 5, generator=torch.Generator().manual_seed(seed)))


def random_gaussian(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return DiagonalGaussian(
        torch.randn(*shape, 3, generator=generator), torch.randn(*shape, 3, generator=generator).clamp(-1, 1)
    )


def random_multi(*shape, seed=0):
    logits = 3.0 * torch.randn(*shape, 9, generator=torch.Generator().manual_seed(seed))
    return MultiCategorical(logits, CHOICES.nvec)


def random_joint(*shape, seed=0):
    return Joint(random_multi(*shape, seed=seed), random_gaussian(*shape, seed=seed))


KINDS = {"discrete": (random_categorical, CHOICE), "continuous": (random_gaussian, TORQUE),
         "multi-discrete": (random_multi, CHOICES), "mixed": (random_joint, MIXED)}  # fmt: skip


class Reference:
    """A distribution as torch.distributions have it: one for each choice, one for all numbers."""

    def __init__(self, distribution):
        choices = getattr(distribution, "choices", distribution)
        numbers = getattr(distribution, "numbers", distribution)
        self.is_single = isinstance(choices, Categorical)
        self.parts = []
        if isinstance(choices, Categorical | MultiCategorical):
            widths = list(getattr(choices, "nvec", (5,)))
            self.parts += [TorchCategorical(logits=logits) for logits in choices.logits.split(widths, -1)]
        self.widths = [1] * len(self.parts)
        if isinstance(numbers, DiagonalGaussian):
            self.parts.append(Independent(Normal(numbers.mean, numbers.log_std.exp()), 1))
            self.widths.append(3)

    def sample(self):
        drawn = [part.sample() for part in self.parts]
        columns = [x.unsqueeze(-1) if part.event_shape == () else x for part, x in zip(self.parts, drawn, strict=True)]
        return drawn[0] if self.is_single else torch.cat(columns, -1)

    def log_prob(self, action):
        columns = (action.unsqueeze(-1) if self.is_single else action).split(self.widths, -1)
        values = [x.squeeze(-1) if part.event_shape == () else x for part, x in zip(self.parts, columns, strict=True)]
        return sum(part.log_prob(x) for part, x in zip(self.parts, values, strict=True))

    def entropy(self):
        return sum(part.entropy() for part in self.parts)

    def kl(self, other):
        return sum(kl_divergence(*pair) for pair in zip(self.parts, other.parts, strict=True))


@pytest.fixture(params=KINDS)
def kind(request):
    return KINDS[request.param]


@pytest.fixture
def make(kind):
    return kind[0]


def test_log_prob_entropy_and_kl_agree_with_torch_distributions(make):
    one, other = make(7, 4, seed=1), make(7, 4, seed=2)
    action = Reference(other).sample()
    torch.testing.assert_close(one.log_prob(action), Reference(one).log_prob(action))
    torch.testing.assert_close(one.entropy(), Reference(one).entropy())
    torch.testing.assert_close(one.kl(other), Reference(one).kl(Reference(other)))
    assert one.log_prob(action).shape == one.entropy().shape == one.kl(other).shape == (7, 4)


def test_kl_to_itself_is_zero_and_otherwise_positive(make):
    one, other = make(50, seed=1), make(50, seed=2)
    torch.testing.assert_close(one.kl(one), torch.zeros(50))
    assert (one.kl(other) > 0).all()


def test_gradients_agree_with_torch_distributions(kind):
    make, action_spec = kind
    action = Reference(make(6, seed=3)).sample()
    gradients = []
    for wrap in (lambda distribution: distribution, Reference):
        flat = make(6, seed=1).flat.clone().requires_grad_()
        distribution = wrap(recorded_distribution(action_spec, flat))
        (distribution.log_prob(action) + 0.1 * distribution.entropy()).sum().backward()
        gradients.append(flat.grad)
    torch.testing.assert_close(*gradients)


def test_log_probabilities_have_gradients_also_after_a_use_without(kind):
    make, action_spec = kind
    action = Reference(make(6, seed=3)).sample()
    flat = make(6, seed=1).flat.clone().requires_grad_()
    distribution = recorded_distribution(action_spec, flat)
    with torch.no_grad():  # as V-trace computes its ratios
        distribution.log_prob(action)
    distribution.log_prob(action).sum().backward()
    assert flat.grad.abs().sum() > 0


def test_mode_is_where_the_probability_is_highest():
    assert Categorical(torch.tensor([[0.0, 2.0, 1.0], [3.0, 2.0, 1.0]])).mode().tolist() == [1, 0]
    gaussian = random_gaussian(4)
    assert torch.equal(gaussian.mode(), gaussian.mean)
    several = MultiCategorical(torch.tensor([[0.0, 2.0, 1.0, 3.0, 2.0, 9.0, 0.0, 0.0, 0.0]]), (2, 4, 3))
    assert several.mode().tolist() == [[1, 3, 0]]
    joint = Joint(several, random_gaussian(1))
    assert joint.mode().tolist() == [[1.0, 3.0, 0.0, *joint.numbers.mean[0].tolist()]]


def test_a_distribution_is_rebuilt_exactly_from_its_recorded_parameters(kind):
    make, action = kind
    distribution = make(6, 2)
    assert distribution.flat.shape == (6, 2, num_parameters(action))
    rebuilt = recorded_distribution(action, distribution.flat)
    assert type(rebuilt) is type(distribution)
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


def test_squashed_numbers_have_the_densities_of_torchs_transformed_normals_and_the_divergences_of_its_normals():
    one, other = (SquashedGaussian(g.mean, g.log_std) for g in (random_gaussian(50), random_gaussian(50, seed=1)))
    normal = Normal(one.mean, one.log_std.exp())
    noise = torch.randn(50, 3, generator=torch.Generator().manual_seed(2))
    action = one.sample(noise)
    torch.testing.assert_close(action, torch.tanh(one.mean + one.log_std.exp() * noise))
    expected = TransformedDistribution(normal, TanhTransform()).log_prob(action.clamp(-0.999999, 0.999999)).sum(-1)
    torch.testing.assert_close(one.log_prob(action), expected, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(one.kl(other), kl_divergence(normal, Normal(other.mean, other.log_std.exp())).sum(-1))
    assert torch.equal(one.mode(), one.mean.tanh())
    assert type(one[:3]) is SquashedGaussian and type(one.map(torch.neg)) is SquashedGaussian


@pytest.mark.parametrize("mean", [0.0, 0.5, 2.0, 4.0])
@pytest.mark.parametrize("std", [0.001, 0.3, 0.7, 1.0])
def test_the_entropy_of_squashed_numbers_is_that_of_their_density(mean, std):
    u = mean + std * torch.linspace(-12.0, 12.0, 200_001, dtype=torch.float64)
    log_density = Normal(mean, std).log_prob(u) - 2.0 * (math.log(2.0) - u - softplus(-2.0 * u))
    expected = -torch.trapezoid(Normal(mean, std).log_prob(u).exp() * log_density, u)
    parameters = torch.tensor([mean], requires_grad=True), torch.tensor([std]).log().requires_grad_()
    entropy = SquashedGaussian(*parameters).entropy()
    assert entropy.item() == pytest.approx(expected.item(), abs=1e-3)
    entropy.backward()  # dH / dmean = -2 E tanh(u): an entropy bonus leads back from either bound
    slope = -2.0 * torch.trapezoid(Normal(mean, std).log_prob(u).exp() * u.tanh(), u)
    assert parameters[0].grad.item() == pytest.approx(slope.item(), abs=3e-3)


def test_squashed_numbers_at_a_bound_have_finite_densities_and_gradients():
    mean = torch.tensor([[4.0], [-4.0]], requires_grad=True)
    distribution = SquashedGaussian(mean, torch.tensor([math.log(0.001)]))
    log_prob = distribution.log_prob(torch.tensor([[1.0], [1.0]]))
    assert torch.isfinite(log_prob).all()
    log_prob.sum().backward()
    assert torch.isfinite(mean.grad).all()


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
    given = torch.full((20_000, 1), noise)
    assert set(distribution.sample(given).tolist()) <= {1, 2, 3}
    assert set(distribution.sample_with_log_prob(given)[0].tolist()) <= {1, 2, 3}


def test_a_single_action_is_always_chosen():
    assert Categorical(torch.randn(4, 1)).sample(torch.rand(4, 1)).tolist() == [0, 0, 0, 0]


def test_an_action_is_of_the_columns_shape_and_dtype_and_takes_as_much_noise_as_the_spec_says(kind):
    make, action = kind
    noise = torch.rand(3, 2, action.noise_size)
    for chosen in (make(3, 2).sample(noise), make(3, 2).mode()):
        assert chosen.shape == (3, 2, *action.column_shape)
        assert chosen.dtype == getattr(torch, action.column_dtype)


def test_sampling_draws_nothing_from_torch_generators(kind):
    make, action = kind
    before = torch.get_rng_state()
    distribution, noise = make(4), torch.full((4, action.noise_size), 0.3)
    assert torch.equal(distribution.sample(noise), distribution.sample(noise))
    assert torch.equal(torch.get_rng_state(), before)


def test_samples_with_log_prob_are_the_samples_and_their_log_probabilities(kind):
    make, action_spec = kind
    distribution = make(500, 4)
    noise = torch.rand(500, 4, action_spec.noise_size, generator=torch.Generator().manual_seed(1))
    action, log_prob = distribution.sample_with_log_prob(noise)
    assert torch.equal(action, distribution.sample(noise)) and action.dtype == distribution.sample(noise).dtype
    torch.testing.assert_close(log_prob, distribution.log_prob(action), rtol=0.0, atol=2e-6)


def test_choices_with_log_prob_have_a_gradient_where_it_is_asked_for():
    logits, noise = random_categorical(64).logits, torch.full((64, 1), 0.4)
    action, log_prob = Categorical(logits).sample_with_log_prob(noise)
    same, with_gradient = Categorical(logits.clone().requires_grad_()).sample_with_log_prob(noise)
    assert torch.equal(action, same) and with_gradient.requires_grad and not log_prob.requires_grad


def test_each_of_several_choices_is_the_interval_that_its_own_noise_falls_in():
    """Probabilities 0.5, 0.5 and 0.2, 0.3, 0.5: intervals meet at 0.5 and at 0.2 and 0.5."""
    logits = torch.tensor([0.5, 0.5, 0.2, 0.3, 0.5]).log().expand(4, 5)
    noise = torch.tensor([[0.49, 0.51], [0.51, 0.49], [0.0, 0.19], [0.99, 0.99]])
    assert MultiCategorical(logits, (2, 3)).sample(noise).tolist() == [[0, 2], [1, 1], [0, 0], [1, 2]]


@pytest.mark.parametrize("noise", [0.0, 0.5, BELOW_ONE])
def test_a_choice_of_few_values_never_gets_one_of_a_wider_choice(noise):
    actions = random_multi(20_000).sample(torch.full((20_000, 3), noise))
    assert (actions >= 0).all() and (actions < torch.tensor(CHOICES.nvec)).all()


def test_log_prob_of_several_choices_by_hand():
    """log 0.5 + log 0.3 = log 0.15; the entropy is log 2 + 1.0296530."""
    several = MultiCategorical(torch.tensor([0.5, 0.5, 0.2, 0.3, 0.5]).log(), (2, 3))
    assert several.log_prob(torch.tensor([1, 1])).item() == pytest.approx(math.log(0.15))
    assert several.entropy().item() == pytest.approx(math.log(2.0) + 1.029653)


def test_mixed_actions_are_choices_by_the_quantile_of_their_noise_and_numbers_by_the_noise_itself():
    """Phi(-0.9) = 0.184, Phi(-0.8) = 0.212, Phi(0.01) = 0.504: probabilities 0.2, 0.3, 0.5 meet at 0.2 and 0.5."""
    joint = Joint(
        MultiCategorical(torch.tensor([0.2, 0.3, 0.5]).log().expand(4, 3), (3,)),
        DiagonalGaussian(torch.ones(4, 1), torch.tensor([math.log(0.5)])),
    )
    actions = joint.sample(torch.tensor([[-0.9, 2.0], [-0.8, 0.0], [0.01, -2.0], [40.0, 1.0]]))
    torch.testing.assert_close(actions, torch.tensor([[0.0, 2.0], [1.0, 1.0], [2.0, 0.0], [2.0, 1.5]]))


def test_choices_of_mixed_actions_follow_their_probabilities():
    probabilities = torch.tensor([0.05, 0.4, 0.01, 0.24, 0.3])
    count = 100_000
    choices = MultiCategorical(probabilities.log().expand(count, 5), (5,))
    joint = Joint(choices, DiagonalGaussian(torch.zeros(count, 1), torch.zeros(1)))
    actions = joint.sample(torch.randn(count, 2, generator=torch.Generator().manual_seed(12)))[:, 0]
    observed, expected = torch.bincount(actions.long(), minlength=5), probabilities * count
    assert ((observed - expected).square() / expected).sum().item() < 18.5


def test_parameters_are_the_logits_of_all_choices_then_the_means_of_all_numbers():
    outputs, log_std = torch.randn(4, 12), torch.tensor([-1.0, 0.0, 0.5])
    joint = distribution_of(MIXED, outputs, log_std)
    assert torch.equal(joint.choices.flat, outputs[:, :9]) and joint.choices.nvec == (2, 4, 3)
    assert torch.equal(joint.numbers.mean, outputs[:, 9:]) and (joint.numbers.log_std == log_std).all()
    assert torch.equal(distribution_of(TORQUE, outputs[:, :3], log_std).mean, outputs[:, :3])
    assert torch.equal(distribution_of(CHOICE, outputs[:, :5]).logits, outputs[:, :5])
    assert torch.equal(distribution_of(BITS, outputs[:, :8]).table.logits, outputs[:, :8].unflatten(1, (4, 2)))


# --- greedy with exploration -----------------------------------------------------------------------------------------


def test_below_epsilon_the_noise_itself_names_the_random_action():
    """With epsilon 0.4 and 4 actions, noise in [0, 0.1) is action 0, [0.1, 0.2) action 1, and so on; else greedy."""
    noise = torch.tensor([0.0, 0.05, 0.15, 0.25, 0.35, 0.399, 0.401, 0.99]).unsqueeze(-1)
    distribution = EpsilonGreedy(torch.tensor([0.0, 5.0, 1.0, 2.0]).expand(8, 4), 0.4)
    assert distribution.sample(noise).tolist() == [0, 0, 1, 2, 3, 3, 1, 1]


def test_exploration_is_as_frequent_as_epsilon_says_and_uniform_over_all_actions():
    """Of 100000 draws 0.3 / 5 each go to any action, and 0.7 more to the greedy one; chi-square(4) < 18.5."""
    count = 100_000
    noise = torch.rand(count, 1, generator=torch.Generator().manual_seed(3))
    actions = EpsilonGreedy(torch.tensor([0.0, 0.0, 1.0, 0.0, 0.0]).expand(count, 5), 0.3).sample(noise)
    observed = torch.bincount(actions, minlength=5)
    expected = count * torch.tensor([0.06, 0.06, 0.76, 0.06, 0.06])
    assert ((observed - expected).square() / expected).sum().item() < 18.5


def test_each_lane_may_explore_at_a_rate_of_its_own():
    q = torch.tensor([[0.0, 1.0, 0.0]]).repeat(4, 1)
    epsilon = torch.tensor([1.0, 0.8, 0.5, 0.0])
    assert EpsilonGreedy(q, epsilon).sample(torch.full((4, 1), 0.7)).tolist() == [2, 2, 1, 1]


def with_operations(distribution, noise):
    """The choices as torch's operations compute them, which all actions being legal does not change."""
    legal = torch.ones_like(distribution.q, dtype=torch.bool)
    return EpsilonGreedy(distribution.q, distribution.epsilon, legal).sample(noise)


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0, "of each row"])
@pytest.mark.parametrize("num_actions", [1, 3, 18])
def test_one_call_chooses_as_operations_do(num_actions, epsilon):
    draws = torch.Generator().manual_seed(0)
    q, noise = torch.randn(2_000, num_actions, generator=draws).round(), torch.rand(2_000, 1, generator=draws)
    noise[::7] = BELOW_ONE
    epsilons = torch.rand(2_000, generator=draws) if isinstance(epsilon, str) else epsilon
    distribution = EpsilonGreedy(q, epsilons)
    assert torch.equal(distribution.sample(noise), with_operations(distribution, noise))


@pytest.mark.parametrize("epsilon", [0.0, torch.zeros(6)])
@pytest.mark.parametrize("noise", [0.0, BELOW_ONE])
def test_without_exploration_every_sample_is_the_greedy_action(epsilon, noise):
    q = torch.randn(6, 5, generator=torch.Generator().manual_seed(0))
    distribution = EpsilonGreedy(q, epsilon)
    assert torch.equal(distribution.sample(torch.full((6, 1), noise)), distribution.mode())


@pytest.mark.parametrize("epsilon", [1.0, 0.3, 0.1, 1e-3])
@pytest.mark.parametrize("num_actions", [1, 3, 18])
def test_noise_just_below_epsilon_is_still_a_legal_action(epsilon, num_actions):
    """Were noise / epsilon rounded to 1, that times A would be one action too many."""
    below = torch.nextafter(torch.tensor(epsilon), torch.tensor(0.0)).reshape(1, 1)
    action = EpsilonGreedy(torch.zeros(1, num_actions), epsilon).sample(below)
    assert action.dtype == torch.int64
    assert action.tolist() == [num_actions - 1]


def test_the_greedy_action_is_the_first_of_the_best():
    assert EpsilonGreedy(torch.tensor([[1.0, 3.0, 3.0], [2.0, 2.0, 2.0]]), 0.5).mode().tolist() == [1, 0]


# --- continuous actions in [-1, 1] -----------------------------------------------------------------------------------


def test_a_deterministic_action_is_explored_around_and_stays_within_its_range():
    """0.5 + 0.2 * 1 = 0.7; 0.9 + 0.2 * 2 = 1.3 is cut to 1; -0.9 - 0.2 * 3 = -1.5 to -1."""
    distribution = Deterministic(torch.tensor([[0.5, 0.9, -0.9]]), 0.2)
    torch.testing.assert_close(distribution.sample(torch.tensor([[1.0, 2.0, -3.0]])), torch.tensor([[0.7, 1.0, -1.0]]))
    assert torch.equal(distribution.mode(), torch.tensor([[0.5, 0.9, -0.9]]))


def squashed(mean, log_std):
    """The distribution of these parameters: ``log_std = -5 + 3.5 (1 + tanh(x))`` solved for x."""
    x = torch.atanh((log_std.double() + 1.5) / 3.5).to(log_std.dtype)
    return TanhGaussian(torch.cat((mean, x), -1).requires_grad_())


def random_squashed(*shape, seed=0, dtype=torch.float64):
    gaussian = random_gaussian(*shape, seed=seed)
    return squashed(gaussian.mean.to(dtype), gaussian.log_std.to(dtype))


def test_log_density_of_a_squashed_action_by_hand():
    """log N(0.5; 0, 1) - log(1 - tanh(0.5)^2) = -1.0439385 + 0.2402290 = -0.8037096."""
    action, log_prob = squashed(torch.zeros(1), torch.zeros(1)).sample_with_log_prob(torch.tensor([0.5]))
    assert action.item() == pytest.approx(math.tanh(0.5))
    assert log_prob.shape == ()
    assert log_prob.item() == pytest.approx(-0.803710, abs=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_squashed_actions_their_log_densities_and_gradients_agree_with_torch_distributions(dtype):
    """In float32 the native core draws them; the others are computed in float64."""
    noise = torch.randn(50, 3, generator=torch.Generator().manual_seed(4), dtype=dtype)
    other = random_squashed(50, seed=1)
    one = TanhGaussian(other.outputs.detach().to(dtype).requires_grad_())
    action, log_prob = one.sample_with_log_prob(noise)
    normal = Normal(other.mean, other.log_std.exp())
    squashed = Independent(TransformedDistribution(normal, TanhTransform(cache_size=1)), 1)
    expected_action = torch.tanh(other.mean + other.log_std.exp() * noise)
    near = {"rtol": 1e-4, "atol": 1e-5} if dtype == torch.float32 else {}
    torch.testing.assert_close(action, expected_action.to(dtype), **near)
    torch.testing.assert_close(log_prob, squashed.log_prob(expected_action).to(dtype), **near)
    (log_prob - action.sum(-1)).sum().backward()
    (squashed.log_prob(expected_action) - expected_action.sum(-1)).sum().backward()
    torch.testing.assert_close(one.outputs.grad, other.outputs.grad.to(dtype), **near)


def test_what_is_no_number_stays_visible_in_actions_and_densities():
    outputs = torch.tensor([[0.0, math.nan, 0.0, 0.0], [0.0, 0.0, math.nan, 0.0], [0.0] * 4])
    action, log_prob = TanhGaussian(outputs).sample_with_log_prob(torch.ones(3, 2))
    assert action.isnan().tolist() == [[False, True], [True, False], [False, False]]
    assert log_prob.isnan().tolist() == [True, True, False]


def test_squashed_densities_integrate_to_one_over_actions_in_minus_one_to_one():
    noise = torch.linspace(-8.0, 8.0, 10_001, dtype=torch.float64).unsqueeze(-1)
    mean, log_std = torch.full_like(noise, 0.3), torch.full_like(noise, -0.7)
    action, log_prob = squashed(mean, log_std).sample_with_log_prob(noise)
    assert torch.trapezoid(log_prob.exp(), action.squeeze(-1)).item() == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize("mean", [-40.0, 40.0])
def test_where_tanh_saturates_log_density_and_gradient_stay_finite(mean):
    """There 1 - tanh(u)^2 rounds to 0. log(1 - tanh(40)^2) is 2 log 2 - 80, thus log p = -0.9189385 + 78.6137056."""
    distribution = squashed(torch.full((1,), mean), torch.zeros(1))
    action, log_prob = distribution.sample_with_log_prob(torch.zeros(1))
    assert abs(action.item()) == 1.0
    assert log_prob.item() == pytest.approx(77.694767, rel=1e-6)
    log_prob.backward()
    assert distribution.outputs.grad[0].item() == pytest.approx(math.copysign(2.0, mean))


def test_squashed_sample_and_mode_are_the_squashed_normals():
    distribution = squashed(torch.tensor([[1.0, -2.0]]), torch.tensor([[math.log(0.5), math.log(3.0)]]))
    noise = torch.tensor([[2.0, -1.0]])
    expected = torch.tensor([[math.tanh(2.0), math.tanh(-5.0)]])
    torch.testing.assert_close(distribution.sample(noise), expected)
    torch.testing.assert_close(distribution.sample_with_log_prob(noise)[0], expected)
    torch.testing.assert_close(distribution.mode(), torch.tensor([[math.tanh(1.0), math.tanh(-2.0)]]))


def test_normal_noise_becomes_uniform_actions():
    """Quantiles of the normal at 0.25, 0.5, 0.975 are -0.6744898, 0, 1.9599640; uniform in [-1, 1]: -0.5, 0, 0.95."""
    actions = uniform_action(torch.tensor([-0.6744898, 0.0, 1.9599640]))
    torch.testing.assert_close(actions, torch.tensor([-0.5, 0.0, 0.95]))
    many = uniform_action(torch.randn(100_000, generator=torch.Generator().manual_seed(6)))
    observed = torch.histc(many, bins=10, min=-1.0, max=1.0)
    assert ((observed - 10_000).square() / 10_000).sum().item() < 27.9  # chi-square(9), once in a thousand
