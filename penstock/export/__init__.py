"""Policies as files that run without Penstock: ONNX, torch.export, C; contracts hold cases that test the files.

The parts: `program.py` makes one function of a policy, `contract.py` describes it and gives cases, and a module per
format writes the file.
"""

from __future__ import annotations

import importlib
import importlib.util
import math
import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.export.contract import check_cases, contract_beside, contract_in, contract_of
from penstock.export.program import ExportError, PolicyProgram
from penstock.extras import install_command
from penstock.runs.documents import DocumentError, read_ordinary
from penstock.runs.files import json_bytes, write_file

if TYPE_CHECKING:
    from penstock.play.policy import Policy

__all__ = ["FORMATS", "ExportError", "PolicyProgram", "check_file", "export_policy"]

FORMATS: Mapping[str, tuple[str, str]] = {
    "onnx": (".onnx", "penstock.export.onnx"),
    "torch": (".pt2", "penstock.export.pt2"),
    "c": (".c", "penstock.export.c"),
}
"""Suffix and module of each format.

A module has ``PACKAGES`` that it needs, ``file_of(program, contract)`` that returns the file's bytes,
``load(path, contract)`` that returns the function of a file, ``contract_of_file(path)`` that returns the JSON of the
contract within it, and may have ``VERSIONS`` of the format for the contract.
"""

_MOST_CONTRACT_NBYTES = 1 << 30


def export_policy(
    policy: Policy, path: str | os.PathLike[str], *, format: str | None = None, all: bool = False,
    sampled: bool = False, time_step: float | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Write a policy as one file that runs without Penstock, and its contract beside it, ``PATH.json``.

    The file holds everything between a raw observation and the environment's action: preprocessing, running
    normalisation, memory, mask, choice of action, scaling. Its inputs are arrays of any number N of rows: ``obs``
    ``[N, ...]``, or one ``obs/PATH`` per leaf of a composite observation; with memory ``state_in`` ``[N, S]`` and
    ``first`` ``[N]``, true where an episode begins; with a mask ``mask`` ``[N, M]``. Its outputs are ``action``
    ``[N, ...]``, or one ``action/PATH`` per leaf, and with memory ``state_out``.

    The file is written only if its own runtime reproduces the actions of `Policy.act`, within 1e-5.

    Parameters
    ----------
    policy
        Loaded policy.
    path
        New file. Its suffix gives the format.
    format
        One of `FORMATS`; None: by the suffix.
    all
        Whether the file also returns ``log_prob`` and ``value``, where the network has them.
    sampled
        Whether actions are sampled with an input ``noise`` ``[N, K]``, uniform in [0, 1) or standard normal as the
        contract says. Otherwise they are the most probable ones.
    time_step
        Seconds between two actions, for the contract; finite and above 0.

    Returns
    -------
    dict
        The contract.

    Raises
    ------
    ExportError
        A file exists or cannot be written, a package is missing, or the policy cannot be exported exactly; nothing was
        written.
    """
    path = Path(path)
    if time_step is not None and not (math.isfinite(time_step) and time_step > 0):
        raise ExportError(f"time_step={time_step:g} is not legal: give seconds, finite and above 0")
    module = _format_of(path, format)
    for each in (path, contract_beside(path)):
        if os.path.lexists(each):
            raise ExportError(f"{each} exists: give another name, or remove it first")
    contract = contract_of(program := PolicyProgram(policy, sampled=sampled, everything=all), policy, module.PACKAGES)
    contract["time_step"]["seconds"] = time_step
    contract["versions"] |= getattr(module, "VERSIONS", {})
    data = module.file_of(program, contract)
    with tempfile.TemporaryDirectory(prefix="penstock-export-") as directory:
        tried = Path(directory) / path.name
        tried.write_bytes(data)
        check_cases(contract, module.load(tried, contract), str(path))
    _write_new({path: data, contract_beside(path): json_bytes(contract)})
    return contract


def check_file(path: str | os.PathLike[str]) -> tuple[dict[str, Any], int]:
    """Run the cases of an exported file's contract through the file.

    The contract is the one beside the file or, if there is none, the one in its metadata.

    Returns
    -------
    contract : dict
        The contract.
    cases : int
        Number of its cases, all of which agree.

    Raises
    ------
    ExportError
        There is no such file or no contract, the two do not match, an output differs, or the file has parts that could
        run code; C files are compiled and run, and the graph of the others runs in their runtime.
    """
    path = Path(path)
    if not path.is_file():
        raise ExportError(f"{path} is not there: give a file that penstock export wrote")
    module = _format_of(path, None)
    beside = contract_beside(path)
    try:
        text = read_ordinary(beside, _MOST_CONTRACT_NBYTES) if beside.exists() else module.contract_of_file(path)
    except (OSError, DocumentError) as error:
        raise ExportError(str(error)) from None
    if text is None:
        raise ExportError(f"{path} has no contract, neither in {beside} nor in its metadata: export the policy again")
    contract = contract_in(text, str(beside if beside.exists() else path))
    return contract, check_cases(contract, module.load(path, contract), str(path))


def _format_of(path: Path, format: str | None) -> Any:
    """Return the module of a format, by its name or a file's suffix."""
    by_suffix = {suffix: name for name, (suffix, _) in FORMATS.items()}
    name = by_suffix.get(path.suffix, "") if format is None else format
    if name not in FORMATS:
        legal = ", ".join(f"{name} ({suffix})" for name, (suffix, _) in FORMATS.items())
        found = f"{path} has the suffix {path.suffix!r}" if format is None else f"format={format!r} is not legal"
        raise ExportError(f"{found}: formats are {legal}")
    suffix, place = FORMATS[name]
    if path.suffix != suffix:
        raise ExportError(f"{path} has the suffix {path.suffix!r}, and files of the format {name} have {suffix}")
    module = importlib.import_module(place)
    if missing := [package for package in module.PACKAGES if importlib.util.find_spec(package) is None]:
        raise ExportError(f"the format {name} needs {', '.join(missing)}: {install_command('export')}")
    return module


def _write_new(files: Mapping[Path, bytes]) -> None:
    """Write new files of one folder: all of them completely, or none, and then no new folder either."""
    path = next(iter(files))
    folders = [folder for folder in (path.parent, *path.parent.parents) if not os.path.lexists(folder)]
    made: list[Path] = []
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as aside:
            for each, data in files.items():
                write_file(Path(aside, each.name), data)
            for each in files:
                each.touch(exist_ok=False)
                made.append(each)
            for each in files:  # replaces the empty files made above: not all file systems have hard links
                os.replace(Path(aside, each.name), each)
    except BaseException as error:
        for each in made:
            each.unlink(missing_ok=True)
        for folder in folders:
            with suppress(OSError):
                folder.rmdir()
        if isinstance(error, OSError):
            raise ExportError(
                f"{path} cannot be written: {error.strerror} ({error.filename}). Give a new name in a writable folder"
            ) from None
        raise
