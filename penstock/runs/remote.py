"""Directories behind URLs of fsspec, such as ``s3://bucket/run``: files are sent, verified, listed and removed there.

Each file is complete or absent at its target. A checkpoint is complete once its ``meta.json``, sent last, is there.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from penstock.redaction import has_secret, masked
from penstock.runs.vacancy import RunDirectoryError

_URL = re.compile(r"([a-z][a-z0-9+.-]+):/+")
_BLOCK_NBYTES = 4 << 20
_UNFINISHED = ".sending"
_NO_CREDENTIALS = ("NoCredentialsError", "PartialCredentialsError", "CredentialRetrievalError", "TokenRetrievalError")
_ADVICE = "nothing was trained. Correct it, give another run_dir, or train with run_dir='auto'"


class RemoteError(RunDirectoryError):
    """A remote directory cannot be used; the message says why, and what to do."""


def is_remote(path: object) -> bool:
    """Return whether a path is a URL, such as "s3://bucket/run"; also one that `Path` has shortened to "s3:/"."""
    return isinstance(path, str | os.PathLike) and _URL.match(os.fspath(path)) is not None


class RemoteDirectory:
    """Directory behind a URL.

    Parameters
    ----------
    url
        URL of any file system of fsspec.

    Attributes
    ----------
    url : str
        The same, without a slash at the end.

    Raises
    ------
    RemoteError
        The URL has a secret, the package of the file system is missing, or fsspec has no such file system.
    """

    def __init__(self, url: str | os.PathLike[str]) -> None:
        from fsspec.config import conf
        from fsspec.core import url_to_fs

        text = os.fspath(url)
        match = _URL.match(text)
        assert match is not None
        scheme, rest = match[1], text[match.end() :].rstrip("/")
        self._is_local = scheme in ("file", "local")
        self.url = f"{scheme}://{'/' if self._is_local else ''}{rest}"
        if has_secret(self.url):
            found = f"{masked(self.url)} has a secret, which would be written to the files of the run"
            raise RemoteError(f"{found}: give it to fsspec by its configuration, or by an environment variable")
        options: dict[str, Any] = {"auto_mkdir": True} if self._is_local else {"use_listings_cache": False}
        if scheme in ("s3", "s3a"):  # callers retry, and report it
            options["config_kwargs"] = {"retries": {"max_attempts": 1}, **conf.get("s3", {}).get("config_kwargs", {})}
        try:
            self._fs, self._root = url_to_fs(self.url, skip_instance_cache=scheme != "memory", **options)
            self._fs.retries = 1
        except ImportError as error:
            from penstock.extras import install_command  # only needed after an error

            command = install_command("s3") if scheme in ("s3", "s3a") else "the package that it names"
            raise RemoteError(f"{self.url} needs a package that is missing ({error}). Install: {command}") from error
        except ValueError as error:
            raise RemoteError(f"{self.url} is not a place that fsspec knows: {error}") from error

    @property
    def name(self) -> str:
        """Last part of the URL."""
        return self.url.rpartition("/")[2]

    @property
    def parent(self) -> RemoteDirectory | None:
        """Directory that holds this one; None at the top."""
        above = self.url.rpartition("/")[0]
        return RemoteDirectory(above) if _URL.match(f"{above}/") and not above.endswith(("/", ":")) else None

    def files(self, within: str = "") -> dict[str, int]:
        """Return the sizes in bytes of all files (in the folder `within`), by their paths within the directory."""
        found = {}
        try:
            listing = self._fs.find(self._path(within).rstrip("/"), detail=True)
        except FileNotFoundError:
            return {}
        for path, about in listing.items():
            root, name = path[: len(self._path(""))], path[len(self._path("")) :]
            is_legal = not {"", ".", ".."} & set(name.split("/")) and not name.endswith(_UNFINISHED)
            if root == self._path("") and is_legal:
                found[name] = int(about["size"])
        return found

    def exists(self, name: str) -> bool:
        """Return whether there is a file of this name."""
        try:
            return bool(self._fs.info(self._path(name))["type"] == "file")
        except FileNotFoundError:
            return False

    def read(self, name: str) -> bytes:
        """Return the content of a file; raise `FileNotFoundError` if it is not there."""
        return bytes(self._fs.cat_file(self._path(name)))

    def fetch(self, name: str, target: Path, nbytes: int) -> None:
        """Copy a file to a new local file; raise `OSError` if the copy has fewer than `nbytes` bytes."""
        target.parent.mkdir(parents=True, exist_ok=True)
        self._fs.get_file(self._path(name), os.fspath(target))
        if (found := target.stat().st_size) < nbytes:
            raise OSError(f"{self.url}/{name} has {found} bytes instead of {nbytes}")

    def send(self, name: str, source: BinaryIO, nbytes: int, sha256: str | None = None) -> None:
        """Write a file, and verify its size and checksum at the target.

        Parameters
        ----------
        name
            Path within the directory.
        source
            File to read from its current position.
        nbytes
            Number of bytes to send.
        sha256
            Expected checksum; None: any.

        Raises
        ------
        ChangedError
            The local file does not have the expected contents: it was replaced meanwhile.
        OSError
            The written file has another size or checksum.
        Exception
            Errors of the file system.
        """
        path = self._path(name)
        written = f"{path}{_UNFINISHED}" if self._is_local else path
        begin, sha, md5 = source.tell(), hashlib.sha256(), hashlib.md5(usedforsecurity=False)
        for block in _blocks(source, nbytes):
            sha.update(block)
            md5.update(block)
        if source.tell() != begin + nbytes or sha256 not in (None, sha.hexdigest()):
            raise ChangedError(f"{name} was replaced while it was sent")
        source.seek(begin)
        file = self._fs.open(written, "wb")
        try:
            for block in _blocks(source, nbytes):
                file.write(block)
            file.close()
        except BaseException:
            with suppress(Exception):
                file.closed = True  # otherwise its destructor would complete the upload
                file.discard()
            raise
        if self._is_local:
            os.replace(written, path)
        about = self._fs.info(path)
        if about["size"] != nbytes:
            raise OSError(f"{self.url}/{name} has {about['size']} bytes after it was sent, instead of {nbytes}")
        if str(about.get("ETag", "")).strip('"') != md5.hexdigest() and self._sha256_of(path) != sha.hexdigest():
            raise OSError(f"{self.url}/{name} has another checksum after it was sent")

    def claim(self, name: str, data: bytes) -> None:
        """Create a file; raise `RemoteError` if another process was first, or it cannot be written."""
        try:
            self._fs.pipe_file(self._path(name), data, mode="create")
        except Exception as error:
            problem = f"{name} cannot be written there: {why(error)}"
            raise RemoteError(f"run_dir={self.url!r}: {problem}; {_ADVICE}") from error

    def remove(self, names: Iterable[str]) -> None:
        """Remove files; those that are not there are ignored."""
        for name in names:
            with suppress(FileNotFoundError):
                self._fs.rm_file(self._path(name))
            if self._is_local:
                with suppress(OSError):  # not empty
                    os.rmdir(os.path.dirname(self._path(name)))

    def require_vacant(self) -> None:
        """Raise `RemoteError` if there are files, or if files cannot be written, read and removed there."""
        self.require_usable()
        if there := sorted(self.files()):
            is_run = "config.json" in there
            raise RemoteError(
                f"run_dir={self.url!r} {'holds a run' if is_run else f'is not empty ({there[0]})'}, and nothing is "
                f"overwritten: give another name{f', or resume it: penstock resume {self.url}' if is_run else ''}"
            )

    def require_usable(self) -> None:
        """Write, read and remove a small file; raise `RemoteError` if that is not possible."""
        name, data = f".penstock-probe-{secrets.token_hex(8)}", secrets.token_bytes(64)
        doing = "written"
        try:
            self._fs.pipe_file(self._path(name), data)
            doing = "read"
            if self.read(name) != data:
                raise OSError("a file does not have the contents that were written")
            doing = "removed"
            self._fs.rm_file(self._path(name))
            doing = "listed"
            self.files()
        except Exception as error:
            left = f" (the file {name} is still there)" if doing in ("read", "removed") else ""
            problem = f"files cannot be {doing} there{left}: {why(error)}"
            raise RemoteError(f"run_dir={self.url!r}: {problem}; {_ADVICE}") from error

    def _path(self, name: str) -> str:
        return f"{self._root.rstrip('/')}/{name}"

    def _sha256_of(self, path: str) -> str:
        sha = hashlib.sha256()
        with self._fs.open(path, "rb") as file:
            while block := file.read(_BLOCK_NBYTES):
                sha.update(block)
        return sha.hexdigest()


class ChangedError(Exception):
    """A local file was replaced or removed while it was sent."""


def _blocks(source: BinaryIO, nbytes: int) -> Iterator[bytes]:
    """Yield the next `nbytes` bytes of a file in blocks; fewer if it ends before."""
    while nbytes and (block := source.read(min(_BLOCK_NBYTES, nbytes))):
        nbytes -= len(block)
        yield block


def why(error: BaseException) -> str:
    """Return the cause of a file system's error in words."""
    if isinstance(error, FileExistsError):
        return "another training has begun there at the same moment"
    text, kind = " ".join(str(error).split()), type(error).__name__
    if kind in _NO_CREDENTIALS:
        return f"no credentials were found ({text}). Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"
    if isinstance(error, PermissionError):
        return f"permission is denied ({text}): the credentials need the right to list, read, write and delete there"
    if isinstance(error, FileNotFoundError):
        return f"the bucket or directory does not exist ({text}): create it first"
    return f"{kind}: {text}" if text else kind
