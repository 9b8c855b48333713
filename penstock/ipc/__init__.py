"""Shared memory and signals between the processes of a run: the Python face of the native core."""

from penstock._native import (
    Arena,
    Doorbell,
    Ring,
    RingClosed,
    SlotTable,
    WeightsBlock,
    all_finite,
    fence,
    gather,
    scatter,
    set_parent_death_signal,
)
from penstock.ipc.limits import (
    CORES,
    available_cores,
    available_memory,
    busy_by_core,
    cpu_quota,
    memory_use,
    problem_of_locks,
    require_memory,
    whole_cores,
)
from penstock.ipc.ownership import SlotState, taking_turns

__all__ = [
    "CORES",
    "Arena",
    "Doorbell",
    "Ring",
    "RingClosed",
    "SlotState",
    "SlotTable",
    "WeightsBlock",
    "all_finite",
    "available_cores",
    "available_memory",
    "busy_by_core",
    "cpu_quota",
    "fence",
    "gather",
    "memory_use",
    "problem_of_locks",
    "require_memory",
    "scatter",
    "set_parent_death_signal",
    "taking_turns",
    "whole_cores",
]
