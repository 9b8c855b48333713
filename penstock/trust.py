"""Trust in the code and URLs that a run names: a copied run imports only installed packages and writes to no URL.

A run and its checkpoints hold a seal for each module, code file and URL in their settings: an HMAC of its place, with
a key that only this user can read. A place without this user's seal belongs to a run from elsewhere.
"""

from __future__ import annotations

import hashlib
import hmac
import importlib.util
import os
import re
import secrets
import site
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from penstock.imports import UntrustedCodeError, checking_places

SEALS = "seals"
"""Key of the seals, by place, in the record of a run or checkpoint."""
_KEY_NBYTES = 32
_PLACE = re.compile(r"(?s)([a-z][a-z0-9+.-]+:/.*)|(.+):[^\W\d]\w*(\.(<locals>|[^\W\d]\w*))*")  # URL, or code
_NO_CODE = ("env_kwargs", "run", SEALS)  # the user's own values, never imported


def seals_of(*settings: Any) -> dict[str, str]:
    """Return seals of the code and URLs that JSON settings name; empty if no key can be stored for this user."""
    places = set().union(*map(_places_in, settings))
    key = _key() if places else None
    return {} if key is None else {place: _seal(key, place) for place in sorted(places)}


@contextmanager
def code_of(
    record: Mapping[str, Any], path: str | os.PathLike[str], trust_code: bool, given: Any = None
) -> Iterator[None]:
    """Within the block, refuse to import code that came with a run from elsewhere.

    Parameters
    ----------
    record
        Record with the seals: a run's ``config.json`` or a checkpoint's ``meta.json``.
    path
        Path of the run or checkpoint, for messages.
    trust_code
        Whether to import all code anyway.
    given
        The caller's own settings; code that they name needs no seal.

    Raises
    ------
    UntrustedCodeError
        Within the block, before the code is imported.
    """
    own = _places_in(given)

    def check(place: str) -> bool:
        if trust_code or (whole := _whole(place)) in own or is_sealed(record, whole):
            return True
        if not place.endswith(".py") and _is_installed(place.partition(".")[0]):
            return False
        what = "file" if place.endswith(".py") else "module"
        raise UntrustedCodeError(
            f"{os.fspath(path)} names code of the {what} {place!r}, which is not run: no seal says that this user has "
            "trained with it, so it may have come with a copied run. Inspect it, then give --trust-code (in Python, "
            "trust_code=True)"
        )

    with checking_places(check):
        yield


def is_sealed(record: Mapping[str, Any], place: str) -> bool:
    """Return whether a record has this user's seal of a place."""
    seal = seals.get(place) if isinstance(seals := record.get(SEALS), Mapping) else None
    key = _key(make=False) if isinstance(seal, str) and seal.isascii() else None
    return key is not None and hmac.compare_digest(_seal(key, place), str(seal))


def names_only(settings: Any, given: Any) -> bool:
    """Return whether settings name code, and only code that the caller's own settings also name."""
    return set() < _places_in(settings) <= _places_in(given)


def _places_in(value: Any) -> set[str]:
    if isinstance(value, str):
        match = _PLACE.fullmatch(value)
        return {match[1] or _whole(match[2])} if match else set()
    if isinstance(value, Mapping):
        return set().union(*(_places_in(item) for key, item in value.items() if key not in _NO_CODE))
    return set().union(*map(_places_in, value)) if isinstance(value, list | tuple) else set()


def _whole(place: str) -> str:
    """Return a file's absolute path; a module's name unchanged."""
    return os.fspath(Path(place).resolve()) if place.endswith(".py") else place


def _is_installed(package: str) -> bool:
    """Return whether a package is Penstock or installed; modules of the standard library do not count."""
    if package == "penstock":
        return True
    if package in sys.stdlib_module_names:
        return False
    if package in sys.modules and package != "__main__":
        spec = getattr(sys.modules[package], "__spec__", None)
    else:
        spec = None if package == "__main__" else importlib.util.find_spec(package)
    here = Path.cwd()
    if spec is None:  # import also searches this folder; a missing module raises its own error
        return package not in sys.modules and not any((here / name).exists() for name in (package, f"{package}.py"))
    places = [Path(place).resolve() for place in [*(spec.submodule_search_locations or []), spec.origin] if place]
    known = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), *site.getsitepackages()}
    known |= {path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")}  # layered ones
    roots = [Path(path).resolve() for path in known if Path(path).resolve() != here]
    return bool(places) and all(any(map(place.is_relative_to, roots)) for place in places)


def _seal(key: bytes, place: str) -> str:
    return hmac.new(key, os.fsencode(place), hashlib.sha256).hexdigest()


def _key(*, make: bool = True) -> bytes | None:
    """Return this user's key; None if there is none and none can be stored."""
    file = Path(os.environ.get("XDG_CONFIG_HOME") or Path("~/.config").expanduser()) / "penstock" / "key"
    with suppress(OSError, RuntimeError):
        if make and not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            new = file.with_name(f".key.{os.getpid()}-{secrets.token_hex(4)}")
            descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            try:
                os.write(descriptor, secrets.token_bytes(_KEY_NBYTES))
                with suppress(FileExistsError):
                    os.link(new, file)  # the first of several processes creates it
            finally:
                os.close(descriptor)
                new.unlink()
        key = file.read_bytes()
        return key if len(key) == _KEY_NBYTES else None
    return None
