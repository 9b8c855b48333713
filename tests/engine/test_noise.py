"""Each lane has a random stream of its own, independent of the lanes drawn beside it."""

import numpy as np
import pytest

from penstock.envs.columns import BLOCK, NoiseStreams


def draws(count, lanes=range(3), kind="uniform", size=2, seed=7, incarnation=0, hold=1):
    streams = NoiseStreams(kind, size, lanes, seed=seed, incarnation=incarnation, hold=hold)
    return np.stack([streams.draw().copy() for _ in range(count)])


@pytest.mark.parametrize("kind", ["uniform", "normal"])
def test_the_same_key_gives_the_same_numbers_and_any_other_key_others(kind):
    numbers = draws(4, kind=kind)
    assert np.array_equal(numbers, draws(4, kind=kind))
    for other in ({"seed": 8}, {"incarnation": 1}, {"lanes": range(1, 4)}):
        assert not np.isclose(numbers, draws(4, kind=kind, **other)).any(), other


@pytest.mark.parametrize("kind", ["uniform", "normal"])
def test_a_lanes_numbers_do_not_depend_on_the_lanes_it_is_drawn_with(kind):
    count = 2 * BLOCK + 3  # across the blocks that are drawn ahead
    together = draws(count, range(6), kind)
    assert np.array_equal(together[:, 2:5], draws(count, range(2, 5), kind))
    assert np.array_equal(together[:, 5:6], draws(count, range(5, 6), kind))


def test_no_two_lanes_and_no_two_steps_share_a_number():
    numbers = draws(3 * BLOCK, range(4), size=1)
    # 1536 draws of 24 bits: a handful may coincide by chance, a repeated block or lane would be hundreds.
    assert len(np.unique(numbers)) > numbers.size - 10


def test_uniform_noise_is_spread_over_0_to_1_and_below_1():
    numbers = draws(2 * BLOCK, range(40))
    assert numbers.dtype == np.float32 and numbers.min() >= 0.0 and numbers.max() < 1.0
    assert abs(numbers.mean() - 0.5) < 0.01 and abs(numbers.var() - 1 / 12) < 0.005


def test_normal_noise_is_standard_normal():
    numbers = draws(2 * BLOCK, range(40), "normal")
    assert numbers.dtype == np.float32
    assert abs(numbers.mean()) < 0.03 and abs(numbers.std() - 1.0) < 0.03 and numbers.min() < -2.5


def test_the_numbers_are_those_of_numpys_sfc64_keyed_by_seed_lane_and_incarnation():
    generator = np.random.Generator(np.random.SFC64(np.random.SeedSequence([7, 2, 5, 1])))
    expected = generator.standard_normal((BLOCK, 2), np.float32)
    assert np.array_equal(draws(BLOCK, range(2, 3), "normal", incarnation=5)[:, 0], expected)


def test_a_draw_stays_as_it_is_until_the_next():
    streams = NoiseStreams("uniform", 3, range(2), seed=0, incarnation=0)
    drawn = streams.draw()
    assert drawn.shape == (2, 3) and np.array_equal(drawn, draws(1, range(2), size=3, seed=0)[0])


def runs_of(numbers):
    """Lengths of the runs of equal numbers ``[T]``, without the last, which may go on."""
    begins = np.flatnonzero(np.diff(numbers, prepend=np.nan) != 0)
    return np.diff(begins)


def test_held_noise_lasts_n_steps_with_a_probability_that_falls_as_the_square_of_n():
    """P(n) = n^-2 / (1 + 1/4 + 1/9 + 1/16): 0.7024, 0.1756, 0.0780, 0.0439. 24,000 runs: 0.01 is three deviations."""
    numbers = draws(100 * BLOCK, range(3), "normal", size=1, hold=4)[..., 0]
    lengths = np.concatenate([runs_of(numbers[:, lane]) for lane in range(3)])
    shares = np.bincount(lengths, minlength=5) / len(lengths)
    assert len(lengths) > 20_000 and lengths.max() == 4
    np.testing.assert_allclose(shares[1:], [0.7024, 0.1756, 0.0780, 0.0439], atol=0.01)


def test_every_lane_holds_its_noise_by_a_count_of_its_own_whatever_lanes_it_is_drawn_with():
    numbers = draws(2 * BLOCK, range(4), "normal", size=1, hold=16)[..., 0]
    begins = np.diff(numbers, axis=0) != 0
    assert (begins.any(1) & ~begins.all(1)).any()
    assert np.array_equal(numbers[:, 2:3], draws(2 * BLOCK, range(2, 3), "normal", size=1, hold=16)[..., 0])
