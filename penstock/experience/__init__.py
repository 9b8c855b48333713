"""Experience: its layout in the arena, the writers of lanes, replay, and the batches that algorithms learn from.

Writers are imported here; `penstock.experience.batch` imports torch, and is not.
"""

from penstock.experience.arena import ExperienceArena
from penstock.experience.layout import Column, RunShape
from penstock.experience.segments import SegmentWriter

__all__ = ["Column", "ExperienceArena", "RunShape", "SegmentWriter"]
