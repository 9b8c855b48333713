"""The directory of one run: ``runs/<env>-<algorithm>-<time>/``.

=====================  ====================================================================
``run.lock``           the process that trains in the directory, which has locked the file
``config.json``        the algorithm, its settings, and what it ran with: command, commit,
                       machine, versions
``status.json``        where the run stands; replaced every second
``metrics.jsonl``      numbers over time; TensorBoard events beside it
``evaluations.jsonl``  every episode of every evaluation
``hardware.jsonl``     cores, memory and GPUs over time
``checkpoints/``       the last few by steps, and ``best``
``replay/``            contents of the replay buffers, where they are saved
``<role>/``            what a role that a feature adds saves beside the checkpoints
``policies/<name>/``   checkpoints of each policy, where a run has several
``videos/``            films that ``penstock eval --video auto`` made
``log.txt``            what happened, with time stamps
=====================  ====================================================================
"""

from __future__ import annotations

import os
import re
import secrets
import shlex
from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import Any, TypedDict

from penstock.masking import flags_of_secrets
from penstock.runs.documents import DocumentError, read_document, require_readable
from penstock.runs.files import AppendFile, json_bytes, set_aside, shown_path, write_file_atomically
from penstock.runs.lock import LOCK, HeldError, RunLock, is_lock
from penstock.runs.machine import Gpus, this_machine, this_provenance, versions
from penstock.runs.metrics import METRICS
from penstock.runs.store import CheckpointStore
from penstock.trust import SEALS, seals_of

CONFIG, LOG, CHECKPOINTS, REPLAY, VIDEOS = "config.json", "log.txt", "checkpoints", "replay", "videos"
HARDWARE, POLICIES = "hardware.jsonl", "policies"

_RUNS = Path("runs")
_BEGUN = re.compile(rf"\.{re.escape(CONFIG)}\.\d+-[0-9a-f]+\.aside")


class RunDirectoryError(ValueError):
    """A run directory cannot be made here, or what was given is no run."""


class RunInUseError(RunDirectoryError):
    """Another training owns the run directory. The message names the process."""


class UnreadableRunError(RunDirectoryError):
    """A run is there, and its ``config.json`` cannot be read."""


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
    seals: dict[str, str]


class _Run(TypedDict):
    """Required content of a run's ``config.json``."""

    algorithm: str
    run: _RunInfo


class _ConfigFile(_Run, total=False):
    """``config.json``: settings that are read without the algorithm's config class have types here."""

    env: str | None
    seed: int | None
    total_steps: int | None
    max_seconds: float | None
    target_return: float | None
    keep_checkpoints: int
    device: str


