"""Saving what lies in replay buffers beside a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from penstock.engine.messages import ContentsSaved, Note, Save, Tell
from penstock.replay import ReplayBuffer, ReplayFileError


def save_contents(buffers: Mapping[Path, ReplayBuffer], command: Save, report: Tell) -> None:
    """Save each buffer in its directory, and report that; what goes wrong is reported, too."""
    error: Exception | None = None
    for directory, buffer in buffers.items():
        try:
            buffer.save(directory, report=lambda text: report(Note(text)))
        except (OSError, ReplayFileError) as problem:
            error = error or problem
    report(ContentsSaved(command.number, error))
