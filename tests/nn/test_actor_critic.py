"""The actor-critic network: acting and evaluating agree, and each part runs only where it should."""

import math
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from torch import nn

from penstock.envs.spaces import ObservationSpec
from penstock.nn import ActorCritic, Categorical, DiagonalGaussian, NetworkConfig, SquashedGaussian, mlp, num_parameters
from tests.nn.composites import ARM, BITS, CAMERA, CHOICES, MIXED, ROOM, composite, random_rows
from tests.nn.composites import CHOICE as MASKED_CHOICE
from tests.nn.plain import CHOICE, DISCRETE, IMAGE, SCALAR, TORQUE, VECTOR, observations, runs

T, B = 6, 4


def model(observation=VECTOR, action=CHOICE, **config):
    torch.manual_seed(0)
    network = ActorCritic(observation, action, NetworkConfig(**config))
    with torch.no_grad():
        network.policy_head.weight.mul_(100.0)  # away from the nearly uniform start, so that differences show
    return network


def random_first(*shape):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(5)) < 0.3


@pytest.mark.parametrize("memory", ["none", "gru", "lstm"])
@pytest.mark.parametrize("action", [CHOICE, TORQUE], ids=["discrete", "continuous"])
@pytest.mark.parametrize(
    "observation", [VECTOR, SCALAR, DISCRETE, IMAGE], ids=["vector", "scalar", "discrete", "image"]
)
def test_evaluating_a_segment_gives_the_distributions_that_acted(observation, action, memory):
    network = model(observation, action, memory=memory, memory_size=8)
    x, first = observations(observation, T, B), random_first(T, B)
    start = torch.randn(B, network.state_size)
    distribution, value = network.evaluate(x, first, start)
    assert value.shape == (T, B)
    state = start
    for t in range(T):
        acting, state = network.act(x[t], first[t], state)
        torch.testing.assert_close(acting.flat, distribution[t].flat, rtol=1e-4, atol=1e-5)
    assert state.shape == (B, network.state_size)


@pytest.mark.parametrize("observation", [VECTOR, DISCRETE, IMAGE], ids=["vector", "discrete", "image"])
def test_without_memory_a_flat_minibatch_is_evaluated_like_the_segment_it_came_from(observation):
    network = model(observation)
    x = observations(observation, T, B)
    distribution, value = network.evaluate(x)
    flat_distribution, flat_value = network.evaluate(x.flatten(0, 1))
    assert flat_value.shape == (T * B,)
    torch.testing.assert_close(flat_value, value.flatten())
    torch.testing.assert_close(flat_distribution.flat, distribution.flat.flatten(0, 1))


def test_actions_are_chosen_by_the_distribution_that_fits_them():
    state, first = torch.zeros(B, 0), torch.zeros(B, dtype=torch.bool)
    discrete, _ = model(VECTOR, CHOICE).act(observations(VECTOR, B), first, state)
    assert isinstance(discrete, Categorical)
    assert discrete.flat.shape == (B, 3)
    continuous, _ = model(VECTOR, TORQUE, initial_log_std=-0.5).act(observations(VECTOR, B), first, state)
    assert isinstance(continuous, DiagonalGaussian)
    assert continuous.mean.shape == (B, 2)
    assert (continuous.log_std == -0.5).all()


HALF_OPEN = replace(TORQUE, high=(2.0, math.inf))


@pytest.mark.parametrize(("high", "kind"), [(1.0, SquashedGaussian), (math.inf, DiagonalGaussian)])
def test_numbers_are_squashed_where_each_has_two_bounds(high, kind):
    for action in (TORQUE, MIXED):
        bounds = {"low": (-1.0,) * action.num_numbers, "high": (*(1.0,) * (action.num_numbers - 1), high)}
        network = model(VECTOR, replace(action, **bounds), continuous_actions="squashed")
        distribution, _ = network.evaluate(observations(VECTOR, B))
        assert type(getattr(distribution, "numbers", distribution)) is kind
        assert (network.log_std is None) == (kind is SquashedGaussian)
        assert distribution.flat.shape == (B, num_parameters(action))