class RunDirectory:
    """Directory of one run, made with `create` and found again with `open`.

    Attributes
    ----------
    path : Path
        The directory.
    algorithm : str
        Name of the algorithm on the command line.
    config : dict
        Settings as JSON values, by field name.
    info : dict
        id (which the run's checkpoints have, too), env_name, created, command, commit (of the folder that the command
        was given in), penstock_commit (of Penstock's own source, where it lies in a repository), machine, versions of
        Penstock, Python, torch, numpy and Gymnasium; resumed: the time, steps, command and commits of every time that
        the run went on. Runs of before have env_name, created and the versions.
    lock : RunLock or None
        Ownership of the directory by this process, while it trains there.
    """

    def __init__(
        self, path: Path, algorithm: str, config: dict[str, Any], info: dict[str, Any], lock: RunLock | None = None
    ) -> None:
        self.path = path
        self.algorithm = algorithm
        self.config = config
        self.info = info
        self.lock = lock

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        *,
        env_name: str,
        algorithm: str,
        config: Mapping[str, Any],
        policies: Sequence[str] = (),
    ) -> RunDirectory:
        """Make a run directory, own it, and write its ``config.json``.

        Of several processes that do so at once, one succeeds.

        Parameters
        ----------
        path
            The directory; "auto" is ``runs/<env>-<algorithm>-<time>``, with a number appended where that exists.
        env_name
            Name of the environment.
        algorithm
            Name of the algorithm on the command line.
        config
            Settings as JSON values (``Config.to_json()``).
        policies
            Names of the policies, where there are several.

        Raises
        ------
        RunInUseError
            Another training has begun there.
        RunDirectoryError
            The directory exists and is not empty, or cannot be written.
        """
        created = datetime.now().astimezone()
        lock = None
        try:
            if path == "auto":
                directory = _new_directory(f"{safe_name(env_name)}-{safe_name(algorithm)}-{created:%Y%m%d-%H%M%S}")
            else:
                directory = Path(path)
                directory.mkdir(parents=True, exist_ok=True)
            directory = directory.absolute()  # wherever this process goes meanwhile
            _require_vacant(directory, path)
            lock = _own(directory)
            _require_vacant(directory, path)  # nobody else begins there from here on
            gpus = {"gpus": Gpus().names} if str(config.get("device", "cpu")).startswith("cuda") else {}
            info: dict[str, Any] = {
                "id": secrets.token_hex(8), "env_name": env_name, "created": created.isoformat(timespec="seconds"),
                **this_provenance(), "machine": this_machine() | gpus, "versions": versions(),
                **({"policies": list(policies)} if policies else {}),
            }  # fmt: skip
            run = cls(directory, algorithm, dict(config), info, lock)
            run._write_config(directory)
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
        """Find an existing run and own its directory, to train in it.

        Raises
        ------
        RunInUseError
            Another process trains there.
        RunDirectoryError
            There is no run at `path`, its ``config.json`` cannot be read, or the directory cannot be written.
        """
        cls.open(path)
        try:
            lock = _own(Path(path).absolute())
        except OSError as error:
            raise RunDirectoryError(
                f"{path} cannot be written: {error.strerror} ({error.filename}). A run goes on where its files are"
            ) from error
        try:
            run = cls.open(path)  # as the last owner has left it
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
        if not (directory / CONFIG).is_file():
            raise RunDirectoryError(f"{directory} {_what_is(directory)}, not a run: {runs_there_are(directory)}")
        try:
            config: dict[str, Any] = read_document(directory / CONFIG, _ConfigFile)
        except (OSError, DocumentError) as error:
            kind = UnreadableRunError if _has_files_of_a_run(directory) else RunDirectoryError
            raise kind(f"{directory / CONFIG} is not the config.json of a run: {error}") from error
        algorithm, info = config.pop("algorithm"), config.pop("run")
        return cls(directory, algorithm, config, info)

    @property
    def is_whole(self) -> bool:
        """Whether the directory that this process owns is where it was, with its ``config.json``."""
        if self.lock is None or not self.lock.is_held:
            return True
        return self.lock.place.is_there and os.path.lexists(Path(self.lock.place.path).with_name(CONFIG))

    def restore(self) -> None:
        """Write the run anew where its directory was removed, or replaced by an empty one, while it trains.

        Raises
        ------
        RunDirectoryError
            Something else is there, which is not touched.
        OSError
            It cannot be written.
        """
        assert self.lock is not None
        directory, is_same = Path(self.lock.place.path).parent, self.lock.is_same_directory
        directory.mkdir(parents=True, exist_ok=True)
        if not is_same and not is_vacant(directory):
            raise RunDirectoryError(f"{directory} holds something else now, and nothing is overwritten")
        if not self.lock.place.is_there:
            lost, self.lock = self.lock, _own(directory)
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
        """The run's checkpoints; of several policies those of the first, whose steps are those of all."""
        place = self.of_policy(self.policies[0]).path if self.policies else self.path
        owned = None if self.lock is None else self.lock.place
        return CheckpointStore(place / CHECKPOINTS, self.config.get("keep_checkpoints", 3), owned)

    def of_policy(self, name: str) -> RunDirectory:
        """Directory of a policy: the run's own, or with several policies one within it."""
        if not name:
            return self
        place = self.path / POLICIES / safe_name(name)
        return RunDirectory(place, self.algorithm, self.config, {**self.info, "policies": []}, self.lock)

    @property
    def policies(self) -> list[str]:
        """Names of the policies; empty where there is one."""
        return list(self.info.get("policies", ()))

    def resume_command(self, steps: int, *, is_out_of_time: bool = False) -> str:
        """Return the command that resumes the run: where a budget is spent, with as much of it again.

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

    def film_path(self, steps: int) -> Path:
        """Path of a new film of the weights of a step; the folder is made, and no existing film has this path."""
        folder = self.path / VIDEOS
        folder.mkdir(exist_ok=True)
        names = (f"step-{steps}{'' if number == 1 else f'-{number}'}.mp4" for number in count(1))
        return next(folder / name for name in names if not os.path.lexists(folder / name))

    def go_on(self, steps: int, changes: Mapping[str, Any]) -> None:
        """Record in ``config.json`` that the run resumes after `steps`, with changed settings (JSON values)."""
        self.config |= changes
        again = {"time": datetime.now().astimezone().isoformat(timespec="seconds"), "steps": steps, **this_provenance()}
        self.info["resumed"] = [*self.info.get("resumed", ()), again]
        self._write_config(self.path)

    def _write_config(self, directory: Path) -> None:
        """Write ``config.json``; raise `RunDirectoryError` where no reader would take it."""
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
        """Append `text` with a time stamp to ``log.txt``. A log that cannot be written never stops a run."""
        stamp = datetime.now().astimezone().isoformat(timespec="milliseconds")
        lines = text.rstrip("\n").replace("\n", "\n    ")
        try:
            file = AppendFile(self.path / LOG)
            try:
                file.append(f"{stamp}  {lines}\n".encode())
            finally:
                file.close()
        except OSError:
            pass


def make_way(path: Path) -> str:
    """Set aside a run that has nothing to go on from, so that it can begin anew; return where it is now, in words.

    Nothing is said, or done, where there is no run.
    """
    if is_vacant(path):
        return ""
    try:
        lock = _own(path)
        try:
            aside = set_aside(path)
        finally:
            lock.release()
    except OSError as error:
        raise RunDirectoryError(f"{path} cannot be set aside: {error.strerror} ({error.filename})") from error
    return f"what was in {path} had no checkpoint to go on from: it is in {aside} now"


def is_vacant(path: Path) -> bool:
    """Whether a run may begin at `path`: there is nothing, or an empty directory.

    What is left of a training that was killed before it had written its ``config.json`` counts as nothing.
    """
    if not path.is_dir():
        return not os.path.lexists(path)
    return all((name == LOCK and is_lock(path / name)) or _BEGUN.fullmatch(name) for name in os.listdir(path))


def _require_vacant(directory: Path, path: str | os.PathLike[str]) -> None:
    if not is_vacant(directory):
        is_run = (directory / CONFIG).is_file()
        raise RunDirectoryError(
            f"run_dir={os.fspath(path)!r} {'holds a run' if is_run else 'is not empty'}, and nothing is "
            f"overwritten: give another name{f', or go on with: penstock resume {path}' if is_run else ''}"
        )


def _own(path: Path) -> RunLock:
    """Own a directory, or raise `RunInUseError`."""
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
            f"{path} may be in use: its file system has no locks, and {file} says that {held}, of which nothing is "
            f"known here. If that process has ended, remove {file} and give the same command again"
        ) from None


def _new_directory(name: str) -> Path:
    _RUNS.mkdir(exist_ok=True)
    number = 1
    while True:
        directory = _RUNS / (name if number == 1 else f"{name}-{number}")
        try:
            directory.mkdir()
            return directory
        except FileExistsError:
            number += 1


def safe_name(name: str) -> str:
    """A name as one part of a path: "ALE/Pong-v5" -> "ALE-Pong-v5"."""
    return re.sub(r"[^\w.+-]+", "-", name).strip("-.") or "env"


def _has_files_of_a_run(path: Path) -> bool:
    return any((path / name).exists() for name in (METRICS, LOG, CHECKPOINTS))


def _what_is(path: Path) -> str:
    if not path.exists():
        return "does not exist"
    return f"is a directory without {CONFIG}" if path.is_dir() else "is a file"


def runs_there_are(path: Path) -> str:
    """Hint about the newest runs beside a path that is none, for an error message."""
    parent = path.parent if path.parent.is_dir() and path.parent != Path() else _RUNS
    runs = sorted((p.parent for p in parent.glob(f"*/{CONFIG}")), key=lambda p: p.stat().st_mtime, reverse=True)
    if not runs:
        return "give the directory of a run, e.g. runs/CartPole-v1-appo-20250101-120000"
    return f"the newest runs in {parent} are {', '.join(str(run) for run in runs[:3])}"
