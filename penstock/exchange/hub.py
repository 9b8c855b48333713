"""Publishing of runs in repositories of the Hugging Face Hub, and fetching of published ones.

Fetched files are data: nothing is imported, unpickled or run. Only files of a bundle are downloaded. Their sizes and
hashes are compared with the Hub's record of one commit, and those of checkpoints also with the checkpoint's own record.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.exchange import ExchangeError
from penstock.exchange.bundle import FILES, make_bundle, require_new
from penstock.extras import install_command
from penstock.runs.checkpoint import CheckpointError, load_checkpoint
from penstock.runs.documents import DocumentError, read_ordinary
from penstock.runs.run_directory import RunDirectory
from penstock.runs.vacancy import CONFIG, RunDirectoryError, safe_name

if TYPE_CHECKING:
    from huggingface_hub import HfApi
    from huggingface_hub.hf_api import RepoFile

_REPO = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_PICKLES = (
    ".bin", ".ckpt", ".dill", ".joblib", ".npy", ".npz", ".pickle", ".pkl", ".pt", ".pt2", ".pth",
)  # fmt: skip
"""Suffixes of files that may hold pickles."""
_MOST_NBYTES = 1 << 34  # of a repository
_GITS_OWN = (".gitattributes", ".gitignore")


@dataclass(frozen=True)
class Published:
    """A published run.

    Attributes
    ----------
    place
        Address of the commit, or path of the folder.
    files
        Paths of its files.
    notes
        Facts for the user.
    """

    place: str
    files: tuple[str, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Fetched:
    """A fetched run.

    Attributes
    ----------
    path
        Its directory.
    commit
        Commit of the repository.
    left_out
        Paths of the repository's files that do not belong to a bundle and were not downloaded.
    """

    path: Path
    commit: str
    left_out: tuple[str, ...]


def push(
    run: str | os.PathLike[str], repo: str, *, episodes: int = 100, seed: int = 0, video: bool = False,
    private: bool = False, replace: bool = False, folder: str | os.PathLike[str] | None = None,
    trust_code: bool = False, **settings: Any,
) -> Published:  # fmt: skip
    """Publish a run in a repository of the Hub: weights, ONNX, settings, metrics, a video, and a card with scores.

    The best and the final weights play `episodes` each, with deterministic actions. Secrets, seals, host names, folders
    of the user, states of optimisers and replay buffers are not published. The token is that of ``hf auth login``, or
    of the environment variable ``HF_TOKEN``.

    Parameters
    ----------
    run
        Directory of the run.
    repo
        Name of the repository, ``"ORG/NAME"``; created if missing.
    episodes
        Episodes of each score; 0: none are played, and the card has no score.
    seed
        Seed of the environments of these episodes.
    video
        Film an episode of the best policy (extra "video"); otherwise the newest video of the run is published, if any.
    private
        Whether a new repository is private.
    replace
        Whether files of an existing repository are replaced; without it only an empty one is filled.
    folder
        Write the files into this new folder instead of a repository.
    trust_code
        Whether to run code that came with a copied run.
    **settings
        Settings that the run could not save, such as ``env_kwargs`` with secrets.

    Raises
    ------
    ExchangeError
        The repository's name is not legal, it has files, the folder exists or cannot be written, or the Hub refuses or
        cannot be reached.
    """
    _require_name(repo)
    if episodes < 0:
        raise ExchangeError(f"episodes={episodes} is not legal: play 0 or more")
    if seed < 0:
        raise ExchangeError(f"seed={seed} is not legal: seed must be 0 or more")
    _client()  # before episodes are played
    target = None if folder is None else require_new(folder)
    if target is None:
        with _explained(repo):
            _require_free(_client(), repo, replace)
    with tempfile.TemporaryDirectory() as temporary:
        card = make_bundle(
            run, Path(temporary), repo,
            episodes=episodes, seed=seed, video=video, trust_code=trust_code, settings=settings,
        )  # fmt: skip
        files = tuple(sorted(path.relative_to(temporary).as_posix() for path in _files_in(Path(temporary))))
        notes = tuple(f"no ONNX file{f' of {name}' if name else ''}: {why}" for name, why in card.not_exported.items())
        if target is not None:
            _write(target, {file: (Path(temporary) / file).read_bytes() for file in files})
            return Published(os.fspath(target), files, notes)
        with _explained(repo):
            return Published(_upload(Path(temporary), files, repo, private), files, notes)


def pull(repo: str, directory: str | os.PathLike[str] | None = None, *, revision: str | None = None) -> Fetched:
    """Fetch a published run, as a run directory that every command and `load_policy` open.

    No code of the repository is run, here or when the run is opened; code that its settings name is imported only with
    ``trust_code=True``.

    Parameters
    ----------
    repo
        Name of the repository, ``"ORG/NAME"``.
    directory
        Directory of the run, which must not exist; None: ``runs/ORG-NAME``.
    revision
        Branch, tag or commit; None: the newest commit.

    Raises
    ------
    ExchangeError
        The repository is not a published run, has a path or file that is refused, or its content differs from the Hub's
        record; the directory exists or cannot be written, or the Hub cannot be reached. Nothing is left behind.
    """
    _require_name(repo)
    target = require_new(Path("runs") / safe_name(repo) if directory is None else directory)
    with _explained(repo):
        api = _client()
        from huggingface_hub.hf_api import RepoFile

        commit = str(api.model_info(repo, revision=revision).sha)
        entries = api.list_repo_tree(repo, recursive=True, revision=commit)
        listed = [entry for entry in entries if isinstance(entry, RepoFile)]
        wanted = _wanted(repo, listed)
        with tempfile.TemporaryDirectory() as cache:
            found = {entry.path: _content(api, repo, commit, entry, cache) for entry in wanted}
    _write(target, found, check=lambda folder: _require_run(folder, repo))
    left_out = {entry.path for entry in listed} - found.keys() - set(_GITS_OWN)
    return Fetched(target, commit, tuple(sorted(left_out)))


def _require_name(repo: str) -> None:
    if not _REPO.fullmatch(repo):
        raise ExchangeError(f"{repo!r} is not a repository name: write ORG/NAME with letters, digits, '-', '_' and '.'")


def _client() -> HfApi:
    try:
        from huggingface_hub import HfApi
    except ImportError:
        raise ExchangeError(f"the Hub needs the package huggingface_hub: {install_command('hub')}") from None
    return HfApi(endpoint=os.environ.get("HF_ENDPOINT"), library_name="penstock")


@contextmanager
def _explained(repo: str) -> Iterator[None]:
    """Within the block, turn errors of the Hub and of the network into `ExchangeError`."""
    from huggingface_hub.errors import HfHubHTTPError, HTTPError, RepositoryNotFoundError

    try:
        yield
    except RepositoryNotFoundError:
        raise ExchangeError(
            f"the Hub has no repository {repo}, or hides it: check the name, and log in with: hf auth login"
        ) from None
    except HfHubHTTPError as error:
        raise ExchangeError(f"the Hub refuses this: {str(error).strip().splitlines()[0]}") from error
    except HTTPError as error:  # base class of the HTTP library's errors: no answer
        raise ExchangeError(
            f"the Hub cannot be reached ({error}): check the network, and HF_ENDPOINT if it is set"
        ) from error
    except (OSError, ValueError) as error:
        if isinstance(error, ExchangeError):
            raise
        raise ExchangeError(f"the Hub cannot be used: {error}") from error


def _require_free(api: HfApi, repo: str, replace: bool) -> None:
    """Raise `ExchangeError` for a repository with files, unless they are to be replaced."""
    if not replace and api.repo_exists(repo) and (files := set(api.list_repo_files(repo)) - set(_GITS_OWN)):
        raise ExchangeError(
            f"the repository {repo} has {len(files)} files, and nothing is overwritten: give another name, or "
            "--replace (in Python, replace=True)"
        )


def _upload(folder: Path, files: tuple[str, ...], repo: str, private: bool) -> str:
    """Upload files in one commit, which also removes stale files of a bundle; return the commit's address."""
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete

    api = _client()
    if not api.repo_exists(repo):
        api.create_repo(repo, private=private or None)
    stale = [path for path in api.list_repo_files(repo) if FILES.fullmatch(path) and path not in files]
    operations = [CommitOperationAdd(path, os.fspath(folder / path)) for path in files]
    commit = api.create_commit(
        repo, [*operations, *map(CommitOperationDelete, stale)], commit_message="A run of Penstock"
    )
    return str(commit.commit_url)


