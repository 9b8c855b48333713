"""Statistics of few runs: by hand, by brute force, and beside rliable."""

import inspect
import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.studies.statistics import (
    first_reached,
    interquartile_mean,
    interval,
    median_with_misses,
    optimality_gap,
    performance_profile,
    probability_of_improvement,
)

some_scores = st.lists(
    st.lists(st.floats(-100, 100).map(lambda value: round(value, 1)), min_size=1, max_size=9).map(np.array),
    min_size=1, max_size=4,
)  # fmt: skip


@pytest.mark.parametrize(
    ("scores", "mean"),
    [
        ([[0, 1, 2, 3, 4, 5, 6, 7]], 3.5),  # 2 of 8 are cut off at either end: (2 + 3 + 4 + 5) / 4
        ([[9, 0, 1, 2, 100]], 4.0),  # 1 of 5: (1 + 2 + 9) / 3
        ([[5, 1, 3]], 3.0),  # none of 3
        ([[1, 2, 3, 4], [10, 20, 30, 40]], 9.25),  # tasks lie together: (3 + 4 + 10 + 20) / 4
    ],
)
def test_the_interquartile_mean_by_hand(scores, mean):
    assert interquartile_mean([np.array(task, float) for task in scores]) == pytest.approx(mean)


def test_the_optimality_gap_by_hand():
    assert optimality_gap([np.array([0.5, 2.0])]) == pytest.approx(0.25), "1 - (0.5 + 1) / 2"
    assert optimality_gap([np.array([0.5]), np.array([2.0])], optimum=3.0) == pytest.approx(1.75)


def test_the_profile_by_hand():
    scores = [np.array([1.0, 2.0]), np.array([3.0, 3.0])]
    found = performance_profile(scores, np.array([0.0, 1.0, 2.0, 3.0]))
    assert found.tolist() == [1.0, 0.75, 0.5, 0.0], "above, not at: of the first task 2, 1, 0 and 0 of 2"


def test_tasks_count_the_same_in_a_profile_whatever_their_runs():
    assert performance_profile([np.array([1.0]), np.zeros(9)], np.array([0.5])) == pytest.approx([0.5])


def test_the_probability_of_improvement_by_hand():
    ours, theirs = [np.array([1.0, 2.0, 3.0])], [np.array([2.0, 2.0])]
    assert probability_of_improvement(ours, theirs) == pytest.approx(0.5), "(0 + 0 + 1/2 + 1/2 + 1 + 1) / 6"
    assert probability_of_improvement([*ours, np.ones(2)], [*theirs, np.zeros(3)]) == pytest.approx(0.75)


@given(some_scores)
def test_the_interquartile_mean_lies_among_the_scores_and_moves_with_them(scores):
    together = np.concatenate(scores)
    mean = interquartile_mean(scores)
    assert together.min() - 1e-9 <= mean <= together.max() + 1e-9
    assert interquartile_mean([2.0 * task + 3.0 for task in scores]) == pytest.approx(2.0 * mean + 3.0)
    assert interquartile_mean([np.stack([task, -task]) for task in scores]) == pytest.approx([mean, -mean])


@given(some_scores)
def test_a_profile_falls_from_one_to_nothing(scores):
    together = np.concatenate(scores)
    thresholds = np.linspace(together.min() - 1.0, together.max(), 9)
    profile = performance_profile(scores, thresholds)
    assert profile[0] == 1.0 and profile[-1] == 0.0 and (np.diff(profile) <= 1e-12).all()


@given(some_scores, st.data())
def test_the_probability_of_either_side_adds_up_to_one(ours, data):
    theirs = [data.draw(st.lists(st.integers(-3, 3), min_size=1, max_size=5).map(np.array)) for _ in ours]
    found = probability_of_improvement(ours, theirs)
    pairs = [[(a > b) + 0.5 * (a == b) for a, b in itertools.product(x, y)] for x, y in zip(ours, theirs, strict=True)]
    assert found == pytest.approx(np.mean([np.mean(task) for task in pairs]))
    assert found + probability_of_improvement(theirs, ours) == pytest.approx(1.0)


def test_an_interval_is_the_one_of_all_resamples():
    scores = np.array([0.0, 1.0, 2.5, 4.0, 9.0])
    every = [np.mean(sorted(drawn)[1:4]) for drawn in itertools.product(scores, repeat=5)]
    ends = np.quantile(every, (0.025, 0.975), method="inverted_cdf")
    assert interval(interquartile_mean, [scores], resamples=50_000) == pytest.approx(ends)


