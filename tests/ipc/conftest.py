"""An arena for each test."""

import pytest

from penstock.ipc import Arena


@pytest.fixture
def arena() -> Arena:
    return Arena.create(1 << 20)
