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
from penstock.ipc.cores import available_cores, busy_by_core, cpu_quota, whole_cores
from penstock.ipc.memory import available_memory, memory_use, require_memory
from penstock.ipc.slot_state import SlotState
from penstock.ipc.turns import taking_turns

__all__ = [
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
    "require_memory",
    "scatter",
    "set_parent_death_signal",
    "taking_turns",
    "whole_cores",
]
