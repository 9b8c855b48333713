"""Files and views of runs: run directory, checkpoints, metrics, terminal view.

Nothing here imports torch at module level, so that reading a run or showing one costs no second of start-up.
"""

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
