"""Arenas full of numbers, and what a learner reads of them."""

import numpy as np
import torch

from penstock.engine.paths.segment_learner import BatchReader
from penstock.experience.arena import ExperienceArena
from tests.experience.writing import LOGITS, run_shape

T, SLOTS = 4, 6  # of two lanes
CPU = torch.device("cpu")
VERSION = 50


def filled_arena(**numbers):
    """An arena in which every entry is another number."""
    shape = run_shape(
        **{"slots_per_lane": SLOTS // 2, "segment_length": T, "records": (LOGITS,), "state_size": 3, **numbers}
    )
    arena = ExperienceArena.create(shape)
    for offset, (name, column) in enumerate(arena.columns.items()):
        counting = np.arange(column.size).reshape(column.shape)
        column[...] = counting % (3 + offset) == 0 if column.dtype == bool else counting + 1000 * offset
        if name == "version":
            column[...] = VERSION
    arena.slot_memory[...] = np.arange(arena.slot_memory.size).reshape(arena.slot_memory.shape)
    return arena


def reader(arena, num_segments=2, device=CPU, **settings):
    defaults = {"reward_scale": 1.0, "reward_clip": None, "max_policy_lag": 100}
    return BatchReader(arena, num_segments, device, **{**defaults, **settings})


def read(arena, slots=(4, 1), version=VERSION, progress=0.0, **settings):
    return reader(arena, len(slots), **settings).read(np.array(slots), version, progress)
