"""Saving and loading what lies in replay buffers beside a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from penstock.engine.messages import ContentsSaved, Note, Save, Tell
from penstock.replay import ReplayBuffer, ReplayFileError
from penstock.runs.checkpoint import CheckpointError, unreadable
from penstock.runs.store import CheckpointStore


def save_contents(buffers: Mapping[Path, ReplayBuffer], command: Save, report: Tell) -> None:
    """Save each buffer in its directory, and report that; what goes wrong is reported, too."""
    error: Exception | None = None
    for directory, buffer in buffers.items():
        try:
            if isinstance(command.destination, CheckpointStore):
                command.destination.require_run()
            buffer.save(directory, report=lambda text: report(Note(text)))
        except (OSError, CheckpointError, ReplayFileError) as problem:
            error = error or problem
    report(ContentsSaved(command.number, error))


def load_contents(buffer: ReplayBuffer, directory: Path) -> str:
    """Load what is saved of a buffer; return why there is nothing, "" where it was loaded.

    Raises
    ------
    UnreadableCheckpointError
        The operating system does not let it be read. To go on with an empty buffer would replace it at the next save.
    """
    try:
        buffer.load(directory)
    except ReplayFileError as error:
        return str(error)
    except (FileNotFoundError, NotADirectoryError) as error:
        return f"{error.filename} is not there"
    except OSError as error:
        raise unreadable(directory, error) from error
    return ""
