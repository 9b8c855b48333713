"""Segments of experience: how they lie in the arena, how they are written, and how they become batches.

What writes segments is imported here; what reads them, `penstock.experience.batch`, needs torch and is not.
"""

from penstock.experience.arena import ExperienceArena
from penstock.experience.layout import Column, RunShape
from penstock.experience.segments import SegmentWriter

__all__ = ["Column", "ExperienceArena", "RunShape", "SegmentWriter"]
