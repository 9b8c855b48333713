"""Policies as programs of `torch.export`, in files that torch alone runs."""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch.export.pt2_archive import PT2ArchiveReader

from penstock.export.contract import Run, run_program
from penstock.export.program import ExportError, PolicyProgram, in_silence

PACKAGES = ()
OWN = ("aten", "prims")
"""Namespaces of torch's own operations."""
KEY = "penstock.contract.json"
"""Name of the contract among the extra files of the archive."""

_DATA = re.compile(
    r"archive_(format|version)|byteorder|\.(data|format)/.*|extra/.*|models/model\.json"
    r"|data/(weights/(weight_\d+|model_weights_config\.json)|constants/(tensor_\d+|model_constants_config\.json))"
)
"""Records of an archive that torch reads as numbers or text."""
_TENSORS = re.compile(r"data/(sample_inputs|weights|constants)/model\.pt")
"""Records of an archive that torch unpickles."""


def file_of(program: PolicyProgram, contract: Mapping[str, Any]) -> bytes:
    """Return the archive of a program, with its contract.

    ``torch.export.load(FILE).module()`` maps a dict of tensors ``[N, ...]`` to another; its operations are those of
    torch's core, so that no code of Penstock runs.

    Raises
    ------
    ExportError
        The network cannot be traced, or uses an operation that is not torch's own.
    """
    traced = program.exported()
    operations = {node.target for node in traced.graph.nodes if isinstance(node.target, torch._ops.OpOverload)}
    foreign = sorted(str(each) for each in operations if each.namespace not in OWN)
    if foreign:
        raise ExportError(f"torch alone has no operation {foreign[0]}, which the network of this policy uses")
    file = io.BytesIO()
    torch.export.save(traced, file, extra_files={KEY: json.dumps(contract)})
    return file.getvalue()


def load(path: Path, contract: Mapping[str, Any]) -> Run:
    """Return the function of a file.

    Raises
    ------
    ExportError
        It is no program of `torch.export`.
    """
    module: Any = _read(path, {}).module()
    return lambda arrays: run_program(module, arrays)


def contract_of_file(path: Path) -> str | None:
    """Return the contract in a file as JSON; None without one."""
    found = {KEY: ""}
    _read(path, found)
    return found[KEY] or None


def _read(path: Path, extra_files: dict[str, Any]) -> torch.export.ExportedProgram:
    try:
        data = path.read_bytes()
        if problem := next(_foreign_parts(data), None):
            raise ExportError(
                f"{path} is refused: {problem}. Loading it could run code: ask for a file that penstock export wrote"
            )
        with in_silence("torch.export"):
            return torch.export.load(io.BytesIO(data), extra_files=extra_files)
    except ExportError:
        raise
    except Exception as error:  # of several types, from the archive to the graph
        reason = str(error).strip().partition("\n")[0]
        raise ExportError(f"{path} is no program of torch.export: {reason}") from error


def _foreign_parts(data: bytes) -> Iterator[str]:
    """Yield descriptions of the parts of an archive that exported policies lack and whose loading could run code."""
    reader = PT2ArchiveReader(io.BytesIO(data))
    records = reader.get_file_names()
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        names = archive.namelist()
    if sorted(name.partition("/")[2] for name in names) != sorted(records):
        yield "its list of records is ambiguous"
    for record in records:
        if _TENSORS.fullmatch(record):
            try:
                torch.load(io.BytesIO(reader.read_bytes(record)), weights_only=True)
            except Exception:  # of several types, for a malformed pickle
                yield f"{record} holds something other than tensors"
        elif not _DATA.fullmatch(record):
            yield f"it has the part {record}, and exported policies have none of this name"
        elif record.endswith("_config.json") and record.startswith("data/"):
            for name, part in json.loads(reader.read_string(record))["config"].items():
                if part["use_pickle"] or not re.fullmatch(r"(weight|tensor)_\d+", part["path_name"]):
                    yield f"{name} in {record} is no plain tensor"
