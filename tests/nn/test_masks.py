"""Masks of legal actions: what is illegal is never chosen, and everything else is as if it did not exist."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.envs.spaces import ActionSpec
from penstock.nn import ILLEGAL, EpsilonGreedy, distribution_of, legal_values, recorded_distribution
from penstock.nn.distributions import BELOW_ONE
from tests.nn.composites import BITS, CHOICE, CHOICES, MIXED

KINDS = pytest.mark.parametrize(
    "action", [CHOICE, CHOICES, BITS, MIXED], ids=["discrete", "multi-discrete", "bits", "mixed"]
)
EXTREMES = st.sampled_from([0.0, BELOW_ONE])


def parameters(action, rows, seed=0, scale=3.0):
    """Outputs and log_std of a policy, which take gradients."""
    generator = torch.Generator().manual_seed(seed)
    outputs = scale * torch.randn(rows, sum(action.choices) + action.num_numbers, generator=generator)
    log_std = 0.5 * torch.randn(action.num_numbers, generator=generator) if action.num_numbers else None
    return outputs.requires_grad_(), log_std


def masks(action, rows, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).random((rows, sum(action.choices))) < 0.4)


def draw_noise(action, rows, seed=0):
    noise = torch.rand if action.noise == "uniform" else torch.randn
    return noise(rows, action.noise_size, generator=torch.Generator().manual_seed(seed))


def chosen_values(action, chosen):
    """The choices of actions as indices into the mask, ``[rows, k]``."""
    choices = chosen.reshape(len(chosen), -1)[:, : len(action.choices)].long()
    return choices + torch.tensor([0, *np.cumsum(action.choices)[:-1]])


# --- which are legal -------------------------------------------------------------------------------------------------


def test_a_choice_of_which_a_mask_leaves_nothing_is_not_restricted_and_the_others_are():
    mask = torch.tensor([[0, 0, 0, 1, 0, 0, 1, 1, 0], [1, 0, 0, 0, 0, 0, 0, 0, 0], [0] * 9]).bool()
    assert legal_values(mask, (2, 4, 3)).int().tolist() == [
        [1, 1, 0, 1, 0, 0, 1, 1, 0],
        [1, 0, 1, 1, 1, 1, 1, 1, 1],
        [1] * 9,
    ]
    assert legal_values(torch.tensor([[False, True], [False, False]]), (2,)).tolist() == [[False, True], [True, True]]


# --- distributions ---------------------------------------------------------------------------------------------------


@KINDS
@given(seed=st.integers(0, 2**32 - 1), scale=st.sampled_from([0.1, 3.0, 100.0]), noise=EXTREMES | st.none())
@settings(max_examples=40)
def test_nothing_illegal_is_ever_drawn_or_the_mode_and_its_probability_is_zero(action, seed, scale, noise):
    legal = legal_values(masks(action, 64, seed), action.choices)
    outputs, log_std = parameters(action, 64, seed, scale)
    distribution = distribution_of(action, outputs, log_std, legal)
    drawn = draw_noise(action, 64, seed)
    if noise is not None:
        drawn = torch.full_like(drawn, noise if action.noise == "uniform" else 40.0 * (2.0 * noise - 1.0))
    for chosen in (distribution.sample(drawn), distribution.mode()):
        assert legal.gather(1, chosen_values(action, chosen)).all()
        assert (distribution.log_prob(chosen) > -1e6).all()
    choices = getattr(distribution, "choices", distribution)
    probabilities = getattr(choices, "table", choices).log_probs.exp()
    assert (probabilities == 0).sum() >= (~legal).sum()


@KINDS
@given(seed=st.integers(0, 2**32 - 1), scale=st.sampled_from([0.1, 3.0, 100.0]))
@settings(max_examples=40)
def test_with_any_masks_all_results_and_gradients_are_finite(action, seed, scale):
    legal, other_legal = (legal_values(masks(action, 32, seed + i), action.choices) for i in range(2))
    outputs, log_std = parameters(action, 32, seed, scale)
    one = distribution_of(action, outputs, log_std, legal)
    other = distribution_of(action, parameters(action, 32, seed + 1, scale)[0], log_std, other_legal)
    results = one.log_prob(one.sample(draw_noise(action, 32, seed))), one.entropy(), one.kl(other), other.kl(one)
    assert all(result.isfinite().all() for result in results)
    assert (one.entropy() >= -1e-4).all() or log_std is not None
    for result in results:
        (gradient,) = torch.autograd.grad(result.sum(), outputs, retain_graph=True)
        assert gradient.isfinite().all()
        assert (gradient[:, : legal.shape[1]][~legal] == 0).all(), "nothing is learned about what is illegal"


@KINDS
def test_what_is_legal_is_chosen_as_if_nothing_else_existed(action):
    """The same distribution made of the legal logits alone gives the same entropies, divergences and gradients."""
    legal = legal_values(masks(action, 1, seed=4), action.choices)
    left = tuple(int(x.sum()) for x in legal.split(action.choices, 1))
    assert min(left) >= 1 and left != action.choices
    smaller = ActionSpec((), "int64", nvec=left, starts=(0,) * len(left))
    (outputs, log_std), (other_outputs, _) = parameters(action, 1), parameters(action, 1, seed=1)
    kept = torch.cat((legal, torch.ones(1, action.num_numbers, dtype=torch.bool)), 1)
    if action.num_numbers:
        numbers = ActionSpec((action.num_numbers,), "float32")
        smaller = ActionSpec((), "", parts=((None, smaller), (None, numbers)))
    gradients = []
    for spec, index, mask in ((action, ..., legal), (smaller, kept, None)):
        x, y = (z[index].reshape(1, -1) for z in (outputs, other_outputs))
        one, other = distribution_of(spec, x, log_std, mask), distribution_of(spec, y, log_std, mask)
        gradients.append((one.entropy(), one.kl(other), *torch.autograd.grad(one.entropy() + one.kl(other), outputs)))
    torch.testing.assert_close(*gradients)


@KINDS
def test_a_masked_distribution_is_rebuilt_exactly_from_its_recorded_parameters(action):
    legal = legal_values(masks(action, 64), action.choices)
    distribution = distribution_of(action, *parameters(action, 64), legal)
    rebuilt = recorded_distribution(action, distribution.flat)
    chosen = distribution.sample(draw_noise(action, 64))
    assert torch.equal(rebuilt.sample(draw_noise(action, 64)), chosen)
    assert torch.equal(rebuilt.log_prob(chosen), distribution.log_prob(chosen))
    assert torch.equal(rebuilt.kl(distribution), distribution.kl(distribution))


@KINDS
def test_a_mask_that_leaves_all_or_nothing_changes_nothing(action):
    outputs, log_std = parameters(action, 16)
    plain, noise = distribution_of(action, outputs, log_std), draw_noise(action, 16)
    for left in (torch.ones, torch.zeros):
        legal = legal_values(left(16, sum(action.choices)).bool(), action.choices)
        masked = distribution_of(action, outputs, log_std, legal)
        assert torch.equal(masked.sample(noise), plain.sample(noise)) and torch.equal(masked.flat, plain.flat)


# --- greedy with exploration -----------------------------------------------------------------------------------------


def q_values(q, mask):
    """Values as a Q-network gives them, and what is legal."""
    legal = legal_values(mask, (q.shape[-1],))
    return q.masked_fill(~legal, ILLEGAL), legal


def test_below_epsilon_the_noise_names_the_random_action_by_its_number_among_the_legal_ones():
    """Legal are 1, 3, 4: with epsilon 0.3 noise in [0, 0.1) is 1, [0.1, 0.2) is 3, [0.2, 0.3) is 4; else greedy, 3."""
    q, legal = q_values(torch.tensor([9.0, 1.0, 8.0, 3.0, 2.0]), torch.tensor([False, True, False, True, True]))
    noise = torch.tensor([0.0, 0.099, 0.101, 0.199, 0.201, 0.299, 0.301, BELOW_ONE]).unsqueeze(-1)
    distribution = EpsilonGreedy(q.expand(8, 5), 0.3, legal.expand(8, 5))
    assert distribution.sample(noise).tolist() == [1, 1, 3, 3, 4, 4, 3, 3]
    assert (distribution.mode() == 3).all()


def test_exploration_is_uniform_over_the_legal_actions():
    """Of 100000 draws all explore; chi-square with 2 degrees of freedom exceeds 13.8 once in a thousand."""
    count = 100_000
    q, legal = q_values(torch.zeros(count, 5), torch.tensor([True, False, True, False, True]).expand(count, 5))
    actions = EpsilonGreedy(q, 1.0, legal).sample(torch.rand(count, 1, generator=torch.Generator().manual_seed(3)))
    observed = torch.bincount(actions, minlength=5)
    assert observed[[1, 3]].sum() == 0
    assert ((observed[[0, 2, 4]] - count / 3).square() / (count / 3)).sum().item() < 13.8


@given(seed=st.integers(0, 2**32 - 1), epsilon=st.sampled_from([0.0, 0.1, 0.7, 1.0]), noise=EXTREMES | st.none())
@settings(max_examples=40)
def test_neither_greedy_nor_random_actions_are_ever_illegal(seed, epsilon, noise):
    generator = torch.Generator().manual_seed(seed)
    q, legal = q_values(100.0 * torch.randn(64, 6, generator=generator), torch.rand(64, 6, generator=generator) < 0.4)
    drawn = torch.rand(64, 1, generator=generator) if noise is None else torch.full((64, 1), noise * (epsilon or 1.0))
    assert legal.gather(1, EpsilonGreedy(q, epsilon, legal).sample(drawn).unsqueeze(1)).all()


def test_where_all_is_legal_exploration_is_as_without_a_mask():
    q, noise = torch.randn(1000, 7), torch.rand(1000, 1)
    masked = EpsilonGreedy(q, 0.6, torch.ones(1000, 7, dtype=torch.bool))
    assert torch.equal(masked.sample(noise), EpsilonGreedy(q, 0.6).sample(noise))
