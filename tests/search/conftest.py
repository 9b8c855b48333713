"""Fixtures of tests of a search: trainings that take milliseconds."""

import sys

import pytest

from tests.search import fake_training


@pytest.fixture
def fake_trainings(monkeypatch):
    """Trainings are `fake_training`s."""
    pytest.importorskip("optuna")
    monkeypatch.setattr("penstock.search.job.PROGRAM", (sys.executable, "-S", fake_training.__file__))
    monkeypatch.setattr("penstock.search.job.checkpoint_to_resume", fake_training.read)
    monkeypatch.setattr("penstock.runs.jobs.PAUSE", 0.01)
