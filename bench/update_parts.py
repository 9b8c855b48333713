"""Parts of the time of an update, by torch.profiler.

An operation counts by its caller if that is the optimiser's step, or the drawing of a batch and setting of its
priorities; otherwise by its name, as a matrix product or another operation. Python is the rest of the update. The
profiler itself slows Python and small operations.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from torch.profiler import ProfilerActivity, profile, record_function

from penstock.nn import mlp

PYTHON, PRODUCTS, OTHER = "Python", "matrix products", "other operations of torch"
OPTIMISER, SAMPLE = "optimiser", "drawing the batch"
# The last three are of layers in penstock/nn/mlp.py, which compute biases and activations with the products.
PRODUCT_NAMES = {"aten::addmm", "aten::mm", "aten::bmm", "aten::baddbmm", "_Pass", "_PassBackward", PRODUCTS}


def marked(part: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function, marked as this part in a profile."""

    def call(*given: Any, **named: Any) -> Any:
        with record_function(part):
            return function(*given, **named)

    return call


def shares_of(update: Callable[[], object], updates: int) -> dict[str, float]:
    """Return the share of each part in the time of an update, the largest first; their sum is 1."""
    forward = mlp._forward
    mlp._forward = marked(PRODUCTS, forward)
    try:
        with profile(activities=[ProfilerActivity.CPU]) as found:
            for _ in range(updates):
                marked(PYTHON, update)()
    finally:
        mlp._forward = forward
    times = Counter[str]()
    for event in found.events():
        times[_part_of(event)] += event.self_cpu_time_total
    total = sum(times.values())
    return {part: time / total for part, time in times.most_common()}


def _part_of(event: Any) -> str:
    around = event
    while around is not None:
        if around.name in (OPTIMISER, SAMPLE):
            return str(around.name)
        around = around.cpu_parent
    if event.name == PYTHON:
        return PYTHON
    return PRODUCTS if event.name in PRODUCT_NAMES else OTHER
