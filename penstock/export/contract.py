"""Contracts of exported policies: inputs, outputs, origin, and cases that test programs which use the files."""

from __future__ import annotations

import base64
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict

import numpy as np
import torch
from torch import Tensor

from penstock.envs.columns import ActionDecoder
from penstock.envs.spaces import ActionSpec, ObservationSpec
from penstock.envs.statistics import statistics_of
from penstock.export.program import (
    FIRST,
    MASK,
    NEXT_STATE,
    NOISE,
    OBSERVATION,
    STATE,
    ExportError,
    PolicyProgram,
    Port,
    observation_leaves,
)
from penstock.runs.documents import DocumentError, document_in
from penstock.runs.machine import installed

if TYPE_CHECKING:
    from penstock.play.policy import Policy

FORMAT = "penstock contract"
FORMAT_VERSION = 1
TOLERANCE = 1e-5
"""Largest legal difference of a floating-point output, relative to its magnitude, or to 1 if that is larger."""

Arrays = dict[str, np.ndarray]
Case = dict[str, Arrays]
"""``inputs`` of one call, and its ``outputs``."""
Run = Callable[[Arrays], Arrays]
"""Runs a file: arrays ``[N, *shape]`` of all inputs to those of all outputs."""

_CASE_ROWS = (1, 3, 3, 3)  # the last three are successive steps of three lanes
_PLAIN = 256  # most numbers of an array that is written as a list; larger ones as base64
_EXACT = 4_096  # up to here, integers rounded from float32 must be equal
_UNITS = 64  # most numbers of a leaf that have a unit each


class _Port(TypedDict):
    """Keys of an input or output that a check needs."""

    name: str
    dtype: Literal[
        "float16", "float32", "float64", "bool", "uint8", "int8", "int16", "int32", "int64", "uint16", "uint32",
        "uint64",
    ]  # fmt: skip
    shape: list[Any]


class _Case(TypedDict):
    inputs: dict[str, Any]
    outputs: dict[str, Any]


class _Contract(TypedDict):
    """Keys of a contract that its check needs."""

    format: str
    format_version: int
    inputs: list[_Port]
    outputs: list[_Port]
    tolerance: float
    cases: list[_Case]


def contract_of(program: PolicyProgram, policy: Policy, packages: Iterable[str] = ()) -> dict[str, Any]:
    """Return the contract of a program, as JSON values.

    Parameters
    ----------
    program
        Program of the policy.
    policy
        Policy that gives the cases.
    packages
        Packages besides torch and Penstock whose versions are recorded.

    Raises
    ------
    ExportError
        The program's actions differ from those of `Policy.act`.
    """
    meta, observation, names = policy.meta, program.observation, ("penstock", "torch", *packages)
    seen = policy.model.input.describe()
    ports = [_described(port) for port in program.inputs]
    for port, described in zip(program.inputs, ports, strict=True):
        if isinstance(port.spec, ObservationSpec):
            described["seen as"] = seen.get(port.path, seen.get("", ""))
    stacks = {path or OBSERVATION: leaf.shape[0] for path, leaf in observation_leaves(observation) if leaf.is_stacked}
    return {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "policy": {
            **{name: meta.get(name) for name in ("algorithm", "env", "steps", "mean_return")},
            "parameters": sum(parameter.numel() for parameter in policy.model.parameters()),
            "action": "sampled" if program.sampled else "most probable",
            "noise": program.action.noise if program.sampled else None,
        },
        "inputs": ports,
        "outputs": [_described(port) for port in program.outputs],
        "time_step": {"seconds": None, "frame_stack": stacks or None},
        "wrappers": [each.to_json() for each in statistics_of(meta)],
        "versions": dict.fromkeys(names) | installed(names),
        "tolerance": TOLERANCE,
        "cases": [
            {kind: {name: _written(array) for name, array in arrays.items()} for kind, arrays in case.items()}
            for case in cases_of(program, policy)
        ],
    }


def cases_of(program: PolicyProgram, policy: Policy) -> list[Case]:
    """Return calls of a program with the results of `Policy.act`.

    With memory, the later calls are successive steps of the same lanes, some of which begin episodes.

    Raises
    ------
    ExportError
        The program's results differ.
    """
    cases: list[Case] = []
    rounded = {port.name for port in program.outputs if isinstance(port.spec, ActionSpec) and not port.spec.choices}
    state: np.ndarray | None = None
    for number, count in enumerate(_CASE_ROWS):
        inputs = {name: tensor.numpy() for name, tensor in program.examples(count, seed=number).items()}
        if STATE in inputs:
            if state is None or len(state) != count:
                inputs[STATE], inputs[FIRST] = np.zeros_like(inputs[STATE]), np.ones_like(inputs[FIRST])
            else:
                inputs[STATE] = state
        with torch.no_grad():
            outputs = run_program(program, inputs)
        expected = acted(policy, inputs, program)
        problem = difference({**outputs, **expected}, outputs, TOLERANCE, rounded)
        if problem:
            raise ExportError(f"the program of this policy differs from Policy.act in case {number}: {problem}")
        cases.append({"inputs": inputs, "outputs": {**outputs, **expected}})
        state = cases[-1]["outputs"].get(NEXT_STATE)
    return cases


