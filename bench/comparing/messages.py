"""Messages per second through a ring: several producers, one consumer, each a process.

``bench/peers/faster_fifo_messages.py`` measures faster-fifo in the same way.
"""

from __future__ import annotations

import os
import signal
import time
from itertools import repeat
from multiprocessing import get_context

import numpy as np

from penstock.ipc import Arena, Ring, set_parent_death_signal

CAPACITY = 65_536
"""Numbers in the ring: about as many as fit in faster-fifo's 1 MB."""
_PATIENCE = 10.0
_NUMBERS = range(100)
_WARM_UP = 0.1


def messages_per_second(producers: int, together: int, seconds: float) -> float:
    """Measure messages per second, for at least `seconds`.

    Parameters
    ----------
    producers
        Number of processes that push; this one pops.
    together
        Numbers pushed by one call, 1 to 100. With 1 they are also popped one by one, else all at once.
    """
    ring = Ring.create(Arena.create(Ring.nbytes(CAPACITY)), 0, CAPACITY)
    context = get_context("fork")
    processes = [
        context.Process(target=_produce, args=(ring, together, os.getpid()), daemon=True) for _ in range(producers)
    ]
    for process in processes:
        process.start()
    try:
        warm = time.perf_counter() + _WARM_UP
        while time.perf_counter() < warm:
            _consume(ring, together)
        began = time.perf_counter()
        messages = 0
        while (elapsed := time.perf_counter() - began) < seconds:
            messages += _consume(ring, together)
    finally:
        for process in processes:
            process.kill()
            process.join()
    return messages / elapsed


def _produce(ring: Ring, together: int, parent: int) -> None:
    set_parent_death_signal(signal.SIGKILL, parent)
    if together == 1:
        while True:
            for number in _NUMBERS:
                ring.push(number, _PATIENCE)
    numbers = np.array(_NUMBERS[:together])
    while True:
        ring.push_many(numbers, _PATIENCE)


def _consume(ring: Ring, together: int) -> int:
    """Pop a thousand numbers one by one, or all that are present; return the number popped."""
    if together == 1:
        for _ in repeat(None, 1000):
            ring.pop(_PATIENCE)
        return 1000
    return len(ring.pop_many(CAPACITY, _PATIENCE))
