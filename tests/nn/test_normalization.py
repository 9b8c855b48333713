"""Running moments against numpy over everything seen."""


import numpy as np
import pytest
import torch

from penstock.nn import RunningMoments
from penstock.nn.observations import BoundedMoments


def batches():
    """Batches of several sizes whose distribution drifts."""
    rng = np.random.default_rng(0)
    return [rng.normal(i, 1 + i, size=(n, 3)).astype(np.float32) for i, n in enumerate((1, 7, 300, 2, 50))]


def moments_of(rows):
    moments = RunningMoments(rows[0].shape[1:])
    for batch in rows:
        moments.update(torch.from_numpy(batch))
    return moments


def assert_moments(moments, everything, rtol=1e-5):
    everything = np.asarray(everything, dtype=np.float64)
    np.testing.assert_allclose(moments.mean, everything.mean(0), rtol=rtol, atol=1e-6)
    np.testing.assert_allclose(moments.var, everything.var(0), rtol=rtol)
    np.testing.assert_allclose(moments.std, everything.std(0), rtol=rtol)
    assert moments.count.item() == len(everything)


def test_merged_batches_have_the_moments_of_everything_seen():
    assert_moments(moments_of(batches()), np.concatenate(batches()))


def test_leading_dimensions_are_all_rows():
    rows = np.random.default_rng(1).normal(size=(5, 4, 2, 3)).astype(np.float32)
    moments = RunningMoments((2, 3))
    moments.update(torch.from_numpy(rows))
    assert_moments(moments, rows.reshape(20, 2, 3))


def test_rows_outside_the_mask_do_not_count_whatever_they_hold():
    moments = RunningMoments((3,))
    seen = []
    for i, batch in enumerate(batches()):
        mask = np.random.default_rng(i).random(len(batch)) < 0.6
        seen.append(batch[mask])
        batch[~mask] = np.nan
        moments.update(torch.from_numpy(batch), torch.from_numpy(mask))
    assert_moments(moments, np.concatenate(seen))


def test_a_mask_over_time_and_lanes_selects_scalars():
    returns = torch.arange(6.0).reshape(3, 2)
    mask = torch.tensor([[True, False], [True, True], [False, True]])
    moments = RunningMoments(())
    moments.update(returns, mask)
    assert_moments(moments, [0.0, 2.0, 3.0, 5.0])


def test_a_batch_without_any_row_changes_nothing():
    moments = moments_of(batches())
    before = {name: tensor.clone() for name, tensor in moments.state_dict().items()}
    moments.update(torch.zeros(4, 3), torch.zeros(4, dtype=torch.bool))
    for name, tensor in moments.state_dict().items():
        assert torch.equal(tensor, before[name])


def test_a_large_offset_does_not_swallow_the_variance():
    """Sums of squares in float32 would leave an error of 10 here."""
    rng = np.random.default_rng(2)
    rows = [rng.normal(1e4, 1.0, size=(1000, 3)).astype(np.float32) for _ in range(10)]
    assert_moments(moments_of(rows), np.concatenate(rows), rtol=1e-4)


def test_before_the_first_update_nothing_is_shifted_or_scaled():
    x = torch.randn(5, 3)
    assert torch.equal(RunningMoments((3,)).normalize(x), x)


def test_normalised_rows_have_mean_zero_and_deviation_one():
    rows = torch.from_numpy(np.concatenate(batches()))
    normalized = moments_of(batches()).normalize(rows)
    torch.testing.assert_close(normalized.mean(0), torch.zeros(3), rtol=0, atol=1e-5)
    torch.testing.assert_close(normalized.std(0, correction=0), torch.ones(3))


def test_denormalize_undoes_normalize():
    moments, x = moments_of(batches()), torch.randn(20, 3)
    torch.testing.assert_close(moments.denormalize(moments.normalize(x)), x, rtol=1e-5, atol=1e-5)


def test_outliers_are_clipped_in_both_directions():
    moments = RunningMoments(())
    x = torch.tensor([-1e6, -2.0, 2.0, 1e6])
    assert moments.normalize(x).tolist() == [-10.0, -2.0, 2.0, 10.0]
    assert moments.normalize(x, clip=1.0).tolist() == [-1.0, -1.0, 1.0, 1.0]


def test_an_element_that_never_varies_is_normalised_to_zero():
    moments = RunningMoments((2,))
    moments.update(torch.tensor([[3.0, 1.0], [3.0, 2.0]]))
    assert moments.normalize(torch.tensor([[3.0, 1.5]])).tolist() == [[0.0, 0.0]]


def test_moments_are_float32_buffers_that_stay_the_same_tensors():
    """They travel in the weights block, which holds on to the memory of each tensor."""
    moments = RunningMoments((3,))
    before = dict(moments.named_buffers())
    moments.update(torch.randn(10, 3))
    after = dict(moments.named_buffers())
    assert {name: buffer.dtype for name, buffer in after.items()} == {
        "mean": torch.float32,
        "var": torch.float32,
        "std": torch.float32,
        "count": torch.float64,
    }
    assert all(after[name] is before[name] for name in before)


@pytest.mark.parametrize("dtype", [torch.int32, torch.float16, torch.float64])
def test_any_real_dtype_can_be_taken_in(dtype):
    rows = torch.tensor([[1, 2, 3], [3, 4, 7]], dtype=dtype)
    moments = RunningMoments((3,))
    moments.update(rows)
    assert_moments(moments, rows.numpy())


def test_prior_rows_keep_a_first_reward_among_many_zeros_of_a_sane_size():
    moments, without = RunningMoments((), 10_000.0), RunningMoments(())
    for each in (moments, without):
        each.update(torch.zeros(2_000).index_fill(0, torch.tensor([7]), 0.01))
    assert moments.std.item() == pytest.approx((10 / 12) ** 0.5, rel=1e-4)
    assert without.std.item() < 1e-3


def test_prior_rows_are_outweighed_by_what_is_seen():
    moments = RunningMoments((), 10.0)
    moments.update(torch.tensor([3.0, 5.0]).repeat(50_000))
    np.testing.assert_allclose([moments.mean.item(), moments.std.item()], [4.0, 1.0], rtol=1e-3)


def test_beyond_the_most_rows_earlier_ones_are_forgotten_exponentially():
    moments = RunningMoments((), most_rows=10.0)
    for value, expected in ((0.0, 0.0), (1.0, 1 / 3), (1.0, 5 / 9)):  # 5 new rows weigh a third beside 10 earlier ones
        for _ in range(1 if value else 20):
            moments.update(torch.full((5,), value))
        assert moments.count.item() == 10.0
        assert moments.mean.item() == pytest.approx(expected, rel=1e-5)


def test_bounded_moments_keep_what_is_rare_within_the_bound_and_what_is_common_apart():
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(2_000, 2, generator=generator)
    rows[:, 1] = 0.0
    rows[::500, 1] = 1.0
    plain, bounded = RunningMoments((2,)), BoundedMoments((2,))
    for part in rows.split(300):
        plain.update(part)
        bounded.update(part)
    assert torch.equal(plain.mean, bounded.mean) and torch.equal(plain.var, bounded.var)
    assert plain.normalize(rows)[:, 1].max() == 10.0, "clipped, even"
    seen = bounded.normalize(rows)
    assert seen.abs().amax() <= 2.0 and seen[:, 1].max() > 1.9 and 0.5 < seen[:, 0].std() <= 1.0
    before = bounded.std.clone()
    bounded.update(rows[:0])
    bounded.update(rows[:3], torch.zeros(3, dtype=torch.bool))
    assert torch.equal(bounded.std, before)
