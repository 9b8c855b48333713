"""Costs of a step's work alone, with settings so small that only the presence of figures is tested."""

import time

import numpy as np
import pytest
import torch

from penstock.algorithms import load_algorithm
from penstock.algorithms.appo import APPO
from penstock.bench import BenchError, rehearsals, work
from penstock.bench.costs import measure_costs, rounds_until
from penstock.bench.work import random_actions
from penstock.config import make_config
from penstock.envs.making import probe
from penstock.envs.spec import EnvSpec
from tests.bench.environments import Breaking, Sleeping
from tests.engine.collecting import Collecting
from tests.envs.masked import Strict

pytestmark = pytest.mark.timeout(120)

SMALL = {"num_workers": 1, "num_envs_per_worker": 2, "hidden_sizes": (8,)}


def measure(name, seconds=0.3, **settings):
    algorithm = load_algorithm(name)
    return measure_costs(algorithm, make_config(algorithm.Config, {**SMALL, **settings}), seconds=seconds)


@pytest.mark.parametrize(
    ("name", "settings", "capacity"),
    [
        ("ppo", {"segment_length": 8, "batch_size": 16, "memory": "gru", "memory_size": 4}, (1, 0, 1, True)),
        ("impala", {"segment_length": 8, "batch_size": 16, "inference": "central"}, (1, 1, 1, False)),
        ("a3c", {}, (1, 0, 0, False)),
        ("dqn", {"num_envs_per_worker": 1, "batch_size": 8, "backend": "serial"}, (1, 0, 1, True)),
    ],
)
def test_all_three_kinds_of_work_are_measured_of_every_kind_of_algorithm(name, settings, capacity):
    costs, found = measure(name, env="CartPole-v1", **settings)
    assert min(costs.env, costs.infer, costs.learn) > 0.0 and costs.device == 0.0
    assert (found.workers, found.policy_threads > 0, found.learner_threads > 0, found.takes_turns) == capacity


def test_an_environment_that_sleeps_costs_next_to_no_cpu_time_and_is_known_by_its_waiting():
    costs, _ = measure("sac", env=Sleeping, batch_size=4)
    assert costs.env < costs.env_wait and costs.env_wait > 0.0019


@pytest.mark.parametrize("at", ["info", "observation"])
def test_random_actions_are_legal_where_environments_say_which_are(at):
    costs, _ = measure("ppo", env=Strict, env_kwargs={"at": at}, segment_length=8, batch_size=16)
    assert costs.env > 0.0


def test_an_environment_that_fails_ends_the_bench_with_its_story():
    with pytest.raises(BenchError, match="the simulator is gone"):
        measure("sac", env=Breaking)


def test_random_actions_have_the_form_of_a_policys():
    _, action, *_ = probe(EnvSpec.resolve("CartPole-v1", {}, "make"))
    drawn = random_actions(action, 100, np.random.default_rng(0))
    assert drawn.shape == (100,) and drawn.dtype == np.int64 and set(drawn) == {0, 1}
    _, action, *_ = probe(EnvSpec.resolve("Pendulum-v1", {}, "make"))
    drawn = random_actions(action, 100, np.random.default_rng(0))
    assert drawn.shape == (100, 1) and drawn.dtype == np.float32 and np.abs(drawn).max() <= 1.0


class Counting:
    """Work of two steps at a time."""

    done = 0

    def do(self):
        self.done += 1
        return 2.0


def test_work_that_takes_longer_than_there_is_time_is_done_once(monkeypatch):
    monkeypatch.setattr("penstock.bench.costs.ROUND_SECONDS", 0.0)
    work = Counting()
    (only,) = rounds_until(work, time.monotonic() - 1.0)
    assert only.steps == 2.0 and work.done == 1 and only.cpu >= 0.0 and only.wall > 0.0


def test_on_a_gpu_work_begins_as_the_engine_does_and_waits_asleep(monkeypatch):
    heard = []

    class Event:
        def __init__(self, blocking=False):
            heard.append(f"blocking {blocking}")

        def record(self, stream):
            heard.append(f"behind {stream}")

        def synchronize(self):
            heard.append("waited")

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: f"what {device} was asked for")
    rehearsals.wait_for(torch.device("cpu"))
    assert heard == []
    rehearsals.wait_for(torch.device("cuda:1"))
    assert heard == ["blocking True", "behind what cuda:1 was asked for", "waited"]
    monkeypatch.setattr(rehearsals, "begin_on", heard.append)
    run = Collecting(APPO)
    work.Choosing(run.arena, run.algorithm, 4, "cpu").do()
    assert heard[3:] == ["cpu"]
    run.close()
