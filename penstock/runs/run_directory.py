"""The directory of one run: ``runs/<env>-<algorithm>-<time>/``.

=====================  ====================================================================
``run.lock``           names the process that trains in the directory and locks the file
``config.json``        algorithm, settings, command, commit, machine, versions
``status.json``        current state of the run; replaced every second
``metrics.jsonl``      numbers over time; TensorBoard events beside it
``evaluations.jsonl``  every episode of every evaluation
``episode.jsonl``      steps of a recent training episode, if a feature records one
``hardware.jsonl``     cores, memory and GPUs over time
``checkpoints/``       the last few by steps, and ``best``
``replay/``            contents of the replay buffers, if they are saved
``<role>/``            contents that the role of a feature saves beside the checkpoints
``policies/<name>/``   checkpoints of each policy, if a run has several
``videos/``            videos of evaluations, and of ``penstock eval --video auto``
``log.txt``            events, with time stamps
=====================  ====================================================================
"""

from __future__ import annotations

import os
import secrets
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from datetime import datetime
from pathlib import Path
from typing import Any, TypedDict

from penstock.redaction import flags_of_secrets
from penstock.runs.documents import DocumentError, read_document, require_readable
from penstock.runs.files import AppendFile, json_bytes, shown_path, write_file_atomically
from penstock.runs.lock import RunLock
from penstock.runs.machine import Gpus, this_machine, this_provenance, versions
from penstock.runs.metrics import METRICS
from penstock.runs.remote import RemoteDirectory, is_remote
from penstock.runs.store import CheckpointStore
from penstock.runs.vacancy import (
    CONFIG,
    RunDirectoryError,
    is_vacant,
    new_directory,
    require_outside_runs,
    require_vacant,
    runs_near,
    safe_name,
    take_lock,
)
from penstock.trust import SEALS, seals_of

_MOST_PARENTS = 100
LOG, CHECKPOINTS, REPLAY = "log.txt", "checkpoints", "replay"
HARDWARE, POLICIES = "hardware.jsonl", "policies"


class UnreadableRunError(RunDirectoryError):
    """The ``config.json`` of a run cannot be read."""


class _RunInfo(TypedDict, total=False):
    """Content of `RunDirectory.info`."""

    id: str
    env_name: str
    created: str
    command: str | list[str] | None
    commit: str | None
    penstock_commit: str | None
    machine: dict[str, Any]
    versions: dict[str, str]
    policies: list[str]
    resumed: list[dict[str, Any]]
    parents: list[dict[str, Any]]
    seals: dict[str, str]


class _Run(TypedDict):
    """Required content of a run's ``config.json``."""

    algorithm: str
    run: _RunInfo


class _ConfigFile(_Run, total=False):
    """Content of ``config.json``, with types of the settings that are read without the algorithm's config class."""

    env: str | None
    seed: int | None
    total_steps: int | None
    max_seconds: float | None
    target_return: float | None
    keep_checkpoints: int
    device: str


