"""Checkpoints of one run: the last few by steps, and the best."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.runs.checkpoint import (
    META,
    STATE,
    WEIGHTS,
    Checkpoint,
    CheckpointError,
    DamagedCheckpointError,
    MissingCheckpointError,
    description_of,
    load_checkpoint,
    save_checkpoint,
    unreadable,
    verify_checkpoint,
)
from penstock.runs.files import previous_of, remove_directory, remove_leftovers
from penstock.runs.lock import Place

if TYPE_CHECKING:
    from torch import Tensor

BEST = "best"


class CheckpointStore:
    """Store that keeps ``<directory>/<steps>/`` of the last `keep` saves, and ``<directory>/best/``.

    Each checkpoint is written by one process of the run; any number of processes may read meanwhile.

    Parameters
    ----------
    directory
        Directory of the checkpoints.
    keep
        Number of checkpoints by steps that are kept.
    owned
        Lock file of the run; if it is gone, nothing is saved. None: no check.
    """

    def __init__(self, directory: str | os.PathLike[str], keep: int = 3, owned: Place | None = None) -> None:
        self.directory = Path(directory)
        self.keep = keep
        self._owned = owned

    def save(
        self, steps: int, *, meta: Mapping[str, Any], weights: Mapping[str, Tensor],
        state: Mapping[str, Any] | None = None,
    ) -> Path:  # fmt: skip
        """Save the checkpoint of this step, then `prune`; parameters and errors as in `save_checkpoint`.

        A save that fails leaves every older checkpoint in place.
        """
        self.require_run()
        path = save_checkpoint(self.path_of(steps), meta={**meta, "steps": steps}, weights=weights, state=state)
        self.prune(steps, meta.get("run"))
        return path

    def save_best(self, steps: int, *, meta: Mapping[str, Any], weights: Mapping[str, Tensor]) -> Path:
        """Save the weights with the best score so far, replacing earlier ones."""
        self.require_run()
        return save_checkpoint(self.best_path, meta={**meta, "steps": steps}, weights=weights)

    def require_run(self) -> None:
        """Raise `CheckpointError` if the run's directory was removed or replaced."""
        if self._owned is not None and not self._owned.is_there:
            raise CheckpointError(f"{Path(self._owned.path).parent} was removed, or something else has taken its place")

    def prune(self, newest: int, run: str | None = None) -> None:
        """Remove the run's oldest checkpoints beyond `keep`, and leftovers of killed processes.

        Only directories that hold a checkpoint of this run and nothing else are counted and removed, not those of
        another run, of a newer format, or with a file of the user.

        Parameters
        ----------
        newest
            Steps of the last saved checkpoint. Checkpoints of more steps were damaged and skipped when the run was
            resumed: they neither count nor are removed.
        run
            Id of the run in its checkpoints; None for runs of early versions, whose checkpoints have none.
        """
        older = [steps for steps in self.steps() if steps < newest and self._is_of(run, steps)]
        for surplus in older[: max(0, len(older) - (self.keep - 1))]:
            remove_directory(self.path_of(surplus))
        remove_leftovers(self.directory)

    def path_of(self, steps: int) -> Path:
        """Return the path of a step's checkpoint, which need not exist."""
        return self.directory / str(steps)

    @property
    def best_path(self) -> Path:
        """Path of the best checkpoint, which need not exist."""
        return self.directory / BEST

    def latest(self, report: Callable[[str], None] | None = None) -> Checkpoint:
        """Load the newest intact checkpoint; `report` is called with a message for each damaged one.

        Raises
        ------
        MissingCheckpointError
            There is no checkpoint.
        DamagedCheckpointError
            All checkpoints are damaged.
        NewerCheckpointError, UnreadableCheckpointError
            The newest undamaged checkpoint has a newer format or cannot be read. An older one is not loaded instead,
            which would lose training.
        """
        return load_checkpoint(self.latest_path(report))

    def best(self) -> Checkpoint:
        """Load the best checkpoint, or raise `CheckpointError`."""
        return load_checkpoint(self.best_path)

    def has_best(self) -> bool:
        """Return whether a best checkpoint was saved."""
        return self.best_path.exists() or previous_of(self.best_path).exists()

    def steps(self) -> list[int]:
        """Return the steps of all checkpoints, damaged ones included, in ascending order; other folders are skipped.

        Raises
        ------
        UnreadableCheckpointError
            The operating system refuses to read the directory.
        """
        try:
            return sorted(int(path.name) for path in self.directory.iterdir() if _is_checkpoint(path))
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise unreadable(self.directory, error) from error

    def latest_steps(self) -> int | None:
        """Return the steps of the checkpoint that `latest` would load; None without one."""
        try:
            return int(self.latest_path().name)
        except CheckpointError:
            return None

    def latest_path(self, report: Callable[[str], None] | None = None) -> Path:
        """Return the path of the checkpoint that `latest` would load; parameters and errors as in `latest`."""
        damaged = []
        for steps in reversed(self.steps()):
            path = self.path_of(steps)
            try:
                verify_checkpoint(path)
            except DamagedCheckpointError as error:
                damaged.append(str(steps))
                if report:
                    report(f"{error}; using the previous one")
            else:
                return path
        if damaged:
            each = ", ".join(damaged)
            raise DamagedCheckpointError(f"no checkpoint in {self.directory} is intact: {each} are damaged")
        raise MissingCheckpointError(f"{self.directory} holds no checkpoint")

    def _is_of(self, run: str | None, steps: int) -> bool:
        description = description_of(self.path_of(steps))
        return description is not None and description.get("run") == run


def _is_checkpoint(path: Path) -> bool:
    """Return whether a directory is named by steps and holds a file of a checkpoint."""
    is_named = path.name.isascii() and path.name.isdecimal() and path.name == str(int(path.name))
    return is_named and any((path / name).exists() for name in (META, WEIGHTS, STATE))
