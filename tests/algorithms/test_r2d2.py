"""R2D2, and DQN and Ape-X with memory: sequences are unrolled from their stored state, and only real steps count."""

import dataclasses

import pytest
import torch
from torch.nn.functional import mse_loss, smooth_l1_loss

from penstock.algorithms.apex import ApeX
from penstock.algorithms.arithmetic.rescaling import inverse_rescale, rescale
from penstock.algorithms.dqn import DQN
from penstock.algorithms.r2d2 import R2D2
from penstock.config import ConfigError, make_config
from penstock.engine.paths import data_path
from penstock.engine.paths.replay import ReplayPath
from penstock.engine.paths.sequences import SequencePath
from penstock.replay import Prioritized
from tests.algorithms.episodes import LENGTH, episode, recurrent
from tests.algorithms.transitions import TORQUE, VECTOR, begin, copied, descend_plainly, make, transitions
from tests.nn.plain import CHOICE


@torch.no_grad()
def state_at(model, batch, step):
    """Memory state before a step of an episode, from its beginning, by acting."""
    state = model.initial_state(batch.obs.shape[1])
    for t in range(step):
        _, state = model.act(batch.obs[t], batch.first[t], state)
    return state


def cut(model, batch, begin, end):
    """A part of episodes, with the true memory state before it."""
    rows = {name: getattr(batch, name)[begin:end] for name in ("action", "reward", "discount", "valid")}
    more = {name: getattr(batch, name)[begin : end + 1] for name in ("obs", "first")}
    return dataclasses.replace(batch, **rows, **more, memory=state_at(model, batch, begin))


def learned(algorithm, model, batch):
    """Priorities and loss of an update, and its gradient."""
    descend_plainly(algorithm)
    before = copied(model)
    priority, metrics = algorithm.update(model, batch)
    gradient = {name: before[name] - tensor for name, tensor in model.state_dict().items()}
    model.load_state_dict(before)
    return priority, metrics["loss"], gradient


def assert_same_update(one, two, **tolerance):
    for a, b in zip(one[:2], two[:2], strict=True):
        torch.testing.assert_close(a, b, **tolerance)
    for name, gradient in one[2].items():
        torch.testing.assert_close(gradient, two[2][name], **tolerance)


def acted(network, batch, state, num_rows):
    """Values of all actions, row by row as acting computes them, with gradient: ``[T, B, A]``."""
    values = []
    for t in range(num_rows):
        choice, state = network.act(batch.obs[t], batch.first[t], state)
        values.append(choice.q)
    return torch.stack(values)


