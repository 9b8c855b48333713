"""Observations of every supported kind reach their rows unharmed, and others are refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv

from penstock.envs import Lanes, ObservationSpec
from penstock.envs.columns import BadObservationError, observation_writer
from penstock.envs.single import SingleLanes
from penstock.envs.vector import VectorLanes
from tests.envs.faulty import FaultyEnv

ROWS = np.array([4, 0, 2])


@pytest.fixture(autouse=True, params=[0, 1 << 20], ids=["one by one", "joined"])
def which_are_small(request, monkeypatch):
    """Bytes of an observation up to which those of all lanes are joined: it makes no difference to anything here."""
    monkeypatch.setattr("penstock.envs.columns.SMALL", request.param)


def write_both_ways(spec: ObservationSpec, observations: list[Any]) -> np.ndarray:
    """Write each by itself and all as one batch, require the same result, and return it in the order given."""
    columns = [np.zeros((6, *spec.shape), spec.dtype) for _ in range(2)]
    observation_writer(spec).write_each(columns[0], ROWS[: len(observations)], observations)
    observation_writer(spec).write_batch(columns[1], ROWS[: len(observations)], np.array(observations))
    assert np.array_equal(*columns)
    assert not columns[0][[1, 3, 5]].any()
    return columns[0][ROWS[: len(observations)]]


@pytest.mark.parametrize(
    ("stored", "given"),
    [
        ("float32", np.float32),
        ("float32", np.float64),
        ("float32", np.int64),
        ("float32", np.bool_),
        ("float16", np.float64),
        ("uint8", np.uint8),
        ("uint8", np.bool_),
        ("bool", np.bool_),
        ("bool", np.int64),
        ("uint8", np.int64),
        ("int64", np.int32),
        ("int8", np.uint16),
    ],
)
def test_compatible_dtypes_are_converted_by_value(stored: str, given: type) -> None:
    observations = [np.array([[1, 0]], given), np.array([[0, 1]], given), np.array([[1, 1]], given)]
    for _ in range(2):
        written = write_both_ways(ObservationSpec((1, 2), stored), observations)
        assert written.dtype == stored and written.tolist() == [[[1, 0]], [[0, 1]], [[1, 1]]]


def test_plain_lists_and_numbers_are_observations_too() -> None:
    column = np.zeros((6, 2), np.float32)
    observation_writer(ObservationSpec((2,), "float32")).write_each(column, ROWS, [[1, 2], (3.0, 4.0), [True, False]])
    assert column[ROWS].tolist() == [[1, 2], [3, 4], [1, 0]]
    assert write_both_ways(ObservationSpec((), "float32"), [0.5, 1.5, 2.5]).tolist() == [0.5, 1.5, 2.5]


def test_discrete_observations_are_counted_from_zero() -> None:
    spec = ObservationSpec((), "int64", num_values=4, start=2)
    assert write_both_ways(spec, [2, np.int32(3), np.array(5)]).tolist() == [0, 1, 3]


@pytest.mark.parametrize(
    ("spec", "bad", "message"),
    [
        (ObservationSpec((2,), "uint8"), np.array([1.0, 2.0]), "dtype uint8, found float64, which may hold fractions"),
        (ObservationSpec((2,), "uint8"), np.array([1, 256]), "found int64 with values that do not fit"),
        (ObservationSpec((2,), "bool"), np.array([0, 2]), "found int64 with values that do not fit"),
        (ObservationSpec((2,), "uint8"), np.array([-1, 0]), "found int64 with values that do not fit"),
        (ObservationSpec((2,), "float32"), np.array([1j, 0]), "found complex128"),
        (ObservationSpec((2,), "float32"), np.array([None, 0]), "found object"),
        (ObservationSpec((2,), "float32"), np.zeros((2, 1)), r"shape \(2,\), found \(2, 1\)"),
        (ObservationSpec((2,), "float32"), [1, [2, 3]], r"shape \(2,\), found a list that is not an array"),
        (ObservationSpec((), "int64", 3), [1, [2, 3]], r"shape \(\), found a list that is not an array"),
        (ObservationSpec((2,), "float32"), np.zeros(1), r"shape \(2,\), found \(1,\)"),
        (ObservationSpec((2,), "float32"), np.array([0, np.nan]), "found NaN or infinity"),
        (ObservationSpec((2,), "float32"), np.array([0, 1e39]), "found NaN or infinity"),
        (ObservationSpec((2,), "float16"), np.array([0, 1e6]), "found NaN or infinity"),
        (ObservationSpec((), "int64", 3), 3, "observation from 0 to 2, found 3"),
        (ObservationSpec((), "int64", 3), -1, "observation from 0 to 2, found -1"),
        (ObservationSpec((), "int64", 3), 1.0, "dtype int64, found float64"),
        (ObservationSpec((), "int64", 3), np.array([1]), r"shape \(\), found \(1,\)"),
    ],
)
@pytest.mark.filterwarnings("ignore:overflow encountered in cast")
def test_an_observation_that_does_not_fit_is_named_by_its_place(spec: ObservationSpec, bad: Any, message: str) -> None:
    good = np.zeros(spec.shape, spec.dtype)
    for place in (0, 1):
        observations = [good, good]
        observations[place] = bad
        with pytest.raises(BadObservationError, match=message) as caught:
            observation_writer(spec).write_each(np.zeros((6, *spec.shape), spec.dtype), ROWS[:2], observations)
        assert caught.value.index == place


def test_what_is_wrong_with_an_observation_is_its_errors_text() -> None:
    assert str(BadObservationError(3, "expected a number")) == "expected a number"


def test_a_dtype_seen_to_fit_once_is_checked_again_where_values_decide() -> None:
    writer = observation_writer(ObservationSpec((1,), "uint8"))
    column = np.zeros((6, 1), np.uint8)
    writer.write_each(column, ROWS[:1], [np.array([255])])
    with pytest.raises(BadObservationError):
        writer.write_each(column, ROWS[:1], [np.array([256])])
    writer.write_batch(column, ROWS[:2], np.array([[254], [255]]))
    with pytest.raises(BadObservationError):
        writer.write_batch(column, ROWS[:2], np.array([[254], [256]]))


def test_both_adapters_know_where_a_discrete_observation_starts() -> None:
    envs = [FaultyEnv(spaces.Discrete(3, start=5), reset_answers={1: (number, {})}) for number in (7, 5)]
    all_lanes: list[Lanes] = [
        SingleLanes(envs, [0, 1], name="single"),
        VectorLanes(SyncVectorEnv([lambda env=env: env for env in envs]), [0, 1], name="vector"),
    ]
    for lanes in all_lanes:
        for env in envs:
            env.num_resets = 0
        lanes.reset()
        column = np.zeros(6, np.int64)
        lanes.write_observations(column, ROWS[:2])
        assert column.tolist() == [0, 0, 0, 0, 2, 0]
        lanes.close()
