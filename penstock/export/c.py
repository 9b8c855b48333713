"""Policies as one C99 file without dependencies: weights as arrays, one function from observation to action.

The file has a comment with the contract in words, and a test program with the contract's golden cases.
"""

from __future__ import annotations

import ctypes
import math
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
from torch import Tensor, nn

from penstock.envs.spaces import ActionSpec
from penstock.export.contract import Arrays, Run, cases_in
from penstock.export.layers import Layer, NotForC, chain_of, numbers_of
from penstock.export.program import MASK, ExportError, PolicyProgram, Port
from penstock.nn import ActorCritic, DeterministicActorCritic, StochasticActorCritic
from penstock.nn.layers import Tanh
from penstock.nn.model import SQUASHED_MEAN_LIMIT
from penstock.nn.observations import ObservationInput

ACTIVATIONS = {
    Tanh: "tanhf(x[i])",
    nn.ReLU: "x[i] < 0.0f ? 0.0f : x[i]",
    nn.ELU: "x[i] > 0.0f ? x[i] : expm1f(x[i])",
    nn.SiLU: "x[i] / (1.0f + expf(-x[i]))",
}
LARGEST = 2**24
"""Integers up to this magnitude are exact in float32."""

PACKAGES = ()
FUNCTION = "policy_act"
_DECLARED = re.compile(
    rf"^void {FUNCTION}\(const float observation\[(\d+)\], (?:const unsigned char legal\[(\d+)\], )?"
    r"(float|int64_t) action\[(\d+)\]\)",
    re.MULTILINE,
)

HELPERS = {
    "linear": """\
/* Weights are stored input by input, so that compilers can vectorise over outputs. */
static void linear(const float *x, int inputs, const float *weight, const float *bias, int outputs, float *restrict y)
{
    for (int i = 0; i < outputs; i++)
        y[i] = bias[i];
    for (int j = 0; j < inputs; j++)
        for (int i = 0; i < outputs; i++)
            y[i] += weight[j * outputs + i] * x[j];
}""",
    "normalize": """\
static void normalize(float *x, int n, const float *scale, const float *shift, float epsilon)
{
    float mean = 0.0f, variance = 0.0f;
    for (int i = 0; i < n; i++)
        mean += x[i] / (float)n;
    for (int i = 0; i < n; i++)
        variance += (x[i] - mean) * (x[i] - mean) / (float)n;
    for (int i = 0; i < n; i++)
        x[i] = (x[i] - mean) / sqrtf(variance + epsilon) * scale[i] + shift[i];
}""",
    "expect": """\
/* Mean return of each action, from the logits of its atoms. */
static void expect(const float *logits, int actions, const float *atoms, int n, float *means)
{
    for (int a = 0; a < actions; a++, logits += n) {
        float top = logits[0], sum = 0.0f, mean = 0.0f;
        for (int i = 1; i < n; i++)
            top = fmaxf(top, logits[i]);
        for (int i = 0; i < n; i++) {
            float weight = expf(logits[i] - top);
            sum += weight;
            mean += weight * atoms[i];
        }
        means[a] = mean / sum;
    }
}""",
    "largest": """\
/* Index of the first largest legal value; if none is legal, of all values. */
static int largest(const float *values, const unsigned char *legal, int n)
{
    int best = -1;
    for (int i = 0; i < n; i++)
        if ((!legal || legal[i]) && (best < 0 || values[i] > values[best]))
            best = i;
    return best < 0 ? largest(values, 0, n) : best;
}""",
    "clipped": """\
/* Number within its bounds; NaN stays NaN. */
static double clipped(double x, double low, double high)
{
    return x < low ? low : x > high ? high : x;
}""",
}

TEST = """\
#ifdef PENSTOCK_TEST
#include <stdio.h>

{constants}

/* Runs the golden observations, prints numbers that differ, and exits with 1 if any do. */
int main(void)
{{
    int failures = 0;
    for (int i = 0; i < {count}; i++) {{
        {number} action[{outputs}];
        {function}(observations[i], {legal}action);
        for (int j = 0; j < {outputs}; j++) {{
            double expected = (double)actions[i][j], found = (double)action[j];
            if (!(fabs(found - expected) <= 1e-5 * fmax(1.0, fabs(expected)))) {{
                printf("observation %d, number %d: expected %.9g, found %.9g\\n", i, j, expected, found);
                failures++;
            }}
        }}
    }}
    printf("{count} golden observations, %d numbers differ\\n", failures);
    return failures > 0;
}}
#endif"""


