"""The Q-network: values of all actions, in one stream or two, and how it starts and acts."""

import pytest
import torch
from torch import nn

from penstock.nn import ILLEGAL, EpsilonGreedy, NetworkConfig, QNetwork
from tests.nn.composites import ARM, CAMERA, CHOICES, composite, pack, random_rows, random_values
from tests.nn.plain import CHOICE, DISCRETE, IMAGE, SCALAR, TORQUE, VECTOR, act, observations

B = 5


def network(observation=VECTOR, action=CHOICE, *, dueling=False, epsilon=0.1, **config):
    torch.manual_seed(0)
    settings = NetworkConfig(**{"hidden_sizes": (16, 8), "activation": "relu", **config})
    return QNetwork(observation, action, settings, dueling=dueling, epsilon=epsilon)


@pytest.mark.parametrize("dueling", [False, True], ids=["plain", "dueling"])
@pytest.mark.parametrize(
    "observation", [VECTOR, SCALAR, DISCRETE, IMAGE], ids=["vector", "scalar", "discrete", "image"]
)
def test_every_action_of_every_row_has_a_value_that_does_not_depend_on_the_other_rows(observation, dueling):
    q_network, x = network(observation, dueling=dueling), observations(observation, B)
    q = q_network.q(x)
    assert q.shape == (B, 3) and q.dtype == torch.float32
    torch.testing.assert_close(torch.cat([q_network.q(row) for row in x.split(1)]), q)


def test_it_acts_greedily_on_its_values_but_for_epsilon():
    q_network, x = network(epsilon=0.25), observations(VECTOR, B)
    distribution, state = act(q_network, x)
    assert isinstance(distribution, EpsilonGreedy)
    assert torch.equal(distribution.q, q_network.q(x))
    assert distribution.epsilon == 0.25
    assert state.shape == (B, 0)
    assert q_network.state_size == 0


def test_epsilon_may_be_set_anew_also_for_each_lane():
    q_network, x = network(), observations(VECTOR, 2)
    q_network.epsilon = torch.tensor([1.0, 0.0])
    actions = act(q_network, x)[0].sample(torch.full((2, 1), 0.99))
    assert actions.tolist() == [2, q_network.q(x)[1].argmax().item()]


# --- masks -----------------------------------------------------------------------------------------------------------

MASKED = composite({"": ARM}, num_masked=3)
MASKS = [[1, 1, 1], [0, 1, 1], [1, 0, 0], [0, 0, 0], [0, 1, 0]]


@pytest.mark.parametrize("dueling", [False, True], ids=["plain", "dueling"])
def test_values_are_those_without_a_mask_but_for_illegal_actions(dueling):
    x = random_values(ARM, B)
    masked, plain = network(MASKED, dueling=dueling), network(ARM, dueling=dueling)
    plain.load_state_dict(masked.state_dict())
    q = masked.q(pack(MASKED, {"": x}, torch.tensor(MASKS).bool().numpy()))
    legal = torch.tensor([[1, 1, 1], [0, 1, 1], [1, 0, 0], [1, 1, 1], [0, 1, 0]]).bool()  # where none is left, all
    assert torch.equal(q, plain.q(torch.from_numpy(x)).where(legal, torch.tensor(ILLEGAL)))


@pytest.mark.parametrize("epsilon", [0.0, 1.0])
@pytest.mark.parametrize("noise", [0.0, 0.5, 0.999])
def test_it_never_acts_illegally(epsilon, noise):
    rows = pack(MASKED, {"": random_values(ARM, B)}, torch.tensor(MASKS).bool().numpy())
    q_network = network(MASKED, epsilon=epsilon)
    with torch.no_grad():
        q_network.head.bias.copy_(torch.tensor([5.0, 0.0, -5.0]))
    distribution, _ = act(q_network, rows)
    for actions in (distribution.sample(torch.full((B, 1), noise)), distribution.mode()):
        assert actions[1] in (1, 2) and actions[2] == 0 and actions[4] == 1
    assert distribution.mode().tolist() == [0, 1, 0, 0, 1]


def test_an_image_and_numbers_are_valued_together():
    observation = composite({"eye": CAMERA, "arm": ARM}, num_masked=3)
    q_network = network(observation, dueling=True, normalize_observations=True)
    rows = random_rows(observation, B)
    q_network.update_observation_statistics(rows)
    assert q_network.q(rows).shape == (B, 3)
    q_network.q(rows).sum().backward()
    assert all(parameter.grad is not None for parameter in q_network.parameters())