class RunDirectory:
    """Directory of one run, created by `create` and found by `open`.

    Attributes
    ----------
    path : Path
        The directory.
    algorithm : str
        Name of the algorithm on the command line.
    config : dict
        Settings as JSON values, by field name.
    info : dict
        id (also in the run's checkpoints), env_name, created, command, commit (of the command's working directory),
        penstock_commit (of Penstock's source, if that is in a repository), machine, versions of Penstock, Python,
        torch, numpy and Gymnasium; resumed: time, steps, command and commits of each resumption; parents: as
        `record_parent` writes them. Early runs have only env_name, created and the versions.
    lock : RunLock or None
        Ownership of the directory by this process while it trains there.
    remote : RemoteDirectory or None
        Directory behind a URL, found vacant by `create`, to which the run is sent; None for runs that `open` found.
    """

    def __init__(
        self, path: Path, algorithm: str, config: dict[str, Any], info: dict[str, Any], lock: RunLock | None = None
    ) -> None:
        self.path = path
        self.algorithm = algorithm
        self.config = config
        self.info = info
        self.lock = lock
        self.remote: RemoteDirectory | None = None

    @classmethod
    def create(
        cls, path: str | os.PathLike[str], *, env_name: str, algorithm: str, config: Mapping[str, Any],
        policies: Sequence[str] = (),
    ) -> RunDirectory:  # fmt: skip
        """Create a run directory, own it, and write its ``config.json``.

        If several processes try this at once, one succeeds.

        Parameters
        ----------
        path
            The directory; "auto" is ``runs/<env>-<algorithm>-<time>``, with a number appended if that exists. With a
            URL, files are sent there from ``runs/<its last part>``; one that ends with a slash gets the automatic name.
        env_name
            Name of the environment.
        algorithm
            Name of the algorithm on the command line.
        config
            Settings as JSON values (``Config.to_json()``).
        policies
            Names of the policies, if there are several.

        Raises
        ------
        RunInUseError
            Another training owns the directory.
        RunDirectoryError
            The directory exists and is not empty, lies within a run, or cannot be written.
        """
        created = datetime.now().astimezone()
        lock, remote = None, None
        name = f"{safe_name(env_name)}-{safe_name(algorithm)}-{created:%Y%m%d-%H%M%S}"
        if is_remote(path):
            remote = RemoteDirectory(f"{path}{name}" if os.fspath(path).endswith("/") else path)
            remote.require_vacant()
            config = {**config, "run_dir": remote.url}
        try:
            if path == "auto" or remote is not None:
                directory = new_directory(name if remote is None else safe_name(remote.name))
            else:
                directory = Path(path)
                require_outside_runs(directory, f"run_dir={os.fspath(path)!r}")
                directory.mkdir(parents=True, exist_ok=True)
            directory = directory.absolute()  # the working directory may change
            require_vacant(directory, path)
            lock = take_lock(directory)
            require_vacant(directory, path)  # again, because the lock excludes others only now
            gpus = {"gpus": Gpus().names} if str(config.get("device", "cpu")).startswith("cuda") else {}
            info: dict[str, Any] = {
                "id": secrets.token_hex(8), "env_name": env_name, "created": created.isoformat(timespec="seconds"),
                **this_provenance(), "machine": this_machine() | gpus, "versions": versions(),
                **({"policies": list(policies)} if policies else {}),
            }  # fmt: skip
            run = cls(directory, algorithm, dict(config), info, lock)
            run._write_config(directory)
            if remote is not None:
                run.remote = remote
                remote.claim(CONFIG, (directory / CONFIG).read_bytes())
        except BaseException as error:
            if lock is not None:
                lock.release(remove=True)
            if not isinstance(error, OSError):
                raise
            raise RunDirectoryError(
                f"run_dir={os.fspath(path)!r} cannot be written: {error.strerror} ({error.filename}). "
                "Give another place, or run_dir=None to write nothing"
            ) from error
        return run

    @classmethod
    def own(cls, path: str | os.PathLike[str]) -> RunDirectory:
        """Find an existing run, and own its directory in order to train there.

        Raises
        ------
        RunInUseError
            Another process trains there.
        RunDirectoryError
            There is no run at `path`, its ``config.json`` cannot be read, or the directory cannot be written or has
            links among files that a training writes.
        """
        if link := next(_links_in(cls.open(path).path), None):
            raise RunDirectoryError(
                f"{link} is a link, and a training would write to its target: remove it, or link the whole run"
            )
        try:
            lock = take_lock(Path(path).absolute())
        except OSError as error:
            raise RunDirectoryError(
                f"{path} cannot be written: {error.strerror} ({error.filename}). A run is resumed where its files are"
            ) from error
        try:
            run = cls.open(path)  # again: the last owner may have changed it
            run.path = run.path.absolute()
        except BaseException:
            lock.release()
            raise
        run.lock = lock
        return run

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> RunDirectory:
        """Find an existing run.

        Raises
        ------
        UnreadableRunError
            Its ``config.json`` cannot be read.
        RunDirectoryError
            There is no run at `path`.
        """
        directory = Path(path)
        if is_remote(path):
            raise RunDirectoryError(
                f"{path} is a URL, but a local run is needed here. penstock resume, eval, info, export, runs, plot, "
                "compare and report can read remote runs"
            )
        if not (directory / CONFIG).is_file():
            raise RunDirectoryError(f"{directory} {_what_is(directory)}; {runs_near(directory)}")
        try:
            config: dict[str, Any] = read_document(directory / CONFIG, _ConfigFile)
        except (OSError, DocumentError) as error:
            reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
            reason = reason.removeprefix(f"{directory / CONFIG} ").removeprefix("cannot be read: ")
            if any((directory / name).exists() for name in (METRICS, LOG, CHECKPOINTS)):
                raise UnreadableRunError(
                    f"{directory / CONFIG} cannot be read: {reason}. Restore it, or move {directory} away"
                ) from error
            raise RunDirectoryError(f"{directory / CONFIG} is not the config.json of a run: {reason}") from error
        algorithm, info = config.pop("algorithm"), config.pop("run")
        return cls(directory, algorithm, config, info)

    @property
    def is_whole(self) -> bool:
        """Whether the directory that this process owns is in place, with its ``config.json``."""
        if self.lock is None or not self.lock.is_held:
            return True
        return self.lock.place.is_there and os.path.lexists(Path(self.lock.place.path).with_name(CONFIG))

    def restore(self) -> None:
        """Restore the run after its directory was removed, or replaced by an empty one, during training.

        Raises
        ------
        RunDirectoryError
            The directory has other contents, which are left alone.
        OSError
            The directory cannot be written.
        """
        assert self.lock is not None
        directory, is_same = Path(self.lock.place.path).parent, self.lock.is_same_directory
        os.makedirs(os.path.realpath(directory), exist_ok=True)  # even for a dangling link
        if not is_same and not is_vacant(directory):
            raise RunDirectoryError(f"{directory} holds something else now, and nothing is overwritten")
        if not self.lock.place.is_there:
            lost, self.lock = self.lock, take_lock(directory)
            lost.release()
        self._write_config(directory)

    def release(self) -> None:
        """Give up ownership of the directory; it may be called again."""
        if self.lock is not None:
            self.lock.release()

    @property
    def metrics(self) -> Path:
        """Path of ``metrics.jsonl``."""
        return self.path / METRICS

    @property
    def replay_path(self) -> Path:
        """Path of the saved replay buffer's contents."""
        return self.path / REPLAY

    @property
    def checkpoints(self) -> CheckpointStore:
        """Checkpoints of the run; with several policies those of the first, which have the same steps."""
        place = self.of_policy(self.policies[0]).path if self.policies else self.path
        owned = None if self.lock is None else self.lock.place
        return CheckpointStore(place / CHECKPOINTS, self.config.get("keep_checkpoints", 3), owned)

    def of_policy(self, name: str) -> RunDirectory:
        """Return the directory of a policy: the run's own, or with several policies one within it."""
        if not name:
            return self
        place = self.path / POLICIES / safe_name(name)
        return RunDirectory(place, self.algorithm, self.config, {**self.info, "policies": []}, self.lock)

    @property
    def policies(self) -> list[str]:
        """Names of the policies; empty if there is one."""
        return list(self.info.get("policies", ()))

    def resume_command(self, steps: int, *, is_out_of_time: bool = False) -> str:
        """Return the command that resumes the run, with new budgets in place of spent ones.

        Parameters
        ----------
        steps
            Steps that the run has learned from.
        is_out_of_time
            ``max_seconds`` ended the run.
        """
        total, seconds, more = self.config.get("total_steps"), self.config.get("max_seconds"), ""
        if total and steps >= total:  # a batch may have passed the budget
            more += f" --total-steps {steps + total}"
        if is_out_of_time and seconds:
            more += f" --max-seconds {max(1, round(seconds))}"
        more += flags_of_secrets(self.config.get("env_kwargs"))
        return f"penstock resume {shlex.quote(shown_path(self.path))}{more}"

    def record_resumption(self, steps: int, changes: Mapping[str, Any]) -> None:
        """Record in ``config.json`` that the run resumes after `steps`, with changed settings (JSON values)."""
        self.config |= changes
        again = {"time": datetime.now().astimezone().isoformat(timespec="seconds"), "steps": steps, **this_provenance()}
        self.info["resumed"] = [*self.info.get("resumed", ()), again]
        self._write_config(self.path)

    def record_parent(self, at: int, place: Path, meta: Mapping[str, Any]) -> None:
        """Record in ``config.json`` that the run has loaded weights of another one.

        Parameters
        ----------
        at
            Steps that this run has learned from.
        place
            The other run's checkpoint, or a file of another program.
        meta
            Description of the checkpoint.
        """
        path = place.absolute()
        if path.parent.name == CHECKPOINTS:
            path = path.parent.parent
            path = path.parent.parent if path.parent.name == POLICIES else path
        parent = {"path": os.fspath(path), "run": meta.get("run"), "steps": meta.get("steps"), "at": at}
        self.info["parents"] = [*self.info.get("parents", ()), parent][-_MOST_PARENTS:]
        with suppress(OSError):  # a full disk or a removed directory does not end the run; the next write has it
            self._write_config(self.path)

    def _write_config(self, directory: Path) -> None:
        """Write ``config.json``; raise `RunDirectoryError` if `open` would refuse it."""
        self.info |= {SEALS: seals} if (seals := seals_of(self.algorithm, self.config)) else {}
        data = json_bytes({"algorithm": self.algorithm, "run": self.info, **self.config})
        try:
            require_readable(data, os.fspath(directory / CONFIG))
        except DocumentError as error:
            largest = max(self.config, key=lambda name: len(json_bytes(self.config[name])), default="env_kwargs")
            raise RunDirectoryError(
                f"{error}; the largest setting is {largest}: put its values into a file, and give the file's path "
                "instead"
            ) from None
        write_file_atomically(directory / CONFIG, data)

    def log(self, text: str) -> None:
        """Append `text` with a time stamp to ``log.txt``; an `OSError` is ignored."""
        stamp = datetime.now().astimezone().isoformat(timespec="milliseconds")
        lines = text.rstrip("\n").replace("\n", "\n    ")
        with suppress(OSError), closing(AppendFile(self.path / LOG)) as file:
            file.append(f"{stamp}  {lines}\n".encode())


def _what_is(path: Path) -> str:
    if not path.exists():
        return "does not exist"
    return f"is not a run: it is {f'a directory without {CONFIG}' if path.is_dir() else 'a file'}"


def _links_in(path: Path) -> Iterator[Path]:
    """Yield links directly in a run, and anywhere in its folders of checkpoints and replay buffers."""
    for folder, folders, files in os.walk(path):
        yield from (found for name in (*folders, *files) if (found := Path(folder, name)).is_symlink())
        if folder == os.fspath(path):
            folders[:] = {CHECKPOINTS, POLICIES, REPLAY} & {*folders}
