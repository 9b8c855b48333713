"""Networks for continuous actions: actors within their range, critics side by side but independent."""

import copy
import math

import pytest
import torch
from torch import nn

from penstock.envs.spaces import ActionSpec, ObservationSpec
from penstock.nn import Deterministic, DeterministicActorCritic, NetworkConfig, StochasticActorCritic, TanhGaussian
from penstock.nn.layers import Tanh
from tests.nn.composites import ARM, CAMERA, MIXED, ROOM, composite
from tests.nn.plain import CHOICE, DISCRETE, IMAGE, VECTOR, act, observations, runs

B, D, CRITICS = 5, 2, 3

MATRIX = ObservationSpec((4, 3), "float32")
VECTORS = composite({"arm": ARM, "room": ROOM})
EYE_AND_ARM = composite({"eye": CAMERA, "arm": ARM})
TORQUE = ActionSpec((D,), "float32", low=(-2.0,) * D, high=(2.0,) * D)

ALL_OBSERVATIONS = pytest.mark.parametrize(
    "observation",
    [VECTOR, MATRIX, DISCRETE, IMAGE, VECTORS, EYE_AND_ARM],
    ids=["vector", "matrix", "discrete", "image", "vectors", "image and vector"],
)
BOTH = pytest.mark.parametrize("make", ["deterministic", "stochastic"], indirect=True)


def settings(config):
    return NetworkConfig(**{"hidden_sizes": (16, 8), "activation": "relu", **config})


def deterministic(observation=VECTOR, action=TORQUE, *, num_critics=CRITICS, exploration_std=0.1, **config):
    torch.manual_seed(0)
    return DeterministicActorCritic(
        observation, action, settings(config), num_critics=num_critics, exploration_std=exploration_std
    )


def stochastic(observation=VECTOR, action=TORQUE, *, num_critics=CRITICS, initial_alpha=1.0, clips=False, **config):
    torch.manual_seed(0)
    return StochasticActorCritic(
        observation, action, settings(config),
        num_critics=num_critics, initial_alpha=initial_alpha, clips_log_std=clips,
    )  # fmt: skip


@pytest.fixture
def make(request):
    return {"deterministic": deterministic, "stochastic": stochastic}[request.param]


def actions(*leading, seed=0):
    return 2.0 * torch.rand(*leading, D, generator=torch.Generator().manual_seed(seed)) - 1.0


# --- actors ----------------------------------------------------------------------------------------------------------


@ALL_OBSERVATIONS
def test_a_deterministic_actor_acts_by_its_policy_and_explores_around_it(observation):
    network, x = deterministic(observation, exploration_std=0.3), observations(observation, B)
    action = network.policy(x)
    assert action.shape == (B, D) and action.dtype == torch.float32
    distribution, state = act(network, x)
    assert isinstance(distribution, Deterministic)
    assert torch.equal(distribution.mode(), action)
    torch.testing.assert_close(distribution.sample(torch.ones(B, D)), (action + 0.3).clamp(max=1.0))
    assert state.shape == (B, 0)
    assert network.state_size == 0


@ALL_OBSERVATIONS
def test_a_stochastic_actor_acts_by_its_policy(observation):
    network, x = stochastic(observation), observations(observation, B)
    policy = network.policy(x)
    assert policy.mean.shape == policy.log_std.shape == (B, D)
    distribution, state = act(network, x)
    assert isinstance(distribution, TanhGaussian)
    assert torch.equal(distribution.mode(), policy.mode())
    assert torch.equal(distribution.log_std, policy.log_std)
    assert state.shape == (B, 0)


def test_however_large_the_numbers_actions_stay_within_their_range():
    network = deterministic()
    nn.init.constant_(network.actor_head.bias, 100.0)
    assert (network.policy(observations(VECTOR, B)) == 1.0).all()


@pytest.mark.parametrize(("output", "log_std"), [(-50.0, -5.0), (0.0, -1.5), (50.0, 2.0)])
def test_the_deviation_of_stochastic_actions_stays_within_bounds(output, log_std):
    """-5 + 3.5 (1 + tanh x) runs from -5 over -1.5 at x = 0 to 2."""
    network = stochastic()
    nn.init.zeros_(network.actor_head.weight)
    nn.init.constant_(network.actor_head.bias, output)
    torch.testing.assert_close(network.policy(observations(VECTOR, B)).log_std, torch.full((B, D), log_std))


