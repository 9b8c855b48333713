"""``penstock export``: a trained policy as one file, and the check of such a file."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from penstock.export import ExportError, check_file, export_policy
from penstock.export.contract import contract_beside
from penstock.flags import parse_flags
from penstock.play.policy import load_policy
from penstock.runs.files import shown_path
from penstock.runs.lookup import resolve_checkpoint


@dataclass(frozen=True)
class Flags:
    """Write a trained policy as one file that runs without Penstock, or check such a file."""

    run: Annotated[tyro.conf.Positional[Path | None], tyro.conf.arg(metavar="RUN")] = None
    """Directory of a run, or of one checkpoint."""
    out: Annotated[tyro.conf.Positional[Path | None], tyro.conf.arg(metavar="OUT")] = None
    """New file, e.g. policy.onnx. Its contract is written beside it, as policy.onnx.json."""
    format: Literal["onnx", "torch", "c"] | None = None
    """Format of the file; by default that of its suffix."""
    all: bool = False
    """Return log_prob and value, too."""
    sampled: bool = False
    """Sample actions with an input "noise" instead of taking the most probable ones."""
    time_step: float | None = None
    """Seconds between two actions, for the contract."""
    policy: str | None = None
    """Name of the policy, for a run with several."""
    checkpoint: str = "best"
    """Checkpoint of the run: "best", "latest", or its number of steps."""
    trust_code: bool = False
    """Run code that came with a copied run, such as the file of its encoder."""
    check: Path | None = None
    """Exported file to check instead: it is run on the cases of its contract. Check .pt2 and .c files only from
    sources that you trust."""


def command(args: list[str]) -> int:
    """Export a policy or check a file; return the exit code."""
    flags = parse_flags(Flags, args, prog="penstock export")
    if flags.check is not None:
        if flags.run is not None:
            raise ExportError("--check checks a file that exists: give --check FILE alone")
        contract, cases = check_file(flags.check)
        print(f"{flags.check}: {cases} cases agree, within {contract['tolerance']:g}")
        return 0
    if flags.run is None or flags.out is None:
        raise ExportError("give a run and a new file: penstock export RUN policy.onnx; or --check FILE")
    path = resolve_checkpoint(flags.run, flags.checkpoint, _warn, flags.policy)
    policy = load_policy(path, trust_code=flags.trust_code)
    contract = export_policy(
        policy, flags.out, format=flags.format, all=flags.all, sampled=flags.sampled, time_step=flags.time_step
    )
    print("\n".join(_about(contract, flags.out)))
    return 0


def _about(contract: dict[str, Any], out: Path) -> list[str]:
    """Return lines about an exported file."""
    policy, stacks = contract["policy"], contract["time_step"]["frame_stack"]
    ports = {
        kind: ", ".join(f"{port['name']} {port['dtype']} {_shape(port)}" for port in contract[kind])
        for kind in ("inputs", "outputs")
    }
    lines = [
        f"{shown_path(out)}: {out.stat().st_size:,} bytes, {policy['algorithm']} on {policy['env']}, step "
        f"{policy['steps']:,}, {policy['parameters']:,} parameters",
        f"  inputs: {ports['inputs']}",
        f"  outputs: {ports['outputs']}",
        f"  actions: {policy['action']}" + (f", by {policy['noise']} noise" if policy["noise"] else ""),
    ]
    if "opset" in contract["versions"]:
        lines.append(f"  opset: {contract['versions']['opset']}")
    if stacks:
        lines.append(f"  stacked frames: {', '.join(f'{name} {count}' for name, count in stacks.items())}")
    if contract["wrappers"]:
        names = ", ".join(each["name"] for each in contract["wrappers"])
        lines.append(f"  not in the file: the wrappers of its environment ({names}); their moments are in the contract")
    return [*lines, f"  contract: {shown_path(contract_beside(out))}, {len(contract['cases'])} cases"]


def _warn(message: str) -> None:
    print(f"warning: {message}", file=sys.stderr)


def _shape(port: dict[str, Any]) -> str:
    return f"[{', '.join(map(str, port['shape']))}]"
