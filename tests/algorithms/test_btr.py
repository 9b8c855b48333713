"""BTR, and what it adds to DQN's family as switches: Munchausen rewards, AdamW, random actions beside noise."""

import math
from dataclasses import replace

import pytest
import torch
from torch.nn.functional import smooth_l1_loss

from penstock.algorithms.apex import ApeX
from penstock.algorithms.arithmetic.td import munchausen_bonus, soft_q_value
from penstock.algorithms.btr import BTR
from penstock.algorithms.dqn import DQN
from penstock.algorithms.r2d2 import R2D2
from penstock.config import ConfigError, make_config
from penstock.envs.spaces import ObservationSpec
from penstock.experience.batch import SequenceBatch
from penstock.nn.layers import SpectralConv2d
from penstock.replay import Prioritized
from tests.algorithms.projecting import projected_plainly
from tests.algorithms.transitions import (
    STATE,
    VECTOR,
    begin,
    make,
    random_transitions,
    request,
    set_outputs,
    tables,
    transitions,
)
from tests.nn.plain import CHOICE

MUNCHAUSEN = {"munchausen": True, "munchausen_alpha": 0.5, "munchausen_temperature": 1.0, "munchausen_floor": -1.2}
BATCH = transitions([0, 1, 1], [1, 2, 0], [0.5, 3.0, 0.0], [0.9, 0.0, 0.9], [1, 0, 0], weights=[1.0, 0.25, 1.0])
ROWS = [(0, 1, 0.5, 0.9, 1), (1, 2, 3.0, 0.0, 0), (1, 0, 0.0, 0.9, 0)]
IMAGE = ObservationSpec((36, 36, 3), "uint8")
SMALL = ObservationSpec((20, 20, 3), "uint8")


def soft_policy(q, temperature=1.0):
    """Probabilities of a softmax, and their scaled logarithms, in plain Python."""
    total = sum(math.exp(value / temperature) for value in q)
    policy = [math.exp(value / temperature) / total for value in q]
    return policy, [temperature * math.log(p) for p in policy]


def bonus(q, action):
    return 0.5 * max(-1.2, soft_policy(q)[1][action])


def with_outputs(online, target, **settings):
    algorithm = make(DQN, STATE, CHOICE, max_grad_norm=None, **{**MUNCHAUSEN, **settings})
    model = begin(algorithm)
    set_outputs(model, online)
    set_outputs(algorithm.target, target)
    return algorithm, model


# --- Munchausen ------------------------------------------------------------------------------------------------------


def test_the_bonus_is_the_scaled_logarithm_of_the_policy_within_its_bounds():
    q = torch.tensor([[0.0, math.log(3.0)]]).repeat(3, 1)  # pi = (1/4, 3/4) at temperature 1
    found = munchausen_bonus(q[:2], torch.tensor([0, 1]), 0.9, 1.0, -1.0)
    assert found.tolist() == pytest.approx([-0.9, 0.9 * math.log(0.75)]), "log 1/4 = -1.39 is less than the floor"
    colder = munchausen_bonus(q[:2], torch.tensor([0, 1]), 0.9, 0.5, -10.0)  # pi = (1/10, 9/10)
    assert colder.tolist() == pytest.approx([0.45 * math.log(0.1), 0.45 * math.log(0.9)])


def test_the_soft_value_is_the_policys_mean_value_and_its_entropy():
    q = torch.tensor([0.0, math.log(3.0)])
    entropy = -(0.25 * math.log(0.25) + 0.75 * math.log(0.75))
    assert soft_q_value(q, 1.0).item() == pytest.approx(0.75 * math.log(3.0) + entropy)
    assert soft_q_value(q, 1.0).item() == pytest.approx(math.log(4.0))
    assert soft_q_value(torch.tensor([1.0, 5.0, -1e8]), 0.03).item() == pytest.approx(5.0), "cold: the largest value"


