"""Redistribution of rewards against golden numbers, explicit loops, and what it must keep: each episode's return.

Golden data: g = (0.2, 0.5, 0.9, 1.0), G = 1.2. By hand, h = (0.2, 0.3, 0.4, 0.1), which add up to 1.0; what is missing
of G is 0.2, 0.05 for each step.
"""

import statistics
from unittest import mock

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.rudder.arithmetic import (
    Account,
    completeness,
    differences,
    gate,
    integrated_gradients,
    loss_weights,
    mixed_advantage,
    redistribute,
    return_equivalent,
    return_losses,
    squared_error,
    trace,
    unexplained,
    variance_to_explain,
)

PREDICTION = torch.tensor([0.2, 0.5, 0.9, 1.0], dtype=torch.float64)
CONTRIBUTION = [0.2, 0.3, 0.4, 0.1]


def numbers(tensor):
    return [round(value, 9) for value in tensor.tolist()]


def test_contributions_are_differences_of_predictions_which_begin_at_0():
    assert numbers(differences(PREDICTION)) == CONTRIBUTION
    assert numbers(differences(PREDICTION, 0.1)) == [0.1, 0.3, 0.4, 0.1]
    assert numbers(differences(PREDICTION, 0.1, torch.tensor([False, False, True, False]))) == [0.1, 0.3, 0.9, 0.1]


def test_no_prediction_is_left_out_so_that_contributions_add_up_to_the_last_one():
    assert differences(PREDICTION).sum() == PREDICTION[-1], "an off-by-one would add up to the one before"


def test_what_contributions_miss_of_the_return_is_spread_evenly():
    redistributed = return_equivalent(differences(PREDICTION), torch.tensor(1.2, dtype=torch.float64))
    assert numbers(redistributed) == [0.25, 0.35, 0.45, 0.15] and redistributed.sum().item() == pytest.approx(1.2)


def test_integrated_gradients_of_a_product_share_it_equally():
    x = torch.tensor([2.0, 3.0])
    found = integrated_gradients(lambda at: at[0] * at[1], x, 8)
    assert numbers(found) == [3.0, 3.0]
    assert completeness(found, torch.tensor(6.0)) == 1.0


def test_integrated_gradients_become_complete_with_more_points():
    x = torch.tensor([0.5, 2.0, -1.0], dtype=torch.float64)

    def saturated(at):
        return torch.tanh(4.0 * at).sum()

    errors = [
        abs(completeness(integrated_gradients(saturated, x, n), saturated(x)).item() - 1.0) for n in (1, 4, 16, 64)
    ]
    assert errors == sorted(errors, reverse=True) and errors[0] > 0.2 > 1e-3 > errors[-1]


def test_where_nothing_is_to_be_explained_nothing_is_complete():
    nothing, something = torch.zeros(2), torch.tensor([0.5, 0.0])
    assert completeness(nothing, torch.tensor(0.0)) == 1.0 and completeness(something, torch.tensor(0.0)) == 0.0


def unexplained_by(returns, predictions, of_all=0.0):
    """The value of `unexplained`, by plain means."""
    mean, variance = statistics.fmean(returns), variance_to_explain(statistics.pvariance(returns), of_all)
    errors = [squared_error(*pair, mean, variance) for pair in zip(returns, predictions, strict=True)]
    return unexplained(statistics.fmean(errors), variance)


@pytest.mark.parametrize(
    ("returns", "predictions", "share"),
    [
        ([1.0, 3.0], [1.0, 3.0], 0.0),
        ([1.0, 3.0], [2.0, 2.0], 1.0),  # the mean
        ([1.0, 3.0], [1.5, 2.5], 0.25),
        ([-2.0, 2.0], [-1.0, 1.0], 0.25),  # about 0, and equally well distinguished
        ([0.0] * 99 + [1.0], [0.0] * 100, 0.99),  # rare, and not foreseen
        ([0.0] * 99 + [1.0], [0.0] * 99 + [0.9], 0.01 / 0.99),
        ([1.0, 3.0] * 10, [1.0, 3.0] * 9 + [1.0, 300.0], 0.05),  # one far off counts as one that is not foreseen
        ([1.0, 1.0, 1.0, 5.0], [1.0, 1.0, 9.0, 5.0], 0.25),  # or as one a deviation off, where the return is the mean's
        ([1.0, 3.0], [300.0, -300.0], 1.0),
        ([7.0, 7.0], [7.0, 7.0], 1.0),  # nothing to explain
    ],
)
def test_what_predictions_leave_unexplained_of_how_returns_differ(returns, predictions, share):
    assert unexplained_by(returns, predictions) == pytest.approx(share)


