"""Local copies of remote runs: verified, each under a new name, complete or absent, and never overwritten."""

from __future__ import annotations

import atexit
import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from penstock.runs.checkpoint import META, DamagedCheckpointError, MissingCheckpointError, verify_checkpoint
from penstock.runs.documents import document_in
from penstock.runs.files import directory_replacing, json_bytes, shown_path, write_file
from penstock.runs.lock import LOCK
from penstock.runs.process import is_alive
from penstock.runs.remote import RemoteDirectory, RemoteError, why
from penstock.runs.run_directory import CHECKPOINTS, REPLAY, RunDirectory
from penstock.runs.sending import base_name, folders_of, moment_of
from penstock.runs.state import SILENT_SECONDS, STATUS
from penstock.runs.store import BEST
from penstock.runs.vacancy import CONFIG, RunDirectoryError, RunInUseError, new_directory, safe_name
from penstock.trust import SEALS, seals_of

_PAUSES = 0.2, 0.5, 1.0, 2.0, 4.0  # seconds before a failed transfer is tried again
_RECORDS = (".json", ".jsonl", "log.txt")
_Result = TypeVar("_Result")


def cached_copy(url: str | os.PathLike[str], prefer: str = BEST, report: Callable[[str], None] | None = None) -> Path:
    """Return the path of the cached copy of a remote run or checkpoint, which is made if it is missing.

    The copy is a run directory with its ``config.json`` and one checkpoint of each policy, or a checkpoint. It is in
    ``~/.cache/penstock`` (below ``XDG_CACHE_HOME`` if that is set), under a name derived from its contents.

    Parameters
    ----------
    url
        URL of a run, a directory within one, or a checkpoint.
    prefer
        "best" (the latest if there is none, or it is damaged), "latest", or the steps of a checkpoint.
    report
        Called with a line about each damaged checkpoint that is skipped.

    Raises
    ------
    CheckpointError
        There is no such run or checkpoint, or all are damaged.
    RemoteError
        The place cannot be read.
    """
    place, within = RemoteDirectory(url), ""
    while not _persist(place, partial(place.exists, CONFIG)):
        above = place.parent
        if above is None or within.count("/") >= 4:
            place, within = RemoteDirectory(url), ""
            break
        within, place = f"{place.name}/{within}".rstrip("/"), above
    files = _persist(place, place.files)
    remote = {base: at for base, at in _checkpoints_in(place, files).items() if CHECKPOINTS in base.split("/")}
    while chosen := _chosen(remote, within, prefer) if CONFIG in files else {"": ""} if META in files else {}:
        names = {f"{folder}/{file}".lstrip("/"): f"{base}/{file}".lstrip("/") for base, folder in chosen.items()
                 for file in folders_of(files)[folder]}  # fmt: skip
        names |= {CONFIG: CONFIG} if CONFIG in files else {}
        small = [name for name in sorted(names) if name == CONFIG or name.rpartition("/")[2] == META]
        parts = [place.url.encode(), *(_persist(place, partial(place.read, name)) for name in small)]
        digest = hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()) / "penstock"
        target = cache / f"{safe_name(place.name)}-{digest}"
        try:
            if not target.exists():
                with directory_replacing(target) as aside:
                    _fetch(place, names, files, aside)
                    for base in chosen:
                        _verify(place, aside, base)
            return target / within
        except DamagedCheckpointError as error:
            remote = {other: at for other, at in remote.items() if other != base}
            if base == within or not _chosen(remote, base.rpartition("/")[0], prefer):
                raise
            if report:
                report(f"{error}; using the {'latest' if base.endswith(BEST) else 'previous'} one")
    raise MissingCheckpointError(
        f"{os.fspath(url)} has no such checkpoint (asked for: {prefer}). In {place.url} there are "
        f"{', '.join(sorted(remote)) or _first(files)}"
    )