def test_an_interval_draws_each_task_from_its_own_runs():
    low, high = interval(interquartile_mean, [np.full(3, 5.0), np.full(2, 7.0)], resamples=500)
    assert low == high == pytest.approx(17 / 3), "(5, 5, 5, 7, 7) whatever is drawn: the middle three are 5, 5, 7"


def test_an_interval_is_the_same_each_time_and_of_any_shape():
    scores = [np.array([1.0, 2.0, 3.0, 9.0])]
    assert interval(interquartile_mean, scores, resamples=999) == interval(interquartile_mean, scores, resamples=999)
    low, high = interval(lambda drawn: performance_profile(drawn, np.array([0.0, 2.0])), scores, resamples=300)
    assert low.shape == high.shape == (2,) and (low <= high).all()


def test_groups_are_drawn_independently():
    scores = [np.array([0.0, 1.0])]
    low, high = interval(probability_of_improvement, scores, scores, resamples=5_000)
    assert (low, high) == (0.0, 1.0), "0 and 0 against 1 and 1 comes up once in sixteen"


def test_a_target_is_reached_where_a_point_is_at_it():
    assert first_reached([1.0, 2.0, 3.0], [0.0, 5.0, 4.0], 5.0) == 2.0
    assert first_reached([1.0, 2.0], [0.0, 4.9], 5.0) is None
    assert first_reached([], [], 5.0) is None


@pytest.mark.parametrize(
    ("values", "median"),
    [([3.0, 1.0, 2.0], 2.0), ([1.0, 2.0, 4.0, None], 3.0), ([1.0, None, 2.0], 2.0), ([1.0, None], None),
     ([1.0, None, None], None), ([None], None)],
)  # fmt: skip
def test_a_miss_counts_as_more_than_any_number(values, median):
    assert median_with_misses(values) == median


@pytest.fixture
def rliable(monkeypatch):
    """rliable 1.2, which gives arch a seed by a name that later versions of arch do not know."""
    found = pytest.importorskip("rliable", reason="rliable is not installed: pip install rliable")
    from arch.bootstrap import IIDBootstrap, IndependentSamplesBootstrap

    for kind in (IIDBootstrap, IndependentSamplesBootstrap):
        if "random_state" not in inspect.signature(kind.__init__).parameters:
            monkeypatch.setattr(kind, "__init__", without_random_state(kind.__init__))
    return found


def without_random_state(init):
    return lambda self, *args, random_state=None, **kwargs: init(self, *args, **kwargs)


@pytest.fixture
def suite():
    """Scores of two algorithms, of 10 and 8 runs on 6 tasks, and the same as tasks."""
    draws = np.random.default_rng(3)
    a, b = draws.gamma(2.0, 0.4, (10, 6)), draws.gamma(2.0, 0.5, (8, 6))
    return (a, list(a.T)), (b, list(b.T))


def test_point_estimates_are_those_of_rliable(rliable, suite):
    from rliable import library, metrics

    (a, ours), (b, theirs) = suite
    assert interquartile_mean(ours) == pytest.approx(metrics.aggregate_iqm(a))
    assert optimality_gap(ours) == pytest.approx(metrics.aggregate_optimality_gap(a))
    assert probability_of_improvement(ours, theirs) == pytest.approx(metrics.probability_of_improvement(a, b))
    thresholds = np.linspace(0, 3, 13)
    profiles, _ = library.create_performance_profile({"a": a}, thresholds, reps=5)
    assert performance_profile(ours, thresholds) == pytest.approx(profiles["a"])


def test_intervals_are_those_of_rliable_to_its_own_noise(rliable, suite):
    from rliable import library, metrics

    (a, ours), (b, theirs) = suite
    np.random.seed(5)  # what rliable draws with
    for statistic, theirs_, groups, scores in (
        (interquartile_mean, lambda x: np.array([metrics.aggregate_iqm(x)]), (ours,), a),
        (
            probability_of_improvement, lambda x, y: np.array([metrics.probability_of_improvement(x, y)]),
            (ours, theirs), (a, b),
        ),
    ):  # fmt: skip
        _, expected = library.get_interval_estimates({"x": scores}, theirs_, reps=2_000)
        found = interval(statistic, *groups, resamples=20_000)
        width = expected["x"][1, 0] - expected["x"][0, 0]
        assert np.array(found) == pytest.approx(expected["x"][:, 0], abs=0.06 * width)
