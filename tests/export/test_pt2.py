"""Policies as programs of torch.export: torch alone runs them."""

import io
import json
import logging
import os
import subprocess
import sys
import zipfile

import pytest
import torch
from torch import nn

from bench.export import KINDS, MOVES, VECTOR, Kind, compared, fresh_policy
from penstock.export import ExportError, pt2
from penstock.export.contract import contract_of
from penstock.export.program import PolicyProgram

BY_NAME = {kind.name: kind for kind in KINDS}
WITHOUT_PENSTOCK = """
import json, sys

sys.modules["penstock"] = None  # an import raises ImportError
import torch

for file in sys.argv[1:]:
    extra = {"penstock.contract.json": ""}
    act = torch.export.load(file, extra_files=extra).module()
    contract = json.loads(extra["penstock.contract.json"])
    dtypes = {port["name"]: getattr(torch, port["dtype"]) for port in contract["inputs"] + contract["outputs"]}
    for case in contract["cases"]:
        inputs, outputs = (
            {name: torch.tensor(array, dtype=dtypes[name]) for name, array in case[kind].items()}
            for kind in ("inputs", "outputs")
        )
        found = act(inputs)
        for name, expected in outputs.items():
            torch.testing.assert_close(found[name], expected, rtol=1e-5, atol=1e-5)
    print(len(contract["cases"]), "cases agree")
"""


def written(name, path):
    """The policy's program, contract and file."""
    policy = fresh_policy(BY_NAME[name])
    program = PolicyProgram(policy)
    contract = contract_of(program, policy)
    path.write_bytes(pt2.file_of(program, contract))
    return policy, program, contract


@pytest.mark.parametrize("name", ["ppo, Dict, gru, mixed actions", "ppo, mask in info, lstm", "btr, mlp"])
def test_the_file_gives_the_actions_of_act(name, tmp_path):
    policy, program, contract = written(name, tmp_path / "policy.pt2")
    found = compared(policy, program, pt2.load(tmp_path / "policy.pt2", contract), rows=100, steps=10)
    assert found.difference <= 1e-5 and found.other_choices == 0


@pytest.mark.long
@pytest.mark.timeout(120)
def test_a_process_without_penstock_repeats_the_golden_cases(tmp_path):
    files = [tmp_path / "chosen.pt2", tmp_path / "remembered.pt2"]
    for name, file in zip(("sac, mlp", "a3c, lstm"), files, strict=True):
        written(name, file)
    command = [sys.executable, "-c", WITHOUT_PENSTOCK, *files]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert ended.stdout == "4 cases agree\n" * 2, ended.stderr


@torch.library.custom_op("penstock_tests::doubled", mutates_args=())
def doubled(x: torch.Tensor) -> torch.Tensor:
    return 2.0 * x


@doubled.register_fake
def _(x):
    return torch.empty_like(x)


class Foreign(nn.Linear):
    """Encoder with an operation that torch alone does not have."""

    def __init__(self, observation):
        super().__init__(*observation.shape, 8)

    def forward(self, x):
        return doubled(super().forward(x))


def test_an_operation_that_torch_does_not_have_is_refused():
    program = PolicyProgram(fresh_policy(Kind("ppo", "foreign", VECTOR, MOVES, {"encoder": Foreign})))
    with pytest.raises(ExportError, match=r"torch alone has no operation penstock_tests\.doubled"):
        pt2.file_of(program, {})


def test_a_file_of_something_else_is_refused(tmp_path):
    torch.save({}, tmp_path / "weights.pt2")
    told: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = told.append
    logging.getLogger("torch.export").addHandler(handler)
    with pytest.raises(ExportError, match=r"weights\.pt2 is no program of torch\.export: "):
        pt2.load(tmp_path / "weights.pt2", {})
    logging.getLogger("torch.export").removeHandler(handler)
    assert not told


class Code:
    """Object whose unpickling makes a folder."""

    def __init__(self, mark):
        self.mark = str(mark)

    def __reduce__(self):
        return os.mkdir, (self.mark,)


def test_nothing_of_a_file_is_run_before_its_graph(tmp_path):
    """Every part that `torch.export.load` would unpickle or link is refused, and so are archives of another kind."""
    *_, contract = written("ppo, mlp", tmp_path / "policy.pt2")
    with zipfile.ZipFile(tmp_path / "policy.pt2") as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    torch.save((Code(tmp_path / "mark"),), buffer := io.BytesIO())
    code, pickled = buffer.getvalue(), {"path_name": "tensor_0", "is_param": False, "use_pickle": True}
    kept = {**pickled, "path_name": "custom_obj_0", "use_pickle": False}
    config = "archive/data/constants/model_constants_config.json"
    for changed, message in (
        ({"archive/data/sample_inputs/model.pt": code}, "data/sample_inputs/model.pt holds something other than"),
        ({"archive/data/weights/model.pt": code}, "data/weights/model.pt holds something other than tensors"),
        ({"archive/data/constants/tensor_0": code, config: json.dumps({"config": {"c": pickled}})}, "no plain tensor"),
        ({config: json.dumps({"config": {"c": kept}})}, "no plain tensor"),
        ({"archive/data/aotinductor/model/policy.so": b"code"}, "it has the part data/aotinductor/model/policy.so"),
        ({"version": b"8.9", "serialized_constants.pt": code}, "is refused|is no program"),
    ):
        with zipfile.ZipFile(tmp_path / "evil.pt2", "w") as archive:
            for name, data in (parts | changed).items():
                archive.writestr(name, data)
        with pytest.raises(ExportError, match=message):
            pt2.load(tmp_path / "evil.pt2", contract)
        assert not (tmp_path / "mark").exists()
