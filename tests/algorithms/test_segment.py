"""Acting, minibatches, statistics and schedules, shared by all algorithms over segments."""

import pytest
import torch

from penstock.algorithms import algorithm_id, load_algorithm
from penstock.algorithms.appo import APPO
from penstock.algorithms.bases.algorithm import Request
from penstock.algorithms.bases.segment import SegmentAlgorithm
from penstock.algorithms.ppo import PPO
from penstock.config import AsynchronousConfig, ConfigError, SegmentConfig
from tests.algorithms.batches import B, T, collect, make, make_model, whole
from tests.nn.plain import TORQUE


class Recording(SegmentAlgorithm):
    """Records the distribution's parameters."""

    Config = AsynchronousConfig
    records = ("logits",)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("memory", ["none", "gru", "lstm"])
@pytest.mark.parametrize("space", ["discrete", "clipped", "squashed"])
def test_the_recorded_log_prob_is_that_of_the_action_under_the_policy_that_chose_it(space, memory):
    numbers = {} if space == "discrete" else {"action": TORQUE, "continuous_actions": space}
    algorithm = make(Recording, **numbers, memory=memory)
    model = make_model(algorithm)
    obs, first = torch.randn(5, 3, generator=generator()), torch.tensor([True, False, False, True, False])
    state = torch.randn(5, model.state_size, generator=generator(1))
    draw = torch.rand if space == "discrete" else torch.randn
    noise = draw(5, algorithm.action.noise_size, generator=generator(2))
    with torch.no_grad():
        columns, after = algorithm.act(model, Request(obs, first, state, noise, torch.arange(5), 0))
        policy, expected = model.act(obs, first, state)
    assert torch.equal(columns["action"], policy.sample(noise)) and torch.equal(after, expected)
    torch.testing.assert_close(columns["log_prob"], policy.log_prob(columns["action"]), rtol=0.0, atol=1e-6)
    assert torch.equal(columns["logits"], policy.flat)
    recorded = algorithm.recorded_policy(columns["logits"])
    assert type(recorded) is type(policy)
    torch.testing.assert_close(recorded.log_prob(columns["action"]), columns["log_prob"], rtol=0.0, atol=1e-6)
    (column,) = algorithm.record_columns()
    assert columns["logits"].shape == (5, *column.shape) and columns["logits"].numpy().dtype == column.dtype


def test_an_algorithm_records_nothing_that_it_does_not_declare():
    algorithm = make(PPO)
    model = make_model(algorithm)
    first = torch.ones(1, dtype=torch.bool)
    request = Request(torch.zeros(1, 3), first, torch.zeros(1, 0), torch.zeros(1, 1), torch.zeros(1).long(), 0)
    columns, _ = algorithm.act(model, request)
    assert set(columns) == {"action", "log_prob"} and algorithm.record_columns() == ()


def test_unknown_records_are_refused_with_the_legal_ones(monkeypatch):
    monkeypatch.setattr(Recording, "records", ("values",))
    with pytest.raises(ConfigError, match=r"records=\('values',\) is not legal: records must be a tuple of 'logits'"):
        make(Recording).record_columns()


def test_minibatches_of_transitions_hold_every_transition_once_and_in_random_order():
    algorithm = make(PPO, num_epochs=1)
    batch = collect(algorithm, make_model(algorithm))
    batch.targets = {"number": torch.arange(T * B).view(T, B)}
    minibatches = list(algorithm.minibatches(batch, generator()))
    assert [len(m.reward) for m in minibatches] == [12, 12]
    numbers = torch.cat([m.targets["number"] for m in minibatches])
    assert sorted(numbers.tolist()) == list(range(T * B)) != numbers.tolist()
    for minibatch in minibatches:
        at = minibatch.targets["number"]
        assert torch.equal(minibatch.obs, batch.obs[:-1].flatten(0, 1)[at])
        assert torch.equal(minibatch.action, batch.action.flatten()[at])


def test_minibatches_of_segments_hold_every_segment_once_with_its_memory():
    algorithm = make(PPO, memory="gru", num_epochs=1)
    batch = collect(algorithm, make_model(algorithm))
    batch.targets = {"number": torch.arange(B).expand(T, B)}
    minibatches = list(algorithm.minibatches(batch, generator(1)))
    assert [m.reward.shape for m in minibatches] == [(T, 2), (T, 2)]
    numbers = [m.targets["number"][0] for m in minibatches]
    assert sorted(torch.cat(numbers).tolist()) == list(range(B))
    for at, minibatch in zip(numbers, minibatches, strict=True):
        assert torch.equal(minibatch.memory, batch.memory[at]) and torch.equal(minibatch.obs, batch.obs[:, at])


