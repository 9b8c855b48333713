"""Sending of a run's files to its remote directory, by a thread that training does not wait for.

The thread scans the run directory; the processes that write there do not notify it. Checkpoints are sent newest first,
each under an unused name, with their ``meta.json`` last. One that replaces another of the same name, such as the best,
gets a suffix, and the old one is removed once the new one is complete. Contents of replay buffers are sent as they are
saved: files under new names, then their manifest. Other files are sent whole when they have changed.
"""

from __future__ import annotations

import io
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.replay.manifest import MANIFEST, OWN_NAME, ReplayFileError, manifest_in
from penstock.runs.checkpoint import FILES, META, description_of, holds_only_a_checkpoint, sha256_of
from penstock.runs.documents import document_in
from penstock.runs.lock import LOCK
from penstock.runs.remote import ChangedError, RemoteDirectory, RemoteError, why
from penstock.runs.run_directory import CHECKPOINTS, RunDirectory
from penstock.runs.vacancy import CONFIG

SCAN_SECONDS = 1.0
"""Seconds between scans of the run directory."""
FILE_SECONDS = 30.0
"""Least seconds between two copies of a growing file, or ten times the duration of the last copy if that is longer."""
MOST_PATIENCE = 60.0
"""Longest pause before a failed transfer is tried again, in seconds."""
_MOST_CHANGES = 5


@dataclass(frozen=True)
class _Due:
    """Part of the run that has to be sent.

    Attributes
    ----------
    order
        Parts with lower numbers are sent first.
    name
        Path within the run.
    count, nbytes
        Number of files and of their bytes.
    status
        Fingerprint of the local part, which is sent again when it changes.
    send
        Function that sends it.
    """

    order: tuple[int, float]
    name: str
    count: int
    nbytes: int
    status: tuple[int, ...]
    send: Callable[[], None]