def run_program(program: Callable[[dict[str, Tensor]], Mapping[str, Tensor]], inputs: Arrays) -> Arrays:
    """Run a torch program on arrays."""
    tensors = {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in inputs.items()}
    return {name: tensor.detach().numpy() for name, tensor in program(tensors).items()}


def acted(policy: Policy, inputs: Arrays, program: PolicyProgram) -> Arrays:
    """Return the action, and with memory the state, that `Policy.act` returns for the inputs of a program."""
    observed = {port.path: inputs[port.name] for port in program.inputs if port.name.startswith(OBSERVATION)}
    spec, mask = program.observation, inputs.get(MASK)
    observation: Any = observed.get("", observed)  # a plain one has no path
    if spec.mask is not None and not spec.mask_is_in_info:
        observation = {**observation, spec.mask.path: mask}
        mask = None
    state = None
    if STATE in inputs:
        count = len(inputs[STATE])
        begins = torch.from_numpy(inputs[FIRST]).unsqueeze(-1)
        state = torch.where(begins, policy.model.initial_state(count), torch.from_numpy(inputs[STATE]))
    noise = torch.from_numpy(inputs[NOISE]) if NOISE in inputs else None
    _, chosen, _, after = policy.choose(observation, state, noise is None, mask, noise)
    leaves = _leaves_of(ActionDecoder(program.action)(chosen), program.action)
    found = {port.name: leaf for port, leaf in zip(program.outputs, leaves, strict=False)}  # actions come first
    return {**found, **({NEXT_STATE: after.numpy()} if STATE in inputs else {})}


def difference(expected: Arrays, found: Arrays, tolerance: float, rounded: Container[str] = ()) -> str:
    """Return the first output that differs, in words; "" if all agree.

    Parameters
    ----------
    expected, found
        Outputs by name.
    tolerance
        Largest legal difference of floating-point numbers, see `TOLERANCE`. Integers must be equal.
    rounded
        Outputs whose integers are rounded from float32: beyond 4,096, where float32 may round either way, they may
        differ by 1, or by the tolerance if that is more.
    """
    for name, array in expected.items():
        other = found.get(name)
        if other is None:
            return f"there is no output {name!r}, only {', '.join(map(repr, found)) or 'none'}"
        if other.shape != array.shape:
            return f"{name} has the shape {list(other.shape)} instead of {list(array.shape)}"
        is_float, size = array.dtype.kind == "f", np.maximum(1.0, np.abs(array.astype(np.float64)))
        is_open = is_float or ((name in rounded) & (size > _EXACT))
        legal = np.where(is_open, np.maximum(tolerance, 0.0 if is_float else 1.0 / size), 0.0)
        is_other = ~(apart_by(array, other) <= legal)
        if is_other.any():
            at = np.unravel_index(int(is_other.argmax()), is_other.shape)
            return f"{name}{list(map(int, at))} is {other[at]} instead of {array[at]}"
    return ""


def apart_by(expected: np.ndarray, found: np.ndarray) -> np.ndarray:
    """Return differences relative to the expected magnitude, or to 1 if that is larger; float64."""
    wide = expected.astype(np.float64)
    return np.asarray(np.abs(found.astype(np.float64) - wide) / np.maximum(1.0, np.abs(wide)))


def check_cases(contract: Mapping[str, Any], run: Run, file: str) -> int:
    """Run the cases of a contract through a file, and return their number.

    Raises
    ------
    ExportError
        There is no case, the file refuses the inputs of one, or an output differs; the message names case and output.
    """
    cases = cases_in(contract)
    if not cases:
        raise ExportError(f"the contract of {file} has no case, so nothing can be checked: export the policy again")
    rounded = {port["name"] for port in contract["outputs"] if "low" in port}
    for number, case in enumerate(cases):
        try:
            found = run(case["inputs"])
        except Exception as error:  # its type depends on the runtime
            reason = " ".join(str(error).split())[:300] or type(error).__name__
            raise ExportError(
                f"{file} does not fit its contract: it refuses the inputs of case {number}: {reason}"
            ) from error
        problem = difference(case["outputs"], found, contract["tolerance"], rounded)
        if problem:
            raise ExportError(f"{file} does not keep its contract: in case {number}, {problem}")
    return len(cases)