def test_the_order_of_minibatches_follows_from_the_generator_and_changes_with_every_pass():
    algorithm = make(PPO, num_epochs=2)
    batch = collect(algorithm, make_model(algorithm))
    batch.targets = {"number": torch.arange(T * B).view(T, B)}

    def order(source):
        return torch.cat([m.targets["number"] for m in algorithm.minibatches(batch, source)]).view(2, T * B).tolist()

    one, two = generator(7), generator(7)
    passes = [*order(one), *order(one)]
    assert len(set(map(tuple, passes))) == 4 and passes == [*order(two), *order(two)]
    assert all(sorted(numbers) == list(range(T * B)) for numbers in passes), "every pass holds every transition once"


@pytest.mark.parametrize("memory", ["none", "gru"])
def test_a_minibatch_that_is_all_of_a_batch_is_the_batch_as_it_lies(memory):
    algorithm = make(PPO, memory=memory, batch_size=T * B, num_epochs=2)
    batch = collect(algorithm, make_model(algorithm))
    updates = list(algorithm.minibatches(batch, generator()))
    assert len(updates) == 2
    for update in updates:
        assert update is batch if memory == "gru" else torch.equal(update.action, batch.action.flatten())


def test_where_nothing_else_is_said_there_is_one_update_from_all_of_a_batch_as_it_lies():
    for memory in ("none", "gru"):
        algorithm = make(Recording, memory=memory)
        batch = collect(algorithm, make_model(algorithm))
        (update,) = algorithm.minibatches(batch, generator())
        assert torch.equal(update.reward, batch.reward if memory == "gru" else batch.reward.flatten())


def test_a_network_with_memory_makes_an_algorithm_want_whole_segments():
    assert not make(PPO).needs_segments and make(PPO, memory="lstm").needs_segments
    assert not make(PPO).needs_segments, "one instance must not decide for the others"


def test_observations_are_taken_into_the_statistics_where_valid_and_without_the_last_row():
    algorithm = make(PPO)
    model = make_model(algorithm)
    valid = torch.ones(T, B, dtype=torch.bool)
    valid[2:, 1] = False
    batch = collect(algorithm, model, valid=valid)
    batch.obs[-1] = 1e6
    batch.obs[2:, 1] = -1e6
    algorithm.prepare(model, batch)
    algorithm.update_statistics(model, batch)
    moments = model.input.moments
    assert moments.count.item() == valid.sum().item()
    torch.testing.assert_close(moments.mean, batch.obs[:-1][valid].mean(0))


@pytest.mark.parametrize(("progress", "expected"), [(0.0, 0.1), (0.25, 0.08), (1.0, 0.02), (1.5, 0.02)])
def test_the_entropy_bonus_moves_linearly_to_its_final_weight_and_stays_there(progress, expected):
    algorithm = make(APPO, entropy_coef=0.1, entropy_coef_final=0.02)
    batch = collect(algorithm, make_model(algorithm))
    batch.progress = progress
    assert algorithm.entropy_coef(batch) == pytest.approx(expected)
    assert make(APPO, entropy_coef=0.1).entropy_coef(batch) == 0.1


def test_the_weight_of_the_entropy_bonus_reaches_the_loss():
    algorithm = make(APPO, entropy_coef=0.4, entropy_coef_final=0.0)
    model = make_model(algorithm)
    batch = collect(algorithm, model)
    algorithm.prepare(model, batch)
    batch = batch.flatten()
    losses = {}
    for progress in (0.0, 0.5, 1.0):
        batch.progress = progress
        loss, metrics = algorithm.evaluate(model, batch)
        losses[progress] = loss.item()
    entropy = metrics["entropy"].item()
    assert losses[1.0] - losses[0.0] == pytest.approx(0.4 * entropy, rel=1e-5)
    assert losses[0.5] - losses[0.0] == pytest.approx(0.2 * entropy, rel=1e-5)


def test_a_batch_is_a_segment_of_every_lane_or_of_any_lanes_the_segments_of_one_update():
    assert SegmentAlgorithm.Config is SegmentConfig
    assert make(SegmentAlgorithm).config.segments_per_batch == B
    assert make(Recording).config.segments_per_batch == 2


def test_an_algorithm_without_a_loss_says_so():
    algorithm = make(Recording)
    model = make_model(algorithm)
    with pytest.raises(TypeError, match="Recording defines no loss"):
        algorithm.evaluate(model, collect(algorithm, model))