def test_squashed_numbers_begin_with_their_deviation_and_stay_where_float32_tells_them_apart():
    for settings, log_std in (({}, -0.1), ({"initial_log_std": -2.0}, -2.0)):
        network = ActorCritic(VECTOR, TORQUE, NetworkConfig(continuous_actions="squashed", **settings))
        distribution, _ = network.evaluate(observations(VECTOR, B))
        torch.testing.assert_close(distribution.log_std, torch.full((B, 2), log_std), rtol=0.0, atol=0.05)
    for output, mean, log_std in ((1e3, 4.0, -3.0), (-1e3, -4.0, 0.0)):
        nn.init.constant_(network.policy_head.bias, output)
        distribution, _ = network.evaluate(observations(VECTOR, B))
        torch.testing.assert_close(distribution.mean, torch.full((B, 2), mean))
        torch.testing.assert_close(distribution.log_std, torch.full((B, 2), log_std))


@pytest.mark.parametrize("initial_log_std", [0.0, -3.5])
def test_an_initial_deviation_that_squashed_numbers_cannot_have_is_refused(initial_log_std):
    with pytest.raises(ValueError, match=r"it must lie between -3.0 and 0.0; or use continuous_actions='clipped'"):
        model(VECTOR, TORQUE, continuous_actions="squashed", initial_log_std=initial_log_std)
    assert model(VECTOR, HALF_OPEN, continuous_actions="squashed", initial_log_std=initial_log_std).log_std is not None


@pytest.mark.parametrize("memory", ["none", "gru", "lstm"])
@pytest.mark.parametrize("action", [MASKED_CHOICE, CHOICES, BITS, MIXED], ids=["discrete", "several", "bits", "mixed"])
@pytest.mark.parametrize("parts", [{"": ARM}, {"arm": ARM, "eye": CAMERA, "room": ROOM}], ids=["plain", "composite"])
def test_with_masks_what_acted_has_the_log_probability_that_evaluating_finds(parts, action, memory):
    observation = composite(parts, num_masked=sum(action.choices))
    network = model(observation, action, memory=memory, memory_size=8)
    rows, first, state = random_rows(observation, T, B), random_first(T, B), torch.randn(B, network.state_size)
    mask = network.input.mask(rows)
    distribution, _ = network.evaluate(rows, first, state)
    generator = torch.Generator().manual_seed(1)
    draw = torch.rand if action.noise == "uniform" else torch.randn
    for t in range(T):
        acting, state = network.act(rows[t], first[t], state)
        chosen = acting.sample(draw(B, action.noise_size, generator=generator))
        torch.testing.assert_close(acting.log_prob(chosen), distribution[t].log_prob(chosen), rtol=1e-4, atol=1e-5)
        assert (acting.log_prob(chosen) > -100.0).all()
        choices = chosen.reshape(B, -1)[:, : len(action.choices)].long()
        for column, values in zip(choices.unbind(1), mask[t].split(action.choices, 1), strict=True):
            assert (values.gather(1, column.unsqueeze(1)) | ~values.any(1, keepdim=True)).all()
    illegal = distribution.flat[..., : mask.shape[-1]] == -1e8
    assert illegal.any() and not (illegal & mask).any()


def test_only_numbers_have_a_deviation():
    for action, size in ((CHOICE, None), (CHOICES, None), (TORQUE, 2), (MIXED, 3)):
        log_std = model(VECTOR, action).log_std
        assert log_std is None if size is None else log_std.shape == (size,)


def test_an_untrained_policy_is_nearly_uniform():
    torch.manual_seed(0)
    network = ActorCritic(VECTOR, CHOICE, NetworkConfig())
    distribution, _ = network.evaluate(observations(VECTOR, 100))
    assert (distribution.log_probs.exp() - 1 / 3).abs().max() < 0.02