def test_values_move_towards_the_munchausen_target_of_the_target_network():
    (online,), (target,) = ([[[row[0] for row in table] for table in one]] for one in tables(1, seed=0))
    algorithm, model = with_outputs(online, target)
    errors = []
    for obs, action, reward, discount, next_obs in ROWS:
        policy, log_policy = soft_policy(target[next_obs])
        soft = sum(p * (q - log_p) for p, q, log_p in zip(policy, target[next_obs], log_policy, strict=True))
        errors.append(online[obs][action] - reward - bonus(target[obs], action) - discount * soft)
    assert any(soft_policy(target[obs])[1][action] < -1.2 for obs, action, *_ in ROWS), "the floor matters"
    assert any(soft_policy(target[obs])[1][action] > -1.2 for obs, action, *_ in ROWS), "and not everywhere"
    td_error, metrics = algorithm.update(model, BATCH)
    assert td_error.tolist() == pytest.approx(errors, rel=1e-4)
    expected = sum(w * 0.5 * error**2 for w, error in zip([1.0, 0.25, 1.0], errors, strict=True)) / 3
    assert metrics["loss"].item() == pytest.approx(expected, rel=1e-4)


def test_quantiles_move_towards_those_of_the_soft_policy_number_by_number():
    online, target = tables(4, seed=2)
    algorithm, model = with_outputs(online, target, distributional="quantile", num_quantiles=4)
    means = torch.tensor(target).mean(-1).tolist()
    expected = []
    for obs, action, reward, discount, next_obs in ROWS:
        policy, log_policy = soft_policy(means[next_obs])
        total = 0.0
        for i, theta in enumerate(online[obs][action]):
            for j in range(4):
                z = sum(policy[b] * (target[next_obs][b][j] - log_policy[b]) for b in range(3))
                y = reward + bonus(means[obs], action) + discount * z
                huber = smooth_l1_loss(torch.tensor(theta), torch.tensor(y)).item()
                total += abs((2 * i + 1) / 8 - (y < theta)) * huber / 4
        expected.append(total)
    priority, metrics = algorithm.update(model, BATCH)
    assert (priority * 4).tolist() == pytest.approx(expected, rel=1e-4)
    weighted = sum(w * distance for w, distance in zip([1.0, 0.25, 1.0], expected, strict=True)) / 3
    assert metrics["loss"].item() == pytest.approx(weighted, rel=1e-4)


def test_c51_moves_towards_the_mixture_of_the_soft_policys_distributions():
    online, target = tables(5, seed=4)
    algorithm, model = with_outputs(online, target, distributional="c51", num_atoms=5, v_min=-2.0, v_max=4.0)
    atoms = torch.linspace(-2.0, 4.0, 5)
    of_target = torch.tensor(target).softmax(-1)
    means = (of_target @ atoms).tolist()
    expected = []
    for obs, action, reward, discount, next_obs in ROWS:
        policy, log_policy = soft_policy(means[next_obs])
        returns, probability = [], []
        for b in range(3):
            for z, p in zip(atoms.tolist(), of_target[next_obs][b].tolist(), strict=True):
                returns.append(reward + bonus(means[obs], action) + discount * (z - log_policy[b]))
                probability.append(policy[b] * p)
        m = projected_plainly(returns, probability, atoms.tolist())
        p = torch.tensor(online[obs][action]).softmax(0).tolist()
        expected.append(sum(a * (math.log(a) - math.log(b)) for a, b in zip(m, p, strict=True) if a))
    priority, _ = algorithm.update(model, BATCH)
    assert priority.tolist() == pytest.approx(expected, rel=1e-4)