@pytest.mark.parametrize(("output", "log_std"), [(-50.0, -20.0), (-3.0, -3.0), (50.0, 2.0)])
def test_a_clipped_deviation_is_the_output_within_the_published_bounds(output, log_std):
    """With it the native core, which squashes, does not draw: densities are those of the clipped deviation."""
    network = stochastic(clips=True)
    nn.init.zeros_(network.actor_head.weight)
    nn.init.constant_(network.actor_head.bias, output)
    policy = network.policy(observations(VECTOR, B))
    torch.testing.assert_close(policy.log_std, torch.full((B, D), log_std))
    rows = policy.map(lambda outputs: outputs[:1])
    action, log_prob = rows.sample_with_log_prob(torch.zeros(1, D))
    density = -D * (log_std + 0.5 * math.log(2 * math.pi)) - (1.0 - action.double().square()).log().sum()
    if abs(output) < 5.0:  # the tangent has not rounded to 1
        assert log_prob.item() == pytest.approx(density.item(), abs=1e-4)


def test_even_far_from_its_middle_the_deviation_has_a_gradient():
    network = stochastic()
    nn.init.constant_(network.actor_head.bias, -3.0)
    network.policy(observations(VECTOR, B)).log_std.sum().backward()
    assert (network.actor_head.bias.grad[D:] > 0).all()
    assert (network.actor_head.bias.grad[:D] == 0).all()


@BOTH
@pytest.mark.parametrize("observation", [VECTOR, IMAGE], ids=["vector", "image"])
def test_acting_does_not_run_the_critics(make, observation):
    network = make(observation)
    critic_encoder, critics = runs(network.critic_encoder), runs(network.critics)
    act(network, observations(observation, B))
    assert not critic_encoder and not critics
    network.q(observations(observation, B), actions(B))
    assert critic_encoder and critics


# --- critics ---------------------------------------------------------------------------------------------------------


@BOTH
@ALL_OBSERVATIONS
def test_every_critic_values_every_row_and_the_first_alone_as_among_the_others(make, observation):
    network, x = make(observation), observations(observation, B)
    q = network.q(x, actions(B))
    assert q.shape == (CRITICS, B) and q.dtype == torch.float32
    torch.testing.assert_close(network.q1(x, actions(B)), q[0])
    assert not torch.allclose(q[0], q[1])


def test_a_critic_is_a_plain_network_of_observation_and_action_side_by_side():
    network, x, a = deterministic(), observations(VECTOR, B), actions(B)
    q = network.q(x, a)
    for critic in range(CRITICS):
        h = torch.cat((x, a), -1)
        for layer in network.critics.hidden:
            h = (h @ layer.weight[critic] + layer.bias[critic]).relu()
        h = h @ network.critics.head.weight[critic] + network.critics.head.bias[critic]
        torch.testing.assert_close(q[critic], h.squeeze(-1))


def test_critics_are_independent_of_each_other():
    network = deterministic()
    network.q(observations(VECTOR, B), actions(B))[1].sum().backward()
    for parameter in network.critics.parameters():
        assert (parameter.grad[[0, 2]] == 0).all()
        assert (parameter.grad[1] != 0).any()


def test_critics_see_all_parts_of_a_composite_observation_and_the_action_side_by_side():
    network, rows, a = deterministic(VECTORS), observations(VECTORS, B), actions(B)
    alone = deterministic(ObservationSpec((3 + 4,), "float32"))
    alone.critics.load_state_dict(network.critics.state_dict())
    seen = network.input(rows)
    assert torch.equal(network.q(rows, a), alone.q(torch.cat((seen["arm"], seen["room"]), 1), a))


@pytest.mark.parametrize("observation", [VECTORS, EYE_AND_ARM], ids=["vectors", "image and vector"])
def test_every_parameter_over_composite_observations_learns(observation):
    network, rows = deterministic(observation), observations(observation, B)
    (network.q(rows, actions(B)).sum() + network.policy(rows).sum()).backward()
    assert all(parameter.grad is not None for parameter in network.parameters())


def test_images_have_one_encoder_for_the_actor_and_another_shared_by_the_critics():
    network = deterministic(IMAGE)
    assert network.encoder is not network.critic_encoder
    assert [tuple(layer.weight.shape) for layer in network.critics.hidden] == [(CRITICS, 512 + D, 256)]
    network.q(observations(IMAGE, B), actions(B)).sum().backward()
    assert all(parameter.grad is not None for parameter in network.critic_encoder.parameters())
    assert all(parameter.grad is None for parameter in network.encoder.parameters())