def test_acting_does_not_run_the_value_tower():
    network = model()
    assert network.value_encoder is not None
    value_encoder = runs(network.value_encoder)
    network.act(observations(VECTOR, B), torch.zeros(B, dtype=torch.bool), network.initial_state(B))
    assert not value_encoder
    network.evaluate(observations(VECTOR, B))
    assert value_encoder


@pytest.mark.parametrize(
    ("observation", "config", "shared"),
    [
        (VECTOR, {}, False),
        (VECTOR, {"shared_encoder": True}, True),
        (VECTOR, {"memory": "gru"}, True),
        (VECTOR, {"encoder": lambda spec: nn.Linear(4, 8)}, True),
        (VECTOR, {"encoder": lambda spec: nn.Linear(4, 8), "shared_encoder": False}, False),
        (IMAGE, {}, True),
        (IMAGE, {"shared_encoder": False}, False),
        (composite({"arm": ARM, "room": ROOM}), {}, False),
        (composite({"arm": ARM, "eye": CAMERA}), {}, True),
        (composite({"arm": ARM, "eye": CAMERA}), {"encoder": "mlp"}, False),
    ],
)
def test_policy_and_value_share_an_encoder_unless_it_is_a_plain_mlp(observation, config, shared):
    assert (model(observation, **config).value_encoder is None) == shared


def test_separate_towers_get_separate_gradients():
    network = model()
    distribution, _ = network.evaluate(observations(VECTOR, B))
    distribution.log_probs[:, 0].sum().backward()
    assert all(parameter.grad is not None for parameter in network.encoder.parameters())
    assert all(parameter.grad is None for parameter in network.value_encoder.parameters())


def test_memory_needs_time_major_rows_and_says_so():
    network = model(memory="gru", memory_size=8)
    x = observations(VECTOR, T, B)
    with pytest.raises(ValueError, match=r"time-major.*\[B, 8\].*first missing"):
        network.evaluate(x)
    with pytest.raises(ValueError, match=r"time-major.*leading dimensions \(24,\)"):
        network.evaluate(x.flatten(0, 1), random_first(T * B), network.initial_state(T * B))


def test_the_initial_state_is_zeros_of_the_width_of_the_memory():
    assert model().initial_state(B).shape == (B, 0)
    state = model(memory="lstm", memory_size=8).initial_state(B)
    assert state.shape == (B, 16)
    assert (state == 0).all()


@pytest.mark.parametrize("memory", ["none", "gru", "lstm"])
@pytest.mark.parametrize("observation", [VECTOR, IMAGE], ids=["vector", "image"])
def test_under_autocast_encoders_are_bfloat16_and_results_float32(observation, memory):
    network = model(observation, memory=memory, memory_size=8)
    x, first, state = observations(observation, T, B), random_first(T, B), network.initial_state(B)
    encoded = []
    network.encoder.register_forward_hook(lambda _module, _inputs, output: encoded.append(output.dtype))
    exact, exact_value = network.evaluate(x, first, state)
    with torch.autocast("cpu", torch.bfloat16):
        distribution, value = network.evaluate(x, first, state)
        acting, new_state = network.act(x[0], first[0], state)
    answer = torch.float32 if observation is VECTOR and mlp.is_available() else torch.bfloat16
    assert encoded == [torch.float32, answer, answer]
    assert not torch.equal(distribution.flat, exact.flat), "encoders multiply in bfloat16"
    assert {distribution.flat.dtype, value.dtype, acting.flat.dtype, new_state.dtype} == {torch.float32}
    torch.testing.assert_close(distribution.flat, exact.flat, rtol=0.1, atol=0.1)
    torch.testing.assert_close(value, exact_value, rtol=0.1, atol=0.1)
    (distribution.entropy().sum() + value.sum()).backward()
    assert all(parameter.grad.dtype == torch.float32 for parameter in network.parameters())


