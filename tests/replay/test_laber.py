"""LaBER: rows drawn by their priorities, and weights that correct the bias."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from penstock.replay.laber import LaBER


@pytest.mark.parametrize(
    ("variant", "weight_of"),
    [
        # Priorities 1, 2, 3, 4 of a large batch of M = 4 make P = 0.1, 0.2, 0.3, 0.4.
        ("mean", {0: 1 / 0.4, 1: 1 / 0.8, 2: 1 / 1.2, 3: 1 / 1.6}),
        ("lazy", {0: 10.0, 1: 5.0, 2: 10 / 3, 3: 2.5}),
    ],
)
def test_weights_of_four_rows_by_hand(variant: str, weight_of: dict[int, float]) -> None:
    laber = LaBER(2, 2, variant=variant, eps=0.0, seed=0)
    seen = set()
    for _ in range(40):
        drawn = laber({}, [1.0, 2.0, 3.0, 4.0])
        assert drawn["weights"].dtype == np.float32
        np.testing.assert_allclose(drawn["weights"], [weight_of[i] for i in drawn["indexes"]], rtol=1e-6)
        seen |= set(drawn["indexes"].tolist())
    assert seen == {0, 1, 2, 3}


def test_the_largest_weight_of_a_mini_batch_is_one_with_max() -> None:
    laber = LaBER(2, 2, variant="max", eps=0.0, seed=0)
    p = np.array([1.0, 2.0, 3.0, 4.0])
    for _ in range(40):
        drawn = laber({}, p)
        least = p[drawn["indexes"]].min()
        np.testing.assert_allclose(drawn["weights"], least / p[drawn["indexes"]], rtol=1e-6)


def test_eps_is_added_to_every_priority() -> None:
    drawn = LaBER(1, 2, variant="lazy", eps=1.0, seed=0)({}, [0.0, 2.0])  # P = 1/4, 3/4
    assert drawn["weights"][0] == pytest.approx({0: 4.0, 1: 4 / 3}[int(drawn["indexes"][0])])


def test_rows_are_drawn_as_often_as_their_priorities_say() -> None:
    p = np.array([1.0, 2.0, 3.0, 4.0, 0.0, 10.0, 0.5, 0.5])
    draws = 40_000
    drawn = LaBER(draws, 1, eps=0.0, seed=1)({}, np.tile(p, draws // len(p)))
    counts = np.bincount(drawn["indexes"] % len(p), minlength=len(p))
    expected = draws * p / p.sum()
    assert counts[4] == 0
    chi_square = np.sum((counts - expected)[p > 0] ** 2 / expected[p > 0])
    assert chi_square < 22.46  # 6 degrees of freedom, p = 0.001


def test_the_weighted_mean_is_that_of_the_whole_large_batch() -> None:
    # Unbiased: the expectation over draws of mean(w * x) is mean(x); 4,000 draws of 16 leave 1% of noise.
    rng = np.random.default_rng(2)
    x, p = rng.normal(3.0, 1.0, 64), rng.uniform(0.5, 2.0, 64)
    laber = LaBER(16, 4, seed=3)
    means = [(drawn["weights"] * drawn["x"]).mean() for drawn in (laber({"x": x}, p) for _ in range(4000))]
    assert np.mean(means) == pytest.approx(x.mean(), rel=0.01)


@given(p=arrays(np.float64, 32, elements=st.one_of(st.just(0.0), st.floats(0, 1e308))), seed=st.integers(0, 100))
def test_entries_are_cut_alike_and_a_zero_priority_is_never_drawn(p: np.ndarray, seed: int) -> None:
    p[seed % 32] = 1e300
    obs = np.arange(64, dtype=np.float32).reshape(32, 2)
    drawn = LaBER(8, 4, eps=0.0, seed=seed)({"obs": obs, "ids": np.arange(32)}, p)
    assert drawn["indexes"].dtype == np.int64 and drawn["obs"].dtype == np.float32
    assert (p[drawn["indexes"]] > 0).all()
    np.testing.assert_array_equal(drawn["ids"], drawn["indexes"])
    np.testing.assert_array_equal(drawn["obs"], obs[drawn["indexes"]])
    assert np.isfinite(drawn["weights"]).all()


class ExtremeGenerator:
    """Draws the least and the largest numbers that a generator may draw."""

    def random(self, size: int) -> np.ndarray:
        return np.resize([0.0, 1.0 - 2.0**-53], size)


def test_zero_priorities_at_both_ends_are_not_drawn_by_the_most_extreme_numbers() -> None:
    laber = LaBER(2, 3, eps=0.0)
    laber._rng = ExtremeGenerator()  # type: ignore[assignment]
    assert laber({}, [0.0, 3.0, 0.1, 0.2, 0.7, 0.0])["indexes"].tolist() == [1, 4]


def test_a_seed_makes_draws_repeatable_and_the_caller_owns_what_it_gets() -> None:
    x, p = np.arange(8.0), np.ones(8)
    first, second = LaBER(4, 2, seed=5)({"x": x}, p), LaBER(4, 2, seed=5)({"x": x}, p)
    np.testing.assert_array_equal(first["indexes"], second["indexes"])
    first["x"][:] = -1.0
    np.testing.assert_array_equal(x, np.arange(8.0))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"batch_size": 0}, "batch_size must be at least 1, found 0"),
        ({"batch_size": 1, "m": 0}, "m must be at least 1, found 0"),
        ({"batch_size": 1, "eps": -1.0}, "eps must be finite and not negative, found -1.0"),
        ({"batch_size": 1, "eps": np.nan}, "eps must be finite and not negative, found nan"),
        ({"batch_size": 1, "variant": "median"}, "variant='median' is unknown: use one of mean, lazy, max"),
    ],
)
def test_arguments_out_of_range_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LaBER(**arguments)


@pytest.mark.parametrize(
    ("batch", "priorities", "message"),
    [
        ({}, [1.0, 2.0, 3.0], r"priorities must have shape \[m \* batch_size\] = \[4\], found \[3\]"),
        ({}, [[1.0], [2.0], [3.0], [4.0]], r"found \[4, 1\]"),
        ({}, [1.0, 2.0, np.nan, -1.0], r"priorities\[2\] is nan"),
        ({}, [1.0, -2.0, 3.0, 4.0], r"priorities\[1\] is -2.0"),
        ({}, [1.0, 2.0, 3.0, np.inf], r"priorities\[3\] is inf"),
        ({}, [0.0, 0.0, 0.0, 0.0], "all priorities are zero and so is eps"),
        ({"obs": np.zeros((3, 2))}, [1.0, 1.0, 1.0, 1.0], r"batch\['obs'\] must have .* 4 rows, found shape \[3, 2\]"),
        ({"obs": 1.0}, [1.0, 1.0, 1.0, 1.0], r"batch\['obs'\] must have .* found shape \[\]"),
        ({"weights": np.ones(4)}, [1.0, 1.0, 1.0, 1.0], r"\['weights'\] already"),
    ],
)
def test_a_wrong_batch_or_priority_is_named(batch: dict[str, Any], priorities: list[float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LaBER(2, 2, eps=0.0)(batch, priorities)
