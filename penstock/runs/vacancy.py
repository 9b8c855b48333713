"""Places where a run may begin: names, vacancy, ownership."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from penstock.runs.files import set_aside, shown_path
from penstock.runs.lock import LOCK, HeldError, RunLock, is_lock

CONFIG = "config.json"

_RUNS = Path("runs")
_UNFINISHED_CONFIG = re.compile(rf"\.{re.escape(CONFIG)}\.\d+-[0-9a-f]+\.aside")


class RunDirectoryError(ValueError):
    """A run directory cannot be made or opened."""


class RunInUseError(RunDirectoryError):
    """Another training owns the run directory. The message names the process."""


def safe_name(name: str) -> str:
    """Return a name as one part of a path: "ALE/Pong-v5" -> "ALE-Pong-v5"."""
    return re.sub(r"[^\w.+-]+", "-", name).strip("-.") or "env"


def require_different(policies: Sequence[str]) -> None:
    """Raise `RunDirectoryError` if two policies would have the same directory within a run."""
    places = [safe_name(name) for name in policies]
    if shared := [name for name, place in zip(policies, places, strict=True) if places.count(place) > 1]:
        raise RunDirectoryError(
            f"the policies {', '.join(map(repr, shared))} would share a directory within the run, policies/"
            f"{safe_name(shared[0])}: rename all but one of them, or give run_dir=None to write nothing"
        )


def new_directory(name: str) -> Path:
    """Create a directory in ``runs/``, with a number appended to the name if that exists."""
    _RUNS.mkdir(exist_ok=True)
    number = 1
    while True:
        directory = _RUNS / (name if number == 1 else f"{name}-{number}")
        try:
            directory.mkdir()
            return directory
        except FileExistsError:
            number += 1


def is_vacant(path: Path) -> bool:
    """Return whether a run may begin at `path`: there is nothing, or an empty directory.

    Files of a training that was killed before it had written its ``config.json`` count as nothing.
    """
    if not path.is_dir():
        return not os.path.lexists(path)
    names = os.listdir(path)
    return all((name == LOCK and is_lock(path / name)) or _UNFINISHED_CONFIG.fullmatch(name) for name in names)


def require_vacant(directory: Path, path: str | os.PathLike[str]) -> None:
    """Raise `RunDirectoryError` if no run may begin in a directory, which the message names by the user's `path`."""
    if not is_vacant(directory):
        is_run = (directory / CONFIG).is_file()
        raise RunDirectoryError(
            f"run_dir={os.fspath(path)!r} {'holds a run' if is_run else 'is not empty'}, and nothing is "
            f"overwritten: give another name{f', or resume it: penstock resume {path}' if is_run else ''}"
        )


def require_outside_runs(directory: Path, what: str) -> None:
    """Raise `RunDirectoryError` for a directory within a run, where another run would not be found; `what` names it."""
    for above in directory.absolute().parents:
        if (above / CONFIG).is_file() and is_lock(above / LOCK):
            raise RunDirectoryError(f"{what} belongs to the run {shown_path(above)}: give a place outside of it")


def take_lock(path: Path) -> RunLock:
    """Own an existing directory.

    Raises
    ------
    RunInUseError
        Another process trains there, or may train there on a file system without locks.
    OSError
        The lock's file cannot be made or locked.
    """
    try:
        return RunLock.take(path)
    except HeldError as held:
        if held.is_certain:
            raise RunInUseError(
                f"{path} is in use: {held}. Wait until it ends, or stop it (it saves at Ctrl-C and SIGTERM), and give "
                "the same command again"
            ) from None
        file = path / LOCK
        raise RunInUseError(
            f"{path} may be in use: its file system has no locks, and {file} says that {held}, which cannot be "
            f"checked from here. If that process has ended, remove {file} and give the same command again"
        ) from None


def set_aside_run(path: Path) -> str:
    """Rename a directory without a checkpoint to resume from; return a message with its new path.

    Return "", and do nothing, if `path` is vacant.

    Raises
    ------
    RunInUseError
        Another process trains there.
    RunDirectoryError
        The directory cannot be renamed.
    """
    if is_vacant(path):
        return ""
    try:
        lock = take_lock(path)
        try:
            aside = set_aside(path)
        finally:
            lock.release()
    except OSError as error:
        raise RunDirectoryError(f"{path} cannot be set aside: {error.strerror} ({error.filename})") from error
    return f"the directory {path} had no checkpoint to resume from: it is in {aside} now"


def runs_in(folder: Path) -> list[Path]:
    """Return the runs in a folder and in its own folders, newest first."""
    runs = (found.parent for depth in ("*", "*/*") for found in folder.glob(f"{depth}/{CONFIG}"))
    return sorted(runs, key=lambda run: run.stat().st_mtime, reverse=True)


def runs_near(path: Path) -> str:
    """Return a hint for an error message about a path that is not a run: the newest runs in it or beside it."""
    for folder in (path, path.parent if path.parent != Path() else _RUNS):
        if runs := runs_in(folder):
            return f"the newest runs in {folder} are {', '.join(map(str, runs[:3]))}"
    return "give the directory of a run, e.g. runs/CartPole-v1-appo-20250101-120000"
