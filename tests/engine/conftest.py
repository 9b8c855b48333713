"""Fixtures of the engine's tests."""

import pytest

from penstock.rudder.learning import Rudder


@pytest.fixture
def open_gate(monkeypatch):
    """Trust every prediction of returns."""
    monkeypatch.setattr(Rudder, "quality", 0.9)
