"""Curves that follow their files, and stay small."""

import asyncio
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.dashboard.catalogue import Catalogue
from penstock.dashboard.curves import Curves
from penstock.runs.series import GrowingCurve
from tests.studies.recorded import record

Y = "evaluation/mean_return"


def append(path, *steps, **values):
    with open(path, "a") as file:
        for each in steps:
            line = {"steps": each, "seconds": each / 10, "time": 1e9 + each, Y: each * 2.0} | values
            file.write(f"{json.dumps(line)}\n")


def read(curve):
    curve.catch_up()
    return curve.points()[0].tolist()


def test_a_curve_follows_its_file(tmp_path):
    path = tmp_path / "metrics.jsonl"
    curve = GrowingCurve(path, "steps", Y)
    assert read(curve) == []
    append(path, 10, 20)
    assert read(curve) == [10, 20]
    version = curve.version
    assert read(curve) == [10, 20] and curve.version == version, "nothing came, nothing changed"
    append(path, 30)
    assert read(curve) == [10, 20, 30] and curve.version != version
    assert curve.points()[1].tolist() == [20, 40, 60]


def test_what_a_resume_undoes_goes_from_the_curve(tmp_path):
    path = tmp_path / "metrics.jsonl"
    append(path, 10, 20, 30)
    curve = GrowingCurve(path, "steps", Y)
    assert read(curve) == [10, 20, 30]
    append(path, 20, resumed=True)
    append(path, 25)
    assert read(curve) == [10, 20, 25]


def test_a_file_that_was_replaced_is_read_anew(tmp_path):
    path = tmp_path / "metrics.jsonl"
    append(path, 10, 20, 30)
    curve = GrowingCurve(path, "steps", Y)
    read(curve)
    path.unlink()
    append(path, 5)
    assert read(curve) == [5]
    path.unlink()
    assert read(curve) == []


@given(st.lists(st.integers(0, 40), max_size=12))
def test_neighbours_become_their_mean_whatever_the_pieces_they_come_in(pieces):
    curve = GrowingCurve(None, "steps", Y, most=16)
    values = np.arange(sum(pieces), dtype=float)
    at = 0
    for count in pieces:
        curve._add(values[at : at + count], 3.0 * values[at : at + count])
        at += count
    x, y = curve.points()
    width = curve._width
    whole = values.size // width * width
    ends = [values[whole:].mean()] if values.size > whole else []
    assert x.tolist() == [*values[:whole].reshape(-1, width).mean(1), *ends] and (y == 3.0 * x).all()
    assert x.size <= 17 and (values.size <= 16) == (width == 1)


def test_runs_are_read_until_the_time_is_over_and_one_at_least(tmp_path):
    runs = [record(tmp_path / str(n), [(100, float(n))]) for n in range(3)]
    curves, left = Curves(), list(runs)
    curves.catch_up(left, "steps", Y, 0.0)
    assert len(left) == 2
    curves.catch_up(left, "steps", Y, 60.0)
    assert left == [] and curves.panels(runs, "steps", Y, [], "ci")[0]["groups"][0]["count"] == 3


def test_a_page_is_told_how_many_runs_are_read_and_then_of_curves_as_they_change(tmp_path, monkeypatch):
    streams = pytest.importorskip("penstock.dashboard.streams", reason="the extra dashboard is not installed")
    monkeypatch.setattr(streams, "_PROGRESS_SECONDS", 0.0)
    monkeypatch.setattr(streams, "CURVES_SECONDS", 0.0)
    runs = [record(tmp_path / str(n), [(100, float(n))]) for n in range(3)]

    async def told() -> list[str]:
        events = streams.curve_events(Catalogue([tmp_path]), Curves(), "", [], "steps", Y, [], "ci")
        found = [await anext(events) for _ in range(4)]
        append(runs[0].directory.metrics, 200)
        return [*found, await anext(events)]

    first, second, whole, nothing, again = asyncio.run(told())
    assert ('{"read": 1, "of": 3}' in first, '{"read": 2, "of": 3}' in second, nothing) == (True, True, "")
    for event, steps in ((whole, 100), (again, 200)):
        found = json.loads(event.partition("data: ")[2])
        assert (found["count"], found["is_sampled"], found["panels"][0]["x"][-1]) == (3, False, steps)


def test_where_reading_takes_long_a_page_first_has_curves_of_samples(tmp_path, monkeypatch):
    streams = pytest.importorskip("penstock.dashboard.streams", reason="the extra dashboard is not installed")
    monkeypatch.setattr("penstock.dashboard.curves._LONG_NBYTES", 1)
    steps = range(0, 200_000, 100)
    runs = [record(tmp_path / str(n), [(step, step + n) for step in steps]) for n in range(2)]

    async def told() -> list[str]:
        events = streams.curve_events(Catalogue([tmp_path]), Curves(), "", [], "steps", Y, [], "ci")
        return [await anext(events) for _ in range(2)]

    sampled, whole = (json.loads(event.partition("data: ")[2]) for event in asyncio.run(told()) if "curves" in event)
    assert (sampled["is_sampled"], whole["is_sampled"]) == (True, False)
    for found in (sampled, whole):
        (panel,) = found["panels"]
        for n, run in enumerate(sorted(panel["groups"][0]["runs"], key=lambda run: run["name"])):
            points = [(x, y) for x, y in zip(panel["x"], run["y"], strict=True) if y is not None]
            assert len(points) > 32 and all(y == pytest.approx(x + n, abs=1e-6) for x, y in points)
    assert Curves().is_long(runs, "steps", Y)
