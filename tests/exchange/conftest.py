"""Fixtures of the tests of exchange: the bench's models of Stable-Baselines3, and code that must not run."""

import sys
from pathlib import Path

import pytest

from tests.places import BENCH

sys.path.append(str(BENCH))  # for the models that `bench/import_sb3.py` trains


class Bomb:
    """Object whose pickle makes a folder when it is loaded."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self):
        import os

        return os.mkdir, (str(self.marker),)


@pytest.fixture
def bomb(tmp_path):
    """A bomb; at the end, nothing may have loaded it."""
    marker = tmp_path / "exploded"
    yield Bomb(marker)
    assert not marker.exists()
