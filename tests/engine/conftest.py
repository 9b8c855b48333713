"""Fixtures of the engine's tests."""

import pytest

from penstock.rudder.learning import PredictorTraining


@pytest.fixture
def open_gate(monkeypatch):
    """Trust every prediction of returns."""
    monkeypatch.setattr(PredictorTraining, "quality", 0.9)