# --- dueling ---------------------------------------------------------------------------------------------------------


def test_value_and_advantages_combine_to_values_whose_mean_is_the_state_value():
    """V = 1 and A = (1, 2, 3) give Q = 1 + A - 2 = (0, 1, 2); with a constant added to A they are the same."""
    head = network(dueling=True).head
    for constant in (0.0, 7.0):
        with torch.no_grad():
            for layer, bias in (
                (head.value, [1.0]),
                (head.advantage, [1.0 + constant, 2.0 + constant, 3.0 + constant]),
            ):
                layer.weight.zero_()
                layer.bias.copy_(torch.tensor(bias))
        torch.testing.assert_close(head(torch.randn(1, 8)), torch.tensor([[0.0, 1.0, 2.0]]))


def test_each_stream_has_a_hidden_layer_of_its_own_as_wide_as_the_features():
    q_network = network(dueling=True)
    assert q_network.head.hidden[0].weight.shape == (2 * 8, 8)
    gradients = []
    for output in (lambda q: q.mean(), lambda q: q[:, 0].sum() - q[:, 1].sum()):  # V alone, and advantages alone
        (gradient,) = torch.autograd.grad(
            output(q_network.q(observations(VECTOR, 50))), q_network.head.hidden[0].weight
        )
        gradients.append(gradient)
    of_value, of_advantage = gradients
    assert of_value[:8].abs().sum() > 0 and of_advantage[8:].abs().sum() > 0
    torch.testing.assert_close(of_value[8:], torch.zeros(8, 8))
    torch.testing.assert_close(of_advantage[:8], torch.zeros(8, 8))


def test_the_gradient_that_enters_the_trunk_from_two_streams_is_scaled_by_one_over_root_two():
    head, features = network(dueling=True).head, torch.randn(B, 8, requires_grad=True)
    value, advantage = head.hidden(features).chunk(2, -1)
    advantage = head.advantage(advantage)
    (plain,) = torch.autograd.grad((head.value(value) + advantage - advantage.mean(-1, keepdim=True)).sum(), features)
    doubled = 2.0 * features  # another use of the same features, whose gradient is its own
    (gradient,) = torch.autograd.grad(head(features).sum() + doubled.sum(), features)
    torch.testing.assert_close(gradient - 2.0, plain * 0.5**0.5)


def test_the_streams_themselves_learn_at_full_speed():
    head, features = network(dueling=True).head, torch.randn(B, 8)
    for x in (features, features.clone().requires_grad_()):
        head.zero_grad()
        head(x).sum().backward()
        assert head.value.bias.grad.item() == pytest.approx(3 * B)


# --- how it starts ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dueling", [False, True], ids=["plain", "dueling"])
@pytest.mark.parametrize("observation", [VECTOR, IMAGE], ids=["vector", "image"])
def test_first_values_lie_near_zero(observation, dueling):
    q = network(observation, dueling=dueling, hidden_sizes=(256, 256)).q(observations(observation, 100))
    assert 0.0 < q.abs().max() < 0.5


@pytest.mark.parametrize("observation", [VECTOR, IMAGE], ids=["vector", "image"])
def test_layers_start_uniform_within_one_over_the_root_of_their_inputs(observation):
    layers = [m for m in network(observation, hidden_sizes=(64, 64)).encoder.modules() if hasattr(m, "weight")]
    assert len(layers) >= 2
    for layer in layers:
        bound = layer.weight[0].numel() ** -0.5
        assert 0.9 * bound < layer.weight.abs().max() <= bound
        assert 0 < layer.bias.abs().max() <= bound


def test_an_encoder_of_ones_own_starts_as_it_was_made():
    def encoder(spec):
        return nn.Sequential(nn.Linear(4, 8), nn.ReLU()).apply(
            lambda m: nn.init.ones_(m.weight) if isinstance(m, nn.Linear) else None
        )

    q_network = network(encoder=encoder)
    assert (q_network.encoder[0].weight == 1.0).all()
    assert q_network.q(observations(VECTOR, B)).shape == (B, 3)


