"""Curves of several runs become one, where all of them are known."""

import numpy as np
import pytest

from penstock.studies.curves import aligned, band_of, curves_of, grouped, joined, thinned
from penstock.studies.statistics import interquartile_mean, interval
from tests.studies.recorded import record

Y = "evaluation/mean_return"


@pytest.fixture
def made(tmp_path):
    def make(*each, **settings):
        taken = len(list(tmp_path.iterdir()))
        runs = [record(tmp_path / f"{taken + n}", points, seed=n, **settings) for n, points in enumerate(each)]
        return curves_of(runs, "steps", Y)

    return make


def test_nothing_is_extrapolated(made):
    curves = made([(100, 0.0), (300, 20.0)], [(200, 5.0), (500, 8.0)])
    x, y = aligned(curves, points=3)
    assert x.tolist() == [200.0, 250.0, 300.0]
    assert y.tolist() == [[10.0, 15.0, 20.0], [5.0, 5.5, 6.0]]


def test_curves_without_a_stretch_in_common_have_no_band(made):
    curves = made([(100, 0.0), (200, 20.0)], [(300, 5.0)])
    for kind in ("ci", "minmax"):
        assert band_of(curves, kind).x.size == band_of(curves, kind).low.size == 0


def test_one_point_in_common_is_one_point(made):
    x, y = aligned(made([(100, 0.0), (200, 20.0)], [(200, 5.0), (300, 6.0)]))
    assert (x.tolist(), y.tolist()) == ([200.0], [[20.0], [5.0]])


def test_a_band_is_the_middle_and_its_ends_at_every_place(made):
    ends = np.array([1.0, 2.0, 4.0, 8.0, 100.0])
    curves = made(*([(0, 0.0), (100, end)] for end in ends))
    for kind, expected in (
        ("minmax", (1.0, 100.0)),
        ("ci", interval(interquartile_mean, [ends], resamples=2_000)),
    ):
        band = band_of(curves, kind)
        assert band.middle[-1] == pytest.approx(14 / 3) and band.middle[0] == 0.0
        assert (band.low[-1], band.high[-1]) == pytest.approx(expected)
        assert (band.low <= band.middle + 1e-12).all() and (band.middle <= band.high + 1e-12).all()


def test_runs_without_the_metric_have_no_curve(tmp_path):
    runs = [record(tmp_path / "a", [(1, 2.0)]), record(tmp_path / "b")]
    assert [curve.run.name for curve in curves_of(runs, "steps", Y)] == [str(tmp_path / "a")]


def test_very_many_points_become_means_over_stretches():
    x, y = thinned(np.arange(1001.0), np.ones(1001), most=10)
    assert x.size == 10 and (y == 1.0).all() and (np.diff(x) > 0).all()
    assert x[0] == np.arange(100).mean() and x[-1] == np.arange(900, 1001).mean()
    same = thinned(np.arange(5.0), np.arange(5.0), most=10)
    assert same[0].tolist() == same[1].tolist() == [0, 1, 2, 3, 4]


def test_groups_are_named_by_what_runs_have(tmp_path):
    runs = [
        record(tmp_path / "a", algorithm="ppo", gamma=0.9), record(tmp_path / "b", algorithm="dqn", gamma=0.9, seed=1),
        record(tmp_path / "c", algorithm="dqn", gamma=0.5),
    ]  # fmt: skip
    assert list(grouped(runs, ["algorithm"])) == ["dqn", "ppo"]
    assert list(grouped(runs, ["algorithm", "gamma"])) == ["dqn, gamma=0.5", "dqn, gamma=0.9", "ppo, gamma=0.9"]
    assert list(grouped(runs, [])) == ["all"]


def test_lines_of_different_places_share_places():
    one, other = (np.array([0.0, 2.0]), [np.array([5.0, 6.0])]), (np.array([1.0, 2.0]), [np.array([7.0, 8.0])])
    places, (first, second) = joined([one, other], 10)
    assert places.tolist() == [0.0, 1.0, 2.0]
    np.testing.assert_equal(first, [[5.0, np.nan, 6.0]])
    np.testing.assert_equal(second, [[np.nan, 7.0, 8.0]])


def test_beyond_the_largest_number_of_places_lines_are_interpolated_within_their_ends():
    x = np.arange(0.0, 100.0)
    places, (whole, part, point) = joined([(x, [2.0 * x]), (x[10:60] + 0.5, [x[10:60]]), (x[:1], [x[:1]])], 34)
    assert places.tolist() == np.linspace(0.0, 99.0, 34).tolist()
    np.testing.assert_allclose(whole[0], 2.0 * places)
    inside = (places >= 10.5) & (places <= 59.5)
    np.testing.assert_allclose(part[0][inside], places[inside] - 0.5)
    assert np.isnan(part[0][~inside]).all() and point[0][0] == 0.0


def test_groups_of_many_keys_are_named_by_what_is_unusual(tmp_path):
    usual = {"gamma": 0.99, "pbt": None, "gae_lambda": 0.95, "num_epochs": 4}
    keys = ["algorithm", *usual]
    runs = [record(tmp_path / f"{n}", seed=n, **usual) for n in range(2)]
    runs.append(record(tmp_path / "epochs", **{**usual, "num_epochs": 8}))
    runs.append(record(tmp_path / "q", algorithm="dqn", **usual))
    assert {name: len(members) for name, members in grouped(runs, keys).items()} == {
        "dqn": 1, "ppo": 2, "ppo, num_epochs=8": 1
    }  # fmt: skip
    assert list(grouped(runs, ["algorithm", "gamma"])) == ["dqn, gamma=0.99", "ppo, gamma=0.99"]
    runs.append(record(tmp_path / "long", **{**usual, "pbt": "x" * 70}))
    names = [runs[0].name + " and 1 more", *(run.name for run in runs[2:])]
    assert set(grouped(runs, keys)) == set(names)