def test_implicit_quantiles_are_averaged_at_equal_fractions():
    algorithm = make(DQN, VECTOR, CHOICE, distributional="iqn", num_quantiles=7, **MUNCHAUSEN)
    model, seen = begin(algorithm), []
    for name, network in (("online", model), ("target", algorithm.target)):

        def watched(observation, noise=None, fractions=None, of=network.distributions, name=name):
            seen.append((name, fractions))
            return of(observation, noise, fractions)

        network.distributions = watched
    algorithm.update(model, random_transitions(CHOICE))
    assert [name for name, _ in seen] == ["target", "target", "online"], "both policies are the target network's"
    assert all(fractions.shape == (16, 7) for _, fractions in seen)
    assert len(torch.cat([fractions.flatten() for _, fractions in seen]).unique()) > 330, "each pass has its own"


@pytest.mark.parametrize("kind", ["none", "c51", "quantile"])
def test_a_cold_policy_without_the_bonus_is_the_best_action(kind):
    """As the temperature falls, and alpha is 0, every update becomes that of DQN."""
    settings = {"distributional": kind, "num_atoms": 11, "v_min": -4.0, "v_max": 4.0, "num_quantiles": 4}
    found = []
    for munchausen in (False, True):
        algorithm = make(
            DQN, VECTOR, CHOICE, munchausen=munchausen, munchausen_alpha=0.0, munchausen_temperature=1e-5, **settings
        )
        model = begin(algorithm)
        found.append(algorithm.update(model, random_transitions(CHOICE))[0])
    torch.testing.assert_close(found[0], found[1], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("n_step", [1, 3])
def test_every_step_of_a_sequence_has_its_own_term(n_step):
    """Along an episode of four steps, from values of the target network that a plain loop sums up."""
    algorithm = make(
        R2D2, VECTOR, CHOICE, memory_size=4, sequence_length=4, sequence_overlap=0, burn_in=0, n_step=n_step,
        double=False, rescale_values=False, gamma=0.8, **MUNCHAUSEN,
    )  # fmt: skip
    model, generator = begin(algorithm), torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in algorithm.target.parameters():
            parameter.add_(0.5 * torch.randn(parameter.shape, generator=generator))
    batch = SequenceBatch(
        obs=torch.randn(5, 1, 2, generator=generator), first=torch.tensor([[True], *[[False]] * 4]),
        action=torch.tensor([[0], [2], [1], [1]]), reward=torch.randn(4, 1, generator=generator),
        discount=torch.tensor([[0.8], [0.8], [0.8], [0.0]]), valid=torch.ones(4, 1, dtype=torch.bool),
        memory=torch.zeros(1, model.state_size), weights=torch.ones(1), number=1, progress=0.0,
    )  # fmt: skip
    with torch.no_grad():
        q, of_target = (net.unroll(batch.obs, batch.first, batch.memory)[:, 0] for net in (model, algorithm.target))
    action, errors = batch.action[:, 0].tolist(), []
    for t in range(4):
        y, factor, last = 0.0, 1.0, min(t + n_step, 4)
        for k in range(t, last):
            y += factor * (batch.reward[k, 0].item() + bonus(of_target[k].tolist(), action[k]))
            factor *= batch.discount[k, 0].item()
        policy, log_policy = soft_policy(of_target[last].tolist())
        values = of_target[last].tolist()
        y += factor * sum(p * (v - log_p) for p, v, log_p in zip(policy, values, log_policy, strict=True))
        errors.append(abs(q[t][action[t]].item() - y))
    priority, _ = algorithm.update(model, batch)
    assert priority.item() == pytest.approx(0.9 * max(errors) + 0.1 * sum(errors) / 4, rel=1e-4)


@pytest.mark.parametrize(
    ("algorithm", "settings", "message"),
    [
        (DQN, {"munchausen": True, "double": True}, "none of which is selected; use double=False"),
        (DQN, {"munchausen": True, "rescale_values": True}, "use rescale_values=False"),
        (DQN, {"munchausen_alpha": 1.5}, "munchausen_alpha=1.5 is not legal"),
        (DQN, {"munchausen_temperature": 0.0}, "munchausen_temperature=0.0 is not legal"),
        (DQN, {"munchausen_floor": 0.5}, "munchausen_floor=0.5 is not legal"),
        (DQN, {"weight_decay": -1.0}, "weight_decay=-1.0 is not legal"),
        (DQN, {"num_acting_quantiles": 0}, "num_acting_quantiles=0 is not legal"),
        (DQN, {"resnet_width": 0}, "resnet_width=0 is not legal"),
        (DQN, {"resnet_pool": 0}, "resnet_pool=0 is not legal"),
        (BTR, {"exploration_share": 2.0}, "exploration_share=2.0 is not legal"),
    ],
)
def test_illegal_settings_are_named_with_what_is_legal(algorithm, settings, message):
    with pytest.raises(ConfigError) as refusal:
        make_config(algorithm.Config, {"env": "none", **settings})
    assert message in str(refusal.value)


# --- parts -----------------------------------------------------------------------------------------------------------


def test_adamw_takes_a_part_of_every_weight_off_beside_adams_step():
    found = {}
    for optimizer in ("adam", "adamw"):
        algorithm = make(DQN, VECTOR, CHOICE, optimizer=optimizer, weight_decay=0.25, learning_rate=0.01)
        model = begin(algorithm)
        before = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
        algorithm.update(model, random_transitions(CHOICE))
        found[optimizer] = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    torch.testing.assert_close(found["adamw"], found["adam"] - 0.01 * 0.25 * before)


@pytest.mark.parametrize("algorithm", [DQN, ApeX])
def test_random_actions_beside_noise_are_as_frequent_as_without_noise(algorithm):
    """A lane explores if its number is below epsilon; its place below epsilon selects the action."""
    settings = {"exploration": 0.6, "num_envs_per_worker": 4}
    if algorithm is DQN:
        settings |= {"exploration_final": 0.6}
    else:
        settings |= {"exploration_exponent": 0.0}
    numbers = torch.tensor([[0.0], [0.25], [0.55], [0.7]])
    made = make(algorithm, VECTOR, CHOICE, noisy=True, noisy_epsilon=True, **settings)
    model = begin(made)
    columns, _ = made.act(model, request(numbers))
    assert columns["action"][:3].tolist() == [0, 1, 2]
    greedy, _ = make(algorithm, VECTOR, CHOICE, noisy=True, **settings).act(model, request(numbers))
    assert columns["action"][3] == greedy["action"][3]
    assert made.remarks == []


def test_actions_are_chosen_by_as_many_quantiles_as_are_given():
    made = make(DQN, VECTOR, CHOICE, distributional="iqn", num_acting_quantiles=5)
    model, obs = begin(made), torch.ones(1, 2)
    fractions = torch.tensor([[0.1, 0.3, 0.5, 0.7, 0.9]])
    _, expected = model.distributions(obs, None, fractions)
    torch.testing.assert_close(model.q(obs), expected)


def test_a_spectral_convolution_has_the_largest_singular_value_one():
    torch.manual_seed(0)
    layer = SpectralConv2d(8, 8, 3, padding=1).train()
    x = torch.randn(1, 8, 5, 5)
    for _ in range(200):
        layer(x)
    largest = torch.linalg.svdvals(layer.weight.flatten(1))[0]
    expected = layer._conv_forward(x, layer.weight / largest, layer.bias)
    torch.testing.assert_close(layer(x), expected, rtol=1e-4, atol=1e-4)
    u = layer.u.clone()
    layer.eval()
    layer(x)
    assert torch.equal(u, layer.u), "outside of updates nothing moves"


def test_the_gradient_of_a_spectral_convolution_does_not_change_the_size_of_its_weight():
    """W / sigma(W) does not depend on the scale of W, so that the gradient is orthogonal to W once u has converged."""
    torch.manual_seed(0)
    layer = SpectralConv2d(4, 4, 3, padding=1).train()
    x = torch.randn(2, 4, 5, 5)
    for _ in range(200):
        layer(x)
    layer(x).square().sum().backward()
    assert (layer.weight.grad * layer.weight).sum().abs() < 1e-3 * layer.weight.grad.norm() * layer.weight.norm()


def test_the_residual_network_is_widened_pooled_and_normalised_and_the_target_follows():
    algorithm = make(
        DQN, IMAGE, CHOICE, encoder="impala_resnet", resnet_width=2, resnet_pool=3, spectral_norm=True, target_period=2
    )
    model = begin(algorithm)
    spectral = [part for part in model.modules() if isinstance(part, SpectralConv2d)]
    assert [part.out_channels for part in spectral] == [32] * 4 + [64] * 8
    last = [part for part in model.encoder.modules() if isinstance(part, torch.nn.Linear)]
    assert [(part.in_features, part.out_features) for part in last] == [(64 * 3 * 3, 512)]
    generator = torch.Generator().manual_seed(0)
    obs, next_obs = torch.randint(256, (2, 4, 36, 36, 3), dtype=torch.uint8, generator=generator)
    batch = replace(random_transitions(CHOICE, size=4), obs=obs, next_obs=next_obs)
    for number in (1, 2):
        before = spectral[0].u.clone()
        with algorithm.training_mode(model):
            algorithm.update(model, replace(batch, number=number))
        assert not torch.equal(before, spectral[0].u)
    for name, tensor in algorithm.target.state_dict().items():
        assert torch.equal(tensor, model.state_dict()[name]), name


def test_shapes_of_the_residual_network_are_refused_without_one():
    with pytest.raises(ConfigError, match="this run does not have: use encoder='impala_resnet' with images"):
        begin(make(DQN, VECTOR, CHOICE, spectral_norm=True))
    begin(make(DQN, SMALL, CHOICE, spectral_norm=True))  # "auto" is the residual network for small images


# --- BTR -------------------------------------------------------------------------------------------------------------


def test_it_is_noisy_dueling_prioritized_munchausen_iqn_of_three_steps():
    algorithm = make(BTR, VECTOR, CHOICE)
    c = algorithm.config
    assert c.munchausen and c.dueling and c.prioritized and c.noisy and not c.double
    assert (c.n_step, c.distributional, c.num_quantiles) == (3, "iqn", 8)
    assert (c.munchausen_alpha, c.munchausen_temperature, c.munchausen_floor) == (0.9, 0.03, -1.0)
    assert algorithm.sampler() == Prioritized(0.2, 0.4, normalize="batch")


def test_random_actions_end_after_half_of_the_run():
    algorithm = make(BTR, VECTOR, CHOICE, total_steps=10_000, exploration_steps=2_000)
    of = [algorithm.epsilon(request(torch.zeros(1, 1), steps)) for steps in (0, 1_000, 4_999, 5_000)]
    assert of == pytest.approx([1.0, 0.505, 0.01, 0.0])
    assert algorithm.final_epsilon == 0.0


def test_the_preset_for_atari_has_the_papers_numbers():
    c = make_config(BTR.Config, {"env": "ALE/Pong-v5"}, preset="atari")
    assert c.num_workers * c.num_envs_per_worker == 64 and c.updates_per_step * 64 == 1.0
    assert (c.batch_size, c.buffer_size, c.learning_starts, c.target_period) == (256, 2**20, 200_000, 500)
    assert (c.learning_rate, c.optimizer, c.optimizer_eps) == (1e-4, "adam", 0.005 / 256)
    assert (c.gamma, c.n_step, c.num_quantiles, c.max_grad_norm) == (0.997, 3, 8, 10.0)
    assert (c.priority_alpha, c.priority_beta, c.priority_beta_final) == (0.2, 0.4, 1.0)
    assert (c.encoder, c.resnet_width, c.resnet_pool, c.spectral_norm) == ("impala_resnet", 2, 6, True)
    assert (c.exploration, c.exploration_final, c.exploration_steps) == (1.0, 0.01, 2_000_000)
    assert c.reward_clip == 1.0 and c.total_steps == 50_000_000, "200 million frames"