def copy_to_resume(url: str | os.PathLike[str], report: Callable[[str], None]) -> Path:
    """Return a local directory in which to resume a remote run.

    A copy in ``runs`` is reused if it has the remote run's whole history and an intact checkpoint at least as late as
    the last remote one. Otherwise the run's files, without the older checkpoints, are fetched into a new directory.

    Raises
    ------
    RunInUseError
        According to its ``status.json``, the run is training elsewhere.
    CheckpointError
        No remote checkpoint is intact.
    RunDirectoryError
        There is no run at the URL, or it cannot be read.
    """
    place = RemoteDirectory(url)
    files = _persist(place, place.files)
    if CONFIG not in files:
        raise RunDirectoryError(f"{place.url} is not a run: it has {_first(files)} and no {CONFIG}")
    config = _document(place, CONFIG)
    run = config.get("run", {})
    remote = _checkpoints_in(place, files)
    newest = max(map(_steps, remote), default=-1)
    for path in sorted(Path("runs").glob(f"{safe_name(place.name)}*/{CONFIG}"), reverse=True):
        with suppress(RunDirectoryError):
            own, theirs = RunDirectory.open(path.parent), run.get("resumed", [])
            is_same = own.info.get("id") == run.get("id") and own.config.get("run_dir") == place.url
            has_all = is_same and own.info.get("resumed", [])[: len(theirs)] == theirs
            if has_all and (latest := own.checkpoints.latest_steps()) is not None and latest >= newest:
                report(f"{shown_path(path.parent)} has all of {place.url}, and is resumed")
                return path.parent
    _require_idle(place, files)
    apart = {base: remote.pop(base) for base in list(remote) if CHECKPOINTS not in base.split("/")}  # features'
    others = {name: name for name in files if CHECKPOINTS not in name.split("/")[:-1] and name != LOCK}
    for base, at in apart.items():
        others = {name: local for name, local in others.items() if base_name(name.rpartition("/")[0]) != base}
        others |= {f"{at}/{file}": f"{base}/{file}" for file in folders_of(files)[at]}
    target = new_directory(safe_name(place.name))
    try:
        with directory_replacing(target) as aside:
            _fetch(place, others, files, aside)
            sealed = {**run, SEALS: {**run.get(SEALS, {}), **seals_of(place.url)}}  # the user has named the URL
            write_file(aside / CONFIG, json_bytes({**config, "run": sealed}))
            for folder in {base.rpartition("/")[0] for base in remote}:
                those = {base: at for base, at in remote.items() if base.rpartition("/")[0] == folder}
                _fetch_newest(place, those, files, aside, report)
    except BaseException:
        target.rmdir()
        raise
    report(f"{place.url} was fetched into {shown_path(target)}")
    return target


def copies_of_records(url: str | os.PathLike[str]) -> Iterator[tuple[Path, str]]:
    """Yield copies of the runs behind a URL, and their names, without checkpoints, replay and videos.

    The copies are temporary: they are removed when this process ends.

    Raises
    ------
    RemoteError
        The place cannot be read, or holds no run.
    """
    place = RemoteDirectory(url)
    files = _persist(place, place.files)
    runs = sorted(name.removesuffix(CONFIG).rstrip("/") for name in files if name.rpartition("/")[2] == CONFIG)
    if not runs:
        raise RemoteError(f"{place.url} holds no runs: it has {_first(files)}")
    root = Path(tempfile.mkdtemp(prefix="penstock-"))
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    for run in runs:
        inner = {name: name for name in files if name.startswith(f"{run}/" if run else "") and name.endswith(_RECORDS)}
        inner = {name: name for name in inner if not {CHECKPOINTS, REPLAY} & set(name.split("/"))}
        _fetch(place, inner, files, root)
        yield root / run, f"{place.url}/{run}".rstrip("/")


