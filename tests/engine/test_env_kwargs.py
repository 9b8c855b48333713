"""Arguments of environments: saved with their types, or requested by name when a run is resumed."""

import json
import math
import re
from pathlib import Path

import gymnasium
import numpy as np
import pytest

import penstock
from penstock.cli import main
from penstock.config import ConfigError
from penstock.config.saved import LARGEST, NOT_SAVED, restored, saved
from penstock.play.scoring import evaluate_run
from penstock.serialization import packed
from tests.engine.inside import policy_of

SERIAL = {"backend": "serial", "num_workers": 1, "num_envs_per_worker": 2, "segment_length": 8, "batch_size": 16}


class Table(gymnasium.Env):
    """Takes arguments of all kinds, and accepts them only unchanged."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, table, start, small):
        assert isinstance(table, np.ndarray) and table.shape == (100, 10) and table[0, 2] == 2.0
        assert start == (1, math.inf) and small.dtype == np.int8 and small.tolist() == [1, 2]

    def reset(self, *, seed=None, options=None):
        return np.zeros(1, np.float32), {}

    def step(self, action):
        return np.zeros(1, np.float32), 0.0, False, True, {}


def table(width=10):
    return np.arange(100.0 * width).reshape(100, width)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    path = tmp_path_factory.mktemp("table") / "run"
    kwargs = {"table": table(), "start": (1, math.inf), "small": np.array([1, 2], np.int8)}
    with penstock.PPO(env=Table, env_kwargs=kwargs, total_steps=16, run_dir=path, **SERIAL) as algo:
        algo.train(quiet=True)
    return path


def test_what_json_cannot_hold_is_marked(run):
    assert json.loads((run / "config.json").read_text())["env_kwargs"] == {
        "table": {NOT_SAVED: "numpy.ndarray float64 (100, 10)"},
        "start": {"$tuple": [1, {"$float": "inf"}]},
        "small": {"$array": [1, 2], "shape": [2], "dtype": "int8"},
    }


def test_resume_asks_for_it_by_name(run, capsys):
    with pytest.raises(ConfigError, match=r"'table' \(numpy.ndarray float64 \(100, 10\)\).*\"table\": ..."):
        penstock.PPO.resume(run, total_steps=32)
    assert main(["resume", str(run), "--total-steps", "32"]) == 2
    assert "'table' (numpy.ndarray float64 (100, 10))" in capsys.readouterr().err


def test_given_again_the_run_goes_on_and_a_change_is_noted(run):
    with penstock.PPO.resume(run, total_steps=32, env_kwargs={"table": table()}) as algo:
        algo.train(quiet=True)
        assert algo.status.steps == 32
    noted = (run / "log.txt").read_text().splitlines()
    assert next(line for line in noted if "resumed at" in line).endswith("with total_steps=32 (was 16)")
    other = {"table": table(11)[:, :10], "start": (1, math.inf)}
    with penstock.PPO.resume(run, total_steps=48, env_kwargs=other) as algo:
        assert algo.status.steps == 32
    assert evaluate_run(run, episodes=1, env_kwargs={"table": table()}).episodes == 1
    assert penstock.load_policy(run).act(np.zeros(1, np.float32)) in (0, 1), "no environment is made"


class Content(Table):
    """Writes into any table."""

    def __init__(self, table):
        table[:] = 1.0


def test_roles_and_the_log_hold_no_copy_of_a_large_argument(tmp_path):
    large, run = np.zeros(400_000), tmp_path / "run"
    with penstock.PPO(env=Content, env_kwargs={"table": large}, total_steps=16, run_dir=run, **SERIAL) as algo:
        algo.train(quiet=True)
        assert len(packed(policy_of(algo).algorithm)) < 20_000
    assert large.sum() == large.size, "in this process the environment has the very array"
    assert re.search(r"arguments of the environment: 3\.[12] MiB of memory", (run / "log.txt").read_text())
    assert json.loads((run / "config.json").read_text())["env_kwargs"] == {
        "table": {NOT_SAVED: "numpy.ndarray float64 (400000,)"}
    }


@pytest.mark.parametrize(
    "value",
    [
        {"a": [1, 2.5, None, True, "x"], "b": {}},
        (1, (2, [3, (4,)])),
        {1: "one", (2, 3): "two"},
        -math.inf,
        Path("maps/a.txt"),
        np.float32(0.5),
        np.bool_(True),
    ],
)
def test_values_survive_json(value):
    found = restored(json.loads(json.dumps(saved(value), allow_nan=False)))
    assert found == value and saved(saved(value)) == saved(value)


def test_arrays_survive_json_up_to_a_size():
    small = np.array([[1.0, math.nan], [-math.inf, 0.1]], np.float32)
    found = restored(json.loads(json.dumps(saved(small), allow_nan=False)))
    np.testing.assert_array_equal(found, small)
    assert found.dtype == small.dtype
    assert NOT_SAVED not in saved(np.zeros(LARGEST)) and NOT_SAVED in saved(np.zeros(LARGEST + 1))
    assert saved([math.sin, object()]) == [
        {NOT_SAVED: "builtin_function_or_method math.sin"}, {NOT_SAVED: "object"}
    ]  # fmt: skip
