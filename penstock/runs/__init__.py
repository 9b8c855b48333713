"""Files and views of runs: run directory, checkpoints, metrics, terminal view.

Names are imported on first use, and nothing here imports torch at module level, so that reading or showing a run starts
at once.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.runs.checkpoint import (
        Checkpoint,
        CheckpointError,
        DamagedCheckpointError,
        MissingCheckpointError,
        NewerCheckpointError,
        UnreadableCheckpointError,
        load_checkpoint,
        save_checkpoint,
    )
    from penstock.runs.lookup import resolve_checkpoint
    from penstock.runs.metrics import MetricsLog
    from penstock.runs.run_directory import RunDirectory
    from penstock.runs.status import RoleShare, Status
    from penstock.runs.store import CheckpointStore
    from penstock.runs.vacancy import RunDirectoryError

__all__ = [
    "Checkpoint",
    "CheckpointError",
    "CheckpointStore",
    "DamagedCheckpointError",
    "MetricsLog",
    "MissingCheckpointError",
    "NewerCheckpointError",
    "RoleShare",
    "RunDirectory",
    "RunDirectoryError",
    "Status",
    "UnreadableCheckpointError",
    "load_checkpoint",
    "resolve_checkpoint",
    "save_checkpoint",
]

_MODULES = {
    "CheckpointStore": "store",
    "MetricsLog": "metrics",
    "RoleShare": "status",
    "RunDirectory": "run_directory",
    "RunDirectoryError": "vacancy",
    "Status": "status",
    "resolve_checkpoint": "lookup",
}  # all other names are in checkpoint


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(importlib.import_module(f"penstock.runs.{_MODULES.get(name, 'checkpoint')}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
