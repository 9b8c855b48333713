"""What environments do to the process that they are made in does not reach the user's, in any backend."""

import os
import threading
import time

import numpy as np
import pytest
import rich.style  # noqa: F401 - draws from the generator of `random` when it is imported
import torch

import penstock
from penstock.engine.backends import apart as apart_module
from penstock.engine.backends import launcher
from penstock.engine.backends.apart import NoAnswer, apart
from penstock.envs.failures import EnvironmentFailure
from penstock.envs.single import SingleLanes
from penstock.runs.run_directory import RunDirectory
from tests.engine.rude import RudeEnv, state_of_process
from tests.envs.faulty import FaultyEnv

TINY = {
    "num_workers": 1, "num_envs_per_worker": 2, "segment_length": 8, "batch_size": 16, "num_epochs": 1,
    "total_steps": 32, "eval_interval": 16, "eval_episodes": 1, "hidden_sizes": (4,),
}  # fmt: skip

OWN_FILE = """
import os

from torch import nn

from tests.envs.playing import InTurn


class Turns(InTurn):
    def __init__(self):
        super().__init__(2, 5, ("terminated", "truncated"))
        os.chdir("/")


class Encoder(nn.Linear):
    def __init__(self, observation):
        super().__init__(observation.shape[0], 4)


class Last:
    def __call__(self, observation):
        return 1


def falling(progress):
    return 1e-3 * (1.0 - progress)
"""

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def double():
    """The user's own default of torch, which the engine's networks do not follow."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("backend", ["serial", "local"])
def test_a_rude_environment_leaves_the_users_process_as_it_was_and_the_run_in_one_place(
    backend, tmp_path, monkeypatch, double
):
    monkeypatch.chdir(tmp_path)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    found, in_training = state_of_process(), state_of_process(with_endings=False)
    threads, seen = threading.active_count(), []
    with penstock.PPO(
        RudeEnv, env_kwargs={"elsewhere": str(elsewhere)}, backend=backend, run_dir="run", **TINY
    ) as algo:
        assert state_of_process() == found

        def look(_):
            seen.append(state_of_process(with_endings=False) == in_training)

        algo.train(quiet=True, on_update=look)
        assert seen and all(seen)
        assert state_of_process() == found
        makers = {file.name for file in elsewhere.iterdir()}
        assert (makers == {f"made-by-{os.getpid()}"}) is (backend == "serial")
        if backend == "local":
            assert f"made-by-{os.getpid()}" not in makers and threading.active_count() <= threads
        assert algo.evaluate(2).episodes == 2
        assert algo.run_dir == str(tmp_path / "run")
        weights = {tensor.dtype for name, tensor in algo.get_parameters()[0].items() if name.endswith("weight")}
        assert weights == {torch.float32}
    assert state_of_process() == found
    assert {file.name for file in elsewhere.iterdir()} == makers | {f"made-by-{os.getpid()}"}
    run = tmp_path / "run"
    assert (run / "status.json").is_file() and (run / "evaluations.jsonl").is_file()
    store = RunDirectory.open(run).checkpoints
    assert store.steps()[-1] >= 32 and store.has_best()
    assert penstock.load_policy("run").act(np.zeros(2, np.float32)) in (0, 1)
    assert torch.get_default_dtype() == torch.float64


@pytest.mark.long
@pytest.mark.parametrize("backend", ["serial", "local"])
def test_settings_name_files_relative_to_the_users_working_directory_wherever_environments_go(
    backend, tmp_path, monkeypatch
):
    (tmp_path / "own.py").write_text(OWN_FILE)
    monkeypatch.chdir(tmp_path)
    policies = {"a": {"agents": "*0", "learning_rate": "own.py:falling"}, "b": {"agents": "*1"}}
    settings = {**TINY, "encoder": "own.py:Encoder", "eval_against": ("own.py:Last",), "policies": policies}
    with penstock.PPO("own.py:Turns", backend=backend, run_dir="run", **settings) as algo:
        assert (algo.config.encoder, algo.config.eval_against) == ("own.py:Encoder", ("own.py:Last",))
        algo.train(quiet=True)
        of_training, scored = algo.status.eval_matches, algo.evaluate(2)
        matches = [match for evaluation in scored.values() for match in evaluation.matches]
        assert {match.opponent for match in (*of_training, *matches)} == {"Last"}
    written = RunDirectory.open(tmp_path / "run").config
    assert (written["encoder"], written["eval_against"]) == (f"{tmp_path}/own.py:Encoder", [f"{tmp_path}/own.py:Last"])


def test_global_generators_are_seeded_by_the_run_and_counters_of_the_script_count_in_its_own_process(tmp_path):
    def returns(seed):
        made = []
        settings = {"elsewhere": str(tmp_path), "made": made}
        with penstock.PPO(
            RudeEnv, env_kwargs=settings, backend="serial", run_dir=None, seed=seed, **{**TINY, "eval_interval": 0}
        ) as algo:
            trained = algo.train(quiet=True).mean_return
            before = len(made)
            scored = algo.evaluate(2, seed=seed).returns, algo.evaluate(2, seed=seed + 1).returns
        assert 0 < before < len(made)
        return trained, *scored

    first = returns(1)
    np.random.random()
    assert returns(1) == first
    assert len({*first[1], *first[2], *returns(2)[1]}) > 2


class DiesWhenMadeError(Exception):
    """An exception that cannot travel."""

    def __init__(self, one, other):
        super().__init__(one)


def raise_what_cannot_travel():
    raise DiesWhenMadeError(1, 2)


def interrupt():
    raise KeyboardInterrupt


def step_into_an_interrupt():
    lanes = SingleLanes([FaultyEnv(step_answers={1: KeyboardInterrupt()})], [0], name="faulty", first_lane=12)
    lanes.reset()
    lanes.step(np.zeros(1, np.int64))


def test_what_is_looked_at_apart_answers_raises_or_dies_there_and_the_launcher_stays_fit_for_the_run():
    with launcher.kept():
        launcher.prepare()
        with launcher.lent() as lent:
            pid = lent.pid
        assert apart("it", os.getpid) not in (os.getpid(), pid)
        with pytest.raises(ValueError, match="invalid literal"):
            apart("it", int, "seven")
        with pytest.raises(EnvironmentFailure, match=r"it failed in make .*(.|\n)*DiesWhenMadeError: 1"):
            apart("it", raise_what_cannot_travel)
        with pytest.raises(EnvironmentFailure, match=r"it failed in make .*(.|\n)*KeyboardInterrupt"):
            apart("it", interrupt)
        with pytest.raises(EnvironmentFailure, match=r"faulty failed in step \(lane 12, step 1\)"):
            apart("faulty", step_into_an_interrupt)
        with pytest.raises(EnvironmentFailure, match="the process that made it to inspect it ended with exit status 3"):
            apart("it", os._exit, 3)
        with pytest.raises(NoAnswer, match=r"it: the process that made it to inspect it gave no answer within 0\.5 s"):
            apart("it", time.sleep, 600, limit=0.5)
        with launcher.lent() as lent:
            assert lent.pid == pid and lent.is_alive and lent.deaths() == []
    assert apart("it", os.getpid) == os.getpid()


def slowly(seconds):
    time.sleep(seconds)
    return "made"


def test_an_environment_that_is_slow_to_make_is_waited_for_and_the_user_reads_so_once(monkeypatch, capsys):
    monkeypatch.setattr(apart_module, "PATIENCE", 0.2)
    with launcher.kept():
        launcher.prepare()
        assert apart("it", slowly, 1.0) == "made"
        assert apart("it", slowly, 0.3, limit=60) == "made"
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("waiting for environment it: process ") and "penstock doctor --env ENV" in line