def _wanted(repo: str, listed: list[RepoFile]) -> list[RepoFile]:
    """Return the files of a repository that a bundle has; refuse paths, pickles and sizes."""
    for entry in listed:
        path, parts = entry.path, entry.path.split("/")
        if {"..", ".", "", "~"} & set(parts) or "\\" in path or "\0" in path or ":" in parts[0]:
            raise ExchangeError(f"{repo} is refused: its file {path!r} leads out of the directory")
        if path.lower().endswith(_PICKLES):
            raise ExchangeError(f"{repo} is refused: its file {path!r} may hold a pickle, which could run code")
    wanted = [entry for entry in listed if FILES.fullmatch(entry.path)]
    for entry in wanted:
        if type(entry.size) is not int or entry.size < 0:
            raise ExchangeError(f"{repo} is refused: the size of {entry.path!r} is unknown")
    if (nbytes := sum(entry.size for entry in wanted)) > _MOST_NBYTES:
        raise ExchangeError(f"{repo} is refused: it has {nbytes:,} bytes, but at most {_MOST_NBYTES:,} are fetched")
    if CONFIG not in (entry.path for entry in wanted):
        raise ExchangeError(f"{repo} is not a published run of Penstock: it has no {CONFIG}")
    return wanted


def _content(api: HfApi, repo: str, commit: str, entry: RepoFile, cache: str) -> bytes:
    """Download a file; return its bytes if they are those of the Hub's record."""
    place = os.path.realpath(api.hf_hub_download(repo, entry.path, revision=commit, cache_dir=cache))
    if not Path(place).is_relative_to(os.path.realpath(cache)):
        raise ExchangeError(f"{repo} is refused: its file {entry.path!r} is a link")
    try:
        data = read_ordinary(Path(place), entry.size)
    except DocumentError as error:
        raise ExchangeError(f"{repo} is refused: {error}") from None
    if entry.lfs is not None:
        is_same = hashlib.sha256(data).hexdigest() == entry.lfs.sha256
    else:  # git's hash of a file's content
        is_same = hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest() == entry.blob_id
    if len(data) != entry.size or not is_same:
        raise ExchangeError(f"{repo} is refused: the content of {entry.path!r} differs from the Hub's record of it")
    return data


def _require_run(folder: Path, repo: str) -> None:
    """Raise `ExchangeError` unless a folder is a run with complete checkpoints."""
    try:
        run = RunDirectory.open(folder)
        for name in run.policies or [""]:
            store = run.of_policy(name).checkpoints
            places = [store.path_of(steps) for steps in store.steps()] + [store.best_path] * store.has_best()
            if not places:
                raise ExchangeError(f"{repo} is refused: it has no checkpoint{f' of {name}' if name else ''}")
            for place in places:
                load_checkpoint(place)
    except (CheckpointError, RunDirectoryError) as error:
        raise ExchangeError(f"{repo} is refused: {str(error).replace(os.fspath(folder), repo)}") from None


def _write(target: Path, files: dict[str, bytes], check: Any = None) -> None:
    """Write files into a new folder, which appears complete or not at all."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}.") as temporary:
        folder = Path(temporary) / target.name
        for name, data in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        if check is not None:
            check(folder)
        require_new(target)
        os.rename(folder, target)


def _files_in(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.is_file())