def test_the_deviation_of_continuous_actions_stays_within_bounds():
    network = model(VECTOR, TORQUE)
    x = observations(VECTOR, B)
    for raw, bounded in ((50.0, 2.0), (-50.0, -20.0), (0.5, 0.5)):
        network.set_log_std(torch.full((2,), raw))
        assert (network.evaluate(x)[0].log_std == bounded).all()


@pytest.mark.parametrize("length", [1.0, 16.0])
def test_a_step_of_a_deviation_is_as_long_as_set(length):
    network = model(VECTOR, TORQUE, log_std_lr_scale=length)
    adam = torch.optim.Adam(network.parameters(), lr=0.001)
    network.log_std.sum().backward()
    assert (network.spread.grad == 1.0).all(), "norms of gradients are those of the logarithm"
    adam.step()
    torch.testing.assert_close(network.log_std, torch.full((TORQUE.num_numbers,), -0.001 * length))


def test_a_saved_deviation_is_the_logarithm_itself():
    network, other = (model(VECTOR, TORQUE, log_std_lr_scale=16.0) for _ in range(2))
    network.set_log_std(torch.full((TORQUE.num_numbers,), -0.7))
    saved = network.state_dict()
    torch.testing.assert_close(saved["log_std"], torch.full((TORQUE.num_numbers,), -0.7))
    assert "spread" not in saved
    other.load_state_dict(saved)
    assert torch.equal(other.spread, network.spread)
    whole = nn.Sequential(network)
    whole.load_state_dict({f"0.{name}": tensor for name, tensor in saved.items()})


# --- normalisation ---------------------------------------------------------------------------------------------------


def test_observation_statistics_shift_and_scale_what_the_network_sees():
    network, plain = model(normalize_observations=True), model()
    plain.load_state_dict(network.state_dict(), strict=False)
    x = 3.0 + 2.0 * observations(VECTOR, 1000)
    network.update_observation_statistics(x)
    expected = ((x - x.mean(0)) / x.std(0, correction=0)).clamp(-10, 10)
    torch.testing.assert_close(network.evaluate(x)[1], plain.evaluate(expected)[1], rtol=1e-3, atol=1e-4)


def test_masked_observations_do_not_count():
    network = model(normalize_observations=True)
    x = observations(VECTOR, T, B)
    mask = torch.ones(T, B, dtype=torch.bool)
    mask[2] = False
    x[2] = 1e9
    network.update_observation_statistics(x, mask)
    assert network.input.moments.count.item() == (T - 1) * B
    assert network.input.moments.mean.abs().max() < 10


@pytest.mark.parametrize("observation", [DISCRETE, IMAGE], ids=["discrete", "image"])
def test_statistics_of_observations_that_are_not_floats_are_not_kept(observation):
    network = model(observation, normalize_observations=True)
    network.update_observation_statistics(observations(observation, T, B))
    assert not list(network.buffers())


def test_statistics_are_kept_of_the_parts_of_composite_observations():
    observation = composite({"arm": ARM, "room": ROOM}, num_masked=3)
    network = model(observation, normalize_observations=True)
    rows = random_rows(observation, T, B)
    mask = random_first(T, B)
    network.update_observation_statistics(rows, mask)
    (moments,) = [stage.moments for stage in network.input.inputs if stage.moments is not None]
    assert moments.count.item() == mask.sum() and moments.mean.shape == (3,)


def test_returns_and_values_go_to_the_space_of_the_head_and_back():
    network = model(normalize_returns=True)
    returns = 100.0 + 20.0 * torch.randn(500, generator=torch.Generator().manual_seed(0))
    returns[0] = 1e5  # more than ten deviations away
    network.return_moments.count.zero_()  # without the prior
    network.update_return_statistics(returns)
    normalized = network.normalize_return(returns)
    assert normalized.mean().abs() < 1e-4
    assert normalized.std(correction=0).item() == pytest.approx(1.0, abs=1e-4)
    torch.testing.assert_close(network.denormalize_value(normalized), returns)