def file_of(program: PolicyProgram, contract: Mapping[str, Any]) -> bytes:
    """Return the C99 source of a policy: its function `FUNCTION` from an observation to the most probable action.

    Parameters
    ----------
    program
        Program of a policy whose network is an mlp.
    contract
        Contract of the program. Compiled with ``-DPENSTOCK_TEST``, the file is a program that repeats its cases.

    Raises
    ------
    NotForC
        The network is not an mlp, or has a part that C files cannot hold.
    """
    if program.sampled or program.everything:
        raise NotForC("its function returns the most probable action and nothing else")
    layers, atoms = chain_of(program.model)
    writer = _Writer()
    steps, outputs = _layers(layers, atoms, writer)
    body = [*_first_stage(program, writer), *steps, *_action(program, outputs, writer)]
    widest = max(size for layer in layers for size in layer.weight.shape)
    sizes = {kind: sum(math.prod(port.shape) for port in ports) for kind, ports in _ports(program).items()}
    number = "float" if program.action.num_numbers else "int64_t"
    legal = f"const unsigned char legal[{sizes['legal']}], " if sizes["legal"] else ""
    observation = f"const float observation[{sizes['observation']}]"
    head = f"void {FUNCTION}({observation}, {legal}{number} action[{sizes['action']}])"
    return ("\n\n".join([
        _comment(program, contract, head),
        "#include <math.h>\n#include <stdint.h>",
        f"{head};",
        *writer.arrays,
        *(text for helper, text in HELPERS.items() if any(f"{helper}(" in line for line in body)),
        f"{head}\n{{\n    float x[{widest}], y[{widest}];\n\n" + "\n".join(f"    {line}" for line in body) + "\n}",
        _test(number, _cases(program, contract)),
    ]) + "\n").encode()  # fmt: skip


def load(path: Path, contract: Mapping[str, Any]) -> Run:
    """Compile a C file and return its function of arrays.

    Raises
    ------
    ExportError
        There is no C compiler, it refuses the file, or the function does not have the arguments of the contract.
    """
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler is None:
        raise ExportError("a C file is checked with a C compiler, and neither cc nor $CC is one: install gcc or clang")
    declared = _DECLARED.search(path.read_text(errors="replace"))
    if declared is None:
        raise ExportError(f"{path} declares no function of a policy")
    inputs = {port["name"]: math.prod(port["shape"][1:]) for port in contract["inputs"]}
    sizes = [math.prod(port["shape"][1:]) for port in contract["outputs"]]
    legal = inputs.pop(MASK, 0)
    expected, found = (sum(inputs.values()), legal, sum(sizes)), tuple(int(declared[at] or 0) for at in (1, 2, 4))
    if expected != found:
        raise ExportError(
            f"{path} does not fit its contract: observation, legal and action of its function have {found} numbers, "
            f"but {expected} in the contract"
        )
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "policy.so"
        command = [compiler, "-std=c99", "-O2", "-shared", "-fPIC", str(path), "-o", str(library), "-lm"]
        made = subprocess.run(command, capture_output=True, text=True)
        if made.returncode:
            raise ExportError(f"{compiler} refuses {path}: {made.stderr.strip().partition(chr(10))[0]}")
        act = ctypes.CDLL(str(library))[FUNCTION]
    ports, dtype = contract["outputs"], np.float32 if declared[3] == "float" else np.int64

    def run(arrays: Arrays) -> Arrays:
        count = len(next(iter(arrays.values())))
        observed = [array.reshape(count, -1) for name, array in arrays.items() if name != MASK]
        rows = np.ascontiguousarray(np.concatenate(observed, 1), np.float32)
        masks = None if MASK not in arrays else np.ascontiguousarray(arrays[MASK], np.uint8)
        actions = np.empty((count, sum(sizes)), dtype)
        for row in range(count):
            given = (rows, actions) if masks is None else (rows, masks, actions)
            act(*(each[row].ctypes.data_as(ctypes.c_void_p) for each in given))
        leaves = np.split(actions, np.cumsum(sizes)[:-1], 1)
        return {
            port["name"]: leaf.reshape(count, *port["shape"][1:]).astype(port["dtype"])
            for port, leaf in zip(ports, leaves, strict=True)
        }

    return run


