"""Networks as one native call: the same outputs as their modules give, for every kind of memory, input and head."""

import copy

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.envs.translation import action_spec, observation_spec
from penstock.nn import ActorCritic, DeterministicActorCritic, NetworkConfig, QNetwork, StochasticActorCritic

CHOICE = Discrete(3)
NUMBERS = Box(-1.0, 1.0, (3,), np.float32)
SEES = Box(-np.inf, np.inf, (4,), np.float32)
TOLERANCE = {"rtol": 0.0, "atol": 2e-6}


def actor_critic(observation=SEES, action=CHOICE, **settings) -> ActorCritic:
    config = NetworkConfig(hidden_sizes=(16, 8), **settings)
    torch.manual_seed(0)
    model = ActorCritic(observation_spec(observation), action_spec(action), config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
        if (moments := getattr(model.input, "moments", None)) is not None:
            moments.update(2.0 + 3.0 * torch.randn(50, *moments.mean.shape))
    return model


def rows_of(space, count: int, seed: int = 0) -> torch.Tensor:
    space.seed(seed)
    if isinstance(space, Box) and space.dtype == np.float32:
        return 5.0 * torch.randn(count, *space.shape, generator=torch.Generator().manual_seed(seed))
    return torch.from_numpy(np.array([space.sample() for _ in range(count)]))


@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 70), st.sampled_from(["none", "gru", "lstm"]), st.sampled_from(["tanh", "relu"]), st.booleans(),
    st.sampled_from([SEES, Discrete(5), MultiDiscrete([2, 3]), Box(0, 255, (2, 3), np.uint8), Box(-1.0, 1.0, (2, 2))]),
)  # fmt: skip
def test_outputs_and_memory_are_those_of_the_modules(count, memory, activation, normalizes, space):
    model = actor_critic(space, memory=memory, memory_size=6, activation=activation, encoder="mlp",
                         normalize_observations=normalizes)  # fmt: skip
    obs, first = rows_of(space, count), torch.arange(count) % 3 == 1
    state = torch.randn(count, model.state_size, generator=torch.Generator().manual_seed(1))
    assert not model.chain.fits(obs)  # a gradient may be needed
    expected, after = model.act(obs, first, state)
    with torch.no_grad():
        assert model.chain.fits(obs)
        outputs, found_after = model.chain(obs, first, state)
    torch.testing.assert_close(outputs, expected.logits, **TOLERANCE)
    torch.testing.assert_close(found_after, after, **TOLERANCE)


def test_values_beside_actions_are_those_of_the_modules():
    model, obs, first = actor_critic(normalize_observations=True), rows_of(SEES, 5), torch.zeros(5, dtype=torch.bool)
    expected = model.observe(obs, first, torch.empty(5, 0))
    with torch.no_grad():
        found = model.observe(obs, first, torch.empty(5, 0), needs_features=False)
    assert expected.features is not None
    assert found.features is None
    torch.testing.assert_close(found.value, expected.value, **TOLERANCE)
    torch.testing.assert_close(found.distribution.logits, expected.distribution.logits, **TOLERANCE)


def networks():
    sees, few, numbers = (observation_spec(SEES), action_spec(CHOICE),
                          action_spec(NUMBERS))  # fmt: skip
    config = NetworkConfig(hidden_sizes=(16, 8), activation="relu", normalize_observations=True)
    yield "choices", actor_critic()
    yield "clipped", actor_critic(action=NUMBERS)
    yield "squashed", actor_critic(action=NUMBERS, continuous_actions="squashed")
    yield "gru", actor_critic(memory="gru", memory_size=6)
    yield "values", QNetwork(sees, few, config, dueling=False, epsilon=0.0)
    yield "deterministic", DeterministicActorCritic(sees, numbers, config, num_critics=1, exploration_std=0.1)
    yield "stochastic", StochasticActorCritic(sees, numbers, config, num_critics=2)


@pytest.mark.parametrize(("kind", "model"), [*networks()], ids=lambda each: each if isinstance(each, str) else "")
def test_actions_without_exploration_are_those_of_the_distribution(kind, model):
    obs, first = rows_of(SEES, 9), np.ones(9, np.bool_)
    with torch.enable_grad():
        choice, _ = model.act(obs, torch.from_numpy(first), torch.zeros(9, model.state_size))
    action, state = model.chain.act(obs.numpy(), first, None)
    expected = choice.mode().detach().numpy()
    assert (action.dtype, action.shape) == (expected.dtype, expected.shape)
    np.testing.assert_allclose(action, expected, atol=2e-6)
    later, _ = model.chain.act(obs.numpy(), ~first, state)
    with torch.enable_grad():
        choice, _ = model.act(obs, torch.from_numpy(~first), state)
    np.testing.assert_allclose(later, choice.mode().detach().numpy(), atol=2e-6)


def test_weights_are_read_at_every_call():
    model, obs = actor_critic(), rows_of(SEES, 2)
    first, state, other = torch.ones(2, dtype=torch.bool), torch.empty(2, 0), actor_critic()
    with torch.no_grad():
        before, _ = model.chain(obs, first, state)
        twin = copy.deepcopy(model)
        for parameter in other.parameters():
            parameter.mul_(0.5)
        model.load_state_dict(other.state_dict(), assign=True)
        after, _ = model.chain(obs, first, state)
        torch.testing.assert_close(after, other.chain(obs, first, state)[0], rtol=0.0, atol=0.0)
        torch.testing.assert_close(twin.chain(obs, first, state)[0], before, rtol=0.0, atol=0.0)
    assert not torch.equal(before, after)


@pytest.mark.parametrize(
    ("space", "settings"),
    [(SEES, {"activation": "elu"}), (Box(0, 255, (36, 36, 1), np.uint8), {"encoder": "impala_resnet"})],
    ids=["elu", "images"],
)
def test_other_networks_act_by_their_modules(space, settings):
    model = actor_critic(space, **settings)
    with torch.no_grad():
        assert not model.chain.fits(rows_of(space, 2))
    assert model.chain.act(rows_of(space, 2).numpy(), np.ones(2, np.bool_), None) is None


def test_a_mask_restricts_the_choice():
    space = Dict({"observation": SEES, "action_mask": Box(0, 1, (3,), np.int8)})
    spec = observation_spec(space, (3,))
    model = ActorCritic(spec, action_spec(CHOICE), NetworkConfig(hidden_sizes=(8,)))
    assert model.chain.act(np.zeros((2, *spec.shape), spec.dtype), np.ones(2, np.bool_), None) is None
