"""What the engine's tests share."""

import pytest

from penstock.rudder.learning import Rudder


@pytest.fixture
def open_gate(monkeypatch):
    """Whatever a predictor of returns says is trusted."""
    monkeypatch.setattr(Rudder, "quality", 0.9)
