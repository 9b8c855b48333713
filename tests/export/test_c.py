"""Policies as C files: compiled without a warning, they choose what ``policy.act`` chooses."""

import re
import shutil
import subprocess

import numpy as np
import pytest
from gymnasium import spaces

from bench.export import KINDS, LEVER, MASKED, MOVES, ROBOT, TORQUE, VECTOR, Kind, fresh_policy, save_fresh
from penstock.cli import main
from penstock.export import ExportError, c
from penstock.export.contract import acted, contract_of, difference
from penstock.export.layers import NotForC
from penstock.export.program import PolicyProgram

BY_NAME = {kind.name: kind for kind in KINDS}
STRICT = ("-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-O2")
OTHERS = ("Nature", "ResNet", "Dict", "own", "image", "residual")
NO_MLP = {kind.name for kind in KINDS if kind.network.startswith(OTHERS)}
REFUSED = {kind.name for kind in KINDS if "memory" in kind.settings} | {"r2d2, lstm", "btr, mlp"} | NO_MLP

needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")

MLP = {"encoder": "mlp", "hidden_sizes": (16,)}
MASKED_CHOICES = spaces.MultiDiscrete([4, 3, 2], start=[-1, 0, 7])
FURTHER = (
    Kind("td3", "mlp of a Dict", ROBOT, LEVER, MLP | {"normalize_observations": True}),
    Kind("ppo", "silu, masked", MASKED, MASKED_CHOICES, {"activation": "silu", "hidden_sizes": (16, 8)}),
    Kind("a2c", "numbers with some bounds", ROBOT, TORQUE, MLP | {"normalize_observations": True}),
    Kind("dqn", "no hidden layer", VECTOR, MOVES, {"hidden_sizes": ()}),
    Kind("dqn", "noisy quantiles", VECTOR, MOVES, {"distributional": "quantile", "dueling": True, "noisy": True}),
)
MLPS = [kind for kind in (*KINDS, *FURTHER) if kind.name not in REFUSED]


def written(policy, folder):
    """The policy's program, contract and C file."""
    program = PolicyProgram(policy)
    contract = contract_of(program, policy)
    path = folder / "policy.c"
    path.write_bytes(c.file_of(program, contract))
    return program, contract, path


@pytest.mark.long
@needs_compiler
@pytest.mark.parametrize("kind", MLPS, ids=lambda kind: kind.name)
def test_the_function_chooses_what_the_policy_chooses(kind, tmp_path):
    policy = fresh_policy(kind)
    program, contract, path = written(policy, tmp_path)
    inputs = {name: tensor.numpy() for name, tensor in program.examples(1_000, seed=3).items()}
    expected, found = acted(policy, inputs, program), c.load(path, contract)(inputs)
    assert difference(expected, found, 1e-5) == ""
    assert any(len(np.unique(array, axis=0)) > 1 for array in expected.values()), "more than one action"


@needs_compiler
@pytest.mark.parametrize("activation", ["tanh", "relu", "elu", "silu"])
def test_an_observation_that_is_no_number_gives_an_action_that_is_none(activation, tmp_path):
    policy = fresh_policy(Kind("ppo", "mlp", VECTOR, LEVER, {"activation": activation, "hidden_sizes": (8,)}))
    _, contract, path = written(policy, tmp_path)
    observations = np.float32([[0.1, np.nan, 0.0, 0.2], [0.1, np.inf, -np.inf, 0.2]])
    lost, clipped = c.load(path, contract)({"obs": observations})["action"]
    assert np.isnan(lost).all(), "not a bound, which moves the lever"
    assert np.isfinite(clipped).all()


@needs_compiler
def test_the_file_compiles_without_a_warning_and_its_program_repeats_the_golden_cases(tmp_path):
    for kind in (*FURTHER[:3], BY_NAME["ppo, Tuple actions"], BY_NAME["dqn, C51, mask in info"]):
        *_, path = written(fresh_policy(kind), tmp_path)
        program = tmp_path / "golden"
        subprocess.run(["cc", *STRICT, "-c", path, "-o", tmp_path / "policy.o"], check=True)
        subprocess.run(["cc", *STRICT, "-DPENSTOCK_TEST", path, "-o", program, "-lm"], check=True)
        ended = subprocess.run([program], capture_output=True, text=True)
        assert (ended.returncode, ended.stdout) == (0, "10 golden observations, 0 numbers differ\n"), kind.name


