"""Scores are summed exactly, and metrics averaged over those who reported."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.envs.episodes import EpisodeBook, MetricMeans

NONE: list[int] = []


def test_returns_are_summed_in_double_precision() -> None:
    book = EpisodeBook(1)
    valid = np.ones(1, np.bool_)
    book.add(np.array([2.0**24]), valid, NONE)
    book.add(np.array([1.0]), valid, [0])
    assert book.take() == [(0, 2.0**24 + 1, 2)]


def test_a_reset_row_is_no_step() -> None:
    book = EpisodeBook(2)
    book.add(np.array([1.0, 1.0]), np.array([True, True]), [1])
    book.add(np.array([1.0, 0.0]), np.array([True, False]), NONE)
    book.add(np.array([1.0, 1.0]), np.array([True, True]), [0, 1])
    assert book.take() == [(1, 1.0, 1), (0, 3.0, 3), (1, 1.0, 1)]


def test_numbers_of_any_kind_are_averaged_by_name_and_the_rest_is_passed_over() -> None:
    means = MetricMeans()
    means.add({"coins": 3, "won": True, "name": "x", "path": [1, 2]})
    means.add({"coins": np.float32(0.5), "won": np.bool_(False)})
    assert means.take() == {"coins": 1.75, "won": 0.5}


def test_lanes_that_did_not_report_do_not_count() -> None:
    means = MetricMeans()
    mask = np.array([True, False, True])
    means.add_batch({"coins": np.array([1.0, 0.0, 4.0]), "_coins": mask, "names": np.array(["a", None, "b"], object)})
    nobody = np.zeros(3, np.bool_)
    means.add_batch({"coins": np.array([7.0]), "height": 2.5, "grid": np.ones((3, 3))})
    means.add_batch({"idle": np.ones(3), "_idle": nobody})
    assert means.take() == pytest.approx({"coins": 4.0, "height": 2.5})
