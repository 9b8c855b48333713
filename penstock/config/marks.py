"""Marks on the types of settings."""

from __future__ import annotations

from typing import Annotated, TypeVar

T = TypeVar("T")

TUNABLE = "may change while a run goes on"
Tunable = Annotated[T, TUNABLE]
"""Type of a number that may change while a run goes on: the learner reads it before every batch."""
