"""Policies as ONNX files, for onnxruntime and every other runtime of the format."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from penstock.export.contract import Arrays, Run
from penstock.export.program import ExportError, PolicyProgram, in_silence

PACKAGES = ("onnx", "onnxscript", "onnxruntime")
"""Packages of the extra "export", whose versions the contract records."""
OPSET = 18
"""Version of the ONNX operators: that of torch's own translations, supported by onnxruntime-web and TensorRT."""
VERSIONS = {"opset": OPSET}
"""Versions of the format, for the contract."""
KEY = "penstock.contract"
"""Key of the contract in the file's metadata."""
MOST_NBYTES = 2_000_000_000  # protobuf limits a file to 2 GiB


def file_of(program: PolicyProgram, contract: Mapping[str, Any]) -> bytes:
    """Return the ONNX file of a program, with its contract in the metadata.

    Raises
    ------
    ExportError
        The network cannot be traced or translated, or an input is not in the graph.
    """
    import torch

    names = [[port.name for port in ports] for ports in (program.inputs, program.outputs)]
    nbytes = sum(tensor.nbytes for tensor in program.state_dict().values())
    if nbytes > MOST_NBYTES:
        raise ExportError(f"the weights have {nbytes:,} bytes, and one ONNX file has at most {MOST_NBYTES:,}")
    traced = program.exported()
    try:
        with in_silence("torch.onnx"):
            translated = torch.onnx.export(
                traced, (program.examples(2),), input_names=names[0], output_names=names[1], opset_version=OPSET,
                dynamo=True, external_data=False, verbose=False,
            )  # fmt: skip
    except Exception as error:  # of any type, for an operation without a translation
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise ExportError(f"torch.onnx cannot translate this network: {reason}") from error
    assert translated is not None
    model = translated.model
    for node in model.graph.all_nodes():
        node.metadata_props.clear()  # stack traces, with paths of this machine
        node.doc_string = None
    model.graph.metadata_props.clear()
    model.metadata_props.clear()
    model.metadata_props[KEY] = json.dumps(contract)
    model.producer_name, model.producer_version = "penstock", contract["versions"]["penstock"]
    proto = translated.model_proto
    require_inputs([port.name for port in program.inputs], proto.graph)
    return proto.SerializeToString()


def require_inputs(names: Iterable[str], graph: Any) -> None:
    """Raise `ExportError` unless a graph has these inputs and no others, and computes with one of them.

    A program that computes with captured values translates without an error, into a graph of constants.
    """
    found, declared = [each.name for each in graph.input], list(names)
    if found != declared:
        raise ExportError(
            f"the graph has the inputs {', '.join(found) or 'none'}, and the program has {', '.join(declared)}: "
            "the network computes with values that it has captured instead of its inputs"
        )
    # The shape of an input gives the number of rows, and nothing observed.
    read = {name for node in graph.node if node.op_type != "Shape" for name in node.input}
    if not read & set(declared):
        raise ExportError(
            f"no node of the graph reads an input ({', '.join(declared)}): the network answers the same to everything"
        )


def load(file: Path | bytes, contract: Mapping[str, Any]) -> Run:
    """Return the function of an ONNX file or of its bytes, in onnxruntime on the CPU with one thread.

    Raises
    ------
    ExportError
        onnxruntime is not installed, or refuses the file.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    try:
        session = onnxruntime.InferenceSession(
            file if isinstance(file, bytes) else str(file), options, providers=["CPUExecutionProvider"]
        )
    except Exception as error:  # of several types of its own
        raise ExportError(f"onnxruntime refuses the file: {str(error).strip().partition(chr(10))[0]}") from error
    names = [each.name for each in session.get_outputs()]
    inputs = {each.name for each in session.get_inputs()}

    def run(arrays: Arrays) -> Arrays:
        found = session.run(names, {name: array for name, array in arrays.items() if name in inputs})
        return dict(zip(names, map(np.asarray, found), strict=True))

    return run


def contract_of_file(path: Path) -> str | None:
    """Return the contract in a file's metadata as JSON; None without one."""
    import onnx

    try:
        model = onnx.load(str(path), load_external_data=False)
    except Exception as error:  # of protobuf, without a type of its own
        raise ExportError(f"{path} is no ONNX file: {error}") from None
    return next((each.value for each in model.metadata_props if each.key == KEY), None)