def cases_in(contract: Mapping[str, Any]) -> list[Case]:
    """Return the cases of a contract as arrays.

    Raises
    ------
    ExportError
        A case lacks a port or has an unknown one, or an array does not have the dtype and shape of its port.
    """

    def read(number: int, kind: Literal["inputs", "outputs"]) -> Arrays:
        written, ports = contract["cases"][number][kind], {port["name"]: port for port in contract[kind]}
        where = f"the contract contradicts itself: in case {number}, "
        if written.keys() != ports.keys():
            raise ExportError(
                f"{where}{kind} are {', '.join(written) or 'none'} instead of {', '.join(ports) or 'none'}"
            )
        arrays = Arrays()
        for name, port in ports.items():
            try:
                arrays[name] = _read(written[name], port["dtype"])
            except (TypeError, ValueError, OverflowError, KeyError) as error:
                raise ExportError(f"{where}{name} is no array of {port['dtype']} ({error})") from None
        count = max((len(array) for array in arrays.values() if array.ndim), default=0) or 1
        for name, port in ports.items():
            if [*arrays[name].shape] != [count, *port["shape"][1:]]:
                raise ExportError(
                    f"{where}{name} has the shape {[*arrays[name].shape]} instead of {[count, *port['shape'][1:]]}"
                )
        return arrays

    return [{"inputs": read(number, "inputs"), "outputs": read(number, "outputs")}
            for number in range(len(contract["cases"]))]  # fmt: skip


def contract_in(text: bytes | str, name: str) -> dict[str, Any]:
    """Return the contract in a JSON document.

    Raises
    ------
    ExportError
        It is no contract, or has a newer version.
    """
    try:
        contract = document_in(text.encode() if isinstance(text, str) else text, name, _Contract)
    except DocumentError as error:
        raise ExportError(str(error)) from None
    if contract["format"] != FORMAT:
        raise ExportError(f"{name} is no contract of an exported policy: its format is {contract['format']!r}")
    if contract["format_version"] > FORMAT_VERSION:
        raise ExportError(
            f"{name} has version {contract['format_version']} of contracts, and this Penstock reads up to "
            f"{FORMAT_VERSION}: update Penstock"
        )
    for port in (*contract["inputs"], *contract["outputs"]):
        rows, *sizes = port["shape"] or [None]
        if rows != "N" or not all(type(size) is int and size >= 0 for size in sizes):
            raise ExportError(
                f'{name} cannot be read: {port["name"]} has the shape {port["shape"]}, not ["N", sizes ...]'
            )
    if contract["tolerance"] is None:
        raise ExportError(f"{name} has no tolerance: found null, legal are numbers")
    return contract


def contract_beside(path: Path) -> Path:
    """Return the path of the contract beside an exported file."""
    return path.with_name(path.name + ".json")


def _described(port: Port) -> dict[str, Any]:
    """Return a port as JSON values; units are for the user to fill in."""
    spec, leaf = port.spec, dict[str, Any]()
    if isinstance(spec, ObservationSpec):
        choices = (spec.num_values,) if spec.num_values is not None else spec.nvec
        starts = (spec.start,) if spec.num_values is not None else spec.starts
        leaf = {"path": port.path, **_range(spec, choices, starts)}
    elif isinstance(spec, ActionSpec):
        leaf = {"path": port.path, **_range(spec, spec.choices, (spec.start,) if spec.is_discrete else spec.starts)}
    numbers = int(np.prod(port.shape))
    if leaf:
        leaf["unit"] = [""] * numbers if port.shape and numbers <= _UNITS else ""
    return {"name": port.name, "dtype": port.dtype, "shape": ["N", *port.shape], **leaf}


def _range(spec: ObservationSpec | ActionSpec, choices: tuple[int, ...], starts: tuple[int, ...]) -> dict[str, Any]:
    """Return the legal values of a leaf: choices with their first value, or bounds, null where there is none."""
    if choices:
        return {"values": list(choices), "start": list(starts)}
    bounds = {"low": spec.low, "high": spec.high}
    return {name: each and [x if np.isfinite(x) else None for x in each] for name, each in bounds.items()}


def _leaves_of(action: Any, spec: ActionSpec) -> Iterator[np.ndarray]:
    """Yield the leaves of the environment's actions, in the order of `action_leaves`."""
    if not spec.parts:
        yield np.asarray(action)
    for number, (key, part) in enumerate(spec.parts):
        yield from _leaves_of(action[number if key is None else key], part)


def _written(array: np.ndarray) -> Any:
    """Return an array as JSON: nested lists, or base64 of its bytes, little-endian and row by row."""
    if array.size <= _PLAIN:
        return array.tolist()
    data = np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<")).tobytes()
    return {"shape": list(array.shape), "base64": base64.b64encode(data).decode()}


def _read(written: Any, dtype: str) -> np.ndarray:
    """Inverse of `_written`."""
    if isinstance(written, dict):
        raw = np.frombuffer(base64.b64decode(written["base64"]), np.dtype(dtype).newbyteorder("<"))
        return raw.astype(dtype).reshape(written["shape"])
    return np.array(written, dtype)