def test_critics_behind_images_have_the_sizes_and_the_activation_that_are_given():
    network = DeterministicActorCritic(
        IMAGE, TORQUE, settings({"activation": "silu"}), num_critics=CRITICS, exploration_std=0.1, critic_sizes=(8, 4)
    )
    assert network.critics.sizes == (512 + D, 8, 4)
    assert network.critics.activation_name == "silu"


def test_an_encoder_of_ones_own_is_built_once_for_the_actor_and_once_for_the_critics():
    network = stochastic(encoder=lambda spec: nn.Linear(4, 8))
    assert network.encoder is not network.critic_encoder
    assert network.q(observations(VECTOR, B), actions(B)).shape == (CRITICS, B)


def test_critics_start_as_linear_layers_do_each_with_numbers_of_its_own():
    network = deterministic(hidden_sizes=(64, 64))
    for layer in (*network.critics.hidden, network.critics.head):
        bound = layer.weight.shape[1] ** -0.5
        for critic in range(CRITICS):
            assert 0.8 * bound < layer.weight[critic].abs().max() <= bound
            assert 0 < layer.bias[critic].abs().max() <= bound
        assert not torch.equal(layer.weight[0], layer.weight[1])


@pytest.mark.parametrize("activation", ["tanh", "relu", "elu", "silu"])
def test_actor_and_critics_have_the_activation_that_was_asked_for(activation):
    network = deterministic(activation=activation)
    kind = {"tanh": Tanh, "relu": nn.ReLU, "elu": nn.ELU, "silu": nn.SiLU}[activation]
    assert isinstance(network.encoder[1], kind)
    assert isinstance(network.critics.activation, kind)


# --- what is trained by which loss -----------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("observation", [VECTOR, IMAGE], ids=["vector", "image"])
def test_actor_and_critics_share_no_parameter_and_leave_only_the_temperature_over(make, observation):
    network = make(observation)
    actor, critics = network.actor_parameters(), network.critic_parameters()
    assert isinstance(actor, list) and isinstance(critics, list)
    listed = {id(parameter) for parameter in (*actor, *critics)}
    assert len(listed) == len(actor) + len(critics)
    left = [name for name, parameter in network.named_parameters() if id(parameter) not in listed]
    assert left == (["log_alpha"] if make is stochastic else [])


@pytest.mark.parametrize("observation", [VECTOR, IMAGE], ids=["vector", "image"])
def test_the_actors_gradient_passes_through_the_first_critic_and_can_leave_the_critics_without_one(observation):
    network, x = deterministic(observation), observations(observation, B)
    actor = network.actor_parameters()
    gradients = torch.autograd.grad(network.q1(x, network.policy(x)).mean(), actor)
    assert all((gradient != 0).any() for gradient in gradients)
    assert all(parameter.grad is None for parameter in network.parameters())


def test_the_actor_steps_where_the_critic_values_actions_more():
    """With Q = 3 a_0 - a_1 the gradient of Q(o, mu(o)) in the head's bias is (3, -1) times tanh' = 1 - a^2."""
    network, x = deterministic(hidden_sizes=(), activation="tanh"), observations(VECTOR, 1)
    with torch.no_grad():
        network.critics.head.weight.zero_()
        network.critics.head.weight[0, -D:, 0] = torch.tensor([3.0, -1.0])
    action = network.policy(x)
    (gradient,) = torch.autograd.grad(network.q1(x, action).sum(), network.actor_head.bias)
    torch.testing.assert_close(gradient, torch.tensor([3.0, -1.0]) * (1.0 - action[0].square()))


@BOTH
def test_the_same_lists_of_a_deep_copy_are_in_the_same_order(make):
    network = make()
    twin = copy.deepcopy(network)
    for one, other in (
        (network.actor_parameters(), twin.actor_parameters()),
        (network.critic_parameters(), twin.critic_parameters()),
    ):
        for parameter, copied in zip(one, other, strict=True):
            assert parameter is not copied
            assert torch.equal(parameter, copied)