class Sender:
    """Thread that sends the files of a run to its remote directory.

    Parameters
    ----------
    run
        The run, whose ``run_dir`` is a URL.

    Attributes
    ----------
    notes : list of str
        Messages for the user; the reader removes them.

    Raises
    ------
    RemoteError
        The remote directory cannot be used, or the run was resumed elsewhere.
    """

    def __init__(self, run: RunDirectory) -> None:
        self._run = run
        self._place = run.remote or RemoteDirectory(run.config["run_dir"])
        if run.remote is None:
            self._place.require_usable()
        self.notes: list[str] = []
        self._there: dict[str, int] | None = None  # sizes of files at the target; None: to be listed
        self._checkpoints: dict[str, tuple[str, str]] = {}  # local name: name at the target, SHA-256 of meta.json
        self._newest: dict[str, int] = {}  # steps of the newest checkpoint that was sent, by folder
        self._sent: dict[str, tuple[int, ...]] = {}  # status of local files when they were sent, by part
        self._changed: dict[str, int] = {}  # consecutive times that a part was replaced while it was sent
        self._next: dict[str, float] = {}  # time from which a file may be sent again
        self._due: list[_Due] = []
        self._problem = ""
        self._is_over = self._is_urgent = False
        self._scans = 0  # finished scans after which nothing was due, or nothing can be sent any more
        self._wake = threading.Condition()
        self._thread: threading.Thread | None = None
        self._require_own()

    def start(self) -> None:
        """Start to send; it may be called again."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="penstock-sender", daemon=True)
            self._thread.start()

    def status(self) -> dict[str, Any]:
        """Fields of the run's status: ``unsent_files``, ``unsent_nbytes``, ``upload_error``."""
        due = self._due
        return {
            "unsent_files": sum(part.count for part in due), "unsent_nbytes": sum(part.nbytes for part in due),
            "upload_error": self._problem,
        }  # fmt: skip

    def flush(self, seconds: float) -> tuple[str, ...]:
        """Wait until everything is sent, but at most `seconds`; return the parts of the run that are not sent."""
        if self._thread is None:
            return ()
        deadline = time.monotonic() + seconds
        with self._wake:
            self._is_urgent, scans = True, self._scans
            self._wake.notify_all()
            # Two scans, since one may have begun before. Waits are short, so that signals are handled.
            while self._scans < scans + 2 and time.monotonic() < deadline and self._thread.is_alive():
                self._wake.wait(0.1)
            is_done = self._scans >= scans + 2
        if not is_done:  # the thread's list may be older than the last checkpoint
            with suppress(OSError):  # a file was replaced meanwhile
                self._due = sorted(self._scan(), key=lambda part: part.order)
        self._is_urgent = False
        return () if is_done else tuple(part.name for part in self._due) or ("a scan of the run is not finished",)

    def close(self) -> None:
        """End the thread; a file that it is in the middle of sending counts as not sent."""
        with self._wake:
            self._is_over = True
            self._wake.notify_all()
        if self._thread is not None:
            self._thread.join(1.0)

    # -- thread ----------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        failures = 0
        while not self._is_over:
            try:
                self._send_all()
                failures = 0
                if self._problem:
                    self._problem = ""
                    self.notes.append(f"{self._place.url}: files can be sent again, and all are sent")
            except _OtherHistoryError as error:
                self.notes.append(f"warning: nothing is sent any more: {error}")
                self._problem, self._is_over = str(error), True
            except Exception as error:  # of fsspec, its file systems and their libraries
                if not self._problem:
                    count = sum(part.count for part in self._due)
                    self.notes.append(
                        f"warning: {count} files are not sent to {self._place.url} yet: {why(error)}. This is retried "
                        "while the run lasts"
                    )
                self._problem, self._there = why(error), None
                failures += 1
            pause = min(MOST_PATIENCE, 2.0 ** min(failures, 10) / 2) if failures else SCAN_SECONDS
            with self._wake:
                self._scans += not failures
                self._wake.notify_all()
                if not self._is_over:
                    self._wake.wait(min(pause, 2.0 if failures else 0.02) if self._is_urgent else pause)

    def _send_all(self) -> None:
        """Send what is due, with a new scan after each part; raise the first error."""
        is_checked = False
        while not self._is_over:
            try:
                self._due = sorted(self._scan(), key=lambda part: part.order)
                if not self._due:
                    for folder in self._newest:  # checkpoints that were removed here since
                        self._prune(folder)
                    return
                if not is_checked:
                    self._require_own()
                    is_checked = True
                if self._there is None:
                    self._list()
                    continue
                self._due[0].send()
                self._sent[self._due[0].name] = self._due[0].status
                self._changed.clear()
            except (ChangedError, FileNotFoundError) as error:
                name = getattr(error, "filename", None)
                if not isinstance(error, ChangedError) and not str(name).startswith(f"{self._run.path}{os.sep}"):
                    raise
                if self._due:
                    self._count_change(self._due[0])

    def _count_change(self, part: _Due) -> None:
        """Count a part that was replaced while it was sent; leave it out if it keeps changing."""
        self._changed[part.name] = self._changed.get(part.name, 0) + 1
        if self._changed[part.name] > _MOST_CHANGES:
            self._sent[part.name] = part.status
            self.notes.append(f"warning: {part.name} is damaged, or changes all the time: it is not sent")

    def _require_own(self) -> None:
        """Raise `_OtherHistoryError` if the run at the target has another history than this one."""
        try:
            there = document_in(self._place.read(CONFIG), f"{self._place.url}/{CONFIG}")
        except FileNotFoundError:  # removed by its owner: everything is sent again
            self._there = None
            self._sent.clear()
            return
        theirs, ours = there.get("run", {}), self._run.info
        resumed = ours.get("resumed", [])
        if theirs.get("id") != ours.get("id") or theirs.get("resumed", []) != resumed[: len(theirs.get("resumed", []))]:
            raise _OtherHistoryError(
                f"{self._place.url} holds another run, or this one was resumed elsewhere since. To continue there: "
                f"penstock resume {self._place.url}"
            )

    def _list(self) -> None:
        """List the target, read the descriptions of its checkpoints, and remove unfinished and replaced ones."""
        there = self._place.files()
        self._checkpoints, leftovers = {}, list[str]()
        saved: dict[str, tuple[str, int]] = {}
        for folder, names in folders_of(there).items():
            replaced = ""
            if META in names:
                data, name = self._place.read(f"{folder}/{META}"), base_name(folder)
                with suppress(ValueError):
                    about = document_in(data, folder)
                    if about.get("run") == self._run.info.get("id"):
                        replaced = folder  # unless it is the newest of its name
                        if (moment := moment_of(about)) >= saved.get(name, ("", 0)):
                            saved[name], replaced = moment, self._checkpoints.get(name, ("",))[0]
                            self._checkpoints[name] = folder, sha256_of(data)
            elif names <= FILES and CHECKPOINTS in folder.split("/"):
                replaced = folder
            if replaced and folders_of(there)[replaced] <= FILES:
                leftovers += sorted((f"{replaced}/{name}" for name in FILES), key=lambda name: not name.endswith(META))
        self._place.remove(leftovers)
        self._there = {name: nbytes for name, nbytes in there.items() if name not in leftovers}

    # -- scan ------------------------------------------------------------------------------------------------------

    def _scan(self) -> Iterator[_Due]:
        """Yield the parts of the run that are due."""
        root = os.fspath(self._run.path)
        for place, folders, files in os.walk(root):
            folders[:] = [name for name in folders if not name.startswith(".")]
            folder, path = os.path.relpath(place, root), Path(place)
            if META in files and holds_only_a_checkpoint(path):
                yield from self._checkpoint(folder, path)
                continue
            if MANIFEST in files:
                with suppress(ReplayFileError):
                    yield from self._replay(folder, path)
                    continue
            for file in files:
                if not file.startswith(".") and file != LOCK:
                    name = file if folder == "." else f"{folder}/{file}"
                    yield from self._file(name, path / file, 0 if name == CONFIG else 2)

    def _file(self, name: str, path: Path, order: int) -> Iterator[_Due]:
        try:
            about = os.lstat(path)
        except FileNotFoundError:
            return
        status = about.st_size, about.st_mtime_ns, about.st_ino
        is_time = self._is_urgent or order == 0 or time.monotonic() >= self._next.get(name, 0.0)
        if not os.path.isfile(path) or os.path.islink(path) or self._sent.get(name) == status or not is_time:
            return

        def send() -> None:
            began = time.monotonic()
            with open(path, "rb") as file:
                self._place.send(name, file, os.fstat(file.fileno()).st_size)
            self._next[name] = (now := time.monotonic()) + max(FILE_SECONDS, 10 * (now - began))

        yield _Due((order, 0.0), name, 1, about.st_size, status, send)

    def _checkpoint(self, name: str, path: Path) -> Iterator[_Due]:
        stat = os.stat(path / META)
        if self._sent.get(name) == (status := (stat.st_mtime_ns, stat.st_ino)):
            return
        meta, about = (path / META).read_bytes(), description_of(path)
        target, digest = self._checkpoints.get(name, ("", ""))
        if about is None or digest == sha256_of(meta):
            return
        files = {file: (each["bytes"], each["sha256"]) for file, each in about["files"].items()}
        files[META] = len(meta), sha256_of(meta)
        chosen = name if f"{name}/{META}" not in (self._there or {}) else f"{name}.{files[META][1][:8]}"

        def send() -> None:
            assert self._there is not None
            for file, (nbytes, sha256) in files.items():
                source = io.BytesIO(meta) if file == META else open(path / file, "rb")  # noqa: SIM115 - closed below
                with source:
                    self._place.send(f"{chosen}/{file}", source, nbytes, sha256)
                self._there[f"{chosen}/{file}"] = nbytes
            self._checkpoints[name] = chosen, files[META][1]
            if target:
                self._remove(target)
            folder, _, steps = name.rpartition("/")
            if steps.isdecimal():
                self._newest[folder] = max(int(steps), self._newest.get(folder, 0))
                self._prune(folder)

        nbytes = sum(nbytes for nbytes, _ in files.values())
        yield _Due((1, -stat.st_mtime), name, len(files), nbytes, status, send)

    def _replay(self, name: str, path: Path) -> Iterator[_Due]:
        manifest, there = (path / MANIFEST).read_bytes(), self._there or {}
        whole = (int(sha256_of(manifest)[:15], 16),)
        if self._sent.get(name) == whole:
            return
        save = manifest_in(manifest, path / MANIFEST)
        named = save.file_names()
        try:
            sizes = {file: (path / file).stat().st_size for file in named}
        except FileNotFoundError:
            gone = {file for file in named if not (path / file).exists()}
            # A later save replaces the manifest before it removes files; the next scan finds its manifest.
            if (path / MANIFEST).read_bytes() == manifest:
                self._sent[name] = whole
                self.notes.append(f"warning: {name} is not sent: {save.without(gone)}. The next save writes them anew")
            return
        missing = [file for file in sizes if there.get(f"{name}/{file}") != sizes[file]]

        def send() -> None:
            assert self._there is not None
            if missing:
                with open(path / missing[0], "rb") as file:
                    self._place.send(f"{name}/{missing[0]}", file, sizes[missing[0]])
                self._there[f"{name}/{missing[0]}"] = sizes[missing[0]]
                return
            self._place.send(f"{name}/{MANIFEST}", io.BytesIO(manifest), len(manifest))
            others = folders_of(self._there).get(name, set()) - named
            self._forget([f"{name}/{file}" for file in others if OWN_NAME.fullmatch(file)])

        nbytes = len(manifest) + sum(sizes[file] for file in missing)
        yield _Due((3, 0.0), name, len(missing) + 1, nbytes, (len(missing),) if missing else whole, send)

    # -- removal ---------------------------------------------------------------------------------------------------

    def _prune(self, folder: str) -> None:
        """Remove a folder's oldest checkpoints beyond ``keep_checkpoints`` at the target, as the local store does."""
        own = [each for each in self._checkpoints if each.rpartition("/")[0] == folder]
        steps = sorted(int(base) for each in own if (base := each.rpartition("/")[2]).isdecimal())
        older = [step for step in steps if step < self._newest[folder]]
        for step in older[: max(0, len(older) - (self._run.checkpoints.keep - 1))]:
            if not (self._run.path / folder / str(step)).exists():
                self._remove(self._checkpoints.pop(f"{folder}/{step}")[0])

    def _remove(self, target: str) -> None:
        """Remove a checkpoint at the target, its description first, unless there are other files in its folder."""
        names = {name.removeprefix(f"{target}/") for name in self._place.files(target)}
        if names <= FILES:
            self._forget([f"{target}/{name}" for name in sorted(names, key=lambda name: name != META)])

    def _forget(self, names: list[str]) -> None:
        self._place.remove(names)
        for name in names:
            (self._there or {}).pop(name, None)


class _OtherHistoryError(RemoteError):
    """The run at the target has another history than this run."""


def base_name(folder: str) -> str:
    """Return the local name of a checkpoint's directory at the target, without the suffix of a replacement."""
    parent, _, name = folder.rpartition("/")
    stem, _, suffix = name.rpartition(".")
    is_suffixed = stem and len(suffix) == 8 and set(suffix) <= set("0123456789abcdef")
    return f"{parent}/{stem}" if is_suffixed and parent else stem if is_suffixed else folder


def folders_of(names: Mapping[str, int]) -> dict[str, set[str]]:
    """Return the names of the files in each directory."""
    found: dict[str, set[str]] = {}
    for name in names:
        folder, _, file = name.rpartition("/")
        found.setdefault(folder, set()).add(file)
    return found


def moment_of(about: Mapping[str, Any]) -> tuple[str, int]:
    """Return when a checkpoint was saved, from its description, as a value that is larger for later ones."""
    return str(about.get("saved_at", "")), int(about.get("steps") or 0)
