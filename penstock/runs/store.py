"""The checkpoints of one run: the last few by steps, and the best."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.runs.checkpoint import (
    Checkpoint,
    CheckpointError,
    DamagedCheckpointError,
    load_checkpoint,
    save_checkpoint,
    verify_checkpoint,
)
from penstock.runs.files import previous_of, remove_directory, remove_leftovers

if TYPE_CHECKING:
    from torch import Tensor

BEST = "best"


class CheckpointStore:
    """Keeps ``<directory>/<steps>/`` for the last `keep` saves, and ``<directory>/best/``.

    The processes of one run write, each checkpoint by one of them; any number may read meanwhile.
    """

    def __init__(self, directory: str | os.PathLike[str], keep: int = 3) -> None:
        self.directory = Path(directory)
        self.keep = keep

    def save(
        self,
        steps: int,
        *,
        meta: Mapping[str, Any],
        weights: Mapping[str, Tensor],
        state: Mapping[str, Any] | None = None,
    ) -> Path:
        """Save the checkpoint of this step, then `prune`; parameters and errors as in `save_checkpoint`.

        A save that fails leaves every older checkpoint in place.
        """
        path = save_checkpoint(self.path_of(steps), meta={**meta, "steps": steps}, weights=weights, state=state)
        self.prune(steps)
        return path

    def save_best(self, steps: int, *, meta: Mapping[str, Any], weights: Mapping[str, Tensor]) -> Path:
        """Save the weights that scored best so far, in place of the ones before."""
        return save_checkpoint(self.best_path, meta={**meta, "steps": steps}, weights=weights)

    def prune(self, newest: int) -> None:
        """Remove the oldest checkpoints beyond `keep`, and what killed processes had begun to write.

        Parameters
        ----------
        newest
            Steps of the checkpoint that was saved last. Those of more steps were damaged and passed over when the run
            was resumed: they neither count nor go.
        """
        older = [steps for steps in self.steps() if steps < newest]
        for surplus in older[: max(0, len(older) - (self.keep - 1))]:
            remove_directory(self.path_of(surplus))
        remove_leftovers(self.directory)

    def path_of(self, steps: int) -> Path:
        """Path of the checkpoint of a step, whether it exists or not."""
        return self.directory / str(steps)

    @property
    def best_path(self) -> Path:
        """Path of the best checkpoint, whether it exists or not."""
        return self.directory / BEST

    def latest(self, report: Callable[[str], None] | None = None) -> Checkpoint:
        """Load the newest intact checkpoint; each damaged one passed over is told to `report`.

        Raises
        ------
        CheckpointError
            There is none, or none intact, or the newest was written by a newer Penstock.
        """
        return load_checkpoint(self.latest_path(report))

    def best(self) -> Checkpoint:
        """Load the best checkpoint, or raise `CheckpointError`."""
        return load_checkpoint(self.best_path)

    def has_best(self) -> bool:
        """Whether a best checkpoint was saved."""
        return self.best_path.exists() or previous_of(self.best_path).exists()

    def steps(self) -> list[int]:
        """Steps of the checkpoints there are, in ascending order, damaged ones among them."""
        if not self.directory.is_dir():
            return []
        return sorted(int(p.name) for p in self.directory.iterdir() if p.name.isdigit())

    def latest_steps(self) -> int | None:
        """Steps of the checkpoint that `latest` would load; None if it would find none."""
        try:
            return int(self.latest_path().name)
        except CheckpointError:
            return None

    def latest_path(self, report: Callable[[str], None] | None = None) -> Path:
        """Path of the checkpoint that `latest` would load."""
        damaged = []
        for steps in reversed(self.steps()):
            path = self.path_of(steps)
            try:
                verify_checkpoint(path)
            except DamagedCheckpointError as error:
                damaged.append(str(steps))
                if report:
                    report(f"{error}; using the one before")
            else:
                return path
        if damaged:
            raise CheckpointError(f"no checkpoint in {self.directory} is intact: {', '.join(damaged)} are damaged")
        raise CheckpointError(f"{self.directory} holds no checkpoint yet")
