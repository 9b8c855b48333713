"""An arena for each test, and processes that are all gone when the test is over."""

from collections.abc import Iterator

import pytest

from penstock.ipc import Arena
from tests.starting import Start, starter


@pytest.fixture
def arena() -> Arena:
    return Arena.create(1 << 20)


@pytest.fixture
def spawn() -> Iterator[Start]:
    """Start a process that shares nothing but what it is sent: ``spawn(function, *arguments)``."""
    yield from starter("spawn")


@pytest.fixture
def fork() -> Iterator[Start]:
    """Start a process in milliseconds, to be killed soon: ``fork(function, *arguments)``."""
    yield from starter("fork")
