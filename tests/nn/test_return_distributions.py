"""Q-networks of return distributions, and noisy ones: their values, masks and choices."""

import math

import pytest
import torch

from penstock.nn import (
    ILLEGAL,
    CategoricalReturns,
    EpsilonGreedy,
    ImplicitQuantileReturns,
    NetworkConfig,
    NoisyGreedy,
    QNetwork,
    QuantileReturns,
)
from penstock.nn.noisy import draw_noise, noise_of_lanes
from penstock.nn.q_heads import joined_streams
from tests.nn.composites import ARM, composite, pack, random_values
from tests.nn.plain import CHOICE, VECTOR, act, observations

B = 5
KINDS = {
    "c51": lambda num_features: CategoricalReturns(4, -1.0, 2.0),
    "quantile": lambda num_features: QuantileReturns(6),
    "iqn": ImplicitQuantileReturns,
}


def network(kind="none", observation=VECTOR, *, dueling=False, noisy=False, epsilon=0.0, **config):
    torch.manual_seed(0)
    settings = NetworkConfig(**{"hidden_sizes": (16, 8), "activation": "relu", **config})
    return QNetwork(
        observation, CHOICE, settings, dueling=dueling, epsilon=epsilon, distribution=KINDS.get(kind),
        noisy_sigma=0.5 if noisy else None,
    )  # fmt: skip


def noise_of(q_network, seed=0):
    return draw_noise(q_network.noise_size, torch.Generator().manual_seed(seed))


EVERY = pytest.mark.parametrize("kind", ["none", *KINDS])
HEADS = pytest.mark.parametrize(("dueling", "noisy"), [(False, False), (True, False), (False, True), (True, True)])


@EVERY
@HEADS
def test_every_action_of_every_row_has_a_value_that_does_not_depend_on_the_other_rows(kind, dueling, noisy):
    q_network, x = network(kind, dueling=dueling, noisy=noisy), observations(VECTOR, B)
    for noise in (None, noise_of(q_network) if noisy else None):
        q = q_network.q(x, noise)
        assert q.shape == (B, 3) and q.dtype == torch.float32
        torch.testing.assert_close(torch.cat([q_network.q(row, noise) for row in x.split(1)]), q)


def test_means_have_all_their_digits_within_autocast():
    """Between 16 and 32 numbers in bfloat16 are 0.125 apart."""
    returns = CategoricalReturns(61, -10.0, 50.0)
    outputs = torch.log(torch.full((2, 61), 1e-6))
    outputs[0, 30], outputs[1, 30], outputs[1, 31] = 0.0, 0.0, math.log(0.05)
    with torch.autocast("cpu", torch.bfloat16):
        first, second = returns.mean(outputs).tolist()
    assert first == pytest.approx(20.0, abs=1e-3)
    assert second - first == pytest.approx(0.05 / 1.05, abs=1e-3)


@pytest.mark.parametrize("kind", KINDS)
@HEADS
def test_values_are_the_means_of_the_distributions(kind, dueling, noisy):
    q_network, x = network(kind, dueling=dueling, noisy=noisy), observations(VECTOR, B)
    outputs, q = q_network.distributions(x)
    expected = outputs.mean(-1) if kind != "c51" else outputs.softmax(-1) @ torch.tensor([-1.0, 0.0, 1.0, 2.0])
    torch.testing.assert_close(q, expected)
    torch.testing.assert_close(q_network.q(x), q)
    assert outputs.shape == (B, 3, {"c51": 4, "quantile": 6, "iqn": 32}[kind])


def test_quantiles_at_fractions_are_features_times_embedded_cosines():
    """And where none are given, they are taken at 1/64, 3/64 ... 63/64."""
    q_network, x = network("iqn"), observations(VECTOR, 1)
    features = q_network.encoder(q_network.input(x))
    embedding = q_network.distribution.embedding

    def quantiles(tau):
        cosines = torch.tensor([math.cos(math.pi * i * tau) for i in range(64)])
        return q_network.head(features * embedding(cosines).clamp(min=0.0))[0]

    fractions = torch.tensor([[0.1, 0.7]])
    found, _ = q_network.distributions(x, fractions=fractions)
    torch.testing.assert_close(found[0], torch.stack([quantiles(0.1), quantiles(0.7)], 1), rtol=1e-4, atol=1e-5)
    midpoints = torch.stack([quantiles((2 * i + 1) / 64) for i in range(32)], 1)
    torch.testing.assert_close(q_network.q(x)[0], midpoints.mean(1), rtol=1e-4, atol=1e-5)


def test_dueling_streams_of_several_numbers_are_joined_number_by_number():
    """Of two atoms V = (1, 10), and A = (1, 0), (2, 0), (3, 6): the means are (2, 2)."""
    joined = joined_streams(torch.tensor([1.0, 10.0]), torch.tensor([1.0, 0.0, 2.0, 0.0, 3.0, 6.0]))
    assert joined.tolist() == [0.0, 8.0, 1.0, 8.0, 2.0, 14.0]
    assert joined_streams(torch.tensor([1.0]), torch.tensor([1.0, 2.0, 3.0])).tolist() == [0.0, 1.0, 2.0]