@needs_compiler
def test_the_golden_cases_fail_when_a_weight_is_another(tmp_path):
    *_, path = written(fresh_policy(BY_NAME["sac, mlp"]), tmp_path)
    before, bias, after = path.read_text().partition("bias_3[2] = {")
    path.write_text(before + bias + "9" + after)
    subprocess.run(["cc", *STRICT, "-DPENSTOCK_TEST", path, "-o", tmp_path / "golden", "-lm"], check=True)
    ended = subprocess.run([tmp_path / "golden"], capture_output=True, text=True)
    assert ended.returncode == 1 and "expected" in ended.stdout


def test_the_comment_is_the_contract_in_words(tmp_path):
    policy = fresh_policy(FURTHER[0])
    policy.meta["env"] = "*/ int x; /* ends no comment and begins none"
    program = PolicyProgram(policy)
    contract = contract_of(program, policy)
    contract["time_step"] = {"seconds": 0.02, "frame_stack": {"obs/arm/load": 3}}
    comment, *after = c.file_of(program, contract).decode().split("*/", 1)
    assert "int x" in comment and comment.count("/*") == 1 and after[0].lstrip().startswith("#include")
    assert "Time between two actions: 0.02 s" in comment and "obs/arm/load: the last 3 frames" in comment
    assert "void policy_act(const float observation[1454], float action[2]);" in comment
    assert "observation[0 .. 3]: obs/arm/angles, float32 (4,), from -2 to 2; unit:" in comment
    assert "observation[1453]: obs/hand/room, int64 (), from 2 to 5; unit:" in comment
    assert "action[0 .. 1]: action, float32 (2, 1), from -1 to 4; unit:" in comment


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_what_is_no_mlp_is_refused_with_the_reason(name, tmp_path):
    reasons = ("has a memory", "has residual blocks", "each of 32 fractions of the return",
               r"the encoder of this policy is [\w.]+")  # fmt: skip
    reason = f"({'|'.join(reasons)})"
    with pytest.raises(NotForC, match=f"{reason}: use format 'onnx'"):
        written(fresh_policy(BY_NAME[name]), tmp_path)


def test_dueling_streams_of_implicit_quantiles_are_refused(tmp_path):
    kind = Kind("dqn", "IQN, dueling", VECTOR, MOVES, {"distributional": "iqn", "dueling": True})
    with pytest.raises(NotForC, match="each of 32 fractions"):
        written(fresh_policy(kind), tmp_path)


def test_sampled_actions_are_refused():
    program = PolicyProgram(fresh_policy(BY_NAME["ppo, mlp"]), sampled=True)
    with pytest.raises(ExportError, match="returns the most probable action"):
        c.file_of(program, {})


def test_a_machine_without_a_compiler_is_told_what_to_install(tmp_path, monkeypatch):
    _, contract, path = written(fresh_policy(BY_NAME["ppo, mlp"]), tmp_path)
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(ExportError, match="install gcc or clang"):
        c.load(path, contract)


@needs_compiler
@pytest.mark.parametrize("suffix", [".c", ".pt2"])
def test_the_command_writes_the_format_of_the_suffix_and_checks_it(suffix, tmp_path, capsys):
    checkpoint, out = save_fresh(tmp_path / "saved", fresh_policy(BY_NAME["ppo, mlp"])), tmp_path / f"policy{suffix}"
    assert main(["export", str(checkpoint), str(out)]) == 0
    assert main(["export", "--check", str(out)]) == 0
    assert f"{out}: 4 cases agree" in capsys.readouterr().out
    out.write_bytes(out.read_bytes()[:100])
    assert main(["export", "--check", str(out)]) != 0
    assert re.search(r"declares no function of a policy|no program of torch\.export", capsys.readouterr().err)