@pytest.mark.parametrize("arithmetic", ["float32", "bfloat16"])
@pytest.mark.parametrize("memory", ["none", "gru", "lstm"])
def test_values_stay_what_they_were_when_the_moments_of_returns_move(memory, arithmetic):
    network = model(memory=memory, memory_size=8, normalize_returns=True)
    x, first, start = observations(VECTOR, T, B), random_first(T, B), torch.randn(B, network.state_size)

    def values():
        with torch.autocast("cpu", torch.bfloat16, enabled=arithmetic == "bfloat16"), torch.no_grad():
            policy, value = network.evaluate(x, first, start)
        return policy.flat, network.denormalize_value(value)

    before, generator = values(), torch.Generator().manual_seed(0)
    for scale in (1e-3, 1.0, 50.0, 1e4, 0.0):
        network.update_return_statistics(scale * (3.0 + torch.randn(3000, generator=generator)))
    assert network.return_moments.std.item() > 1e3 and network.return_moments.mean.item() > 1e3
    torch.testing.assert_close(values(), before, rtol=1e-4, atol=2e-3)  # of values that are differences of thousands


def test_without_return_normalisation_nothing_is_changed():
    network = model()
    returns = 100.0 * torch.randn(10)
    network.update_return_statistics(returns)
    assert network.normalize_return(returns) is returns
    assert network.denormalize_value(returns) is returns


# --- config ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"encoder": "nature_cn"}, r"encoder='nature_cn' is not legal.*'mlp'.*callable; did you mean 'nature_cnn'\?"),
        ({"activation": "tan"}, r"activation='tan'.*'relu'.*did you mean 'tanh'\?"),
        ({"memory": "rnn"}, r"memory='rnn'.*'none', 'gru', 'lstm'"),
        ({"hidden_sizes": (64, 0)}, r"hidden_sizes=\(64, 0\)"),
        ({"memory_size": 0}, r"memory_size=0"),
        ({"memory": "lstm", "shared_encoder": False}, r"shared_encoder=False.*memory='lstm'"),
        ({"initial_log_std": 3.0}, r"initial_log_std=3.0.*\[-20.0, 2.0\]"),
        ({"log_std_lr_scale": 0.0}, "log_std_lr_scale=0.0.*more than 0"),
    ],
)
def test_an_illegal_setting_is_named_with_what_is_legal(config, message):
    with pytest.raises(ValueError, match=message):
        NetworkConfig(**config)


@pytest.mark.long
def test_networks_do_without_gymnasium():
    code = "import sys, penstock.nn; sys.exit('gymnasium' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# --- learning --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("memory", ["gru", "lstm"])
def test_memory_can_be_trained_to_recall_the_first_observation(memory):
    """The value of the last row must equal the sign seen in row 0; no row in between shows it."""
    torch.manual_seed(0)
    network = ActorCritic(ObservationSpec((1,), "float32"), CHOICE, NetworkConfig(memory=memory, memory_size=16))
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-2)
    first = torch.zeros(5, 64, dtype=torch.bool)
    for _ in range(60):
        sign = torch.randint(2, (64,)).float() * 2 - 1
        x = torch.zeros(5, 64, 1)
        x[0, :, 0] = sign
        _, value = network.evaluate(x, first, network.initial_state(64))
        loss = (value[-1] - sign).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.05


@pytest.mark.parametrize(("activation", "bias"), [("relu", -1e3), ("tanh", 1e2), ("tanh", -1e2)])
def test_features_without_a_gradient_count_as_constant(activation, bias):
    network = model(VECTOR, CHOICE, hidden_sizes=(16, 8), activation=activation)
    rows = observations(VECTOR, 32)
    assert network.constant_features(rows) == 0.0
    last = [layer for layer in network.encoder if isinstance(layer, nn.Linear)][-1]
    with torch.no_grad():
        last.bias[:6] = bias
    assert network.constant_features(rows) == 0.75
    assert network.constant_features(rows[:1].expand(32, -1)) is None, "equal observations say nothing"
