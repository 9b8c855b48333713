"""An arena for each test, and processes that are all gone when the test is over."""

from collections.abc import Callable, Iterator
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from typing import Any

import pytest

from penstock.ipc import Arena
from tests.ipc.sharing import Start


@pytest.fixture
def arena() -> Arena:
    return Arena.create(1 << 20)


@pytest.fixture
def spawn() -> Iterator[Start]:
    """Start a process that shares nothing but what it is sent: ``spawn(function, *arguments)``."""
    yield from _starter("spawn")


@pytest.fixture
def fork() -> Iterator[Start]:
    """Start a process in milliseconds, to be killed soon: ``fork(function, *arguments)``."""
    yield from _starter("fork")


def _starter(method: str) -> Iterator[Start]:
    context: Any = get_context(method)
    started: list[BaseProcess] = []

    def start(target: Callable[..., None], *args: object) -> BaseProcess:
        process = context.Process(target=target, args=args, daemon=True)
        process.start()
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.join()
