"""Policies as programs of `torch.export`, in files that torch alone runs."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from penstock.export.contract import Run, as_line, run_program
from penstock.export.program import ExportError, PolicyProgram

PACKAGES = ()
OWN = ("aten", "prims")
"""Namespaces of torch's own operations."""
KEY = "penstock.contract.json"
"""Name of the contract among the extra files of the archive."""


def file_of(program: PolicyProgram, contract: Mapping[str, Any]) -> bytes:
    """Return the archive of a program, with its contract.

    ``torch.export.load(FILE).module()`` maps a dict of tensors ``[N, ...]`` to another; its operations are those of
    torch's core, so that no code of Penstock runs.

    Raises
    ------
    ExportError
        The network cannot be traced, or has an operation that torch alone does not have.
    """
    traced = program.exported()
    operations = {node.target for node in traced.graph.nodes if isinstance(node.target, torch._ops.OpOverload)}
    foreign = sorted(str(each) for each in operations if each.namespace not in OWN)
    if foreign:
        raise ExportError(f"torch alone has no operation {foreign[0]}, which the network of this policy uses")
    file = io.BytesIO()
    torch.export.save(traced, file, extra_files={KEY: as_line(contract)})
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
        return torch.export.load(path, extra_files=extra_files)
    except Exception as error:  # of several types, from the archive to the graph
        reason = str(error).strip().partition("\n")[0]
        raise ExportError(f"{path} is no program of torch.export: {reason}") from error