def test_episodes_that_have_become_alike_count_as_different_as_half_the_deviation_of_all():
    returns, predictions = [90.0, 110.0], [100.0, 100.0]
    assert unexplained_by(returns, predictions, of_all=20.0**2) == 1.0
    assert unexplained_by(returns, predictions, of_all=100.0**2) == pytest.approx((10.0 / 50.0) ** 2)
    assert unexplained_by([7.0, 7.0], [7.1, 6.9], of_all=1.0) == pytest.approx(0.04)
    assert unexplained_by([7.0, 7.0], [9.0, 5.0], of_all=1.0) == 1.0


@pytest.mark.parametrize(
    ("error", "complete", "quality"),
    [(0.0, 1.0, 1.0), (0.19, 0.8, 0.81), (0.2, 1.0, 0.0), (0.1, 0.79, 0.0), (0.1, 1.21, 0.0), (9.0, 1.0, 0.0)],
)
def test_the_gate_is_shut_for_large_errors_and_for_contributions_that_are_not_complete(error, complete, quality):
    assert gate(error, complete, 0.2) == pytest.approx(quality)


def test_a_trace_hands_half_of_each_reward_back():
    reward, goes_on = torch.tensor(CONTRIBUTION).unsqueeze(1), torch.ones(4, 1, dtype=torch.bool)
    assert trace(reward, goes_on, 0.5).flatten().tolist() == pytest.approx([0.4625, 0.525, 0.45, 0.1])
    goes_on[1] = False
    assert trace(reward, goes_on, 0.5).flatten().tolist() == pytest.approx([0.35, 0.3, 0.45, 0.1])


def test_advantages_are_mixed_by_quality():
    advantage, redistributed = torch.tensor([2.0]), torch.tensor([1.0])
    quality = gate(1.0 / 102.0, 1.0, 0.2)
    assert quality == pytest.approx(0.990196, abs=1e-6)
    assert mixed_advantage(advantage, redistributed, quality, 0.5).item() == pytest.approx(1.504902, abs=1e-6)
    assert mixed_advantage(advantage, redistributed, 0.0, 0.5).item() == 2.0


def test_errors_of_opposite_sign_do_not_cancel_in_the_loss():
    prediction, valid = torch.tensor([[0.0, 0.0], [2.0, -2.0]]), torch.ones(2, 2, dtype=torch.bool)
    main, auxiliary = return_losses(prediction, torch.zeros(2), *loss_weights(valid))
    assert main.item() == 4.0 and auxiliary.item() == 2.0, "the square of their mean would be 0"


def test_the_loss_looks_at_the_last_step_of_each_episode_and_past_none():
    prediction = torch.tensor([[1.0, 5.0], [3.0, 9.0]])
    valid = torch.tensor([[True, True], [True, False]])
    main, auxiliary = return_losses(prediction, torch.tensor([1.0, 4.0]), *loss_weights(valid))
    assert main.item() == (4.0 + 1.0) / 2 and auxiliary.item() == ((0.0 + 4.0) / 2 + 1.0) / 2


# -- chunks ------------------------------------------------------------------------------------------------------------


def lane_of(lengths, seed, *, final_rows=False):
    """One lane's rows of episodes of these lengths, each terminated but the last, which runs on."""
    generator = torch.Generator().manual_seed(seed)
    rows = []
    for length in lengths:
        rows += [(t == 0, t == length - 1, True) for t in range(length)]
        if final_rows:
            rows.append((False, False, False))
    first, terminated, valid = torch.tensor(rows, dtype=torch.bool).T.clone()
    terminated[-2 if final_rows else -1] = False
    return {
        "contribution": torch.randn(len(rows), generator=generator),
        "reward": torch.randn(len(rows), generator=generator),
        "first": first, "terminated": terminated, "valid": valid,
    }  # fmt: skip


def in_chunks(lane, cuts, quality=0.9):
    """Redistribute a lane cut at these rows; return rewards, qualities and the last account."""
    account, found, qualities = Account.empty(1), [], []
    for begin, end in zip([0, *cuts], [*cuts, len(lane["first"])], strict=True):
        chunk = {name: values[begin:end].unsqueeze(1) for name, values in lane.items()}
        rewards, q, account = redistribute(**chunk, account=account, quality=quality)
        found.append(rewards.squeeze(1))
        qualities.append(q.squeeze(1))
    return torch.cat(found), torch.cat(qualities), account


@settings(max_examples=60)
@given(
    lengths=st.lists(st.integers(1, 9), min_size=1, max_size=5),
    cuts=st.sets(st.integers(1, 40)),
    final_rows=st.booleans(),
    seed=st.integers(0, 99),
)
def test_however_chunks_are_cut_each_episode_that_ends_gets_its_return(lengths, cuts, final_rows, seed):
    lane = lane_of(lengths, seed, final_rows=final_rows)
    cuts = sorted(cut for cut in cuts if cut < len(lane["first"]))
    redistributed, _, account = in_chunks(lane, cuts)
    episode = lane["first"].long().cumsum(0)
    for number in range(1, len(lengths)):
        of_it = episode == number
        assert redistributed[of_it].sum().item() == pytest.approx(
            (lane["reward"] * lane["valid"])[of_it].sum().item(), abs=1e-4
        )
    running = (episode == len(lengths)) & lane["valid"]
    assert torch.allclose(redistributed[running], lane["contribution"][running], atol=1e-5), "its end is to come"
    assert account.earned.item() == pytest.approx(lane["reward"][running].sum().item(), abs=1e-4)
    assert not redistributed[~lane["valid"]].any()