def contract_of_file(path: Path) -> None:
    """Return None: the contract of a C file is only in the file beside it."""


def _ports(program: PolicyProgram) -> dict[str, list[Port]]:
    """Return the ports of each argument of the function, whose numbers are concatenated."""
    return {
        "observation": [port for port in program.inputs if port.spec is not None],
        "legal": [port for port in program.inputs if port.name == MASK],
        "action": list(program.outputs),
    }


def _comment(program: PolicyProgram, contract: Mapping[str, Any], head: str) -> str:
    """Return the contract in words."""
    of, versions = contract["policy"], contract["versions"]
    described = {port["name"]: port for port in (*contract["inputs"], *contract["outputs"])}
    lines = [f"Policy of Penstock {versions['penstock']}: {of['algorithm']}, {of['env']}, {of['steps']:,} steps.", ""]
    lines += [f"{head};", ""]
    for argument, ports in _ports(program).items():
        begin = 0
        for port in ports:
            size, facts = math.prod(port.shape), described[port.name]
            places = f"{argument}[{begin}]" if size == 1 else f"{argument}[{begin} .. {begin + size - 1}]"
            lines.append(f"{places}: {port.name}, {port.dtype} {port.shape}, {_range_in_words(facts)}; unit:")
            lines += [f"    the network sees: {facts['seen as']}"] if "seen as" in facts else []
            begin += size
    seconds, stacks = contract["time_step"]["seconds"], contract["time_step"]["frame_stack"] or {}
    lines += [f"Time between two actions: {seconds:g} s"] if seconds else []
    lines += [f"{name}: the last {frames} frames, the newest last" for name, frames in stacks.items()]
    lines += [f"Not part of this file: the statistics of {each['name']}" for each in contract["wrappers"]]
    lines += ["", "Test: cc -std=c99 -DPENSTOCK_TEST THIS_FILE -lm && ./a.out"]
    text = "\n".join(f" * {line}".rstrip() for line in lines).replace("*/", "* /").replace("/*", "/ *")
    return f"/*\n{text}\n */"


def _range_in_words(facts: Mapping[str, Any]) -> str:
    if "values" in facts:
        pairs = zip(facts["values"], facts["start"] or [0] * len(facts["values"]), strict=True)
        return "from " + ", ".join(f"{start} to {start + count - 1}" for count, start in pairs)
    if facts.get("low") is None or facts.get("high") is None:
        return "1 where legal" if facts["name"] == MASK else "without bounds"
    low, high = ({"unbounded" if x is None else f"{x:.6g}" for x in facts[end]} for end in ("low", "high"))
    return f"from {low.pop()} to {high.pop()}" if len(low) == len(high) == 1 else "each within its own bounds"