MASKED = composite({"": ARM}, num_masked=3)
MASKS = torch.tensor([[1, 1, 1], [0, 1, 1], [1, 0, 0], [0, 0, 0], [0, 1, 0]]).bool()
LEGAL = torch.tensor([[1, 1, 1], [0, 1, 1], [1, 0, 0], [1, 1, 1], [0, 1, 0]]).bool()  # where none is left, all


@EVERY
@HEADS
def test_illegal_actions_have_no_value_and_are_never_taken(kind, dueling, noisy):
    x = random_values(ARM, B)
    masked, plain = (network(kind, spec, dueling=dueling, noisy=noisy) for spec in (MASKED, ARM))
    rows = pack(MASKED, {"": x}, MASKS.numpy())
    q = masked.q(rows)
    assert torch.equal(q, plain.q(torch.from_numpy(x)).where(LEGAL, torch.tensor(ILLEGAL)))
    if kind != "none":
        assert torch.equal(masked.distributions(rows)[1], q)
    for _ in range(20):
        distribution, _ = act(masked, rows)
        for actions in (distribution.sample(torch.rand(B, 1)), distribution.mode()):
            assert LEGAL.gather(1, actions.unsqueeze(1)).all()


# --- noise -----------------------------------------------------------------------------------------------------------


@EVERY
@pytest.mark.parametrize("dueling", [False, True])
def test_a_noisy_network_chooses_by_its_mean_weights_or_by_each_lanes_own_noise(kind, dueling):
    q_network = network(kind, dueling=dueling, noisy=True)
    x = observations(VECTOR, 1).expand(B, *VECTOR.shape)
    choice, _ = act(q_network, x)
    assert isinstance(choice, NoisyGreedy)
    assert torch.equal(choice.mode(), q_network.q(x).argmax(1)) and torch.equal(choice.mode(), choice.mode())
    number = torch.linspace(0.0, 0.9, B).unsqueeze(1)
    drawn = choice.drawn(number)
    for lane in range(B):
        noise = noise_of_lanes(number[lane : lane + 1], q_network.noise_size)[0]
        torch.testing.assert_close(drawn.q[lane], q_network.q(x[lane : lane + 1], noise)[0])
    assert len({tuple(row.tolist()) for row in drawn.q}) == B, "the lanes see the same, and value it differently"
    assert torch.equal(choice.sample(number), drawn.q.argmax(1)), "nothing is random beside"


def test_a_choice_without_noise_is_drawn_as_itself():
    choice, _ = act(network(epsilon=0.3), observations(VECTOR, B))
    assert isinstance(choice, EpsilonGreedy) and choice.drawn(torch.rand(B, 1)) is choice


@pytest.mark.parametrize("dueling", [False, True])
def test_all_layers_of_the_head_and_no_others_are_noisy(dueling):
    q_network = network(dueling=dueling, noisy=True)
    sigmas = {name for name, _ in q_network.named_parameters() if "sigma" in name}
    layers = ("value_hidden.", "value.", "advantage_hidden.", "advantage.") if dueling else ("",)
    assert sigmas == {f"head.{layer}sigma_{kind}" for layer in layers for kind in ("weight", "bias")}
    assert q_network.noise_size == ((8 + 8) + (8 + 1) + (8 + 8) + (8 + 3) if dueling else 8 + 3)


def test_both_dueling_streams_have_noise_of_their_own():
    """Noise on the value's stream alone moves all values alike, on the advantages' alone it keeps their mean."""
    q_network, x = network(dueling=True, noisy=True), observations(VECTOR, B)
    quiet, noise = q_network.q(x), noise_of(q_network)
    of_value, of_advantage = noise.clone(), noise.clone()
    of_value[25:], of_advantage[:25] = 0.0, 0.0
    moved = q_network.q(x, of_value) - quiet
    assert moved.abs().max() > 1e-3
    torch.testing.assert_close(moved, moved[:, :1].expand(B, 3))
    moved = q_network.q(x, of_advantage) - quiet
    assert moved.abs().max() > 1e-3
    torch.testing.assert_close(moved.mean(1), torch.zeros(B), atol=1e-6, rtol=0)


@pytest.mark.parametrize("dueling", [False, True])
def test_along_sequences_all_rows_have_the_noise_of_the_pass(dueling):
    q_network = network(dueling=dueling, noisy=True, memory="gru", memory_size=4)
    x, first = observations(VECTOR, 3 * B).unflatten(0, (3, B)), torch.zeros(3, B, dtype=torch.bool)
    state, noise = q_network.initial_state(B), noise_of(q_network)
    along = q_network.unroll(x, first, state, noise=noise)
    for t in range(3):
        choice, state = q_network.act(x[t], first[t], state)
        torch.testing.assert_close(choice.values(None), q_network.unroll(x, first, q_network.initial_state(B))[t])
        assert not torch.allclose(along[t], choice.values(None))
    again = q_network.unroll(x[:1], first[:1], q_network.initial_state(B), noise=noise)
    torch.testing.assert_close(along[:1], again)


def test_atoms_are_no_part_of_a_checkpoint():
    assert not any("atoms" in name for name in network("c51").state_dict())
