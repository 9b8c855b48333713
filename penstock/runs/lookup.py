"""Lookup of runs and checkpoints by the paths that users give."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from penstock.runs.checkpoint import CheckpointError, DamagedCheckpointError, MissingCheckpointError, verify_checkpoint
from penstock.runs.files import previous_of
from penstock.runs.remote import is_remote
from penstock.runs.run_directory import CHECKPOINTS, POLICIES, RunDirectory
from penstock.runs.store import BEST
from penstock.runs.vacancy import CONFIG, is_vacant, runs_in, runs_near, safe_name


def resolve_checkpoint(
    path: str | os.PathLike[str], prefer: str = BEST, report: Callable[[str], None] | None = None,
    policy: int | str | None = None, *, is_any_legal: bool = False,
) -> Path:  # fmt: skip
    """Return the path of a checkpoint, given that of a run, a checkpoint, or a directory that ``algo.save`` wrote.

    Parameters
    ----------
    path
        A run directory, the directory of a policy or ``checkpoints`` within it, or a checkpoint's own directory, for
        which `prefer` has no effect; or the URL of one.
    prefer
        Checkpoint of a run: "best" (the latest if there is no best one yet, or it is damaged), "latest", or the steps
        of one, e.g. "50000".
    report
        Called with a line about each damaged checkpoint that is skipped.
    policy
        Name of the policy, if there are several.
    is_any_legal
        Whether any `policy` is legal for a run of one policy, which has no name.

    Raises
    ------
    MissingCheckpointError
        There is no such checkpoint. The message lists the existing ones.
    DamagedCheckpointError
        All checkpoints are damaged.
    NewerCheckpointError, UnreadableCheckpointError
        The checkpoint has a newer format or cannot be read; no other one is returned instead.
    CheckpointError
        The path is not a checkpoint, or `policy` is missing though there are several, or given though there is one.
    """
    if not isinstance(path, str | os.PathLike):
        raise TypeError(f"a checkpoint is named by a path, found {path!r:.60}: give that of a run or of algo.save")
    path, policy = _run_meant(local_copy(path, prefer, report), policy)
    if not (path / CONFIG).is_file():
        if not path.exists() and not previous_of(path).exists():
            raise MissingCheckpointError(f"{path} does not exist: {runs_near(path)}")
        if runs_in(path):
            raise CheckpointError(f"{path} is a folder of runs: {runs_near(path)}")
        verify_checkpoint(path)
        return path
    run = RunDirectory.open(path)
    if run.policies and str(policy) not in run.policies:
        problem = "say which policy is meant" if policy is None else f"there is no policy {policy!r}"
        raise CheckpointError(f"{path} is a run of the policies {', '.join(run.policies)}: {problem}")
    if not run.policies and policy is not None and not is_any_legal:
        raise CheckpointError(f"{path} is a run of one policy, which has no name: leave out policy {policy!r}")
    store = run.of_policy(str(policy) if run.policies else "").checkpoints
    if prefer == BEST and store.has_best():
        try:
            verify_checkpoint(store.best_path)
            return store.best_path
        except DamagedCheckpointError as error:
            if report:
                report(f"{error}; using the latest")
    if prefer in (BEST, "latest"):
        return store.latest_path(report)
    if not prefer.isdigit() or int(prefer) not in store.steps():
        there_are = ", ".join([*([BEST] if store.has_best() else []), *map(str, store.steps())]) or "none yet"
        raise MissingCheckpointError(
            f"{path} has no checkpoint {prefer!r}: give best, latest, or steps. It has {there_are}"
        )
    verify_checkpoint(store.path_of(int(prefer)))
    return store.path_of(int(prefer))


def local_copy(path: str | os.PathLike[str], prefer: str = BEST, report: Callable[[str], None] | None = None) -> Path:
    """Return a local path as it is, and for a URL the path of its copy by `penstock.runs.fetching.cached_copy`."""
    if not is_remote(path):
        return Path(path)
    from penstock.runs.fetching import cached_copy  # not needed for local runs

    return cached_copy(path, prefer, report)


def checkpoint_to_resume(path: Path) -> dict[str, Any] | None:
    """Return the description of the checkpoint that resumes a run; None without a run or an intact checkpoint.

    Raises
    ------
    NewerCheckpointError, UnreadableCheckpointError
        The run has a checkpoint that cannot be used here.
    RunDirectoryError
        `path` is not a run.
    """
    if is_vacant(path):
        return None
    try:
        return verify_checkpoint(RunDirectory.open(path).checkpoints.latest_path())
    except (MissingCheckpointError, DamagedCheckpointError):
        return None


def policies_of(path: str | os.PathLike[str]) -> list[str]:
    """Return the names of the policies of a run with several; empty for other runs, checkpoints and missing paths."""
    return RunDirectory.open(path).policies if (Path(path) / CONFIG).is_file() else []


def _run_meant(path: Path, policy: int | str | None) -> tuple[Path, int | str | None]:
    """Return run and policy of a directory within a run; path and policy unchanged for other directories."""
    is_inner = path.name == CHECKPOINTS and not (path / CONFIG).is_file()
    within = path.parent if is_inner else path
    if (within / CONFIG).is_file():
        return within, policy
    run = within.parent.parent
    if within.parent.name == POLICIES and (run / CONFIG).is_file():
        names = {safe_name(name): name for name in RunDirectory.open(run).policies}
        return (run, names[within.name]) if within.name in names else (path, policy)
    saved = path / str(policy)
    return (saved if policy is not None and saved.is_dir() else path), policy
