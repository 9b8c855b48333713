"""Ratings of players by results of games: golden numbers, and a slow computation beside the fast one."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.self_play.ratings import expected_score, hard_odds, rating, rating_error, remembered, score

results = st.tuples(st.integers(0, 50), st.integers(0, 50), st.integers(0, 50))


def test_a_score_counts_draws_half_and_one_draw_more():
    assert score((0, 0, 0)) == 0.5
    assert score((3, 0, 1)) == pytest.approx(3.5 / 5)
    assert score((0, 4, 0)) == 0.5
    assert 0.0 < score((0, 0, 1_000)) < score((1_000, 0, 0)) < 1.0


def test_elos_model_expects_ten_to_one_of_400_points():
    assert expected_score(0.0, 0.0) == 0.5
    assert expected_score(400.0, 0.0) == pytest.approx(10 / 11)
    assert expected_score(0.0, 400.0) == pytest.approx(1 / 11)


@pytest.mark.parametrize(
    ("played", "expected"),
    [
        ([], 0.0),
        ([(120.0, (0, 0, 0))], 0.0),
        ([(120.0, (5, 2, 5))], 120.0),
        ([(0.0, (10, 0, 0))], 400 * math.log10(10.5 / 0.5)),
        ([(100.0, (3, 0, 1))], 100 + 400 * math.log10(3.5 / 1.5)),
        ([(-50.0, (4, 0, 0)), (50.0, (0, 0, 4))], 0.0),
    ],
)
def test_a_rating_is_where_expected_and_true_scores_meet(played, expected):
    assert rating(played) == pytest.approx(expected, abs=1e-6)


@given(st.lists(st.tuples(st.floats(-500, 500), results), min_size=1, max_size=4))
def test_no_other_rating_makes_the_results_as_likely(played):
    def likelihood(own):
        terms = [(other, w + (d + 1) / 2, lost + (d + 1) / 2) for other, (w, d, lost) in played if w + d + lost]
        return sum(
            won * math.log(expected_score(own, other)) + lost * math.log(1 - expected_score(own, other))
            for other, won, lost in terms
        )

    found = rating(played)
    assert all(likelihood(found) >= likelihood(found + step) - 1e-9 for step in (-30.0, -1.0, 1.0, 30.0))


@given(st.lists(st.sampled_from([0, 1, 2]), max_size=30), st.sampled_from([0.9, 0.99]))
def test_results_fade_with_each_further_game(games, decay):
    one_by_one, before = np.array([4.0, 2.0, 1.0]), np.array([4.0, 2.0, 1.0])
    for game in games:
        one_by_one = decay * one_by_one + np.eye(3)[game]
    at_once = remembered(before, np.bincount(games, minlength=3), decay)
    assert at_once.sum() == pytest.approx(one_by_one.sum())
    if len(set(games)) <= 1:
        np.testing.assert_allclose(at_once, one_by_one)


def test_hard_opponents_are_those_that_are_lost_to():
    np.testing.assert_allclose(hard_odds([0.5, 0.9, 0.0]), [0.25, 0.01, 1.0])


def test_the_interval_of_a_rating_is_that_of_its_information():
    # 99 even games and the added draw against a player of the same rating: 100 games of variance 1/4. A rating point
    # changes the log odds by ln(10) / 400: the deviation is 400 / ln(10) / sqrt(100 / 4) = 34.74, and 1.96 of it 68.1.
    assert rating_error([(0.0, (49, 1, 49))]) == pytest.approx(68.1, abs=0.05)
    assert rating_error([(0.0, (0, 0, 0))]) is None
    few, many = (rating_error([(0.0, (games, 0, games))]) for games in (5, 500))
    assert few > 5 * many
