"""Segments of experience: how they lie in the arena, how they are written, and how they become batches."""

from penstock.experience.arena import ExperienceArena
from penstock.experience.batch import Batch, BatchReader
from penstock.experience.layout import Column, RunShape
from penstock.experience.segments import SegmentWriter

__all__ = ["Batch", "BatchReader", "Column", "ExperienceArena", "RunShape", "SegmentWriter"]