def _cases(program: PolicyProgram, contract: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Return every row of the contract's cases, by argument, ``[rows, numbers]``."""
    found: dict[str, list[np.ndarray]] = {}
    for case in cases_in(contract):
        arrays = {**case["inputs"], **case["outputs"]}
        for argument, ports in _ports(program).items():
            flat = [arrays[port.name].reshape(len(arrays[port.name]), -1) for port in ports]
            if flat:
                found.setdefault(argument, []).append(np.concatenate(flat, 1))
    return {argument: np.concatenate(rows) for argument, rows in found.items()}


class _Writer:
    """Collects the constant arrays of a file."""

    def __init__(self) -> None:
        self.arrays: list[str] = []

    def array(self, name: str, values: np.ndarray, kind: str = "float") -> str:
        """Add an array of one or two dimensions, and return the name."""
        sizes = "".join(f"[{size}]" for size in values.shape)
        self.arrays.append(f"static const {kind} {name}{sizes} = {_braces(values, kind)};")
        return name

    def matrix(self, name: str, values: np.ndarray) -> str:
        """Add a matrix, row by row in an array of one dimension, and return the name."""
        rows, columns = values.shape
        inner = ",\n".join(_lines(row, "float") for row in values)
        self.arrays.append(f"static const float {name}[{rows} * {columns}] = {{\n{inner}\n}};")
        return name


def _braces(values: np.ndarray, kind: str) -> str:
    if values.ndim > 1:
        return "{\n" + ",\n".join(_braces(row, kind) for row in values) + "\n}"
    return f"{{{_lines(values, kind)}}}"


def _lines(values: np.ndarray, kind: str) -> str:
    words = [_number(value, kind) for value in values.tolist()]
    return ",\n".join(", ".join(words[first : first + 6]) for first in range(0, len(words), 6))


def _number(value: Any, kind: str = "float") -> str:
    """Return a number as C: the shortest text that reads as the same number."""
    if kind not in ("float", "double"):
        return str(int(value))
    if math.isinf(value):
        return "INFINITY" if value > 0 else "-INFINITY"
    return f"{np.float32(value)!s}f" if kind == "float" else repr(float(value))


def _first_stage(program: PolicyProgram, writer: _Writer) -> Iterator[str]:
    """Yield the statements that convert ``observation`` into ``x``."""
    spec, first = program.observation, program.model.input
    stages = [first] if isinstance(first, ObservationInput) else list(first.inputs)
    at = into = 0
    for number, (leaf, stage) in enumerate(zip(spec.leaves, cast("list[ObservationInput]", stages), strict=True)):
        counts, starts = (leaf.nvec, leaf.starts) if leaf.nvec else ((leaf.num_values or 0,), (leaf.start,))
        if leaf.num_values is not None or leaf.nvec:
            for count, start in zip(counts, starts, strict=True):
                if abs(start) + count > LARGEST:
                    raise NotForC(f"values of its observation beyond {LARGEST:,} are not exact in float")
                yield f"for (int i = 0; i < {count}; i++)"
                yield f"    {_at('x', into)} = observation[{at}] == (float)({start} + i) ? 1.0f : 0.0f;"
                at, into = at + 1, into + count
            continue
        size, value = math.prod(leaf.shape), _at("observation", at)
        if leaf.scaling is not None:
            origin, unit = (np.broadcast_to(numbers, size) for numbers in leaf.scaling)
            if max(np.abs(origin).max(), unit.max()) > LARGEST:
                raise NotForC(f"bounds of its observation beyond {LARGEST:,} are not exact in float")
            value = f"({value} - {_each(writer, f'origin_{number}', origin)}) / {_each(writer, f'unit_{number}', unit)}"
        if stage.moments is not None:
            mean, std = (numbers_of(each).ravel() for each in (stage.moments.mean, stage.moments.std))
            value = f"({value} - {_each(writer, f'mean_{number}', mean)}) / {_each(writer, f'std_{number}', std)}"
            value = f"(float)clipped({value}, -10.0, 10.0)"
        yield f"for (int i = 0; i < {size}; i++)"
        yield f"    {_at('x', into)} = {value};"
        at, into = at + size, into + size


def _at(array: str, first: int) -> str:
    return f"{array}[{first} + i]" if first else f"{array}[i]"


def _each(writer: _Writer, name: str, values: np.ndarray) -> str:
    """Return the i-th value as C: a constant if all are the same."""
    if (values == values[0]).all():
        return _number(values[0])
    return f"{writer.array(name, values)}[i]"


def _layers(layers: Sequence[Layer], atoms: Tensor | None, writer: _Writer) -> tuple[list[str], str]:
    """Return the statements of the layers, and the name of the array with the outputs."""
    body, here, there = [], "x", "y"
    for number, layer in enumerate(layers, 1):
        outputs, inputs = layer.weight.shape
        weight, bias = writer.matrix(f"weight_{number}", layer.weight.T), writer.array(f"bias_{number}", layer.bias)
        body.append(f"linear({here}, {inputs}, {weight}, {bias}, {outputs}, {there});")
        here, there = there, here
        if layer.norm is not None:
            scale = writer.array(f"scale_{number}", numbers_of(layer.norm.weight))
            shift = writer.array(f"shift_{number}", numbers_of(layer.norm.bias))
            body.append(f"normalize({here}, {outputs}, {scale}, {shift}, {_number(layer.norm.eps)});")
        if layer.activation is not None:
            text = ACTIVATIONS[layer.activation].replace("x[i]", f"{here}[i]")
            body += [f"for (int i = 0; i < {outputs}; i++)", f"    {here}[i] = {text};"]
    if atoms is not None:
        number_of_atoms = len(atoms)
        returns = writer.array("returns", numbers_of(atoms))
        actions = len(layers[-1].bias) // number_of_atoms
        body.append(f"expect({here}, {actions}, {returns}, {number_of_atoms}, {there});")
        here = there
    return body, here


def _action(program: PolicyProgram, outputs: str, writer: _Writer) -> Iterator[str]:
    """Yield the statements that convert the network's outputs into ``action``, leaf by leaf."""
    action, has_mask = program.action, program.observation.mask is not None
    value, number, into = 0, sum(action.choices), 0
    for place, leaf in enumerate(action.leaves):
        starts = leaf.starts if leaf.nvec else (leaf.start,)
        for count, start in zip(leaf.choices, starts if leaf.choices else (), strict=True):
            legal = _from("legal", value) if has_mask else "0"
            added = f" + {start}" if start else ""
            yield f"action[{into}] = largest({_from(outputs, value)}, {legal}, {count}){added};"
            value, into = value + count, into + 1
        if not leaf.choices:
            yield from _numbers(program, leaf, f"{_at(outputs, number)}", _at("action", into), place, writer)
            number, into = number + leaf.num_numbers, into + leaf.num_numbers


def _numbers(
    program: PolicyProgram, leaf: ActionSpec, output: str, action: str, place: int, writer: _Writer
) -> Iterator[str]:
    """Yield the statements of a leaf of numbers: squashed, scaled to its bounds, rounded if they are whole."""
    if isinstance(program.model, DeterministicActorCritic | StochasticActorCritic):
        output = f"tanhf({output})"
    elif isinstance(program.model, ActorCritic) and program.model.num_squashed:
        output = f"tanhf({SQUASHED_MEAN_LIMIT}f * tanhf({output} / {SQUASHED_MEAN_LIMIT}f))"
    low, high = (np.array(bounds, np.float64) for bounds in (leaf.low, leaf.high))
    if np.isfinite(low).any() or np.isfinite(high).any():
        is_scaled = np.isfinite(low) & np.isfinite(high)
        below, above = np.where(is_scaled, low, -1.0), np.where(is_scaled, high, 1.0)
        ranges = np.stack(((above - below) / 2, (above + below) / 2, low, high), 1)
        name = f"{writer.array(f'range_{place}', ranges, 'double')}[i]"
        output = f"clipped({output} * {name}[0] + {name}[1], {name}[2], {name}[3])"
    if np.dtype(leaf.dtype).kind != "f":
        output = f"rint({output})"
    yield f"for (int i = 0; i < {leaf.num_numbers}; i++)"
    yield f"    {action} = (float){output};"


def _from(array: str, first: int) -> str:
    return f"{array} + {first}" if first else array


def _test(number: str, cases: Mapping[str, np.ndarray]) -> str:
    """Return the program that repeats golden cases."""
    kinds = {"observation": "float", "legal": "unsigned char", "action": number}
    constants = [
        f"static const {kinds[argument]} {argument}s[{len(rows)}][{rows.shape[1]}] = {_braces(rows, kinds[argument])};"
        for argument, rows in cases.items()
    ]
    count, outputs = cases["action"].shape
    return TEST.format(
        constants="\n".join(constants), function=FUNCTION, number=number, outputs=outputs, count=count,
        legal="legals[i], " if "legal" in cases else "",
    )  # fmt: skip
