"""Messages per second through a faster-fifo queue: some producers, one consumer, each a process.

    python bench/peers/faster_fifo_messages.py PRODUCERS TOGETHER SECONDS

It is run by the interpreter that has faster-fifo, which need not have Penstock, and prints a line of JSON.
bench/comparing/messages.py does the same with Penstock's ring: numbers from 0 to 99, one or TOGETHER per call, for at
least SECONDS; a call waits while the queue is empty or full. The queue has its default size, 1 MB.
"""

from __future__ import annotations

import json
import sys
import time
from importlib.metadata import version
from itertools import repeat
from multiprocessing import Process
from queue import Full

from faster_fifo import Queue

NUMBERS = list(range(100))
WARM_UP = 0.1  # seconds


def produce(queue: Queue, together: int) -> None:
    """Put numbers until they are no longer read."""
    try:
        if together == 1:
            while True:
                for number in NUMBERS:
                    queue.put(number)
        numbers = NUMBERS[:together]
        while True:
            queue.put_many(numbers)
    except Full:
        return


def consume(queue: Queue, together: int) -> int:
    """Get a thousand messages one by one, or all that are present; return their number."""
    if together == 1:
        for _ in repeat(None, 1000):
            queue.get()
        return 1000
    return len(queue.get_many())


def main() -> None:
    """Read the command, measure, print."""
    producers, together, seconds = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    queue = Queue()
    processes = [Process(target=produce, args=(queue, together), daemon=True) for _ in range(producers)]
    for process in processes:
        process.start()
    warm = time.perf_counter() + WARM_UP
    while time.perf_counter() < warm:
        consume(queue, together)
    began = time.perf_counter()
    messages = 0
    while (elapsed := time.perf_counter() - began) < seconds:
        messages += consume(queue, together)
    for process in processes:
        process.kill()
    print(json.dumps({"version": version("faster-fifo"), "messages_per_second": messages / elapsed}))


if __name__ == "__main__":
    main()