def test_a_whole_episode_in_one_chunk_is_the_papers_formula():
    lane = lane_of([5, 1], seed=3)
    redistributed, _, _ = in_chunks(lane, [])
    wanted = return_equivalent(lane["contribution"][:5], lane["reward"][:5].sum())
    assert torch.allclose(redistributed[:5], wanted, atol=1e-6)


def test_the_correction_of_an_episode_over_several_chunks_is_spread_over_the_last_one():
    lane = lane_of([6, 1], seed=4)
    redistributed, _, _ = in_chunks(lane, [4])
    h, missing = lane["contribution"], lane["reward"][:6].sum() - lane["contribution"][:6].sum()
    assert torch.allclose(redistributed[:6], h[:6] + torch.tensor([0, 0, 0, 0, 0.5, 0.5]) * missing, atol=1e-6)


def test_a_truncated_episode_is_not_corrected_so_that_the_cut_is_not_taught():
    lane = lane_of([4, 1], seed=5)
    lane["terminated"][:] = False  # the second episode begins without the first having terminated
    redistributed, _, _ = in_chunks(lane, [])
    assert torch.equal(redistributed, lane["contribution"])


def test_quality_decides_when_an_episode_begins_and_holds_for_all_of_it():
    lane = lane_of([4, 4, 2], seed=6)
    chunks = [{name: values[a : a + 5].unsqueeze(1) for name, values in lane.items()} for a in (0, 5)]
    shut, q_shut, account = redistribute(**chunks[0], account=Account.empty(1), quality=0.0)
    opened, q_opened, _ = redistribute(**chunks[1], account=account, quality=0.7)
    assert not q_shut.any() and torch.equal(shut, chunks[0]["reward"])
    assert q_opened.flatten().tolist() == pytest.approx([0.0, 0.0, 0.0, 0.7, 0.7])
    assert torch.equal(opened[:3], chunks[1]["reward"][:3]), "the gate was shut when it began"


def test_an_episode_of_which_a_part_is_missing_keeps_its_rewards_from_there():
    lane = lane_of([8, 3], seed=7)
    begun = {name: values[:4].unsqueeze(1) for name, values in lane.items()}
    _, _, account = redistribute(**begun, account=Account.empty(1), quality=0.9)
    account.close(torch.tensor([0]))
    rest = {name: values[6:].unsqueeze(1) for name, values in lane.items()}
    redistributed, quality, _ = redistribute(**rest, account=account, quality=0.9)
    assert torch.equal(redistributed[:2], rest["reward"][:2]) and not quality[:2].any() and quality[2:].all()


@settings(max_examples=100)
@given(steps=st.integers(1, 12), lanes=st.integers(1, 4), quality=st.sampled_from([0.0, 0.6]), seed=st.integers(0, 999))
def test_the_native_core_redistributes_as_torch_does_bit_for_bit(steps, lanes, quality, seed):
    generator = torch.Generator().manual_seed(seed)

    def flags(share):
        return torch.rand(steps, lanes, generator=generator) < share

    chunk = {
        "contribution": torch.randn(steps, lanes, generator=generator),
        "reward": torch.randn(lanes, steps, generator=generator).t(),
        "first": flags(0.3), "terminated": flags(0.3), "valid": flags(0.8),
    }  # fmt: skip
    earned, handed_out = torch.randn(2, lanes, generator=generator, dtype=torch.float64)
    account = Account(earned, handed_out, torch.tensor([0.9, 0.0, 0.3, 0.0])[:lanes])
    before, found = account.copy(), []
    for is_native in (True, False):
        with mock.patch("penstock.rudder.arithmetic.is_native", return_value=is_native):
            rewards, qualities, after = redistribute(**chunk, account=account, quality=quality)
            found.append([rewards, qualities, after.earned, after.handed_out, after.quality])
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))
    assert torch.equal(account.earned, before.earned) and torch.equal(account.quality, before.quality), "as it was"


def test_lanes_do_not_mix():
    lanes = [lane_of([3, 4, 2], seed=8), lane_of([5, 1, 3], seed=9)]
    beside = {name: torch.stack([lane[name] for lane in lanes], 1) for name in lanes[0]}
    redistributed, _, _ = redistribute(**beside, account=Account.empty(2), quality=0.9)
    for number, lane in enumerate(lanes):
        assert torch.allclose(redistributed[:, number], in_chunks(lane, [])[0])
