"""Processes of a test that are all gone when it is over."""

from collections.abc import Callable, Iterator
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from typing import Any

Start = Callable[..., BaseProcess]  # start(function, *arguments)


def starter(method: str) -> Iterator[Start]:
    """What a fixture yields that starts processes by "fork" or "spawn"."""
    context: Any = get_context(method)
    started: list[BaseProcess] = []

    def start(target: Callable[..., None], *args: object) -> BaseProcess:
        process = context.Process(target=target, args=args, daemon=True)
        process.start()
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()  # also ends one that is stopped
        process.join()
