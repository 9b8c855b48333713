"""RUDDER learns the returns of episodes of a tiny task, in chunks as at once, and nothing from equal returns."""

import copy
import dataclasses

import numpy as np
import pytest
import torch

from penstock.config import ConfigError, SegmentDelayedRewardConfig
from penstock.envs.spaces import ObservationSpec
from penstock.nn import NetworkConfig
from penstock.rudder.arithmetic import integrated_gradients
from penstock.rudder.learning import Episode, LessonBatch, PredictorTraining, build_optimizer, completeness_of
from penstock.rudder.predictor import COUNTED, TOLD, ReturnPredictor, contributions
from tests.nn.plain import CHOICE

OBSERVATION = ObservationSpec((2,), "float32")
ACTIONS = CHOICE.num_actions


def rudder_of(**settings):
    config = SegmentDelayedRewardConfig(env="none", **{"redistributor_lessons": 64, **settings})
    torch.manual_seed(0)
    predictor = ReturnPredictor(
        OBSERVATION, CHOICE, NetworkConfig(), config.redistributor_size, len(TOLD) + len(COUNTED),
        sees_observations=True,
    )  # fmt: skip
    return PredictorTraining(config, predictor)


def episode(random, length=None, equal=False):
    """The first action decides, one step in the middle shows its cost, and the rest carries no information."""
    length = int(random.integers(6, 12)) if length is None else length
    obs, action = np.zeros((length, 2), np.float32), random.integers(ACTIONS, size=length)
    at, costs = int(random.integers(2, length)), bool(random.integers(2))
    obs[at:, 0] = costs
    return Episode(obs, action, 1.0 if equal else 2.0 * (action[0] == 1) - costs)