def test_an_illegal_setting_of_the_network_is_a_config_error_that_names_it():
    with pytest.raises(ConfigError, match=r"encoder='mpl' is not legal.*did you mean 'mlp'"):
        make(PPO, encoder="mpl").build_model()
    with pytest.raises(ConfigError, match="shared_encoder=False cannot be combined with memory='gru'"):
        make(PPO, memory="gru", shared_encoder=False).build_model()


def test_what_is_no_encoder_is_a_config_error_and_an_error_inside_of_one_is_not():
    def broken(observation):
        return observation.shape + 1

    with pytest.raises(ConfigError, match=r"returned list; it must return a torch.nn.Module"):
        make(PPO, encoder=lambda observation: []).build_model()
    with pytest.raises(ConfigError, match=r"instance of Linear: give the class"):
        make(PPO, encoder=torch.nn.Linear(3, 2)).build_model()
    with pytest.raises(TypeError, match="can only concatenate tuple"):
        make(PPO, encoder=broken).build_model()


def test_algorithms_are_found_by_name_in_any_case_or_by_module_and_class():
    assert load_algorithm("ppo") is load_algorithm("PPO") is PPO and load_algorithm("appo") is APPO
    assert load_algorithm("tests.algorithms.test_segment:Recording").__name__ == "Recording"


@pytest.mark.parametrize("place", ["math:sqrt", "math:pi", "penstock.config:SegmentConfig", "collections:OrderedDict"])
def test_what_is_no_algorithm_is_refused(place):
    with pytest.raises(ConfigError, match=rf"algorithm='{place}' is not legal: it must be a subclass of SegmentAlgori"):
        load_algorithm(place)


def test_an_algorithms_id_is_short_for_penstocks_own_and_finds_every_algorithm_again():
    assert [algorithm_id(algorithm) for algorithm in (APPO, PPO)] == ["appo", "ppo"]
    assert algorithm_id(Recording) == "tests.algorithms.test_segment:Recording"
    for algorithm in (APPO, PPO, Recording):
        assert load_algorithm(algorithm_id(algorithm)) is algorithm


def test_an_unknown_algorithm_is_refused_with_the_closest_name():
    with pytest.raises(
        ConfigError, match=r"unknown algorithm 'apo'; did you mean 'appo'.*legal: a2c, a3c, apex, apexdpg, appo, "
    ):
        load_algorithm("apo")


@pytest.mark.parametrize("estimator", ["gae", "vtrace"])
@pytest.mark.parametrize("name", ["ppo", "appo", "impala", "a2c", "a3c"])
def test_a_loss_reads_its_targets_and_changes_nothing(name, estimator):
    kind = load_algorithm(name)
    algorithm = make(kind, **({"advantage_estimator": estimator} if name == "appo" else {}))
    model = make_model(algorithm)
    batch = collect(algorithm, model)
    algorithm.prepare(model, batch)
    batch = whole(algorithm, batch)
    losses = [algorithm.evaluate(model, batch)[0].item()]
    targets, tensors = dict(batch.targets), {name: (value, value.clone()) for name, value in batch.targets.items()}
    policy, value = model.evaluate(batch.obs, batch.first, batch.memory)
    if algorithm.needs_segments:
        policy, value = policy[:-1], value[:-1]
    losses.append(algorithm.loss(batch, policy, value)[0].item())
    assert batch.targets == targets and all(torch.equal(now, before) for now, before in tensors.values())
    batch.targets = {name: target + 1.0 for name, target in targets.items()}
    losses.append(algorithm.loss(batch, policy, value)[0].item())
    assert losses[0] == pytest.approx(losses[1], rel=1e-6) and abs(losses[2] - losses[0]) > 1e-3 * abs(losses[0])


def test_replayed_observations_are_not_taken_into_the_statistics_a_second_time(monkeypatch):
    algorithm = make(PPO)
    model = make_model(algorithm)
    valid = torch.ones(T, B, dtype=torch.bool)
    valid[2:, 1] = False
    batch = collect(algorithm, model, valid=valid)
    batch.replayed = torch.tensor([False, False, True, True])
    algorithm.prepare(model, batch)
    algorithm.update_statistics(model, batch)
    assert model.input.moments.count.item() == T + 2
    taken = []
    monkeypatch.setattr(model, "update_layer_statistics", lambda obs, mask: taken.append(obs[mask]))
    algorithm.update_layer_statistics(model, batch)
    assert torch.equal(taken[0], batch.obs[:-1, :2][valid[:, :2]]), "nor into those of layers"