# --- memory ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dueling", [False, True], ids=["plain", "dueling"])
@pytest.mark.parametrize("memory", ["gru", "lstm"])
@pytest.mark.parametrize("observation", [VECTOR, SCALAR, DISCRETE, IMAGE, MASKED], ids=str)
def test_unrolling_a_sequence_gives_the_values_that_acting_row_by_row_does(observation, memory, dueling):
    """Episodes begin in different rows of the lanes; the state before row 0 is not that of an episode's beginning."""
    q_network = network(observation, memory=memory, memory_size=6, dueling=dueling)
    rows = 7
    if observation is MASKED:
        masks = torch.tensor(MASKS).bool().repeat(rows, 1).numpy()
        x = pack(MASKED, {"": random_values(ARM, rows * B)}, masks).unflatten(0, (rows, B))
    else:
        x = observations(observation, rows, B)
    first = torch.rand(rows, B, generator=torch.Generator().manual_seed(2)) < 0.2
    start = torch.randn(B, q_network.state_size, generator=torch.Generator().manual_seed(3))
    state, acted = start, []
    for t in range(rows):
        choice, state = q_network.act(x[t], first[t], state)
        acted.append(choice.q)
    close = {"rtol": 1e-4, "atol": 1e-5}
    torch.testing.assert_close(q_network.unroll(x, first, start), torch.stack(acted), **close)
    torch.testing.assert_close(q_network.unroll(x, first, start, 3), torch.stack(acted[3:]), **close)
    assert (torch.stack(acted) == ILLEGAL).any() == (observation is MASKED)
    assert state.shape == (B, 6 if memory == "gru" else 12)


def test_what_needs_a_memory_or_must_have_none_says_so():
    x, first = observations(VECTOR, 3, B), torch.zeros(3, B, dtype=torch.bool)
    with pytest.raises(ValueError, match="has no values of single observations: use unroll, or act"):
        network(memory="gru").q(x[0])
    with pytest.raises(ValueError, match="nothing to unroll: use q"):
        network().unroll(x, first, torch.zeros(B, 0))


# --- precision, statistics, settings ---------------------------------------------------------------------------------


@pytest.mark.parametrize("dueling", [False, True], ids=["plain", "dueling"])
def test_under_autocast_the_encoder_is_bfloat16_and_values_float32(dueling):
    q_network, x = network(IMAGE, dueling=dueling), observations(IMAGE, B)
    encoded = []
    q_network.encoder.register_forward_hook(lambda _module, _inputs, output: encoded.append(output.dtype))
    exact = q_network.q(x)
    with torch.autocast("cpu", torch.bfloat16):
        q = q_network.q(x)
    assert encoded == [torch.float32, torch.bfloat16]
    assert q.dtype == torch.float32
    torch.testing.assert_close(q, exact, rtol=0.1, atol=0.01)
    q.sum().backward()
    assert all(parameter.grad.dtype == torch.float32 for parameter in q_network.parameters())


def test_observation_statistics_shift_and_scale_what_the_network_sees():
    q_network, plain = network(normalize_observations=True), network()
    plain.load_state_dict(q_network.state_dict(), strict=False)
    x = 3.0 + 2.0 * observations(VECTOR, 1000)
    mask = torch.arange(1000) < 500
    q_network.update_observation_statistics(x, mask)
    expected = ((x - x[mask].mean(0)) / x[mask].std(0, correction=0)).clamp(-10, 10)
    torch.testing.assert_close(q_network.q(x), plain.q(expected), rtol=1e-3, atol=1e-4)


def test_an_unknown_memory_is_refused_by_name():
    with pytest.raises(ValueError, match=r"memory='rnn' is not legal: it must be one of 'none', 'gru', 'lstm'"):
        network(memory="rnn")


def test_continuous_actions_are_not_legal_and_the_message_says_so():
    with pytest.raises(ValueError, match=r"discrete actions; found continuous ones"):
        network(action=TORQUE)
    with pytest.raises(ValueError, match=r"discrete actions; found multi-discrete ones"):
        network(action=CHOICES)


# --- learning --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dueling", [False, True], ids=["plain", "dueling"])
def test_it_learns_the_values_of_actions(dueling):
    """Action 0 is worth the first number, action 1 the second, action 2 nothing."""
    q_network = network(dueling=dueling, hidden_sizes=(64, 64))
    optimizer = torch.optim.Adam(q_network.parameters(), lr=3e-3)
    generator = torch.Generator().manual_seed(1)
    for _ in range(200):
        x = torch.randn(64, 4, generator=generator)
        loss = (q_network.q(x) - torch.stack((x[:, 0], x[:, 1], torch.zeros(64)), -1)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.02
