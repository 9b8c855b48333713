"""Exported policies: the file acts as `Policy.act` does, says so in its contract, and is refused where it does not."""

import dataclasses
import errno
import json
import shutil
import subprocess
import sys
from importlib.metadata import version

import numpy as np
import onnx
import pytest
import torch
from gymnasium import spaces
from torch import nn

import penstock
from bench.export import KINDS, MOVES, VECTOR, Kind, arrays_of, compared, fresh_policy, save_fresh
from penstock.cli import main
from penstock.envs.statistics import Moments
from penstock.export import ExportError, PolicyProgram, check_file, export_policy
from penstock.export.contract import acted, cases_in, contract_of, difference, run_program
from penstock.export.onnx import KEY, OPSET, file_of, load, require_inputs
from penstock.play.policy import Policy

BY_NAME = {kind.name: kind for kind in KINDS}
TOLERANCE = 1e-5
RICH = "ppo, Dict, gru, mixed actions"
QUICK = (
    "a3c, lstm", "ppo, mask in info, lstm", "dqn, IQN", "sac, residual",
)
"""Policies whose files have operations of their own; the files of the others are made before a release."""
needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")


def as_file(name, **settings):
    """Policy, program and the function of its ONNX file."""
    policy = fresh_policy(BY_NAME[name])
    program = PolicyProgram(policy, **settings)
    return policy, program, load(file_of(program, contract_of(program, policy)), {})


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A checkpoint, the file that the command made of it, and what the command printed."""
    folder = tmp_path_factory.mktemp("exported")
    save_fresh(folder / "saved", fresh_policy(BY_NAME["a2c, mlp, normalised"]))
    command = ["export", str(folder / "saved"), str(folder / "policy.onnx"), "--all", "--time-step", "0.02"]
    done = subprocess.run([sys.executable, "-m", "penstock.cli", *command], capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stderr
    return folder, done.stdout


@pytest.fixture
def copied(exported, tmp_path):
    """A copy of the file with its contract, to spoil."""
    for name in ("policy.onnx", "policy.onnx.json"):
        (tmp_path / name).write_bytes((exported[0] / name).read_bytes())
    return tmp_path / "policy.onnx"


@pytest.mark.parametrize("sampled", [False, True])
@pytest.mark.parametrize("name", BY_NAME)
def test_the_program_of_a_policy_gives_the_actions_of_act(name, sampled):
    policy = fresh_policy(BY_NAME[name])
    program = PolicyProgram(policy, sampled=sampled, everything=True)
    with torch.no_grad():
        found = compared(policy, program, lambda inputs: run_program(program, inputs), rows=30, steps=10)
    assert found.difference <= TOLERANCE and found.other_choices == 0


@pytest.mark.parametrize(
    ("name", "sampled"),
    [pytest.param(RICH, True, marks=pytest.mark.long), ("dqn, C51, mask in info", False)],
)
def test_the_file_of_a_policy_gives_the_actions_of_act(name, sampled):
    policy, program, run = as_file(name, sampled=sampled, everything=True)
    found = compared(policy, program, run)
    assert found.difference <= TOLERANCE and found.other_choices == 0
    for rows in (1, 2, 7):
        inputs = arrays_of(program, rows, seed=rows)
        assert all(len(array) == rows for array in run(inputs).values())


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.long) for name in BY_NAME]
)
def test_the_files_of_all_policies_give_the_actions_of_act(name):
    policy, program, run = as_file(name)
    found = compared(policy, program, run)
    assert found.difference <= TOLERANCE and found.other_choices == 0


@pytest.mark.long
def test_the_command_writes_a_file_that_anybody_with_onnxruntime_can_run(exported):
    folder, printed = exported
    policy = penstock.load_policy(folder / "saved")
    observed = np.random.default_rng(0).standard_normal((5, 6), np.float32)
    found = load(folder / "policy.onnx", {})({"obs": observed})
    assert found["action"].tolist() == policy.act(observed).tolist()
    with torch.no_grad():
        choice, value = policy.model.evaluate(torch.from_numpy(observed))
    np.testing.assert_allclose(found["value"], policy.model.denormalize_value(value), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(found["log_prob"], choice.log_prob(choice.mode()), rtol=1e-5, atol=1e-5)
    assert "inputs: obs float32 [N, 6]" in printed and "outputs: action int64 [N], log_prob" in printed


@pytest.mark.long
def test_the_contract_describes_the_file_and_lies_in_its_metadata_too(exported):
    folder, _ = exported
    contract = json.loads((folder / "policy.onnx.json").read_text())
    model = onnx.load(folder / "policy.onnx")
    inside = json.loads(next(each.value for each in model.metadata_props if each.key == KEY))
    assert inside == contract
    assert [each.version for each in model.opset_import if not each.domain] == [OPSET]
    assert contract["versions"]["opset"] == OPSET
    (port,) = contract["inputs"]
    assert port["name"] == "obs" and port["shape"] == ["N", 6] and port["unit"] == [""] * 6
    assert port["seen as"] == "minus its running mean, divided by its running standard deviation"
    assert contract["outputs"][0]["values"] == [5] and contract["outputs"][0]["start"] == [-2]
    assert contract["time_step"] == {"seconds": 0.02, "frame_stack": None}
    assert contract["versions"]["torch"] == version("torch") and contract["policy"]["algorithm"] == "a2c"
    assert str(folder) not in str(model) and penstock.__path__[0] not in str(model), "paths of the machine"


def test_the_contract_has_the_stacked_frames_and_the_statistics_of_wrappers(tmp_path, capsys):
    statistics = Moments("NormalizeObservation.obs_rms", 9.0, np.zeros(4), np.full(4, 2.0)).to_json()
    policy = fresh_policy(Kind("ppo", "frames", spaces.Box(0, 255, (4, 12, 12), np.uint8), MOVES))
    policy.algorithm.observation = dataclasses.replace(policy.algorithm.observation, is_stacked=True)
    save_fresh(tmp_path / "saved", Policy(policy.algorithm, policy.model, {**policy.meta, "statistics": [statistics]}))
    assert main(["export", str(tmp_path / "saved"), str(tmp_path / "policy.pt2")]) == 0
    contract = json.loads((tmp_path / "policy.pt2.json").read_text())
    assert contract["time_step"]["frame_stack"] == {"obs": 4} and contract["wrappers"] == [statistics]
    printed = capsys.readouterr().out
    assert "stacked frames: obs 4" in printed
    assert "wrappers of its environment (NormalizeObservation.obs_rms)" in printed


def test_a_file_that_keeps_its_contract_passes_the_check(copied, capsys):
    assert main(["export", "--check", str(copied)]) == 0
    assert "4 cases agree, within 1e-05" in capsys.readouterr().out
    (copied.parent / "policy.onnx.json").unlink()
    assert check_file(copied)[1] == 4, "the contract within the file"


def test_a_file_that_answers_otherwise_fails_the_check(copied, capsys):
    model = onnx.load(copied)
    bias = next(each for each in model.graph.initializer if each.name.endswith("policy_head.bias"))
    other = onnx.numpy_helper.to_array(bias) + np.float32([0, 0, 0, 0, 99])
    bias.CopyFrom(onnx.numpy_helper.from_array(other, bias.name))
    onnx.save(model, copied)
    assert main(["export", "--check", str(copied)]) == 2
    assert "does not keep its contract: in case 0, action[0] is 2 instead of" in capsys.readouterr().err


def renamed(contract):
    contract["inputs"][0]["name"] = "x"
    for case in contract["cases"]:
        case["inputs"] = {"x": case["inputs"]["obs"]}


def narrower_cases(contract):
    for case in contract["cases"]:
        case["inputs"]["obs"] = [row[:3] for row in case["inputs"]["obs"]]


def narrower(contract):
    contract["inputs"][0]["shape"] = ["N", 3]
    narrower_cases(contract)


SPOILT = (
    (narrower, "does not fit its contract: "),
    (narrower_cases, r"in case 0, obs has the shape \[1, 3\] instead of \[1, 4\]"),
    (lambda contract: contract.update(cases=[]), "has no case, so nothing can be checked"),
    (lambda contract: contract["cases"][1]["outputs"].clear(), "in case 1, outputs are none instead of action"),
    (
        lambda contract: contract["inputs"][0].update(dtype="object"),
        r'inputs\[0\]\.dtype is "object", not "float16" or',
    ),
    (lambda contract: contract["inputs"][0].update(shape=["N", "4"]), "obs has the shape"),
)


@pytest.mark.long
@pytest.mark.parametrize("suffix", [".onnx", ".pt2", pytest.param(".c", marks=needs_compiler)])
def test_a_contract_that_does_not_fit_is_refused(suffix, tmp_path):
    path = tmp_path / f"policy{suffix}"
    contract = json.dumps(fresh_policy(BY_NAME["ppo, mlp"]).export(path))
    for spoil, message in SPOILT if suffix == ".c" else (*SPOILT, (renamed, "it refuses the inputs of case 0: ")):
        spoilt = json.loads(contract)
        spoil(spoilt)
        (tmp_path / f"{path.name}.json").write_text(json.dumps(spoilt))
        with pytest.raises(ExportError, match=message):
            check_file(path)


def test_a_file_that_cannot_be_written_leaves_nothing(tmp_path, monkeypatch):
    policy, mine = fresh_policy(BY_NAME["ppo, mlp"]), tmp_path / "worlds.py"
    mine.write_text("mine")
    with pytest.raises(ExportError, match=r"policy\.pt2 cannot be written: File exists \(.*worlds\.py\)"):
        policy.export(mine / "policy.pt2")

    def write_on_a_full_disk(path, data):
        path.write_bytes(data[:100])
        if path.suffix == ".json":
            raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr("penstock.export.write_file", write_on_a_full_disk)
    with pytest.raises(ExportError, match=r"policy\.pt2 cannot be written: No space left on device"):
        policy.export(tmp_path / "new" / "folder" / "policy.pt2")
    assert [each.name for each in tmp_path.iterdir()] == ["worlds.py"] and mine.read_text() == "mine"


@pytest.mark.parametrize("seconds", [-1.0, 0.0, float("nan"), float("inf")])
def test_a_time_step_is_finite_and_above_0(tmp_path, seconds):
    with pytest.raises(ExportError, match="is not legal: give seconds, finite and above 0"):
        fresh_policy(BY_NAME["ppo, mlp"]).export(tmp_path / "policy.onnx", time_step=seconds)


@pytest.mark.parametrize("name", ["policy.onnx", "policy.onnx.json"])
def test_nothing_that_exists_is_overwritten(tmp_path, name):
    (tmp_path / name).write_text("mine")
    with pytest.raises(ExportError, match=f"{name} exists"):
        export_policy(fresh_policy(BY_NAME["ppo, mlp"]), tmp_path / "policy.onnx")
    assert [each.name for each in tmp_path.iterdir()] == [name] and (tmp_path / name).read_text() == "mine"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["policy.pickle"], "formats are onnx (.onnx), torch (.pt2), c (.c)"),
        (["--format", "onnx", "policy.pt"], "files of the format onnx have .onnx"),
        ([], "give a run and a new file"),
    ],
)
def test_wrong_usage_says_what_is_legal(exported, tmp_path, monkeypatch, capsys, arguments, message):
    monkeypatch.chdir(tmp_path)
    assert main(["export", str(exported[0] / "saved"), *arguments]) == 2
    assert message in capsys.readouterr().err and not list(tmp_path.iterdir())


class Branching(nn.Module):
    """Encoder whose way depends on values, which no graph can follow."""

    def __init__(self, observation):
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x):
        return self.layer(x) if x.sum() > 0 else -self.layer(x)


class Deaf(nn.Module):
    """Encoder that answers with values computed once from another observation: a graph without inputs."""

    def __init__(self, observation):
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x):
        return self.layer(torch.ones(4)).expand(x.shape[0], 3)


@pytest.mark.long
@pytest.mark.parametrize(
    ("encoder", "message"),
    [(Branching, "cannot trace this network"), (Deaf, r"no node of the graph reads an input \(obs\)")],
)
def test_a_network_that_no_graph_can_hold_is_refused_with_the_reason(tmp_path, encoder, message):
    policy = fresh_policy(Kind("ppo", "own", VECTOR, MOVES, {"encoder": encoder}))
    with pytest.raises(ExportError, match=message):
        policy.export(tmp_path / "policy.onnx")
    assert not list(tmp_path.iterdir())


def test_a_graph_that_lacks_a_declared_input_is_refused():
    node = onnx.helper.make_node("Identity", ["obs"], ["action"])
    ports = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1]) for name in ("obs", "action")]
    graph = onnx.helper.make_graph([node], "policy", ports[:1], ports[1:])
    require_inputs(["obs"], graph)
    with pytest.raises(ExportError, match="the graph has the inputs obs, and the program has obs, mask"):
        require_inputs(["obs", "mask"], graph)


def test_a_program_that_differs_from_act_is_refused(monkeypatch):
    policy = fresh_policy(BY_NAME["sac, mlp"])
    program = PolicyProgram(policy)
    forward = program.forward
    monkeypatch.setattr(program, "forward", lambda inputs: {"action": forward(inputs)["action"] + 1e-3})
    with pytest.raises(ExportError, match=r"differs from Policy\.act in case 0: action"):
        contract_of(program, policy)


def test_choices_are_equal_and_only_large_rounded_integers_may_differ_by_one():
    found = {"action": np.array([4_001, 100_000])}
    assert not difference({"action": np.array([4_001, 100_001])}, found, TOLERANCE, {"action"})
    assert "action[0] is 4001" in difference({"action": np.array([4_002, 100_000])}, found, TOLERANCE, {"action"})
    assert "action[1] is 100000" in difference({"action": np.array([4_001, 100_001])}, found, TOLERANCE)
    numbers = {"value": np.array([1.0, 1e6], np.float32)}
    assert not difference(numbers, {"value": np.float32([1.000009, 1e6 + 9])}, TOLERANCE)
    assert "value[0] is nan" in difference(numbers, {"value": np.float32([np.nan, 1e6])}, TOLERANCE)


def test_cases_with_memory_are_steps_of_which_some_begin_episodes():
    policy = fresh_policy(BY_NAME[RICH])
    program = PolicyProgram(policy)
    cases = cases_in(json.loads(json.dumps(contract_of(program, policy))))
    assert [len(case["inputs"]["first"]) for case in cases] == [1, 3, 3, 3]
    assert np.array_equal(cases[2]["inputs"]["state_in"], cases[1]["outputs"]["state_out"])
    assert any(case["inputs"]["first"].any() and not case["inputs"]["first"].all() for case in cases[2:])
    for case in cases:
        again = acted(policy, case["inputs"], program)
        assert all(np.array_equal(case["outputs"][name], array) for name, array in again.items())


@pytest.mark.parametrize("name", ["laser, Dict", "ppo, Tuple, MultiDiscrete"])
def test_a_policy_that_has_acted_on_nested_observations_is_exported_and_acts_on(name):
    policy, kind = fresh_policy(BY_NAME[name]), BY_NAME[name]
    observation = kind.observation.sample()
    assert kind.action.contains(policy.act(observation, deterministic=True))
    assert cases_in(json.loads(json.dumps(contract_of(PolicyProgram(policy), policy))))
    assert kind.action.contains(policy.act(observation, deterministic=True))


def test_a_policy_of_several_is_exported_by_its_name(tmp_path, capsys):
    run = tmp_path / "run"
    with penstock.PPO(
        env="CartPole-v1", policies={"left": {}, "right": {}}, run_dir=run, backend="serial", num_workers=1,
        num_envs_per_worker=4, segment_length=8, batch_size=16, num_epochs=1, hidden_sizes=(8,), total_steps=32,
        eval_interval=0,
    ) as trainer:  # fmt: skip
        trainer.train(quiet=True)
    assert main(["export", str(run), str(tmp_path / "right.onnx")]) == 2
    assert "say which policy is meant" in capsys.readouterr().err
    assert main(["export", str(run), str(tmp_path / "right.onnx"), "--policy", "right"]) == 0
    assert "inputs: obs float32 [N, 4]" in capsys.readouterr().out and check_file(tmp_path / "right.onnx")[1] == 4