@pytest.mark.parametrize("memory", ["gru", "lstm"])
@pytest.mark.parametrize(("n_step", "td_loss"), [(1, "squared"), (5, "squared"), (5, "huber")])
@pytest.mark.parametrize("begin_at", [0, 4])
def test_without_burn_in_the_update_is_backpropagation_through_time_cut_at_the_sequences_beginning(
    begin_at, n_step, td_loss, memory
):
    algorithm, model = recurrent(memory=memory, n_step=n_step, td_loss=td_loss, dueling=True, gamma=0.9)
    batch = cut(model, episode(0.9, last_discount=0.0), begin_at, LENGTH)
    found = learned(algorithm, model, batch)

    length = LENGTH - begin_at
    q = acted(model, batch, batch.memory, length + 1)
    with torch.no_grad():
        best = q.argmax(2, keepdim=True)
        value = inverse_rescale(acted(algorithm.target, batch, batch.memory, length + 1).gather(2, best).squeeze(2))
    total, errors = 0.0, torch.zeros(length, 3)
    for b in range(3):
        for t in range(length):
            steps = min(n_step, length - t)
            y = sum(0.9**k * batch.reward[t + k, b] for k in range(steps))
            if t + steps < length:  # else the episode has terminated
                y = y + 0.9**steps * value[t + steps, b]
            chosen = q[t, b, batch.action[t, b]]
            errors[t, b] = (chosen - rescale(y)).abs().detach()
            loss_of = smooth_l1_loss if td_loss == "huber" else mse_loss
            scale = 1.0 if td_loss == "huber" else 0.5
            total = total + batch.weights[b] * scale * loss_of(chosen, rescale(y))
    loss = total / 3
    names, parameters = zip(*model.named_parameters(), strict=True)
    gradient = dict(zip(names, torch.autograd.grad(loss, parameters), strict=True))
    priority = 0.9 * errors.amax(0) + 0.1 * errors.mean(0)
    assert_same_update(found, (priority, loss.detach(), gradient), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("algorithm", [R2D2, DQN, ApeX])
def test_a_burn_in_brings_the_state_up_to_date_and_no_gradient_goes_through_it(algorithm):
    """Beginning 4 steps earlier with as much burn-in is beginning at the state that these lead to."""
    settings = {"memory": "gru", "n_step": 3}
    whole = episode(0.99)
    made, model = recurrent(algorithm, **settings)
    made.target.load_state_dict(model.state_dict())  # so that one stored state is the true one of both
    plain = learned(made, model, cut(model, whole, 5, 11))
    made, model = recurrent(algorithm, burn_in=4, **settings)
    made.target.load_state_dict(model.state_dict())
    assert_same_update(plain, learned(made, model, cut(model, whole, 1, 11)), rtol=1e-4, atol=1e-6)


def test_a_stored_state_that_is_out_of_date_is_forgotten_by_an_episodes_beginning_alone():
    algorithm, model = recurrent(burn_in=2)
    batch = cut(model, episode(0.99), 0, 6)
    spoilt = dataclasses.replace(batch, memory=batch.memory + 3.0)
    assert_same_update(learned(algorithm, model, batch), learned(algorithm, model, spoilt))
    later = cut(model, episode(0.99), 1, 7)
    spoilt = dataclasses.replace(later, memory=later.memory + 3.0)
    assert not torch.equal(learned(algorithm, model, later)[1], learned(algorithm, model, spoilt)[1])


@pytest.mark.parametrize("algorithm", [R2D2, DQN, ApeX])
def test_padding_counts_nowhere(algorithm):
    """Before an episode's beginning, in the final row and behind it nothing matters but the final observation."""
    made, model = recurrent(algorithm, memory="lstm", burn_in=3, n_step=3, target_period=10**6)
    batch = cut(model, episode(0.99, last_discount=None), 0, 10)
    valid = batch.valid.clone()
    valid[:3], valid[7:, 1], valid[5:, 2] = False, False, False
    first = torch.zeros_like(batch.first)
    first[3] = True
    batch = dataclasses.replace(batch, valid=valid, first=first)
    rows = torch.cat((~valid, torch.ones(1, 3, dtype=torch.bool)))
    is_final = rows & torch.cat((torch.zeros(1, 3, dtype=torch.bool), valid))
    spoil = rows & ~is_final
    other = dataclasses.replace(
        batch, obs=batch.obs.masked_fill(spoil.unsqueeze(2), 50.0), reward=batch.reward.masked_fill(~valid, 77.0),
        discount=batch.discount.masked_fill(~valid, 5.0), action=batch.action.masked_fill(~valid, 0),
        memory=batch.memory + 9.0,
    )  # fmt: skip
    assert_same_update(learned(made, model, batch), learned(made, model, other), rtol=0, atol=0)
    final = dataclasses.replace(batch, obs=batch.obs.masked_fill(is_final.unsqueeze(2), 50.0))
    assert not torch.equal(learned(made, model, batch)[1], learned(made, model, final)[1])


def test_the_loss_is_the_mean_over_sequences_of_the_sum_over_their_steps():
    """One sequence of two steps and one of six."""
    algorithm, model = recurrent()
    batch = cut(model, episode(0.99, batch=2), 0, 6)
    batch.valid[2:, 0] = False
    both = learned(algorithm, model, batch)[1]

    def alone(b):
        one = slice(b, b + 1)
        names = ("obs", "first", "action", "reward", "discount", "valid")
        rows = {name: getattr(batch, name)[:, one] for name in names}
        short = dataclasses.replace(batch, **rows, memory=batch.memory[one], weights=batch.weights[one])
        return learned(algorithm, model, short)[1]

    torch.testing.assert_close(both, (alone(0) + alone(1)) / 2)


def test_the_target_network_follows_and_the_number_of_the_update_says_when():
    algorithm, model = recurrent(target_period=2)
    batch = cut(model, episode(0.99), 0, 10)
    for number, is_moved in ((1, False), (2, True)):
        algorithm.update(model, dataclasses.replace(batch, number=number))
        weights = zip(model.parameters(), algorithm.target.parameters(), strict=True)
        assert all(torch.equal(*pair) for pair in weights) == is_moved


# ---- without memory


def test_values_of_transitions_may_be_rescaled_too():
    """h(1 + 0.5 * h^-1(max Q')), with a target network that gives 1.003 = h(3) everywhere: h(2.5)."""
    algorithm = make(DQN, VECTOR, CHOICE, rescale_values=True)
    model = begin(algorithm)
    with torch.no_grad():
        for network in (model, algorithm.target):
            network.head.weight.zero_()
            network.head.bias.fill_(1.003)
    batch = transitions([[0.0, 0.0]], [1], [1.0], [0.5], [[0.0, 0.0]])
    td_error, _ = algorithm.update(model, batch)
    assert td_error.tolist() == pytest.approx([1.003 - (3.5**0.5 - 1 + 0.0025)], abs=1e-6)


@pytest.mark.parametrize(
    ("algorithm", "settings", "expected"),
    [
        (DQN, {}, ReplayPath),
        (ApeX, {}, ReplayPath),
        (DQN, {"memory": "gru"}, SequencePath),
        (ApeX, {"memory": "lstm"}, SequencePath),
        (R2D2, {}, SequencePath),
    ],
)
def test_memory_decides_whether_transitions_or_sequences_are_replayed(algorithm, settings, expected):
    made = make(algorithm, VECTOR, CHOICE, **settings)
    assert data_path(made) is expected
    names = {column.name for column in made.record_columns()}
    assert ("memory" in names) == (expected is SequencePath)
    assert (made.build_model().state_size > 0) == (expected is SequencePath)


def test_it_is_recurrent_double_dueling_prioritized_dqn_of_five_steps_and_rescaled_values():
    c = make(R2D2, VECTOR, CHOICE).config
    assert c.memory == "lstm" and c.n_step == 5
    assert c.double and c.dueling and c.prioritized and c.rescale_values
    assert make(R2D2, VECTOR, CHOICE).sampler() == Prioritized(0.9, 0.6, normalize="batch")


def test_the_preset_for_atari_has_the_papers_numbers():
    c = make_config(R2D2.Config, {"env": "ALE/Pong-v5"}, preset="atari")
    numbers = (c.sequence_length, c.burn_in, c.sequence_overlap, c.n_step, c.gamma, c.batch_size, c.memory_size)
    assert numbers == (80, 40, 40, 5, 0.997, 64, 512) and c.sequence_period == 40
    assert (c.learning_rate, c.optimizer_eps, c.target_period, c.max_grad_norm) == (1e-4, 1e-3, 2_500, 40.0)
    assert c.buffer_size == 4_000_000 and c.reward_clip is None


# ---- what is refused


@pytest.mark.parametrize(
    ("algorithm", "settings", "message"),
    [
        (R2D2, {"memory": "none"}, 'must be "gru" or "lstm": R2D2 without memory is "apex"'),
        (R2D2, {"memory": "rnn"}, "memory must be "),
        (R2D2, {"burn_in": 21}, "burn_in=21 is not legal: burn_in must be 0 or more, and at most sequence_length=20"),
        (R2D2, {"sequence_overlap": 20}, "sequence_overlap must be 0 or more, and less than sequence_length=20"),
        (R2D2, {"sequence_length": 0}, "sequence_length=0 is not legal: sequence_length must be 1 or more"),
        (DQN, {"burn_in": -1}, "burn_in=-1 is not legal"),
        (DQN, {"priority_eta": 1.5}, "priority_eta=1.5 is not legal: priority_eta must be from 0 to 1"),
        (ApeX, {"memory_size": 0}, "memory_size=0 is not legal"),
        (R2D2, {"memory_span": 1}, "memory_span=1 is not legal: memory_span must be 2 or more, or None"),
        (DQN, {"memory": "gru", "num_envs_per_worker": 6}, "buffer_size=100 is too small for 6 lanes (num_workers=1 x"),
        (R2D2, {"prioritized": False}, "prioritized=False is not legal"),
    ],
)  # fmt: skip
def test_illegal_settings_are_named_with_what_is_legal(algorithm, settings, message):
    with pytest.raises(ConfigError) as refusal:
        make(algorithm, VECTOR, CHOICE, **settings)
    assert message in str(refusal.value)


def test_a_run_that_ends_before_a_lane_has_a_sequence_is_refused():
    with pytest.raises(ConfigError, match=r"and 21 in each of 1 lanes\), but total_steps=20"):
        make(DQN, VECTOR, CHOICE, memory="gru", total_steps=20)


def test_continuous_actions_are_refused():
    with pytest.raises(ConfigError, match="r2d2 chooses discrete actions"):
        make(R2D2, VECTOR, TORQUE)