def test_the_temperature_travels_with_the_weights():
    network = stochastic(initial_alpha=0.2)
    assert network.log_alpha.shape == ()
    assert network.log_alpha.exp().item() == pytest.approx(0.2)
    assert stochastic().log_alpha.item() == 0.0
    other = stochastic()
    other.load_state_dict(network.state_dict())
    assert other.log_alpha.item() == pytest.approx(math.log(0.2))


# --- precision, statistics, settings ---------------------------------------------------------------------------------


@BOTH
def test_under_autocast_encoders_are_bfloat16_and_results_float32(make):
    network, x = make(IMAGE), observations(IMAGE, B)
    encoded = []
    for encoder in (network.encoder, network.critic_encoder):
        encoder.register_forward_hook(lambda _module, _inputs, output: encoded.append(output.dtype))
    exact = network.q(x, actions(B))
    with torch.autocast("cpu", torch.bfloat16):
        action, q, q1 = act(network, x)[0].mode(), network.q(x, actions(B)), network.q1(x, actions(B))
    assert encoded == [torch.float32] + [torch.bfloat16] * 3
    assert {action.dtype, q.dtype, q1.dtype} == {torch.float32}
    torch.testing.assert_close(q, exact, rtol=0.1, atol=0.01)


@BOTH
def test_under_autocast_hidden_layers_of_critics_are_bfloat16_and_values_float32(make):
    network, x = make(VECTOR), observations(VECTOR, B)
    seen = []
    network.critics.activation.register_forward_hook(lambda _module, _inputs, output: seen.append(output.dtype))
    exact = network.q(x, actions(B))
    with torch.autocast("cpu", torch.bfloat16):
        q, q1 = network.q(x, actions(B)), network.q1(x, actions(B))
    layers = len(seen) // 3
    assert seen == [torch.float32] * layers + [torch.bfloat16] * 2 * layers
    assert {q.dtype, q1.dtype} == {torch.float32}
    torch.testing.assert_close(q, exact, rtol=0.1, atol=0.01)


@BOTH
def test_actor_and_critics_see_observations_through_the_same_statistics(make):
    network, plain = make(normalize_observations=True), make()
    plain.load_state_dict(network.state_dict(), strict=False)
    x = 3.0 + 2.0 * observations(VECTOR, 1000)
    network.update_observation_statistics(x)
    expected = ((x - x.mean(0)) / x.std(0, correction=0)).clamp(-10, 10)
    close = {"rtol": 1e-3, "atol": 1e-4}
    torch.testing.assert_close(act(network, x)[0].mode(), act(plain, expected)[0].mode(), **close)
    torch.testing.assert_close(network.q(x, actions(1000)), plain.q(expected, actions(1000)), **close)
    torch.testing.assert_close(network.q1(x, actions(1000)), plain.q1(expected, actions(1000)), **close)


@BOTH
def test_memory_is_not_legal_and_the_message_says_so(make):
    with pytest.raises(ValueError, match=r"memory='gru' is not legal.*memory='none'"):
        make(memory="gru")


@BOTH
def test_discrete_actions_are_not_legal_and_the_message_says_so(make):
    with pytest.raises(ValueError, match=r"continuous actions; found discrete ones"):
        make(action=CHOICE)
    with pytest.raises(ValueError, match=r"continuous actions; found mixed ones"):
        make(action=MIXED)


# --- learning --------------------------------------------------------------------------------------------------------


def test_critics_learn_values_and_the_actor_what_they_value_most():
    """A bandit: Q(o, a) = -|a - o'|^2 for o' the first two numbers, halved; the best action is o'."""
    network = deterministic(num_critics=2, hidden_sizes=(64, 64))
    actor, critics = network.actor_parameters(), network.critic_parameters()
    optimizers = [torch.optim.Adam(parameters, lr=3e-3) for parameters in (actor, critics)]
    generator = torch.Generator().manual_seed(2)
    for _ in range(300):
        x, a = (2.0 * torch.rand(128, width, generator=generator) - 1.0 for width in (4, D))
        value = -(a - 0.5 * x[:, :D]).square().sum(-1)
        losses = -network.q1(x, network.policy(x)).mean(), (network.q(x, a) - value).square().sum(0).mean()
        for parameters, optimizer, loss in zip((actor, critics), optimizers, losses, strict=True):
            for parameter, gradient in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
                parameter.grad = gradient
            optimizer.step()
    assert losses[1].item() < 0.05
    assert (network.policy(x) - 0.5 * x[:, :D]).abs().mean().item() < 0.12
