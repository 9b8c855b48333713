"""The settings that editors complete and type checkers check are those that there are."""

import ast
import dataclasses
import inspect
import os
import subprocess
import sys

import pytest

from penstock.algorithms import ALGORITHMS, load_algorithm
from penstock.engine.faces import Face
from tools.signatures import STUB, signatures

PROGRAM = """
import penstock

algo = penstock.PPO("CartPole-v1", learning_rate=1e-3, hidden_sizes=[64, 64], run_dir=None)
steps: int = algo.train(5).steps
release: str = penstock.__version__
penstock.PPO(env="CartPole-v1", learning_rat=1e-3)
penstock.PPO("CartPole-v1", memory="rnn")
penstock.DQN("CartPole-v1", num_epochs=3)
penstock.PPO("MlpPolicy", "CartPole-v1")
penstock.A3C("CartPole-v1", device="cuda")
"""

CONFIG = """
[mypy]
follow_imports = silent
ignore_missing_imports = true
[mypy-torch.*,numpy.*,gymnasium.*,rich.*,cloudpickle.*,tensorboard.*,safetensors.*]
follow_imports = skip
"""


def test_the_stub_is_in_step_with_the_configs():
    assert STUB.read_text() == signatures(), "write it anew: python tools/signatures.py"


def test_an_editor_shows_every_keyword_with_its_meaning_and_default():
    tree = ast.parse(STUB.read_text())
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}

    def documents(name: str) -> dict[str, str]:
        body = classes[name].body if name in classes else []
        own = {field.target.id: text.value.value for field, text in zip(body[::2], body[1::2], strict=False)}
        inherited = [documents(base.id) for base in classes[name].bases] if name in classes else []
        return {setting: text for each in [*inherited, own] for setting, text in each.items()}

    for name in ALGORITHMS:
        config = load_algorithm(name).Config
        shown = documents(config.__name__.replace("Config", "Settings"))
        assert shown.keys() == {field.name for field in dataclasses.fields(config)} - {"env"}
        assert all("Default:" in text for text in shown.values())


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_notebook_completes_the_settings_of_a_trainer_that_it_has_imported(name):
    trainer = next(face for face in Face.__subclasses__() if face.algorithm is load_algorithm(name))
    parameters = inspect.signature(trainer).parameters
    config = {field.name: field.default for field in dataclasses.fields(trainer.algorithm.Config)}
    assert parameters.keys() == config.keys() | {"preset"}
    assert parameters["learning_rate"].default == config["learning_rate"]
    assert [p.name for p in parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD] == ["env"]


@pytest.mark.timeout(240)
@pytest.mark.long
def test_a_type_checker_sees_every_setting_and_complains_of_others(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "mypy.ini").write_text(CONFIG)
    command = [sys.executable, "-m", "mypy", "--config-file", "mypy.ini", "program.py"]
    assert (STUB.parents[1] / "py.typed").is_file(), "without it nothing of an installed package is checked"
    environment = os.environ | {"MYPYPATH": str(STUB.parents[2])}
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False, env=environment)
    *found, _ = [line for line in done.stdout.splitlines() if "note:" not in line]
    assert [line.partition(" error: ")[0] for line in found] == [f"program.py:{n}:" for n in range(7, 12)], done.stdout
    assert 'Unexpected keyword argument "learning_rat" for "PPO"; did you mean "learning_rate"?' in found[0]
    assert "expected \"Literal['none', 'gru', 'lstm']\"" in found[1]
    assert 'Unexpected keyword argument "num_epochs" for "DQN"' in found[2]
    assert 'Too many positional arguments for "PPO"' in found[3]
    assert "expected \"Literal['cpu']\"" in found[4]