def _chosen(remote: Mapping[str, str], within: str, prefer: str) -> dict[str, str]:
    """Return the checkpoints to fetch, one of each directory of checkpoints: remote directories by local name."""
    if within in remote:
        return {within: remote[within]}
    chosen = {}
    for folder in {base.rpartition("/")[0] for base in remote}:
        if not within or f"{folder}/".startswith(f"{within}/"):
            steps = [base for base in remote if base.rpartition("/")[0] == folder and _steps(base) >= 0]
            newest = max(steps, key=_steps, default="")
            base = f"{folder}/{prefer}" if prefer != "latest" else newest
            base = newest if prefer == BEST and base not in remote else base
            if base in remote:
                chosen[base] = remote[base]
    return chosen


def _steps(base: str) -> int:
    name = base.rpartition("/")[2]
    return int(name) if name.isdecimal() else -1


def _checkpoints_in(place: RemoteDirectory, files: Mapping[str, int]) -> dict[str, str]:
    """Return remote directories of complete checkpoints by local name; of several with one name, the last saved."""
    found: dict[str, str] = {}
    for folder, names in folders_of(files).items():
        base = base_name(folder)
        if META in names and folder:
            if base in found:
                folder = max(found[base], folder, key=lambda at: moment_of(_document(place, f"{at}/{META}")))
            found[base] = folder
    return found


def _fetch_newest(
    place: RemoteDirectory, remote: Mapping[str, str], files: Mapping[str, int], aside: Path,
    report: Callable[[str], None],
) -> None:  # fmt: skip
    """Fetch the newest intact checkpoint of a directory of checkpoints, and the best one."""
    numbered = sorted((base for base in remote if _steps(base) >= 0), key=_steps, reverse=True)
    for group in ([base for base in remote if base not in numbered], numbered):
        for base in group:
            names = {f"{remote[base]}/{file}": f"{base}/{file}" for file in folders_of(files)[remote[base]]}
            _fetch(place, names, files, aside)
            try:
                _verify(place, aside, base)
                break
            except DamagedCheckpointError as error:
                report(f"{error}; using the previous one")
                shutil.rmtree(aside / base)


def _verify(place: RemoteDirectory, aside: Path, base: str) -> None:
    """Raise `DamagedCheckpointError`, which names the remote file, if the copy of a checkpoint is damaged."""
    try:
        verify_checkpoint(aside / base)
    except DamagedCheckpointError as error:
        raise DamagedCheckpointError(str(error).replace(os.fspath(aside), place.url)) from None


def _require_idle(place: RemoteDirectory, files: Mapping[str, int]) -> None:
    """Raise `RunInUseError` if the run's last status is "running", and neither old nor dated far in the future."""
    status = _document(place, STATUS) if STATUS in files else {}
    age = time.time() - float(status.get("time") or 0.0)
    process = status.get("process") or {}
    is_dead = bool(process) and is_alive(process) is False
    if status.get("state") == "running" and abs(age) < 2 * SILENT_SECONDS and not is_dead:
        raise RunInUseError(
            f"{place.url} is in use: process {process.get('pid')} on {process.get('host')} trained {max(0, age):.0f} s "
            f"ago. If it has crashed, give the same command again in {2 * SILENT_SECONDS - age:.0f} s"
        )


def _fetch(place: RemoteDirectory, names: Mapping[str, str], files: Mapping[str, int], target: Path) -> None:
    for name, local in names.items():
        _persist(place, partial(place.fetch, name, target / local, files[name]))


def _document(place: RemoteDirectory, name: str) -> dict[str, Any]:
    try:
        return dict(document_in(_persist(place, partial(place.read, name)), f"{place.url}/{name}"))
    except ValueError as error:
        raise RunDirectoryError(str(error)) from error


def _persist(place: RemoteDirectory, action: Callable[[], _Result]) -> _Result:
    """Return the result of an action, retried a few times; raise `RemoteError` if it keeps failing."""
    for pause in (*_PAUSES, None):
        try:
            return action()
        except Exception as error:
            is_final = isinstance(error, PermissionError | FileNotFoundError) or "Credential" in type(error).__name__
            if pause is None or is_final:
                raise RemoteError(f"{place.url} cannot be read: {why(error)}") from error
            time.sleep(pause)
    raise AssertionError


def _first(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)[:3]) or "no files"