def learned(updates=400, seed=0, **settings):
    rudder, random = rudder_of(**settings), np.random.default_rng(seed)
    for _ in range(updates // 4):
        rudder.take([episode(random) for _ in range(4)])
        while rudder.can_learn and rudder.updates < rudder.episodes:
            rudder.update()
    return rudder


@pytest.fixture(scope="module")
def expert():
    return learned()


def explained(rudder, episodes, num_points=0):
    predictor, batch = rudder.predictor, LessonBatch(episodes)
    inputs = predictor.inputs(batch.obs, batch.obs[0], batch.first, batch.action)
    count = len(episodes)
    found, _, _ = contributions(
        predictor, inputs, batch.first, batch.valid, predictor.initial_memory(count), torch.zeros(count), num_points
    )
    return found, batch


def test_it_finds_out_which_steps_decide(expert):
    random = np.random.default_rng(9)
    found, batch = explained(expert, [episode(random, 10) for _ in range(200)])
    chosen = batch.action[0] == 1
    assert expert.quality > 0.8
    assert found[0, chosen].mean() - found[0, ~chosen].mean() > 1.0, "of the 2 that it brings"
    costs = batch.obs[-1, :, 0] > 0
    at = batch.obs[:, :, 0].argmax(0)
    shown = found.gather(0, at.unsqueeze(0)).squeeze(0)
    assert shown[costs].mean().item() < -0.3, "where the cost is shown"
    assert found[1:].abs().sum(0).mean() < 2.0, "hardly anywhere else"


def test_the_first_loss_of_a_lesson_is_that_of_the_predictor_whose_moments_have_its_return():
    """Forty returns of 0, and then others: the deviation leaves its floor, and predictions do not change."""
    rudder, random = rudder_of(), np.random.default_rng(0)
    same = [episode(random) for _ in range(40)]
    rudder.take([dataclasses.replace(each, return_=0.0) for each in same])
    new = [dataclasses.replace(each, return_=value) for each, value in zip(same, (1.0, 0.25, -2.0), strict=False)]
    rudder.take(new)
    predictor, batch = rudder.predictor, LessonBatch(new)
    with torch.no_grad():
        ((prediction, _),) = rudder._predictions(batch)
    expected = (predictor.as_return(batch.last(prediction)) - batch.returns).div(predictor.returns.std).square()
    found = {each.return_: each.loss for each in rudder.lessons.episodes if each.return_}
    assert [found[each.return_] for each in new] == pytest.approx(expected.tolist(), rel=1e-3)


def test_the_predictor_is_given_neither_the_return_nor_a_count_of_steps():
    """Without observations and with equal actions, every step looks alike for any return."""
    rudder, given = rudder_of(redistributor_batch_size=2, redistributor_chunk=4), []
    rudder.predictor.cell_input.register_forward_pre_hook(lambda _, inputs: given.append(inputs[0].flatten(0, 1)))
    obs, action = np.zeros((9, 2), np.float32), np.ones(9, np.int64)
    rudder.take([Episode(obs, action, return_) for return_ in (1.0, -70.0)])
    rudder.update()
    rows = torch.cat(given)
    assert rows.shape == (len(rows), 2 + 2 + ACTIONS) and len(rows) > 2 * 2 * 9 and (rows == rows[0]).all()


def test_what_was_done_where_is_credited_when_it_is_done():
    """Which of four doors it is, is shown once; the right action there brings 1, another one takes 1.

    The flag that lasts from then on would suffice for a predictor that finds out later.
    """
    spec, random = ObservationSpec((5,), "float32"), np.random.default_rng(0)

    def passage():
        door, action = int(random.integers(4)), random.integers(ACTIONS, size=20)
        obs = np.zeros((20, 5), np.float32)
        obs[0, door], obs[1:, 4] = 1.0, action[0] == 1
        return Episode(obs, action, (1.0 if door % 2 else -1.0) * (action[0] == 1))

    torch.manual_seed(0)
    config = SegmentDelayedRewardConfig(env="none", redistributor_lessons=64)
    told = len(TOLD) + len(COUNTED)
    rudder = PredictorTraining(config, ReturnPredictor(spec, CHOICE, NetworkConfig(), 32, told, sees_observations=True))
    for _ in range(100):
        rudder.take([passage() for _ in range(2)])
        while rudder.can_learn and rudder.updates < 3 * rudder.episodes:
            rudder.update()
    found, batch = explained(rudder, [passage() for _ in range(200)])
    is_odd, acted = batch.obs[0, :, 1] + batch.obs[0, :, 3] > 0, batch.action[0] == 1
    assert found[0, acted & is_odd].mean() - found[0, acted & ~is_odd].mean() > 0.5 * 2.0


def test_every_parameter_learns_and_those_of_an_encoder_take_smaller_steps():
    picture = ObservationSpec((10, 10, 3), "uint8")
    for spec, is_encoded in ((OBSERVATION, False), (picture, True)):
        predictor = ReturnPredictor(spec, CHOICE, NetworkConfig(), 4)
        groups = build_optimizer(predictor, 0.1).param_groups
        rates = {id(parameter): group["lr"] for group in groups for parameter in group["params"]}
        assert sum(len(group["params"]) for group in groups) == len(rates)
        for name, parameter in predictor.named_parameters():
            assert rates.pop(id(parameter)) == pytest.approx(0.01 if name.startswith("encoder.") else 0.1), name
        assert not rates and (len(groups) == 2) == is_encoded


def test_until_it_knows_more_than_the_mean_its_quality_is_0():
    rudder, random = rudder_of(), np.random.default_rng(0)
    assert rudder.quality == 0.0
    rudder.take([episode(random) for _ in range(200)])
    assert rudder.quality == 0.0 and rudder.error > 0.5, "it has not learned"


def test_of_rare_returns_the_mean_is_no_good_prediction():
    """One episode in fifty returns 1: predicting 0 is wrong in that one alone, and explains nothing."""
    rudder = rudder_of()
    for number in range(400):
        return_ = float(number % 50 == 49)
        rudder._measure(return_, 0.0, 1.0)
        rudder.predictor.take_returns(torch.tensor([return_]))
        assert number < 49 or (rudder.error > 0.7 and rudder.quality == 0.0)


def test_good_predictions_are_trusted_after_some_episodes_and_in_spite_of_one_that_is_far_off():
    rudder, qualities = rudder_of(), []
    for number in range(100):
        return_ = float(number % 5) - 2.0
        rudder._measure(return_, 1_000.0 if number == 80 else 0.9 * return_, 1.0)
        qualities.append(rudder.quality)
    assert not any(qualities[:31]) and all(quality > 0.8 for quality in qualities[40:])


def test_with_fewer_lessons_than_a_batch_has_it_learns_as_soon_as_memory_holds_no_more(monkeypatch):
    random = np.random.default_rng(0)
    episodes = [episode(random, 10) for _ in range(6)]
    monkeypatch.setattr("penstock.rudder.learning.LESSONS_NBYTES", 4 * episodes[0].nbytes)
    rudder, could = rudder_of(), []
    for each in episodes:
        rudder.take([each])
        could.append(rudder.can_learn)
    assert len(rudder.lessons) == 4 and could == [False] * 3 + [True] * 3
    before = rudder.predictor.output.weight.clone()
    rudder.update()
    assert not torch.equal(rudder.predictor.output.weight, before)


def test_equal_returns_are_never_redistributed():
    rudder, random = rudder_of(), np.random.default_rng(0)
    for _ in range(40):
        rudder.take([episode(random, equal=True) for _ in range(4)])
        rudder.update()
    assert rudder.has_equal_returns and rudder.quality == 0.0
    rudder.take([episode(random)])
    assert not rudder.has_equal_returns


def test_contributions_add_up_to_the_prediction_at_the_end(expert):
    random = np.random.default_rng(3)
    for points in (0, 1, 8):
        found, batch = explained(expert, [episode(random) for _ in range(6)], points)
        whole, _ = explained(expert, [episode(np.random.default_rng(3)) for _ in range(1)])
        inputs = expert.predictor.inputs(batch.obs, batch.obs[0], batch.first, batch.action)
        last = expert.predictor.unroll(inputs, batch.first, batch.valid, expert.predictor.initial_memory(6))[0][-1]
        assert torch.allclose(found.sum(0), expert.predictor.as_return(last), atol=1e-4)
        assert not found[~batch.valid].any() and len(whole)


def test_integrated_gradients_are_complete_enough(expert):
    random = np.random.default_rng(4)
    batch = LessonBatch([episode(random) for _ in range(20)])
    shares = [completeness_of(expert.predictor, batch, points, 500) for points in (1, 4, 32)]
    errors = [(share - 1.0).abs().median().item() for share in shares]
    assert errors[2] < errors[0] and errors[2] < 0.02


def completeness_at_once(predictor, batch, points):
    """The definition: along the path from no inputs to all of them, of the prediction at the end of each episode."""
    rows = slice(0, len(batch.valid))
    inputs, memory = batch.inputs(predictor, rows), predictor.initial_memory(len(batch.returns))

    def ends(x):
        return predictor.unroll(x, batch.first, batch.valid, memory)[0][-1]

    explained = (integrated_gradients(lambda x: ends(x).sum(), inputs, points).sum(-1) * batch.valid).sum(0)
    return (explained / (ends(inputs) - ends(torch.zeros_like(inputs)))).detach()


def test_completeness_of_episodes_within_a_chunk_is_that_of_the_whole_episode(expert):
    batch = LessonBatch([episode(np.random.default_rng(4), length) for length in (9, 12, 4)])
    whole = completeness_at_once(expert.predictor, batch, 4)
    for chunk in (12, 500):
        assert torch.allclose(completeness_of(expert.predictor, batch, 4, chunk), whole, atol=1e-5)


def test_completeness_of_a_longer_episode_is_that_of_its_chunks_together_each_from_the_cells_before(expert):
    predictor, parts, chunk = expert.predictor, [], 5
    one, short = episode(np.random.default_rng(4), 12), episode(np.random.default_rng(6), 4)
    batch = LessonBatch([one])
    inputs, memory = batch.inputs(predictor, slice(0, 12)), predictor.initial_memory(1)
    for begin in range(0, 12, chunk):
        rows = slice(begin, begin + chunk)
        x, first, valid = inputs[rows], batch.first[rows], batch.valid[rows]

        def end(x, first=first, valid=valid, memory=memory):
            return predictor.unroll(x, first, valid, memory)[0][-1]

        explained = integrated_gradients(lambda x, end=end: end(x).sum(), x, 3).sum()
        parts.append((explained.item(), (end(x) - end(torch.zeros_like(x))).item()))
        _, memory = predictor.unroll(x, first, valid, memory)
    explained, changed = np.array(parts).sum(0)
    assert len(parts) == 3 and all(change != 0.0 for _, change in parts)
    assert completeness_of(predictor, batch, 3, chunk).item() == pytest.approx(explained / changed, rel=1e-4)
    both = completeness_of(predictor, LessonBatch([one, short]), 3, chunk)
    alone = completeness_of(predictor, LessonBatch([short]), 3, chunk)
    assert both.tolist() == pytest.approx([explained / changed, alone.item()], rel=1e-4)


def test_completeness_holds_no_more_than_a_chunk_at_once(expert, monkeypatch):
    held, unroll = list[int](), expert.predictor.unroll
    monkeypatch.setattr(
        expert.predictor, "unroll", lambda inputs, *rest: (held.append(len(inputs)), unroll(inputs, *rest))[1]
    )
    completeness_of(expert.predictor, LessonBatch([episode(np.random.default_rng(4), 12)]), 3, 5)
    assert max(held) == 5


@pytest.mark.parametrize("points", [0, 8])
def test_episodes_side_by_side_in_a_chunk_are_explained_as_each_is_alone(expert, points):
    random = np.random.default_rng(5)
    one, other = episode(random, 5), episode(random, 7)
    alone = [explained(expert, [each], points)[0].flatten() for each in (one, other)]
    predictor = expert.predictor
    obs = torch.from_numpy(np.concatenate([one.obs, other.obs])).unsqueeze(1)
    action = torch.from_numpy(np.concatenate([one.action, other.action])).unsqueeze(1)
    first = torch.zeros(12, 1, dtype=torch.bool)
    first[[0, 5]] = True
    inputs = predictor.inputs(obs, obs[0], first, action)
    found, _, _ = contributions(
        predictor, inputs, first, torch.ones_like(first), predictor.initial_memory(1), torch.zeros(1), points
    )
    assert torch.allclose(found.flatten(), torch.cat(alone), atol=1e-4)


def gradient_of(chunk):
    rudder, random = rudder_of(redistributor_chunk=chunk), np.random.default_rng(1)
    episodes = [episode(random, length) for length in (9, 12, 4, 7)]
    rudder.take(episodes)
    rudder.lessons.draw = lambda count, random: episodes
    rudder.update()
    return {name: p.grad.clone() for name, p in rudder.predictor.named_parameters()}, rudder.losses


def test_an_episode_in_chunks_costs_what_it_costs_at_once_and_chunks_overlap_by_half():
    whole, losses = gradient_of(500)
    for chunk in (12, 8, 5, 2):
        parts, same = gradient_of(chunk)
        assert same == pytest.approx(losses, rel=1e-4)
        output = parts["output.weight"].flatten(), whole["output.weight"].flatten()
        assert torch.cosine_similarity(*output, dim=0) > 0.99, "predictions are the same, whatever the chunks"
    assert torch.equal(gradient_of(12)[0]["cell_input.0.weight"], whole["cell_input.0.weight"])
    near, far = (gradient_of(chunk)[0]["cell_input.0.weight"].flatten() for chunk in (8, 2))
    whole_weight = whole["cell_input.0.weight"].flatten()
    assert torch.cosine_similarity(near, whole_weight, dim=0) > torch.cosine_similarity(far, whole_weight, dim=0)


def updated(at_once, monkeypatch, chunk=500):
    """A redistributor that has made an update of four episodes, of which two are the same one, and what it held."""
    monkeypatch.setattr("penstock.rudder.learning.AT_ONCE_NBYTES", at_once)
    rudder, random, held = rudder_of(redistributor_chunk=chunk), np.random.default_rng(1), []
    episodes = [episode(random, length) for length in (9, 12, 4)]
    rudder.predictor.take_returns(torch.tensor([each.return_ for each in episodes]))
    rudder.lessons.draw = lambda count, random: [*episodes, episodes[0]]
    unroll = rudder.predictor.unroll
    rudder.predictor.unroll = lambda inputs, *rest: (held.append(inputs.shape[1]), unroll(inputs, *rest))[1]
    rudder.update()
    return rudder, [each.loss for each in episodes], held


@pytest.mark.parametrize("chunk", [500, 5])
def test_a_batch_in_several_passes_makes_the_update_that_it_makes_at_once(monkeypatch, chunk):
    size = episode(np.random.default_rng(1), 4).nbytes // 4  # of a step
    whole, costs, held = updated(1 << 26, monkeypatch, chunk)
    assert set(held) == {4}
    for at_once, counts in ((24 * size, {2}), (23 * size, {1, 2}), (12 * size, {1}), (1, {1})):
        parts, same, held = updated(at_once, monkeypatch, chunk)
        assert set(held) == counts
        assert same == pytest.approx(costs, rel=1e-5) and parts.losses == pytest.approx(whole.losses, rel=1e-5)
        for one, other in zip(parts.predictor.parameters(), whole.predictor.parameters(), strict=True):
            assert torch.allclose(one.grad, other.grad, rtol=1e-3, atol=1e-6)
            assert torch.allclose(one, other, atol=1e-5)


def test_new_episodes_are_looked_at_in_as_many_passes_as_memory_needs(monkeypatch):
    random, seen = np.random.default_rng(1), []
    episodes = [episode(random, length) for length in (9, 12, 4, 4, 4)]
    monkeypatch.setattr("penstock.rudder.learning.AT_ONCE_NBYTES", 12 * episodes[0].nbytes // 9)
    rudder = rudder_of()
    look = rudder._take
    rudder._take = lambda part: (seen.append([each.length for each in part]), look(part))
    rudder.take(episodes)
    assert seen == [[9], [12], [4, 4, 4]] and rudder.episodes == len(rudder.lessons) == 5


def test_the_gradient_of_a_chunk_goes_back_over_the_half_that_it_shares_with_the_one_before():
    rudder, seen = rudder_of(redistributor_chunk=4), []
    inputs = rudder.predictor.inputs

    def watched(*arguments):
        seen.append(inputs(*arguments).detach().requires_grad_())
        return seen[-1]

    rudder.predictor.inputs = watched
    batch = LessonBatch([episode(np.random.default_rng(1), 6)])
    _, (late, begin) = rudder._predictions(batch)
    assert begin == 4 and len(late) == 2 and len(seen[1]) == 4, "rows 2 to 5"
    late[0].sum().backward()
    assert (seen[1].grad[:3].abs().sum((1, 2)) > 0).all() and not seen[1].grad[3].any()


def test_it_goes_on_from_what_it_was_bit_for_bit():
    one = learned(80)
    other = rudder_of()
    one.write_told(0)
    other.predictor.load_state_dict(one.predictor.state_dict())
    other.load_state(copy.deepcopy(one.state()))
    other.recall()
    assert other.quality == one.quality and other.updates == one.updates and len(other.lessons) == len(one.lessons)
    for rudder in (one, other):
        random = np.random.default_rng(8)
        rudder.take([episode(random) for _ in range(3)])
        rudder.update()
    states = one.predictor.state_dict(), other.predictor.state_dict()
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0] if name != "told")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"redistribution_share": 1.5}, "redistribution_share=1.5 is not legal: .* must be from 0 to 1"),
        ({"redistributor_size": 0}, "redistributor_size=0"),
        ({"redistributor_chunk": 1}, "redistributor_chunk=1 is not legal: .* 2 or more"),
        ({"redistributor_lessons": 4}, "redistributor_lessons=4 is not legal: .* redistributor_batch_size=8 or more"),
        ({"redistribution_max_error": 0.0}, "redistribution_max_error=0.0"),
        ({"redistributor_learning_rate": float("inf")}, "redistributor_learning_rate=inf"),
        ({"rewards": "rudders"}, "rewards='rudders' is not legal; did you mean 'rudder'"),
    ],
)
def test_settings_that_are_not_legal_are_named(settings, message):
    with pytest.raises(ConfigError, match=message):
        SegmentDelayedRewardConfig(env="none", **settings)
